"""What groups add up to, so that statistics need not read them. Stored groups are counted after the start: counting all
of them here would hold it up."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

IS_EXPANSION = True

_UNCOUNTED = sa.text("counted = 0")


def upgrade() -> None:
    op.add_column("groups", sa.Column("counted", sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.create_index("ix_groups_uncounted", "groups", ["sequence"], sqlite_where=_UNCOUNTED, postgresql_where=_UNCOUNTED)
    op.create_table(
        "rollups",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("series", sa.String(), nullable=False),
        sa.Column("environment", sa.String(), nullable=False),
        sa.Column("run", sa.String(), nullable=True),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("label", sa.Text(), nullable=True),
        sa.Column("bucket", sa.BigInteger(), nullable=True),
        sa.Column("measures", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_index("ix_rollups_environment", "rollups", ["series", "environment", "run"])
    op.create_index("ix_rollups_run", "rollups", ["series", "run", "environment", "bucket"])
    op.create_table(
        "task_rollups",
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("environment", sa.String(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("sums", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run", "environment", "task_id"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("task_rollups")
    op.drop_table("rollups")
    op.drop_index("ix_groups_uncounted", "groups")
    with op.batch_alter_table("groups") as groups:
        groups.drop_column("counted")
