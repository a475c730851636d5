"""Browsers are looked up by their cookies and counted by their keys. A key with more than 20 of them loses all, so that
people sign in again.

The scope `play` of stored keys becomes `talk`, which talks to characters and writes no events. The audit says so, and
each of these keys is marked until an admin sets its scopes.
"""

import json
from datetime import UTC, datetime
from typing import Any, Final

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None

IS_EXPANSION = False

_CROWDED: Final = "SELECT key_digest FROM sign_ins GROUP BY key_digest HAVING count(*) > 20"
_DIGESTS: Final = ("digest", "former_digest")


def upgrade() -> None:
    op.execute(f"DELETE FROM sign_ins WHERE key_digest IN ({_CROWDED})")  # noqa: S608  # no value in it
    op.create_index("ix_sign_ins_key", "sign_ins", ["key_digest", "expires_at"])
    op.create_index("ix_sign_ins_expires_at", "sign_ins", ["expires_at"])
    connection = op.get_bind()
    found = connection.execute(sa.text("SELECT name, body FROM named_keys WHERE body LIKE '%\"play\"%'")).all()
    for name, body in found:
        key = json.loads(body)
        if "play" in key["scopes"]:
            _narrow(connection, name, key)


def _narrow(connection: sa.Connection, name: str, key: dict[str, Any]) -> None:
    now = datetime.now(UTC)
    scopes = ["talk" if scope == "play" else scope for scope in key["scopes"]]
    after = key | {"scopes": scopes, "narrowed": True}
    shown = [{part: value for part, value in one.items() if part not in _DIGESTS} for one in (key, after)]
    entry: dict[str, Any] = {"at": now.isoformat(), "by": "schema 0043", "action": "change", "key": name}
    entry |= {"before": shown[0], "after": shown[1]}
    connection.execute(
        sa.text("UPDATE named_keys SET body = :body WHERE name = :name"), {"body": json.dumps(after), "name": name}
    )
    connection.execute(
        sa.text("INSERT INTO admin_actions (body, created_at) VALUES (:body, :now)"),
        {"body": json.dumps(entry), "now": round(now.timestamp() * 1_000_000)},
    )
