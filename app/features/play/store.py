"""What people said to characters: turns with their replies, and the salt that player ids are hashed with.

Every statement names the player, so nobody reads, marks or removes another player's turn.
"""

import secrets
from collections.abc import Sequence
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

from app.features.play.model import PlayReply, PlayStore, PlayTurn
from app.store.database import Database
from app.store.statements import decode, encode, is_storable, to_micros
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


play_turns = get_table(PlayTurnTable)
play_replies = get_table(PlayReplyTable)
play_salt = get_table(PlaySaltTable)
_SALT: Final = "player"


class SqlPlayStore(PlayStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def load_salt(self) -> bytes:
        stored = await self._database.read(_load_salt)
        if stored is not None:
            return stored
        made = secrets.token_bytes(32)
        return await self._database.write(lambda connection: _keep_salt(connection, self._database, made), "play salt")

    async def add(self, turn: PlayTurn, replies: Sequence[PlayReply]) -> None:
        await self._database.write(
            lambda connection: _add_replies(connection, self._database, turn, replies), f"play {turn.turn_id}"
        )

    async def get(self, player: str, turn_id: str) -> PlayTurn | None:
        if not is_storable(turn_id):
            return None
        return await self._database.read(lambda connection: _load_turn(connection, player, turn_id))

    async def list_turns(self, player: str, limit: int) -> Sequence[PlayTurn]:
        return await self._database.read(lambda connection: _list_turns(connection, player, limit))

    async def mark_better(self, player: str, turn_id: str, reply_id: str) -> bool:
        if not is_storable(turn_id, reply_id):
            return False
        return await self._database.write(
            lambda connection: _mark_better(connection, player, turn_id, reply_id), f"play {turn_id}"
        )

    async def remove(self, player: str, turn_id: str | None = None) -> int:
        if turn_id is not None and not is_storable(turn_id):
            return 0
        here = [play_turns.c.player == player, *([] if turn_id is None else [play_turns.c.turn_id == turn_id])]
        statement = delete(play_turns).where(*here)
        return await self._database.write(lambda connection: connection.execute(statement).rowcount, "play removal")

    async def prune(self, before: datetime) -> int:
        statement = delete(play_turns).where(play_turns.c.answered_at < to_micros(before))
        return await self._database.write(lambda connection: connection.execute(statement).rowcount, "play removal")


def _load_salt(connection: Connection) -> bytes | None:
    return connection.execute(select(play_salt.c.salt).where(play_salt.c.name == _SALT)).scalar()


def _keep_salt(connection: Connection, database: Database, made: bytes) -> bytes:
    """The stored one: another replica may have been faster."""
    connection.execute(database.insert_new(play_salt), {"name": _SALT, "salt": made})
    return _load_salt(connection) or made


def _add_replies(connection: Connection, database: Database, turn: PlayTurn, replies: Sequence[PlayReply]) -> None:
    stamp = to_micros(turn.created_at)
    row = {"turn_id": turn.turn_id, "player": turn.player, "body": encode(turn), "created_at": stamp}
    connection.execute(database.insert_new(play_turns), row | {"answered_at": stamp})
    connection.execute(update(play_turns).where(play_turns.c.turn_id == turn.turn_id).values(answered_at=stamp))
    rows = [
        {"turn_id": turn.turn_id, "reply_id": one.reply_id, "better": one.better, "body": encode(one)}
        for one in replies
    ]
    if rows:
        connection.execute(insert(play_replies), rows)


def _load_turn(connection: Connection, player: str, turn_id: str) -> PlayTurn | None:
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


def _list_turns(connection: Connection, player: str, limit: int) -> list[PlayTurn]:
    statement = (
        select(play_turns.c.body)
        .where(play_turns.c.player == player)
        .order_by(play_turns.c.answered_at.desc())
        .limit(limit)
    )
    return [decode(PlayTurn, body) for body in connection.execute(statement).scalars()]


def _mark_better(connection: Connection, player: str, turn_id: str, reply_id: str) -> bool:
    owned = select(play_turns.c.turn_id).where(play_turns.c.turn_id == turn_id, play_turns.c.player == player)
    here = (play_replies.c.turn_id.in_(owned), play_replies.c.reply_id == reply_id)
    if connection.execute(update(play_replies).where(*here).values(better=True)).rowcount == 0:
        return False
    others = (play_replies.c.turn_id == turn_id, play_replies.c.reply_id != reply_id)
    connection.execute(update(play_replies).where(*others).values(better=False))
    return True
