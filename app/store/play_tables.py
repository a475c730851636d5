"""Tables of what people said to characters."""

from sqlalchemy import BigInteger, ForeignKey, Index, LargeBinary, String, Text
from sqlalchemy import Column as SqlColumn
from sqlmodel import Field

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
