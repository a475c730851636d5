"""Events are found in segments on PostgreSQL too. The rows that it had in their place go.

The first start afterwards writes the segments of all worlds from their events.
"""

from typing import Final

from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None

IS_EXPANSION = False

_NUMBERS: Final = {
    "event_segments": ("times", "places", "removed", "postings"),
    "event_segment_pages": ("postings",),
}


def upgrade() -> None:
    op.drop_table("event_postings")
    if op.get_bind().dialect.name == "postgresql":
        # Hashes do not compress, and to try takes longer than to write them.
        for table, columns in _NUMBERS.items():
            for column in columns:
                op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL")
