"""Limits of judges are shared by all processes of a database."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

IS_EXPANSION = True


def upgrade() -> None:
    op.create_table(
        "judge_limits",
        sa.Column("judge", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("judge", name="pk_judge_limits"),
    )


def downgrade() -> None:
    op.drop_table("judge_limits")
