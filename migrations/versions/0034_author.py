"""What authors write over HTTP, in place of files of characters."""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

IS_EXPANSION = True


def upgrade() -> None:
    op.create_table(
        "authored",
        sa.Column("file", sa.String(), nullable=False),
        sa.Column("revision", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("file", "revision", name="pk_authored"),
    )


def downgrade() -> None:
    op.drop_table("authored")
