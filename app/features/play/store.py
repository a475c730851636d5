"""What people said to characters: turns with their replies, and the salt that player ids are hashed with.

Every statement names the player, so nobody reads, marks or removes another player's turn.
"""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from sqlalchemy import (
    BigInteger,
    Connection,
    ForeignKey,
    Index,
    LargeBinary,
    String,
    Text,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy import Column as SqlColumn
from sqlmodel import Field

from app.domain.errors import Conflict
from app.domain.worlds import Talk
from app.features.play.model import Forgotten, PlayReply, PlayTurn, RememberedTurn, clean_line
from app.features.worlds.store_memories import (
    find_turn,
    forget_old,
    forget_player,
    forget_turns,
    memories,
    remember,
)
from app.store.database import StorePart, reads, writes
from app.store.statements import decode, encode, is_storable, to_micros, upsert_rows
from app.store.table_records import TableRecord, build_sequence_column, get_table


class PlayTurnTable(TableRecord, table=True):
    """`body` is JSON. `answered_at` is when the newest reply came: old turns are removed by it."""

    __tablename__ = "play_turns"
    __table_args__ = (
        Index("ix_play_turns_player", "player", "answered_at"),
        Index("ix_play_turns_age", "answered_at"),
    )
    turn_id: str = Field(primary_key=True)
    player: str
    body: str = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)
    answered_at: int = Field(sa_type=BigInteger)


class PlayReplyTable(TableRecord, table=True):
    """`body` is JSON."""

    __tablename__ = "play_replies"
    __table_args__ = (Index("ix_play_replies_turn", "turn_id", "sequence"), {"sqlite_autoincrement": True})
    sequence: int = Field(sa_column=build_sequence_column())
    turn_id: str = Field(
        sa_column=SqlColumn("turn_id", String(), ForeignKey("play_turns.turn_id", ondelete="CASCADE"), nullable=False)
    )
    reply_id: str = Field(unique=True)
    better: bool
    body: str = Field(sa_type=Text)


class PlaySaltTable(TableRecord, table=True):
    """One row: what player ids are hashed with."""

    __tablename__ = "play_salt"
    name: str = Field(primary_key=True)
    salt: bytes = Field(sa_type=LargeBinary)


class PlayForgottenTable(TableRecord, table=True):
    """When a player was forgotten last: what was asked before is not kept after."""

    __tablename__ = "play_forgotten"
    player: str = Field(primary_key=True)
    at: int = Field(sa_type=BigInteger)


play_turns = get_table(PlayTurnTable)
play_replies = get_table(PlayReplyTable)
play_salt = get_table(PlaySaltTable)
play_forgotten = get_table(PlayForgottenTable)
_SALT: Final = "player"


class PlayStore(StorePart):
    """Turns are found by their players alone."""

    async def load_salt(self) -> bytes:
        """Random, the same for the store's whole life: player ids are hashed with it."""
        return await self._find_salt() or await self._keep_salt(secrets.token_bytes(32))

    @reads
    def _find_salt(self, connection: Connection) -> bytes | None:
        return _load_salt(connection)

    @writes("play salt")
    def _keep_salt(self, connection: Connection, made: bytes) -> bytes:
        """The stored one: another replica may have been faster."""
        connection.execute(self.database.insert_new(play_salt), {"name": _SALT, "salt": made})
        return _load_salt(connection) or made

    @writes(lambda turn, *_, **__: f"play {turn.player}", locked=True)
    def add(
        self,
        connection: Connection,
        turn: PlayTurn,
        replies: Sequence[PlayReply],
        remembered: RememberedTurn | None = None,
        asked_at: datetime | None = None,
    ) -> None:
        """Adds replies to the turn, which is made where there is none. `remembered` is for a world that keeps
        memories. Conflict where the player was forgotten since it was asked."""
        _require_not_forgotten(connection, turn.player, asked_at or turn.created_at)
        stamp = to_micros(turn.created_at)
        row = {"turn_id": turn.turn_id, "player": turn.player, "body": encode(turn), "created_at": stamp}
        connection.execute(self.database.insert_new(play_turns), row | {"answered_at": stamp})
        connection.execute(update(play_turns).where(play_turns.c.turn_id == turn.turn_id).values(answered_at=stamp))
        rows = [
            {"turn_id": turn.turn_id, "reply_id": one.reply_id, "better": one.better, "body": encode(one)}
            for one in replies
        ]
        if rows:
            connection.execute(insert(play_replies), rows)
        if remembered is not None and remembered.former is not None:
            _remember_chosen(connection, remembered.former, stamp)
        if remembered is not None:
            remember(connection, remembered.talk, stamp)

    @reads
    def get(self, connection: Connection, player: str, turn_id: str) -> PlayTurn | None:
        """With its replies, the oldest first."""
        if not is_storable(turn_id):
            return None
        here = (play_turns.c.turn_id == turn_id, play_turns.c.player == player)
        body = connection.execute(select(play_turns.c.body).where(*here)).scalar()
        if body is None:
            return None
        statement = (
            select(play_replies.c.body, play_replies.c.better)
            .where(play_replies.c.turn_id == turn_id)
            .order_by(play_replies.c.sequence)
        )
        replies = [
            decode(PlayReply, text).model_copy(update={"better": bool(better)})
            for text, better in connection.execute(statement)
        ]
        return decode(PlayTurn, body).model_copy(update={"replies": tuple(replies)})

    @reads
    def list_turns(self, connection: Connection, player: str, limit: int) -> Sequence[PlayTurn]:
        """The newest, without their replies."""
        statement = (
            select(play_turns.c.body)
            .where(play_turns.c.player == player)
            .order_by(play_turns.c.answered_at.desc())
            .limit(limit)
        )
        return [decode(PlayTurn, body) for body in connection.execute(statement).scalars()]

    @reads
    def list_replies(self, connection: Connection, player: str, turn_ids: Sequence[str], limit: int) -> list[PlayReply]:
        """The newest of these turns, without saying which is the better one."""
        owned = select(play_turns.c.turn_id).where(play_turns.c.turn_id.in_(turn_ids), play_turns.c.player == player)
        statement = (
            select(play_replies.c.body)
            .where(play_replies.c.turn_id.in_(owned))
            .order_by(play_replies.c.sequence.desc())
            .limit(limit)
        )
        return [decode(PlayReply, text) for text in connection.execute(statement).scalars()]

    @writes(lambda _player, turn_id, _reply_id: f"play {turn_id}")
    def mark_better(self, connection: Connection, player: str, turn_id: str, reply_id: str) -> bool:
        """That reply alone is the better one of the turn. False where there is none."""
        if not is_storable(turn_id, reply_id):
            return False
        owned = select(play_turns.c.turn_id).where(play_turns.c.turn_id == turn_id, play_turns.c.player == player)
        here = (play_replies.c.turn_id.in_(owned), play_replies.c.reply_id == reply_id)
        if connection.execute(update(play_replies).where(*here).values(better=True)).rowcount == 0:
            return False
        others = (play_replies.c.turn_id == turn_id, play_replies.c.reply_id != reply_id)
        connection.execute(update(play_replies).where(*others).values(better=False))
        return True

    @writes("play removal")
    def remove(self, connection: Connection, player: str, turn_id: str | None = None) -> int:
        """The turn, or all of the player; how many were there."""
        if turn_id is not None and not is_storable(turn_id):
            return 0
        here = [play_turns.c.player == player, *([] if turn_id is None else [play_turns.c.turn_id == turn_id])]
        forget_turns(connection, player, turn_id)
        return connection.execute(delete(play_turns).where(*here)).rowcount

    @writes(lambda player, _: f"play {player}", locked=True)
    def forget(self, connection: Connection, player: str, at: datetime) -> Forgotten:
        """All that is remembered of the player, and the turns, which hold the same words."""
        upsert_rows(connection, play_forgotten, "at", [{"player": player, "at": to_micros(at)}])
        removed = forget_player(connection, player)
        turns = connection.execute(delete(play_turns).where(play_turns.c.player == player)).rowcount
        return Forgotten(removed=removed, turns=turns)

    @writes("play removal")
    def prune(self, connection: Connection, before: datetime) -> Forgotten:
        """Removes what is older, whoever's it is."""
        removed = forget_old(connection, to_micros(before))
        connection.execute(delete(play_forgotten).where(play_forgotten.c.at < to_micros(before)))
        old = play_turns.c.answered_at < to_micros(before)
        return Forgotten(removed=removed, turns=connection.execute(delete(play_turns).where(old)).rowcount)

    async def erase_removed(self) -> None:
        """From the file of the database too."""
        await self.database.erase_deleted([play_turns, play_replies, memories])


def _require_not_forgotten(connection: Connection, player: str, asked_at: datetime) -> None:
    at = connection.execute(select(play_forgotten.c.at).where(play_forgotten.c.player == player)).scalar()
    if at is not None and to_micros(asked_at) <= at:
        raise Conflict("the player was forgotten before the reply came")


def _remember_chosen(connection: Connection, former: Talk, stamp: int) -> None:
    """Of several replies to a line the one counts from which the conversation went on. What no policy said there, a
    client has changed: that is not remembered."""
    turn_id = find_turn(connection, former)
    if turn_id is None:
        return
    bodies = connection.execute(select(play_replies.c.body).where(play_replies.c.turn_id == turn_id)).scalars()
    said = {clean_line(decode(PlayReply, body).text) for body in bodies}
    if former.lines[-1].text in said:
        remember(connection, replace(former, turn_id=turn_id), stamp)


def _load_salt(connection: Connection) -> bytes | None:
    return connection.execute(select(play_salt.c.salt).where(play_salt.c.name == _SALT)).scalar()
