"""What people said to characters, apart from training."""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

IS_EXPANSION = True


def upgrade() -> None:
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "play_turns",
        sa.Column("turn_id", sa.String(), nullable=False),
        sa.Column("player", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("answered_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("turn_id", name="pk_play_turns"),
    )
    op.create_index("ix_play_turns_player", "play_turns", ["player", "answered_at"])
    op.create_index("ix_play_turns_age", "play_turns", ["answered_at"])
    op.create_table(
        "play_replies",
        sa.Column("sequence", number, autoincrement=True, nullable=False),
        sa.Column("turn_id", sa.String(), nullable=False),
        sa.Column("reply_id", sa.String(), nullable=False),
        sa.Column("better", sa.Boolean(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_play_replies"),
        sa.ForeignKeyConstraint(
            ["turn_id"], ["play_turns.turn_id"], name="fk_play_replies_turn_id", ondelete="CASCADE"
        ),
        sa.UniqueConstraint("reply_id", name="uq_play_replies_reply_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_play_replies_turn", "play_replies", ["turn_id", "sequence"])
    op.create_table(
        "play_salt",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("salt", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_play_salt"),
    )


def downgrade() -> None:
    op.drop_table("play_salt")
    op.drop_table("play_replies")
    op.drop_table("play_turns")
