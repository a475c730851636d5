"""The data set of each task, so that statistics can be broken down by it."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

IS_EXPANSION = True


def upgrade() -> None:
    op.add_column("tasks", sa.Column("dataset", sa.Text(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("tasks") as tasks:
        tasks.drop_column("dataset")
