"""Lines of players name their task. Null in those of before, and in those that a replica of before writes meanwhile."""

import sqlalchemy as sa
from alembic import op

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None

IS_EXPANSION = True


def upgrade() -> None:
    op.add_column("player_lines", sa.Column("task_id", sa.String(), nullable=True))
