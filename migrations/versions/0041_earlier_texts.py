"""What events and lorebooks of worlds said before is a table of texts. It has no numbers of revisions.

A text that another one took the place of gets that one's author and time.
"""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None

IS_EXPANSION = False

_BY_CODE_POINT: Final = sa.String().with_variant(sa.String(collation="C"), "postgresql")

_LIFT: Final = """
INSERT INTO earlier_texts (world, kind, name, number, body, author, written_at, replaced_by, replaced_at)
SELECT world, kind, name, row_number() OVER (PARTITION BY world, kind, name ORDER BY revision), body, author,
    written_at, CASE WHEN withdrawn_at IS NULL THEN next_author ELSE withdrawn_by END,
    coalesce(withdrawn_at, next_at)
FROM (
    SELECT texts.*, lead(author) OVER following AS next_author, lead(written_at) OVER following AS next_at
    FROM (
        SELECT world, kind, name, revision, body, author, written_at, withdrawn_by, withdrawn_at, 1 AS earlier
        FROM world_revisions
        UNION ALL
        SELECT world, 'event', event_id, revision, NULL, author, written_at, NULL, NULL, 0
        FROM events WHERE withdrawn = 0 AND revision > 1
        UNION ALL
        SELECT world, 'lorebook', name, revision, NULL, author, updated_at, NULL, NULL, 0
        FROM lorebooks WHERE revision > 1
    ) AS texts
    WINDOW following AS (PARTITION BY world, kind, name ORDER BY revision)
) AS followed
WHERE earlier = 1
"""

# An event that was withdrawn before there were revisions has its text in its row alone, where a correction replaces it.
_LIFT_WITHDRAWN: Final = """
INSERT INTO earlier_texts (world, kind, name, number, body, author, written_at, replaced_by, replaced_at)
SELECT world, 'event', event_id, 1, body, author, written_at, NULL, NULL
FROM events
WHERE withdrawn = 1 AND NOT EXISTS (
    SELECT 1 FROM earlier_texts AS kept
    WHERE kept.world = events.world AND kept.kind = 'event' AND kept.name = events.event_id
)
"""


def upgrade() -> None:
    op.create_table(
        "earlier_texts",
        sa.Column("world", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("name", _BY_CODE_POINT, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("author", sa.String(), nullable=True),
        sa.Column("written_at", sa.BigInteger(), nullable=True),
        sa.Column("replaced_by", sa.String(), nullable=True),
        sa.Column("replaced_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("world", "kind", "name", "number", name="pk_earlier_texts"),
    )
    op.execute(_LIFT)
    op.execute(_LIFT_WITHDRAWN)
    op.drop_table("world_revisions")
    op.drop_column("events", "revision")
    op.drop_column("lorebooks", "revision")
