"""Indexes by which lists and exports find few groups among millions."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

IS_EXPANSION = True

_OPEN = sa.text("outcome <> 'scored'")
_EVAL = sa.text("purpose = 'eval'")
_LABELLED = sa.text("label IS NOT NULL")


def upgrade() -> None:
    op.create_index("ix_groups_run_environment", "groups", ["run", "environment", "sequence"])
    op.create_index("ix_groups_created_at", "groups", ["created_at", "sequence"])
    for name in ("run", "environment"):
        _create_partial_index(f"ix_groups_open_{name}", "groups", [name, "outcome", "sequence"], _OPEN)
        _create_partial_index(f"ix_groups_eval_{name}", "groups", [name, "sequence"], _EVAL)
    _create_partial_index("ix_tasks_label", "tasks", ["label", "environment"], _LABELLED)


def _create_partial_index(name: str, table: str, columns: list[str], where: sa.TextClause) -> None:
    op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    op.drop_index("ix_tasks_label", "tasks")
    for name in ("environment", "run"):
        op.drop_index(f"ix_groups_eval_{name}", "groups")
        op.drop_index(f"ix_groups_open_{name}", "groups")
    op.drop_index("ix_groups_created_at", "groups")
    op.drop_index("ix_groups_run_environment", "groups")
