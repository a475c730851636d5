"""Who wrote an event or a lorebook of a world and when, and what they were before."""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

IS_EXPANSION = True


def upgrade() -> None:
    op.add_column("events", sa.Column("author", sa.String(), nullable=True))
    op.add_column("events", sa.Column("written_at", sa.BigInteger(), nullable=True))
    op.add_column("lorebooks", sa.Column("author", sa.String(), nullable=True))
    op.add_column("lorebooks", sa.Column("revision", sa.Integer(), nullable=False, server_default=sa.text("1")))
    name = sa.String().with_variant(sa.String(collation="C"), "postgresql")
    op.create_table(
        "world_revisions",
        sa.Column("world", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("name", name, nullable=False),
        sa.Column("revision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("author", sa.String(), nullable=True),
        sa.Column("written_at", sa.BigInteger(), nullable=True),
        sa.Column("withdrawn_by", sa.String(), nullable=True),
        sa.Column("withdrawn_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("world", "kind", "name", "revision", name="pk_world_revisions"),
    )


def downgrade() -> None:
    op.drop_table("world_revisions")
    for name, columns in (("lorebooks", ("revision", "author")), ("events", ("written_at", "author"))):
        with op.batch_alter_table(name) as table:
            for column in columns:
                table.drop_column(column)
