"""What judges answered and spent."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "judge_cache",
        sa.Column("reading", sa.String(), nullable=False),
        sa.Column("judge", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("reading", name="pk_judge_cache"),
    )
    op.create_index("ix_judge_cache_created_at", "judge_cache", ["created_at"])
    op.create_table(
        "judge_spending",
        sa.Column("judge", sa.String(), nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("readings", sa.BigInteger(), nullable=False),
        sa.Column("calls", sa.BigInteger(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost_usd", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("judge", "day", name="pk_judge_spending"),
    )
    op.add_column("judgements", sa.Column("reading", sa.String(), nullable=True))
    op.create_index(
        "ix_judgements_reading",
        "judgements",
        ["reading"],
        sqlite_where=sa.text("reading IS NOT NULL"),
        postgresql_where=sa.text("reading IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("ix_judgements_reading", "judgements")
    with op.batch_alter_table("judgements") as judgements:
        judgements.drop_column("reading")
    op.drop_table("judge_spending")
    op.drop_table("judge_cache")
