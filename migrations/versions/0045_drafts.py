"""Authors keep drafts of sheets and scenes, one of each file, and a run may pin its characters."""

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None

IS_EXPANSION = True


def upgrade() -> None:
    op.create_table(
        "authored_drafts",
        sa.Column("file", sa.String(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("based_on", sa.BigInteger(), nullable=False),
        sa.Column("saved_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("file", "author", name="pk_authored_drafts"),
    )
    op.add_column("runs", sa.Column("characters", sa.String(), nullable=False, server_default=sa.text("'newest'")))
