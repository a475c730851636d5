"""Worlds can be closed."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

IS_EXPANSION = True


def upgrade() -> None:
    op.add_column("worlds", sa.Column("closed_at", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("worlds", table_kwargs={"sqlite_autoincrement": True}) as worlds:
        worlds.drop_column("closed_at")
