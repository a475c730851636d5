"""Lines of players that models play. The first line of a key stays; a failure of the player's server gives way."""

from collections.abc import Collection, Sequence
from typing import Any, Final

from sqlalchemy import Connection, select, update

from app.domain.players import PlayedLine, StoredLines
from app.ports.players import PlayerLineStore
from app.store.database import StorePart, reads, writes
from app.store.statements import PreparedStatement, decode, encode, is_among
from app.store.tables import judgements, player_lines

_SELECT_LINES: Final = PreparedStatement(
    lambda postgres: select(
        player_lines.c.key,
        player_lines.c.body,
        select(judgements.c.sequence).where(judgements.c.reading == player_lines.c.key).exists().label("claimed"),
    ).where(is_among(player_lines.c.key, "asked", postgres))
)


class SqlPlayerLines(StorePart, PlayerLineStore):
    @reads
    def find_lines(self, connection: Connection, keys: Collection[str]) -> StoredLines:
        rows: Sequence[Sequence[Any]] = _SELECT_LINES.fetch(connection, asked=sorted(set(keys)))
        return {key: _read(body, claimed=bool(claimed)) for key, body, claimed in rows}

    @writes(lambda key, *_: f"player_lines {key}")
    def put(self, connection: Connection, key: str, task_id: str, played: PlayedLine) -> PlayedLine:
        row = {"key": key, "task_id": task_id, "body": encode(played), "created_at": self.database.read_clock()}
        connection.execute(self.database.insert_new(player_lines), row)
        here = player_lines.c.key == key
        body = connection.execute(select(player_lines.c.body).where(here).with_for_update()).scalar_one()
        stored = decode(PlayedLine, body)
        if body == row["body"] or not stored.passing:
            return stored
        connection.execute(update(player_lines).where(here).values(body=row["body"]))
        return played


def _read(body: str, *, claimed: bool) -> PlayedLine:
    played = decode(PlayedLine, body)
    if not claimed:
        return played
    return played.model_copy(update={"made": tuple([one.without_cost for one in played.made])})
