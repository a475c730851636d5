"""How the scores of a group were made of its judgements, as the panel wrote it down."""

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

IS_EXPANSION = True


def upgrade() -> None:
    op.add_column("groups", sa.Column("making", sa.Text(), nullable=True))
