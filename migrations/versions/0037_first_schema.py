"""The schema to begin with. A store of 0036 gets its columns; a new one gets the tables.

What groups and pending groups said of their origin was one JSON text, `head`; it is columns now. The criteria of scores
were rows beside the scores that hold them; now a view reads them there.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

IS_EXPANSION = False


def upgrade() -> None:
    connection = op.get_bind()
    if sa.inspect(connection).has_table("groups"):
        _lift_heads("groups", "sequence")
        _lift_heads("parts", "group_id")
        op.execute("ALTER TABLE part_members RENAME COLUMN said TO digest")
        op.drop_table("scores")
    else:
        _TABLES.create_all(connection)
        _create_indexes()
    op.execute(_VIEW_ON_POSTGRES if connection.dialect.name == "postgresql" else _VIEW_ON_SQLITE)


# The criteria of scored rollouts.

_VIEW_ON_SQLITE: Final = """
CREATE VIEW scores AS
SELECT rollouts.group_sequence, rollouts.position, one.key AS ordinal,
       json_extract(one.value, '$.name') AS name,
       json_extract(one.value, '$.value') AS value,
       json_extract(one.value, '$.weight') AS weight
FROM rollouts, json_each(rollouts.score, '$.criteria') AS one
WHERE rollouts.outcome = 'scored'
"""

# PostgreSQL reads no text with an escaped NUL or a lone surrogate, which a rationale may have. So pairs of backslashes
# go first, and then what begins with one: what is left has no escape beyond those of quotes and white space.
_VIEW_ON_POSTGRES: Final = r"""
CREATE VIEW scores AS
SELECT rollouts.group_sequence, rollouts.position, CAST(one.number - 1 AS INTEGER) AS ordinal,
       one.criterion ->> 'name' AS name,
       CAST(one.criterion ->> 'value' AS DOUBLE PRECISION) AS value,
       CAST(one.criterion ->> 'weight' AS DOUBLE PRECISION) AS weight
FROM rollouts, json_array_elements(
    CAST(replace(replace(rollouts.score, '\\', ''), '\u', 'u') AS JSON) -> 'criteria'
) WITH ORDINALITY AS one (criterion, number)
WHERE rollouts.outcome = 'scored'
"""

# Stores of 0036.

_AT_ONCE: Final = 5_000


def _lift_heads(table: str, key: str) -> None:
    """Reads what was in `head`, a stretch of rows at a time, and writes all of it in one statement."""
    connection = op.get_bind()
    columns: dict[str, Any] = {
        "model": sa.Text(),
        "lease_id": sa.Text(),
        "sender": sa.Text(),
        "hand_out_step": sa.BigInteger(),
    }
    if table == "groups":  # which has a step already
        op.add_column(table, sa.Column("flags", sa.Text(), nullable=False, server_default=sa.text("'[]'")))
        lifted = {**columns, "flags": sa.Text()}
    else:
        lifted = {**columns, "step": sa.BigInteger()}
    for name, kind in lifted.items():
        if name != "flags":
            op.add_column(table, sa.Column(name, kind, nullable=True))
    kind_of_key: Any = sa.BigInteger() if key == "sequence" else sa.String()
    beside = sa.Table(
        f"lifted_{table}",
        sa.MetaData(),
        sa.Column("of", kind_of_key, primary_key=True, autoincrement=False),
        *(sa.Column(name, kind) for name, kind in lifted.items()),
        prefixes=["TEMPORARY"],
    )
    beside.create(connection)
    for rows in _read_heads(connection, table, key, list(lifted)):
        connection.execute(sa.insert(beside), rows)
    target = sa.table(table, sa.column(key), *(sa.column(name) for name in lifted))
    values = {name: beside.c[name] for name in lifted}
    connection.execute(sa.update(target).values(values).where(target.c[key] == beside.c.of))
    beside.drop(connection)
    op.drop_column(table, "head")


def _read_heads(connection: sa.Connection, table: str, key: str, names: list[str]) -> Iterator[list[dict[str, Any]]]:
    source = sa.table(table, sa.column(key), sa.column("head"))
    statement = sa.select(source.c[key], source.c.head).order_by(source.c[key]).limit(_AT_ONCE)
    rows = connection.execute(statement).all()
    while rows:
        yield [{"of": at, **_parse_head(head, names)} for at, head in rows]
        rows = connection.execute(statement.where(source.c[key] > rows[-1][0])).all()


def _parse_head(text: str, names: list[str]) -> dict[str, Any]:
    """Numbers as they are; what clients chose as JSON, which both databases take whatever it holds."""
    head = {"flags": [], **json.loads(text)}
    head |= head.pop("policy", None) or {}
    found = {name: head.get(name) for name in names}
    return {
        name: value if value is None or isinstance(value, int) else json.dumps(value, separators=(",", ":"))
        for name, value in found.items()
    }


# The tables.

_TABLES: Final = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
    }
)

STRING: Final = sa.String()
TEXT: Final = sa.Text()
BIGINT: Final = sa.BigInteger()
INTEGER: Final = sa.Integer()
FLOAT: Final = sa.Float()
BOOLEAN: Final = sa.Boolean()
BINARY: Final = sa.LargeBinary()
SEQUENCE: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BYTE_ORDERED: Final = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def _table(name: str, *parts: Any, **traits: Any) -> None:
    sa.Table(name, _TABLES, *parts, **traits)


def _key(name: str, kind: Any = STRING, *more: Any) -> "sa.Column[Any]":
    return sa.Column(name, kind, *more, primary_key=True, autoincrement=False)


def _sequence(name: str) -> "sa.Column[Any]":
    """A key that the database counts up."""
    return sa.Column(name, SEQUENCE, primary_key=True, autoincrement=True)


def _column(
    name: str, kind: Any = STRING, *more: Any, unique: bool | None = None, default: str | None = None
) -> "sa.Column[Any]":
    stated = None if default is None else sa.text(default)
    return sa.Column(name, kind, *more, nullable=False, unique=unique, server_default=stated)


def _optional(name: str, kind: Any = STRING, *more: Any, unique: bool | None = None) -> "sa.Column[Any]":
    return sa.Column(name, kind, *more, nullable=True, unique=unique)


def _create_index(name: str, table: str, *columns: str, where: str | None = None, unique: bool = False) -> None:
    traits: dict[str, Any] = {"unique": unique}
    if where is not None:
        traits |= {"sqlite_where": sa.text(where), "postgresql_where": sa.text(where)}
    op.create_index(name, table, list(columns), **traits)


_table(
    "admin_actions",
    _sequence("sequence"),
    _column("body", TEXT),
    _column("created_at", BIGINT),
    sqlite_autoincrement=True,
)
_table("api_keys", _sequence("key_id"), _column("digest", unique=True), _column("created_at", BIGINT))
_table(
    "authored",
    _key("file"),
    _key("revision", BIGINT),
    _optional("body", TEXT),
    _column("note", TEXT),
    _column("author"),
    _optional("digest"),
    _column("created_at", BIGINT),
)
_table("calibration_references", _key("scene"), _column("body", TEXT), _column("created_at", BIGINT))
_table("contexts", _key("run"), _key("stream"), _key("epoch", BIGINT), _key("index", BIGINT), _column("body", TEXT))
_table("editions", _key("environment"), _key("data_digest"), _column("sheets", TEXT), _column("created_at", BIGINT))
_table(
    "epochs", _key("run"), _key("stream"), _key("epoch", BIGINT), _column("data_digest"), _column("created_at", BIGINT)
)
_table("event_postings", _key("key", BIGINT), _key("time", BIGINT), _key("sequence", BIGINT), sqlite_with_rowid=False)
_table("event_segment_pages", _key("number", SEQUENCE), _column("postings", BINARY))
_table(
    "event_segments",
    _sequence("number"),
    _column("world", BIGINT),
    _column("events", BIGINT),
    _column("pages", INTEGER),
    _column("times", BINARY),
    _column("places", BINARY),
    _column("removed", BINARY),
    _column("postings", BINARY),
    sqlite_autoincrement=True,
)
_table(
    "event_successions",
    _key("world", BIGINT),
    _key("superseded"),
    _key("time", BIGINT),
    _key("sequence", BIGINT),
    sqlite_with_rowid=False,
)
_table(
    "event_withdrawals",
    _key("world", BIGINT),
    _key("sequence", BIGINT),
)
_table(
    "events",
    _key("sequence", BIGINT),
    _column("world", BIGINT),
    _column("event_id", BYTE_ORDERED),
    _column("time", BIGINT),
    _column("withdrawn", INTEGER),
    _column("body", TEXT),
    _column("revision", INTEGER, default="1"),
    _optional("author"),
    _optional("written_at", BIGINT),
)
_table(
    "group_texts",
    _key("sequence", BIGINT),
    _column("waiting", INTEGER),
)
_table(
    "health_readings",
    _sequence("sequence"),
    _column("reading_id", unique=True),
    _column("run"),
    _column("group_id"),
    _column("kind"),
    _column("at_group", BIGINT),
    _column("failed", BOOLEAN),
    _column("tokens", BIGINT),
    _optional("cost_usd", FLOAT),
    _column("body", TEXT),
    _column("judgements", TEXT),
    _column("created_at", BIGINT),
)
_table("health_spending", _key("run"), _key("kind"), _column("readings", BIGINT), _column("tokens", BIGINT))
_table("idempotency_keys", _key("key_digest"), _column("body_digest"), _column("created_at", BIGINT))
_table("job_turns", _key("job"), _column("holder"), _column("held_until", BIGINT), _column("ended_at", BIGINT))
_table(
    "judge_cache",
    _key("reading"),
    _column("judge"),
    _column("body", TEXT),
    _column("created_at", BIGINT),
)
_table(
    "judge_holds",
    _key("hold"),
    _column("judge"),
    _column("day", INTEGER),
    _column("used_tokens", BIGINT),
    _column("used_usd", FLOAT),
    _column("open_tokens", BIGINT),
    _column("open_usd", FLOAT),
    _column("until", BIGINT),
)
_table("judge_limits", _key("judge"), _column("body", TEXT))
_table(
    "judge_spending",
    _key("judge"),
    _key("day", INTEGER),
    _column("readings", BIGINT),
    _column("calls", BIGINT),
    _column("input_tokens", BIGINT),
    _column("output_tokens", BIGINT),
    _column("cached_input_tokens", BIGINT, default="0"),
    _column("reasoning_tokens", BIGINT, default="0"),
    _column("cost_usd", FLOAT),
    _column("unanswered_calls", BIGINT, default="0"),
    _column("unanswered_tokens", BIGINT, default="0"),
    _column("unanswered_usd", FLOAT, default="0"),
)
_table("judge_versions", _key("judge"), _key("model"), _key("system_fingerprint"), _column("first_at", BIGINT))
_table(
    "kept_episodes",
    _key("session"),
    _column("task_id"),
    _column("revision", INTEGER),
    _column("body", TEXT),
    _column("changed_at", BIGINT),
)
_table("key_admissions", _key("key"), _key("run"), _column("until", BIGINT))
_table(
    "key_holds",
    _key("hold"),
    _column("key"),
    _column("leases", INTEGER),
    _column("judge_tokens", BIGINT),
    _column("judge_usd", FLOAT),
    _optional("until", BIGINT),
)
_table(
    "key_usage",
    _key("key"),
    _key("day", BIGINT),
    _key("part", INTEGER),
    _column("requests", BIGINT),
    _column("judge_tokens", BIGINT),
    _column("judge_usd", FLOAT),
)
_table(
    "label_leases",
    _sequence("sequence"),
    _column("lease_id", unique=True),
    _column("labeller"),
    _column("group_id"),
    _column("environment"),
    _optional("run"),
    _column("arm"),
    _column("second", BOOLEAN),
    _column("wanted", INTEGER),
    _column("draw", TEXT),
    _column("state"),
    _column("expires_at", BIGINT),
    _column("created_at", BIGINT),
    sqlite_autoincrement=True,
)
_table(
    "labels",
    _sequence("sequence"),
    _column("label_id", unique=True),
    _column("kind"),
    _column("state"),
    _column("labeller"),
    _optional("group_id"),
    _column("environment"),
    _optional("run"),
    _optional("lease_id"),
    _column("body", TEXT),
    _optional("source_digest", unique=True),
    _column("created_at", BIGINT),
    sqlite_autoincrement=True,
)
_table(
    "lorebooks",
    _key("world", BIGINT),
    _key("name", BYTE_ORDERED),
    _column("body", TEXT),
    _column("updated_at", BIGINT),
    _optional("author"),
    _column("revision", INTEGER, default="1"),
)
_table("named_keys", _key("name"), _column("digest", unique=True), _column("body", TEXT))
_table("play_salt", _key("name"), _column("salt", BINARY))
_table(
    "play_turns",
    _key("turn_id"),
    _column("player"),
    _column("body", TEXT),
    _column("created_at", BIGINT),
    _column("answered_at", BIGINT),
)
_table("prompts", _key("digest"), _column("body", TEXT), _optional("packed", BINARY))
_table("pruned_groups", _key("group_id"), _column("pruned_at", BIGINT), sqlite_with_rowid=False)
_table(
    "rollups",
    _key("digest"),
    _column("series"),
    _column("environment"),
    _optional("run"),
    _column("purpose"),
    _optional("step", BIGINT),
    _optional("label", TEXT),
    _optional("bucket", BIGINT),
    _column("measures", TEXT),
)
_table(
    "run_alarms",
    _sequence("sequence"),
    _column("alarm_id", unique=True),
    _column("run"),
    _column("series"),
    _column("body", TEXT),
    _column("raised_at", BIGINT),
    _optional("released_at", BIGINT),
    _optional("send_at", BIGINT),
    _column("attempts", INTEGER, default="0"),
)
_table(
    "run_costs",
    _key("run"),
    _key("environment"),
    _key("hour", BIGINT),
    _column("groups", BIGINT),
    _column("readings", BIGINT),
    _column("calls", BIGINT),
    _column("unpriced_calls", BIGINT),
    _column("input_tokens", BIGINT),
    _column("output_tokens", BIGINT),
    _column("cached_input_tokens", BIGINT),
    _column("reasoning_tokens", BIGINT),
    _column("cost_usd", FLOAT),
    _column("unanswered_calls", BIGINT),
    _column("unanswered_tokens", BIGINT),
    _column("unanswered_usd", FLOAT),
    _column("first_at", BIGINT),
    _column("last_at", BIGINT),
)
_table(
    "run_health",
    _key("run"),
    _column("state", TEXT),
    _column("checked_sequence", BIGINT),
    _column("checked_at", BIGINT),
    _column("claim"),
    _column("claimed_until", BIGINT),
)
_table(
    "run_holds",
    _key("group_id"),
    _column("run"),
    _column("usd", FLOAT),
    _column("settled", BOOLEAN),
    _column("until", BIGINT),
    _optional("holder"),
)
_table(
    "runs",
    _key("name"),
    _column("seed", BIGINT),
    _column("strict", BOOLEAN),
    _column("options", TEXT),
    _column("created_at", BIGINT),
    _optional("budget_usd", FLOAT),
    _optional("max_lag", BIGINT),
    _column("lag_policy", default="'flag'"),
    _optional("health", TEXT),
    _optional("held", TEXT),
    _optional("min_agreement", FLOAT),
    _optional("keep", TEXT),
)
_table("schema_support", _key("oldest"))
_table(
    "sealed_rollups",
    _key("digest"),
    _column("series"),
    _column("environment"),
    _optional("run"),
    _column("purpose"),
    _optional("step", BIGINT),
    _optional("label", TEXT),
    _optional("bucket", BIGINT),
    _column("measures", TEXT),
)
_table(
    "sealed_task_rollups",
    _key("run"),
    _key("environment"),
    _key("task_id"),
    _column("sums", TEXT),
    sqlite_with_rowid=False,
)
_table("sheets", _key("digest"), _column("body", TEXT), _column("created_at", BIGINT))
_table("sign_ins", _key("digest"), _column("key_digest"), _column("expires_at", BIGINT))
_table(
    "streams",
    _key("run"),
    _key("digest"),
    _column("environment"),
    _column("split"),
    _column("params", TEXT),
    _column("params_digest"),
    _column("select", TEXT),
    _column("position", BIGINT),
    _column("handed_out", BIGINT),
    _column("created_at", BIGINT),
)
_table(
    "task_rollups", _key("run"), _key("environment"), _key("task_id"), _column("sums", TEXT), sqlite_with_rowid=False
)
_table("text_progress", _key("form", INTEGER), _column("through", BIGINT))
_table("trajectory_batches", _key("run"), _key("number", BIGINT), _column("holder"), _column("handed_at", BIGINT))
_table(
    "trajectory_bodies",
    _sequence("body_id"),
    _column("run"),
    _column("digest"),
    _column("created_at", BIGINT),
    _optional("body", BINARY),
    sqlite_autoincrement=True,
)
_table(
    "trajectory_feeders",
    _key("run"),
    _key("env_id", BIGINT),
    _column("name", TEXT),
    _column("said", TEXT),
    _column("connected", BOOLEAN),
    _column("seen_at", BIGINT),
)
_table(
    "trajectory_groups",
    _sequence("sequence"),
    _column("run"),
    _optional("env_id", BIGINT),
    _column("body_id", BIGINT),
    _column("first", INTEGER),
    _column("size", INTEGER),
    _column("whole", BOOLEAN),
    _column("passed", INTEGER),
    _optional("batch", BIGINT),
    _optional("place", INTEGER),
    _optional("step", BIGINT),
    sqlite_autoincrement=True,
)
_table(
    "trajectory_runs",
    _key("run"),
    _optional("registration", TEXT),
    _column("started", BOOLEAN),
    _column("batches", BIGINT),
    _column("step_before", BIGINT),
    _column("turns", TEXT),
    _column("created_at", BIGINT),
)
_table(
    "world_revisions",
    _key("world", BIGINT),
    _key("kind"),
    _key("name", BYTE_ORDERED),
    _key("revision", INTEGER),
    _column("body", TEXT),
    _optional("author"),
    _optional("written_at", BIGINT),
    _optional("withdrawn_by"),
    _optional("withdrawn_at", BIGINT),
)
_table(
    "worlds",
    _sequence("number"),
    _column("name", BYTE_ORDERED),
    _optional("parent", BIGINT),
    _optional("branched_at", BIGINT),
    _column("depth", INTEGER),
    _column("events", BIGINT),
    _column("created_at", BIGINT),
    _optional("closed_at", BIGINT),
    sqlite_autoincrement=True,
)
_table(
    "leases",
    _key("lease_id"),
    _column("run"),
    _column("stream"),
    _column("environment"),
    _column("split"),
    _column("params_digest"),
    _column("index", BIGINT),
    _column("epoch", BIGINT),
    _column("position", BIGINT),
    _column("generation", INTEGER),
    _column("state"),
    _column("expires_at", BIGINT),
    _column("created_at", BIGINT),
    _optional("group_id"),
    _optional("step", BIGINT),
    sa.ForeignKeyConstraint(["run", "stream"], ["streams.run", "streams.digest"]),
)
_table(
    "pins",
    _key("run", STRING, sa.ForeignKey("runs.name")),
    _key("environment"),
    _column("version"),
    _column("scoring_digest"),
    _column("parts", TEXT),
    _column("created_at", BIGINT),
)
_table(
    "play_replies",
    _sequence("sequence"),
    _column("turn_id", STRING, sa.ForeignKey("play_turns.turn_id", ondelete="CASCADE")),
    _column("reply_id", unique=True),
    _column("better", BOOLEAN),
    _column("body", TEXT),
    sqlite_autoincrement=True,
)
_table(
    "tasks",
    _key("task_id"),
    _column("environment"),
    _column("version"),
    _column("data_digest"),
    _column("split"),
    _column("index", BIGINT),
    _column("params", TEXT),
    _column("params_digest"),
    _optional("context", TEXT),
    _column("prompt_digest", STRING, sa.ForeignKey("prompts.digest")),
    _column("title", TEXT),
    _column("created_at", BIGINT),
    _optional("label", TEXT),
    _optional("dataset", TEXT),
    _optional("scene", TEXT),
)
_table(
    "groups",
    _sequence("sequence"),
    _column("group_id", unique=True),
    _column("task_id", STRING, sa.ForeignKey("tasks.task_id")),
    _column("environment"),
    _optional("run"),
    _optional("step", BIGINT),
    _column("purpose"),
    _column("outcome"),
    _column("size", INTEGER),
    _column("scored", INTEGER),
    _column("unscored", INTEGER),
    _optional("mean", FLOAT),
    _optional("std", FLOAT),
    _column("reward_sum", FLOAT),
    _column("absolute_sum", FLOAT),
    _column("absolute_count", INTEGER),
    _optional("model", TEXT),
    _optional("lease_id", TEXT),
    _optional("sender", TEXT),
    _optional("hand_out_step", BIGINT),
    _column("flags", TEXT, default="'[]'"),
    _column("created_at", BIGINT),
    _column("low_signal", INTEGER, default="0"),
    _column("counted", INTEGER, default="0"),
    _optional("lag", BIGINT),
    _column("stale", INTEGER, default="0"),
    _optional("reduced", INTEGER),
    sqlite_autoincrement=True,
)
_table(
    "parts",
    _key("group_id"),
    _column("scope"),
    _column("generation", INTEGER),
    _column("key", TEXT),
    _column("size", INTEGER),
    _column("task_id", STRING, sa.ForeignKey("tasks.task_id")),
    _column("environment"),
    _optional("run"),
    _optional("model", TEXT),
    _optional("step", BIGINT),
    _optional("lease_id", TEXT),
    _optional("sender", TEXT),
    _optional("hand_out_step", BIGINT),
    _column("purpose"),
    _column("deadline", BIGINT),
    _column("state"),
    _column("missing", INTEGER),
    _optional("closed_at", BIGINT),
    _optional("due", BIGINT),
    _column("created_at", BIGINT),
)
_table(
    "part_members",
    _key("group_id", STRING, sa.ForeignKey("parts.group_id")),
    _key("place", INTEGER),
    _column("scope"),
    _column("digest"),
    _optional("completion", TEXT),
    _optional("own_group"),
    _column("state"),
    _column("holder"),
    _column("held_until", BIGINT),
)
_table(
    "rollouts",
    _key("group_sequence", BIGINT, sa.ForeignKey("groups.sequence")),
    _key("position", INTEGER),
    _column("rollout_id"),
    _column("outcome"),
    _optional("reason"),
    _optional("reward", FLOAT),
    _optional("gate", FLOAT),
    _optional("absolute", FLOAT),
    _optional("relative", FLOAT),
    _optional("calibrated", FLOAT),
    _optional("calibrated_error", FLOAT),
    _optional("uncalibrated"),
    _column("score", TEXT),
    _column("completion", TEXT),
    _optional("reduced", TEXT),
    _optional("packed", BINARY),
)
_table(
    "run_anchors",
    _key("run"),
    _key("group_sequence", BIGINT, sa.ForeignKey("groups.sequence")),
    _column("created_at", BIGINT),
)
_table(
    "scorings",
    _sequence("sequence"),
    _column("scoring_id", unique=True),
    _column("group_sequence", BIGINT, sa.ForeignKey("groups.sequence")),
    _column("scoring_digest"),
    _column("outcome"),
    _column("head", TEXT),
    _column("created_at", BIGINT),
)
_table(
    "judgements",
    _sequence("sequence"),
    _column("group_sequence", BIGINT, sa.ForeignKey("groups.sequence")),
    _column("judge"),
    _column("failed", BOOLEAN),
    _optional("prompt_digest", STRING, sa.ForeignKey("prompts.digest")),
    _column("answer", TEXT),
    _column("input_tokens", INTEGER),
    _column("output_tokens", INTEGER),
    _column("calls", INTEGER),
    _optional("cost_usd", FLOAT),
    _column("latency_seconds", FLOAT),
    _column("created_at", BIGINT),
    _optional("scoring_sequence", BIGINT, sa.ForeignKey("scorings.sequence")),
    _optional("reading"),
    _optional("purpose"),
    _optional("reduced", TEXT),
    _optional("packed", BINARY),
)
_table(
    "rescores",
    _key("scoring_sequence", BIGINT, sa.ForeignKey("scorings.sequence")),
    _key("position", INTEGER),
    _column("outcome"),
    _optional("reason"),
    _optional("reward", FLOAT),
    _optional("gate", FLOAT),
    _optional("absolute", FLOAT),
    _optional("relative", FLOAT),
    _optional("calibrated", FLOAT),
    _optional("calibrated_error", FLOAT),
    _optional("uncalibrated"),
    _column("score", TEXT),
    sqlite_with_rowid=False,
)


def _create_indexes() -> None:
    """In this order: of two indexes that cost the same a database takes one by it."""
    _create_index("ix_leases_deferred", "leases", "run", "stream", "position", where="state = 'deferred'")
    _create_index("ix_leases_live_expiry", "leases", "run", "stream", "expires_at", where="state = 'live'")
    _create_index(
        "ix_leases_live_task", "leases", "run", "environment", "split", "params_digest", "index", where="state = 'live'"
    )
    _create_index("ix_groups_environment", "groups", "environment", "sequence")
    _create_index("ix_groups_eval", "groups", "sequence", where="purpose = 'eval'")
    _create_index("ix_groups_open", "groups", "outcome", "sequence", where="outcome <> 'scored'")
    _create_index("ix_groups_run", "groups", "run", "sequence")
    _create_index("ix_groups_task", "groups", "task_id", "sequence")
    _create_index("ix_judgements_group_sequence", "judgements", "group_sequence")
    _create_index("ix_scorings_group_sequence", "scorings", "group_sequence")
    _create_index("ix_judge_cache_created_at", "judge_cache", "created_at")
    _create_index("ix_judgements_reading", "judgements", "reading", where="reading IS NOT NULL")
    _create_index("ix_judge_holds_judge", "judge_holds", "judge")
    _create_index("ix_trajectory_bodies_digest", "trajectory_bodies", "run", "digest", "created_at")
    _create_index("ix_trajectory_bodies_kept", "trajectory_bodies", "run", "body_id", where="body IS NOT NULL")
    _create_index("ix_trajectory_bodies_spent", "trajectory_bodies", "run", "created_at", where="body IS NULL")
    _create_index(
        "ix_trajectory_groups_line",
        "trajectory_groups",
        "run",
        "env_id",
        "size",
        "sequence",
        "passed",
        "whole",
        where="batch IS NULL",
    )
    _create_index("ix_trajectory_groups_batch", "trajectory_groups", "run", "batch", "place", where="batch IS NOT NULL")
    _create_index("ix_trajectory_groups_body", "trajectory_groups", "body_id")
    _create_index("uq_worlds_name", "worlds", "name", unique=True)
    _create_index("uq_events_world_event_id", "events", "world", "event_id", unique=True)
    _create_index("ix_events_standing", "events", "world", "time", "event_id", where="withdrawn = 0")
    _create_index("uq_parts_scope_generation", "parts", "scope", "generation", unique=True)
    _create_index("ix_parts_created_at", "parts", "created_at")
    _create_index("ix_parts_due", "parts", "due", where="due IS NOT NULL")
    _create_index("ix_part_members_unanswered", "part_members", "scope", "digest", where="state <> 'answered'")
    _create_index("ix_worlds_parent", "worlds", "parent", where="parent IS NOT NULL")
    _create_index("ix_event_withdrawals_sequence", "event_withdrawals", "sequence")
    _create_index("ix_run_holds_run", "run_holds", "run")
    _create_index("ix_groups_uncounted", "groups", "sequence", where="counted = 0")
    _create_index("ix_rollups_environment", "rollups", "series", "environment", "run")
    _create_index("ix_rollups_run", "rollups", "series", "run", "environment", "bucket")
    _create_index(
        "ix_leases_live_step", "leases", "run", "expires_at", "step", where="state = 'live' AND step IS NOT NULL"
    )
    _create_index("ix_health_readings_run", "health_readings", "run", "kind", "sequence")
    _create_index("ix_health_readings_group", "health_readings", "run", "kind", "group_id", "sequence")
    _create_index("ix_run_alarms_run", "run_alarms", "run")
    _create_index("ix_run_alarms_standing", "run_alarms", "series", where="released_at IS NULL")
    _create_index("ix_run_alarms_due", "run_alarms", "send_at", where="send_at IS NOT NULL")
    _create_index("ix_labels_group", "labels", "group_id", "labeller")
    _create_index("ix_labels_kind", "labels", "kind", "environment", "sequence")
    _create_index("ix_label_leases_group", "label_leases", "group_id")
    _create_index("ix_label_leases_labeller", "label_leases", "labeller", "state")
    _create_index("ix_label_leases_stratum", "label_leases", "environment", "run")
    _create_index("ix_key_holds_key", "key_holds", "key")
    _create_index("ix_tasks_prompt", "tasks", "prompt_digest")
    _create_index("ix_judgements_prompt", "judgements", "prompt_digest", where="prompt_digest IS NOT NULL")
    _create_index("ix_judgements_scoring", "judgements", "scoring_sequence", where="scoring_sequence IS NOT NULL")
    _create_index("ix_kept_episodes_changed_at", "kept_episodes", "changed_at")
    _create_index("ix_groups_run_environment", "groups", "run", "environment", "sequence")
    _create_index("ix_groups_created_at", "groups", "created_at", "sequence")
    _create_index("ix_groups_open_run", "groups", "run", "outcome", "sequence", where="outcome <> 'scored'")
    _create_index("ix_groups_eval_run", "groups", "run", "sequence", where="purpose = 'eval'")
    _create_index(
        "ix_groups_open_environment", "groups", "environment", "outcome", "sequence", where="outcome <> 'scored'"
    )
    _create_index("ix_groups_eval_environment", "groups", "environment", "sequence", where="purpose = 'eval'")
    _create_index("ix_tasks_label", "tasks", "label", "environment", where="label IS NOT NULL")
    _create_index("ix_event_segments_world", "event_segments", "world", "number")
    _create_index("ix_play_turns_player", "play_turns", "player", "answered_at")
    _create_index("ix_play_turns_age", "play_turns", "answered_at")
    _create_index("ix_play_replies_turn", "play_replies", "turn_id", "sequence")
    _create_index("ix_group_texts_waiting", "group_texts", "sequence", where="waiting = 1")
    _create_index("ix_tasks_scene", "tasks", "scene", "task_id", "label", where="scene IS NOT NULL")
