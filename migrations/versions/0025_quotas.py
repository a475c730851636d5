"""What keys use in a day, what is put aside for tasks that they were handed, and the runs that they may score."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

IS_EXPANSION = True


def upgrade() -> None:
    op.create_table(
        "key_usage",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("day", sa.BigInteger(), nullable=False),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("judge_tokens", sa.BigInteger(), nullable=False),
        sa.Column("judge_usd", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("key", "day", "part", name="pk_key_usage"),
    )
    op.create_table(
        "key_holds",
        sa.Column("hold", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("leases", sa.Integer(), nullable=False),
        sa.Column("judge_tokens", sa.BigInteger(), nullable=False),
        sa.Column("judge_usd", sa.Float(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("hold", name="pk_key_holds"),
    )
    op.create_index("ix_key_holds_key", "key_holds", ["key"])
    op.create_table(
        "key_admissions",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key", "run", name="pk_key_admissions"),
    )


def downgrade() -> None:
    op.drop_table("key_admissions")
    op.drop_table("key_holds")
    op.drop_table("key_usage")
