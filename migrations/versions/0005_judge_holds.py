"""What is put aside for judges' calls under way, and what calls without an answer may have cost."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "judge_holds",
        sa.Column("hold", sa.String(), nullable=False),
        sa.Column("judge", sa.String(), nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("used_tokens", sa.BigInteger(), nullable=False),
        sa.Column("used_usd", sa.Float(), nullable=False),
        sa.Column("open_tokens", sa.BigInteger(), nullable=False),
        sa.Column("open_usd", sa.Float(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("hold", name="pk_judge_holds"),
    )
    op.create_index("ix_judge_holds_judge", "judge_holds", ["judge"])
    for name, kind in (
        ("unanswered_calls", sa.BigInteger()),
        ("unanswered_tokens", sa.BigInteger()),
        ("unanswered_usd", sa.Float()),
    ):
        op.add_column("judge_spending", sa.Column(name, kind, nullable=False, server_default=sa.text("0")))


def downgrade() -> None:
    with op.batch_alter_table("judge_spending") as spending:
        for name in ("unanswered_usd", "unanswered_tokens", "unanswered_calls"):
            spending.drop_column(name)
    op.drop_index("ix_judge_holds_judge", "judge_holds")
    op.drop_table("judge_holds")
