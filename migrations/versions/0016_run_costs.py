"""What judging the groups of a run has cost, by hour; budgets of runs, and what is put aside for groups that are being
judged. Judgements from before are not counted: reading all of them would hold up the start."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

IS_EXPANSION = True


def upgrade() -> None:
    op.add_column("runs", sa.Column("budget_usd", sa.Float(), nullable=True))
    op.create_table(
        "run_costs",
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("environment", sa.String(), nullable=False),
        sa.Column("hour", sa.BigInteger(), nullable=False),
        sa.Column("groups", sa.BigInteger(), nullable=False),
        sa.Column("readings", sa.BigInteger(), nullable=False),
        sa.Column("calls", sa.BigInteger(), nullable=False),
        sa.Column("unpriced_calls", sa.BigInteger(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost_usd", sa.Float(), nullable=False),
        sa.Column("unanswered_calls", sa.BigInteger(), nullable=False),
        sa.Column("unanswered_tokens", sa.BigInteger(), nullable=False),
        sa.Column("unanswered_usd", sa.Float(), nullable=False),
        sa.Column("first_at", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run", "environment", "hour"),
    )
    op.create_table(
        "run_holds",
        sa.Column("group_id", sa.String(), nullable=False),
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("usd", sa.Float(), nullable=False),
        sa.Column("settled", sa.Boolean(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("group_id"),
    )
    op.create_index("ix_run_holds_run", "run_holds", ["run"])


def downgrade() -> None:
    op.drop_table("run_holds")
    op.drop_table("run_costs")
    with op.batch_alter_table("runs") as runs:
        runs.drop_column("budget_usd")
