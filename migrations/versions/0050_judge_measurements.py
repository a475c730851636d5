"""Figures that commands measured of judges."""

import sqlalchemy as sa
from alembic import op

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None

IS_EXPANSION = True


def upgrade() -> None:
    op.create_table(
        "judge_measurements",
        sa.Column("judge", sa.String(), nullable=False),
        sa.Column("command_digest", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("judge", "command_digest", name="pk_judge_measurements"),
    )
