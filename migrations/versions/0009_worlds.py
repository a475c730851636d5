"""Worlds of games: events, what they are found by, lorebooks."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def _numbers(*names: str) -> list["sa.Column[int]"]:
    return [sa.Column(name, sa.BigInteger(), nullable=False, autoincrement=False) for name in names]


def _ordered(name: str) -> "sa.Column[str]":
    return sa.Column(name, sa.String().with_variant(sa.String(collation="C"), "postgresql"), nullable=False)


def _worlds() -> None:
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "worlds",
        sa.Column("number", number, autoincrement=True, nullable=False),
        _ordered("name"),
        sa.Column("parent", sa.BigInteger(), nullable=True),
        sa.Column("branched_at", sa.BigInteger(), nullable=True),
        sa.Column("depth", sa.Integer(), nullable=False),
        *_numbers("events", "created_at"),
        sa.PrimaryKeyConstraint("number", name="pk_worlds"),
        sqlite_autoincrement=True,
    )
    op.create_index("uq_worlds_name", "worlds", ["name"], unique=True)
    op.create_table(
        "lorebooks",
        *_numbers("world"),
        _ordered("name"),
        sa.Column("body", sa.Text(), nullable=False),
        *_numbers("updated_at"),
        sa.PrimaryKeyConstraint("world", "name", name="pk_lorebooks"),
    )


def _events() -> None:
    op.create_table(
        "events",
        *_numbers("sequence", "world"),
        _ordered("event_id"),
        *_numbers("time"),
        sa.Column("withdrawn", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_events"),
    )
    op.create_index("uq_events_world_event_id", "events", ["world", "event_id"], unique=True)
    standing = sa.text("withdrawn = 0")
    op.create_index(
        "ix_events_standing",
        "events",
        ["world", "time", "event_id"],
        sqlite_where=standing,
        postgresql_where=standing,
    )
    op.create_table(
        "event_withdrawals",
        *_numbers("world", "sequence"),
        sa.PrimaryKeyConstraint("world", "sequence", name="pk_event_withdrawals"),
    )
    op.create_table(
        "event_successions",
        *_numbers("world"),
        sa.Column("superseded", sa.String(), nullable=False),
        *_numbers("time", "sequence"),
        sa.PrimaryKeyConstraint("world", "superseded", "time", "sequence", name="pk_event_successions"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "event_postings",
        *_numbers("key", "time", "sequence"),
        sa.PrimaryKeyConstraint("key", "time", "sequence", name="pk_event_postings"),
        sqlite_with_rowid=False,
    )


def upgrade() -> None:
    _worlds()
    _events()


def downgrade() -> None:
    for table in ("event_postings", "event_successions", "event_withdrawals", "events", "lorebooks", "worlds"):
        op.drop_table(table)
