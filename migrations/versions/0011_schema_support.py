"""The oldest schema whose service runs on this one."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

IS_EXPANSION = True


def upgrade() -> None:
    op.create_table(
        "schema_support",
        sa.Column("oldest", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("oldest", name="pk_schema_support"),
    )


def downgrade() -> None:
    op.drop_table("schema_support")
