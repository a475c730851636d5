"""A world may keep memories of talk: what players and characters said to each other, with an index of its words."""

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None

IS_EXPANSION = True


def upgrade() -> None:
    op.add_column("worlds", sa.Column("memory", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_table(
        "talk_memories",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False, autoincrement=True),
        sa.Column("memory_id", sa.String(), nullable=False),
        sa.Column("player", sa.String(), nullable=False),
        sa.Column("world", sa.BigInteger(), nullable=False),
        sa.Column("character", sa.String(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=True),
        sa.Column("said_at", sa.BigInteger(), nullable=False),
        sa.Column("place", sa.String(), nullable=False),
        sa.Column("turn_id", sa.String(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_talk_memories"),
        sa.UniqueConstraint("memory_id", name="uq_talk_memories_memory_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_talk_memories_player", "talk_memories", ["player", "character", "world", "number"])
    op.create_index("ix_talk_memories_turn_id", "talk_memories", ["turn_id"])
    op.create_index("ix_talk_memories_said_at", "talk_memories", ["said_at"])
    op.create_index("ix_talk_memories_world", "talk_memories", ["world"])
    op.create_table(
        "talk_words",
        sa.Column("word", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("number", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.ForeignKeyConstraint(["number"], ["talk_memories.number"], name="fk_talk_words_number", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("word", "number", name="pk_talk_words"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_talk_words_number", "talk_words", ["number"])
    op.create_table(
        "play_forgotten",
        sa.Column("player", sa.String(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("player", name="pk_play_forgotten"),
    )
