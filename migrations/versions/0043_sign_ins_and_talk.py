"""Browsers are looked up by their cookies and counted by their keys. A key with more than 20 of them loses all, so that
people sign in again.
"""

from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None

IS_EXPANSION = False

_CROWDED = "SELECT key_digest FROM sign_ins GROUP BY key_digest HAVING count(*) > 20"


def upgrade() -> None:
    op.execute(f"DELETE FROM sign_ins WHERE key_digest IN ({_CROWDED})")  # noqa: S608  # no value in it
    op.create_index("ix_sign_ins_key", "sign_ins", ["key_digest", "expires_at"])
    op.create_index("ix_sign_ins_expires_at", "sign_ins", ["expires_at"])
