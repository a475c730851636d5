"""Answers of others' servers to episodes that run on them."""

import sqlalchemy as sa
from alembic import op

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None

IS_EXPANSION = True


def upgrade() -> None:
    op.create_table(
        "hosted_steps",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_hosted_steps"),
    )
    op.create_index("ix_hosted_steps_created_at", "hosted_steps", ["created_at"])
