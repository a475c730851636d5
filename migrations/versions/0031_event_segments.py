"""Segments of the event index, which SQLite uses. Postings that SQLite has are put into them when a store is opened."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

IS_EXPANSION = True


def upgrade() -> None:
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "event_segments",
        sa.Column("number", number, autoincrement=True, nullable=False),
        sa.Column("world", sa.BigInteger(), nullable=False),
        sa.Column("events", sa.BigInteger(), nullable=False),
        sa.Column("pages", sa.Integer(), nullable=False),
        sa.Column("times", sa.LargeBinary(), nullable=False),
        sa.Column("places", sa.LargeBinary(), nullable=False),
        sa.Column("removed", sa.LargeBinary(), nullable=False),
        sa.Column("postings", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_event_segments"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_event_segments_world", "event_segments", ["world", "number"])
    op.create_table(
        "event_segment_pages",
        sa.Column("number", number, autoincrement=False, nullable=False),
        sa.Column("postings", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_event_segment_pages"),
    )


def downgrade() -> None:
    op.drop_table("event_segment_pages")
    op.drop_table("event_segments")
