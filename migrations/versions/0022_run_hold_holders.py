"""Whose process put aside what of a run's budget, so that what a dead one held is free at once."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

IS_EXPANSION = True


def upgrade() -> None:
    op.add_column("run_holds", sa.Column("holder", sa.String(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("run_holds") as holds:
        holds.drop_column("holder")
