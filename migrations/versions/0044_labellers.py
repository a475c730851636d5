"""The labeller is the caller: labels and items of the queue say whose key made them, and whom they were made for.

Those of before keep the names that were given, which nobody verified.
"""

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None

IS_EXPANSION = False


def upgrade() -> None:
    for table in ("labels", "label_leases"):
        op.add_column(table, sa.Column("on_behalf_of", sa.String(), nullable=False, server_default=sa.text("''")))
        op.add_column(table, sa.Column("verified", sa.Boolean(), nullable=False, server_default=sa.false()))
