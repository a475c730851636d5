"""The scene of each task, so that groups are found by it. Tasks that are stored have theirs in their prompts."""

import json
from typing import Any, Final

import sqlalchemy as sa
from alembic import context, op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

IS_EXPANSION = True

_AT_ONCE: Final = 500
_LONGEST: Final = 100
_HAS_SCENE: Final = sa.text("scene IS NOT NULL")

_TASKS: Final = sa.table(
    "tasks",
    *(sa.column(name, sa.String()) for name in ("task_id", "environment", "prompt_digest", "label", "scene")),
)
_PROMPTS: Final = sa.table("prompts", sa.column("digest", sa.String()), sa.column("body", sa.Text()))


def upgrade() -> None:
    connection = context.get_bind()
    found = _read_scenes(connection)  # before the column, from which on PostgreSQL lets nobody else read tasks
    op.add_column("tasks", sa.Column("scene", sa.Text(), nullable=True))
    _write_scenes(connection, found)
    op.create_index(
        "ix_tasks_scene",
        "tasks",
        ["scene", "task_id", "label"],
        sqlite_where=_HAS_SCENE,
        postgresql_where=_HAS_SCENE,
    )


def _read_scenes(connection: sa.Connection) -> list[dict[str, str]]:
    """Of NPC Arena, whose tasks alone have had scenes."""
    known = _TASKS.c.task_id, _PROMPTS.c.body
    joined = _TASKS.join(_PROMPTS, _TASKS.c.prompt_digest == _PROMPTS.c.digest)
    wanted = sa.select(*known).select_from(joined).where(_TASKS.c.environment == "npc_arena")
    found: list[dict[str, str]] = []
    last = ""
    while rows := connection.execute(
        wanted.where(_TASKS.c.task_id > last).order_by(_TASKS.c.task_id).limit(_AT_ONCE)
    ).all():
        last = rows[-1][0]
        found += [{"of": task_id, "named": named} for task_id, body in rows if (named := _read_scene(body)) is not None]
    return found


def _write_scenes(connection: sa.Connection, found: list[dict[str, str]]) -> None:
    change = sa.update(_TASKS).where(_TASKS.c.task_id == sa.bindparam("of")).values(scene=sa.bindparam("named"))
    for first in range(0, len(found), _AT_ONCE):
        connection.execute(change, found[first : first + _AT_ONCE])


def _read_scene(body: str) -> str | None:
    try:
        told: Any = json.loads(body)["metadata"]["scene"]
    except (KeyError, TypeError, ValueError):
        return None
    is_name = isinstance(told, str) and 0 < len(told) <= _LONGEST and told.isprintable() and told == told.strip()
    return json.dumps(told) if is_name else None


def downgrade() -> None:
    op.drop_index("ix_tasks_scene", "tasks")
    with op.batch_alter_table("tasks") as tasks:
        tasks.drop_column("scene")
