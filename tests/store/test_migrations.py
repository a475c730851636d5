"""The way to the newest schema, on both databases."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    delete,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy import column as called
from sqlalchemy import table as named

from app.domain.access import AdminAction, StoredKey, compute_key_digest, name_narrowed
from app.domain.errors import StoreUnavailable
from app.domain.scores import Criterion, Score
from app.main.store import metadata
from app.store import migration
from app.store.migration import LIFTED_BY, find_newest_revision, migrate, require_servable
from app.store.statements import decode, encode
from app.store.tables import admin_actions, holds, named_keys, sign_ins, spending
from tests.support.databases import MIGRATIONS, connected
from tests.support.forked_programs import ForkedProgram, plain_environment
from tests.support.tables import read_table

TEXTS = read_table(__file__, "later_migrations.yaml", dict[str, str])

Value = str | int | float | bool | bytes

Rows = dict[str, dict[str, Value]]
Row = tuple[Value | None, ...]


LIFTED_ROWS = read_table(__file__, "migrated_rows.yaml", dict[str, tuple[Row, ...]])

NEXT = TEXTS["next"]
"""A revision as one may come: on SQLite it rebuilds a table that others refer to."""

EXPANSION = TEXTS["expansion"]


def revisions(migrations: Path) -> list[str]:
    return [script.revision for script in ScriptDirectory(str(migrations)).walk_revisions()][::-1]


def extend_migrations(folder: Path, text: str) -> Path:
    """Our migrations and one after them, in `folder`."""
    extended = folder / "migrations"
    shutil.copytree(MIGRATIONS, extended, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    (extended / "versions" / "9999_next.py").write_text(text.format(last=find_newest_revision(MIGRATIONS)))
    return extended


def filled(table: Table, known: Rows) -> dict[str, Value]:
    """A row with a value in every column, agreeing with the rows of the tables it refers to."""
    row: dict[str, Value] = {}
    for column in table.columns:
        targets = [key.column for key in column.foreign_keys]
        if targets:
            row[column.name] = known[targets[0].table.name][targets[0].name]
        elif isinstance(column.type, String):
            row[column.name] = f"{table.name}.{column.name}"
        elif isinstance(column.type, Integer):
            row[column.name] = 7
        elif isinstance(column.type, LargeBinary):
            row[column.name] = b"7"
        else:
            row[column.name] = True if column.type.python_type is bool else 0.5
    return row


def fill(url: str) -> Rows:
    """One row in every table that has none, whatever the schema is at present; all rows by table. Only tables without
    rows are reflected, which is slow."""
    with connected(url) as connection:
        names = sorted({*inspect(connection).get_table_names()} - {"alembic_version"})
        reads = {name: select(text("*")).select_from(named(name)) for name in names}
        found = {name: connection.execute(read).mappings().first() for name, read in reads.items()}
        rows: Rows = {name: dict(row) for name, row in found.items() if row is not None}
        if empty := [name for name in names if name not in rows]:
            present = MetaData()
            present.reflect(connection, only=empty)
            for table in present.sorted_tables:
                if table.name not in rows:
                    rows[table.name] = filled(table, rows)
                    connection.execute(insert(table), rows[table.name])
        return rows


def tables_of(url: str) -> set[str]:
    with connected(url) as connection:
        return set(inspect(connection).get_table_names())


@pytest.mark.dialects
def test_migrations_make_exactly_the_schema_of_the_tables(empty_url: str) -> None:
    migrate(empty_url, MIGRATIONS)
    with connected(empty_url) as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        assert compare_metadata(context, metadata) == []


def test_migrations_and_tables_agree_on_what_a_comparison_does_not_see(tmp_path: Path) -> None:
    """On SQLite: partial indexes, tables without row ids, numbers that are never given twice."""
    found = []
    for way in ("migrated", "created"):
        url = f"sqlite:///{tmp_path / way}.db"
        if way == "migrated":
            migrate(url, MIGRATIONS)
        with connected(url) as connection:
            if way == "created":
                metadata.create_all(connection)
            rows = connection.execute(text("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL")).all()
        traits = {name: ("AUTOINCREMENT" in sql, "WITHOUT ROWID" in sql) for kind, name, sql in rows if kind == "table"}
        traits.pop("alembic_version", None)
        found.append((traits, {name: sql for kind, name, sql in rows if kind == "index"}))
    assert found[0] == found[1]


HEADS = {
    1: "{}",
    2: r'{"policy":{"model":"caf\u00e9 \"x\"","step":3},"lease_id":"a\u0000b","flags":["late","\ud800"]}',
    3: '{"policy":{"model":"tiny"},"hand_out_step":7,"sender":"café"}',
}
LIFTED = {
    1: (None, None, None, None, "[]"),
    2: (r'"caf\u00e9 \"x\""', r'"a\u0000b"', None, None, r'["late","\ud800"]'),
    3: ('"tiny"', None, r'"caf\u00e9"', 7, "[]"),
}
TABLES_OF_BEFORE = (
    "CREATE TABLE scores (group_sequence BIGINT, position INTEGER, ordinal INTEGER, name VARCHAR)",
    "CREATE TABLE event_postings (key BIGINT, time BIGINT, sequence BIGINT)",
)


GONE = {
    *("job_turns", "world_revisions"),
    *("judge_spending", "run_costs", "key_usage"),
    *("judge_holds", "run_holds", "key_holds", "key_admissions"),
}


def migrate_without(left_out: Sequence[str], url: str, folder: Path) -> None:
    """By those of our migrations whose names are like none of `left_out`."""
    shutil.copytree(MIGRATIONS, folder, ignore=shutil.ignore_patterns(*left_out, "__pycache__"))
    migrate(url, folder)


def make_store_of_before(url: str, folder: Path) -> Rows:
    """What differed in schema 0036, with groups and pending groups that have heads. A row of each table."""
    migrate_without(["00[45]*"], url, folder)
    rows = fill(url)
    with connected(url) as connection:
        present = MetaData()
        present.reflect(connection, only=["groups", "parts"])
        for number in HEADS:
            group = {"sequence": number, "group_id": f"g{number}"}
            connection.execute(insert(present.tables["groups"]), rows["groups"] | group)
            pending = {"group_id": f"g{number}", "generation": number}
            connection.execute(insert(present.tables["parts"]), rows["parts"] | pending)
        connection.execute(text("DROP VIEW scores"))
        for table in TABLES_OF_BEFORE:
            connection.execute(text(table))
        connection.execute(text("ALTER TABLE part_members RENAME COLUMN digest TO said"))
        for table, names in (("groups", ("flags", "making")), ("parts", ("step",))):
            connection.execute(text(f"ALTER TABLE {table} ADD COLUMN head TEXT NOT NULL DEFAULT '{{}}'"))
            for number, head in HEADS.items():
                target = named(table, called("head"), called("group_id"))
                connection.execute(update(target).where(target.c.group_id == f"g{number}").values(head=head))
            for name in ("model", "lease_id", "sender", "hand_out_step", *names):
                connection.execute(text(f"ALTER TABLE {table} DROP COLUMN {name}"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0036'"))
    return rows


@pytest.mark.dialects
def test_a_store_of_the_schema_before_is_lifted(empty_url: str, tmp_path: Path) -> None:
    rows = make_store_of_before(empty_url, tmp_path / "migrations")
    migrate(empty_url, MIGRATIONS)
    lifted = fill(empty_url)
    of_others = ("groups", "parts", "schema_support", "spending", "holds", "earlier_texts", "claims", "authored_drafts")
    of_talk = ("talk_memories", "talk_words", "play_forgotten", "player_lines", "hosted_steps", "judge_measurements")
    changed: Rows = {name: {} for name in (*of_others, *of_talk)}
    kept: Rows = {
        name: {column: value for column, value in row.items() if column in lifted[name]}
        for name, row in rows.items()
        if name not in GONE
    }
    for name in ("labels", "label_leases"):
        kept[name] |= {"on_behalf_of": "", "verified": False}
    kept["runs"] |= {"characters": "newest"}
    kept["worlds"] |= {"memory": False}
    assert (lifted | changed, rows.keys() - lifted.keys()) == (kept | changed, GONE)
    with connected(empty_url) as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        differences = compare_metadata(context, metadata)
        read = "SELECT {} FROM {} WHERE group_id IN ('g1', 'g2', 'g3') ORDER BY group_id"
        of_groups = connection.execute(
            text(read.format("model, lease_id, sender, hand_out_step, flags", "groups"))
        ).all()
        of_parts = connection.execute(text(read.format("model, step, lease_id, sender, hand_out_step", "parts"))).all()
        spent, held = ({tuple(row) for row in connection.execute(select(table))} for table in (spending, holds))
    steps = (None, 3, None)
    expected = [(model, step, *rest[:-1]) for (model, *rest), step in zip(LIFTED.values(), steps, strict=True)]
    assert differences == []
    assert ({row[:-1] for row in spent}, held) == (
        set(LIFTED_ROWS["spending"]),
        set(LIFTED_ROWS["holds"]),
    )  # the last column is as the one before it
    assert (dict(zip(LIFTED, map(tuple, of_groups), strict=True)), list(map(tuple, of_parts))) == (LIFTED, expected)


FORMER_KEYS: dict[str, dict[str, object]] = {
    "player": {"scopes": ["play"], "bounds": {"worlds": ["play"]}},
    "both": {"scopes": ["read", "play"]},
    "none": {"scopes": ["read"], "bounds": {"worlds": ["play"]}},
}
BROWSERS = {"a" * 64: 20, "b" * 64: 21, "c" * 64: 1}
"""By the digest of a key."""


@pytest.mark.dialects
def test_play_becomes_talk_and_a_crowded_key_loses_its_browsers(empty_url: str, tmp_path: Path) -> None:
    migrate_without(["004[3-9]*", "005*"], empty_url, tmp_path / "migrations")
    made = {"hint": "gw_", "created_at": "2026-01-01T00:00:00Z", "created_by": "command line"}
    with connected(empty_url) as connection:
        for name, more in FORMER_KEYS.items():
            digest = compute_key_digest(name)
            body = json.dumps({"name": name, "digest": digest, **made, **more})
            connection.execute(insert(named_keys), {"name": name, "digest": digest, "body": body})
        browsers = [(key, f"{key}{n}") for key, count in BROWSERS.items() for n in range(count)]
        rows = [{"digest": digest, "key_digest": key, "expires_at": 7} for key, digest in browsers]
        connection.execute(insert(sign_ins), rows)
    migrate(empty_url, MIGRATIONS)
    with connected(empty_url) as connection:
        bodies = connection.execute(select(named_keys.c.body).order_by(named_keys.c.name)).scalars()
        keys = [decode(StoredKey, body) for body in bodies]
        audit = [decode(AdminAction, body) for body in connection.execute(select(admin_actions.c.body)).scalars()]
        left = {key for (key,) in connection.execute(select(sign_ins.c.key_digest))}
    lifted = {key.name: (key.scopes, key.narrowed, key.digest == compute_key_digest(key.name)) for key in keys}
    said = {(one.by, one.action, one.key, one.before and one.before.scopes) for one in audit}
    assert (lifted, said, left) == (
        {
            "player": (("talk",), True, True),
            "both": (("read", "talk"), True, True),
            "none": (("read",), False, True),
        },
        {("schema 0043", "change", "player", ("play",)), ("schema 0043", "change", "both", ("read", "play"))},
        {"a" * 64, "c" * 64},
    )
    assert name_narrowed(keys).endswith(
        ": `atropos-envs keys open both --scope read --scope talk --scope play`, "
        "`atropos-envs keys open player --scope talk --scope play`"
    )


def test_an_older_store_is_refused_with_the_way(empty_url: str) -> None:
    """A check refuses what a start would."""
    migrate(empty_url, MIGRATIONS)
    with connected(empty_url) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0035'"))
    for attempt in (migrate, require_servable):
        with pytest.raises(
            StoreUnavailable, match=rf"has schema 0035.*from 0036 on.*migrate` of the commit {LIFTED_BY}"
        ):
            attempt(empty_url, MIGRATIONS)


CRITERIA = (Criterion(name='Größe "x"', value=0.25, weight=0.5, note="\0"), Criterion(name="b", value=None, weight=1.0))


@pytest.mark.dialects
def test_scores_are_a_view_of_scored_rollouts(empty_url: str) -> None:
    """Whatever a judge wrote: backslashes, NUL and lone surrogates."""
    migrate(empty_url, MIGRATIONS)
    rows = fill(empty_url)
    rationales = ('\0 \\ \\u0000 \\\\u0000 \\\0 "', "\\", "\ud800 \0")
    scored = [
        Score(outcome="scored", reward=0.5, absolute=0.5, gate=1.0, criteria=CRITERIA[at // 2 :], rationale=said)
        for at, said in enumerate(rationales)
    ]
    with connected(empty_url) as connection:
        present = MetaData()
        present.reflect(connection, only=["rollouts"])
        connection.execute(delete(present.tables["rollouts"]))
        for position, one in enumerate([*scored, Score(outcome="unscored", reason="judge_failed")]):
            outcome, score = one.outcome, encode(one)
            row = {"position": position, "outcome": outcome, "score": score}
            connection.execute(insert(present.tables["rollouts"]), rows["rollouts"] | row)
        found = connection.execute(
            text("SELECT position, ordinal, name, value, weight FROM scores ORDER BY 1, 2")
        ).all()
    large = ('Größe "x"', 0.25, 0.5)
    expected = [(0, 0, *large), (0, 1, "b", None, 1), (1, 0, *large), (1, 1, "b", None, 1), (2, 0, "b", None, 1)]
    assert list(map(tuple, found)) == expected


def test_revisions_are_numbered_in_their_order() -> None:
    ours = revisions(MIGRATIONS)
    heads = ScriptDirectory(str(MIGRATIONS)).get_heads()
    assert (ours, heads) == (sorted(ours), [find_newest_revision(MIGRATIONS)])


def test_a_database_that_is_up_to_date_is_left_alone(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def upgrade(*_: object) -> None:
        raise AssertionError("there was nothing to do")

    monkeypatch.setattr(migration, "_upgrade", upgrade)
    migrate(store_url, MIGRATIONS)


@pytest.mark.slow
def test_ten_processes_that_start_together_migrate_once(empty_url: str, tmp_path: Path) -> None:
    """Whoever migrated a second time would find the tables there, and fail."""
    environment = {**plain_environment(), "ATROPOS_ENVS_DATABASE_URL": empty_url}
    processes = [ForkedProgram("app.cli", ["migrate"], tmp_path, environment, tmp_path / "log") for _ in range(10)]
    codes = [process.wait(120) for process in processes]
    newest = find_newest_revision(MIGRATIONS)
    with connected(empty_url) as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        differences = compare_metadata(context, metadata)
        revisions_written = connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()
    assert (codes, differences, revisions_written) == ([0] * 10, [], [newest])


@pytest.mark.dialects
def test_a_migration_that_fails_leaves_nothing_behind(empty_url: str, tmp_path: Path) -> None:
    broken = tmp_path / "migrations"
    (broken / "versions").mkdir(parents=True)
    (broken / "env.py").write_text((MIGRATIONS / "env.py").read_text())
    (broken / "versions" / "0001_broken.py").write_text(
        "from alembic import op\nimport sqlalchemy as sa\nrevision = '0001'\ndown_revision = None\n"
        "def upgrade():\n"
        "    op.create_table('half', sa.Column('a', sa.Integer))\n"
        "    op.execute('INSERT INTO nowhere VALUES (1)')\n"
    )
    with pytest.raises(StoreUnavailable):
        migrate(empty_url, broken)
    assert tables_of(empty_url) == set()


@pytest.mark.parametrize("url", read_table(__file__, "wrong_urls.yaml", list[str]))
def test_a_url_that_is_none_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match="database URL") as caught:
        migrate(url, MIGRATIONS)
    assert "secret" not in str(caught.value)


def test_a_database_of_a_newer_version_is_not_touched(empty_url: str, tmp_path: Path) -> None:
    """A check refuses what a start would."""
    migrate(empty_url, extend_migrations(tmp_path, NEXT))
    rows = fill(empty_url)
    for attempt in (migrate, require_servable):
        with pytest.raises(StoreUnavailable, match="has schema 9999, but this version of the service supports"):
            attempt(empty_url, MIGRATIONS)
    assert fill(empty_url) == rows


def test_a_service_starts_on_a_newer_schema_that_only_expanded(empty_url: str, tmp_path: Path) -> None:
    """And a database is checked without changing it: without a schema, up to date, and expanded."""
    require_servable(empty_url, MIGRATIONS)
    tables = [tables_of(empty_url)]
    migrate(empty_url, MIGRATIONS)
    before = fill(empty_url)
    require_servable(empty_url, MIGRATIONS)
    unchanged = fill(empty_url) == before
    migrate(empty_url, extend_migrations(tmp_path, EXPANSION))
    rows = fill(empty_url)
    require_servable(empty_url, MIGRATIONS)
    migrate(empty_url, MIGRATIONS)
    assert (tables, unchanged, fill(empty_url), rows["schema_support"]) == ([set()], True, rows, {"oldest": "0044"})


def test_a_folder_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match="folder"):
        migrate(f"sqlite:///{tmp_path / 'file' / 'folder' / 'store.db'}", MIGRATIONS)


def test_the_folder_of_a_sqlite_file_is_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "store.db"
    migrate(f"sqlite:///{path}", MIGRATIONS)
    assert path.is_file()


@pytest.mark.parametrize(
    ("place", "says"),
    [("file/folder/store.db", "file is a file"), ("file", "file is not a database"), ("folder", "unable to open")],
)
def test_a_check_says_why_a_file_can_be_no_database(tmp_path: Path, place: str, says: str) -> None:
    (tmp_path / "file").write_text("no database, but long enough to be taken for the head of one " * 20)
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreUnavailable, match=says):
        require_servable(f"sqlite:///{tmp_path / place}", MIGRATIONS)


def test_a_check_makes_no_file_and_says_what_does_not_answer(tmp_path: Path) -> None:
    require_servable(f"sqlite:///{tmp_path / 'new' / 'store.db'}", MIGRATIONS)
    with pytest.raises(StoreUnavailable, match="cannot be reached or read: connection"):
        require_servable("postgresql://nobody@127.0.0.1:9/none", MIGRATIONS)
    assert list(tmp_path.iterdir()) == []
