"""Rollups are written with the groups that they count: changes of a transaction are collected and written once, right
before it commits, so that many groups share one write."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal

from sqlalchemy import Connection, Insert, RowMapping, Table, and_, case, delete, func, literal_column, select, update
from sqlalchemy.dialects import sqlite

from app.domain.digests import canonical_json
from app.domain.rollups import (
    CountedGroup,
    MeasureMap,
    Rollup,
    RollupFilter,
    RollupKey,
    Sums,
    find_pass_rate_bin,
    list_keys,
    list_measures,
    merge_measures,
)
from app.ports.store import StatisticsStore
from app.store.database import Database
from app.store.group_rows import load_groups
from app.store.judge_tables import judgements
from app.store.rollup_tables import rollups, task_rollups
from app.store.rows import decode_json, encode_json
from app.store.tables import groups, tasks

Deltas = defaultdict[RollupKey, MeasureMap]
TaskDeltas = defaultdict[tuple[str, str], dict[str, MeasureMap]]
"""By run and environment, then by task."""

_CHANGES: Final = "rollup_changes"
_MOST_BOUND: Final = 500
"""Values of one IN list."""


class SqlStatisticsStore(StatisticsStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def count_groups(self, limit: int) -> int:
        return await self._database.write(lambda connection: _count_groups(connection, limit), "groups")

    async def forget_all(self) -> int:
        return await self._database.write(_forget_rollups, "groups")


def note_group(connection: Connection, before: CountedGroup | None, after: CountedGroup) -> None:
    """The group counts as `after`, and no more as `before`, once the transaction commits."""
    options = connection.get_execution_options()
    if _CHANGES not in options:
        connection.execution_options(**{_CHANGES: []})
        options = connection.get_execution_options()
    options[_CHANGES].append((before, after))


def write_rollups(connection: Connection) -> None:
    """Call right before the commit: on PostgreSQL it locks the runs of the groups, in order."""
    changes = connection.get_execution_options().get(_CHANGES)
    if not changes:
        return
    labels = _load_labels(connection, {after.group.task_id for _, after in changes})
    deltas: Deltas = defaultdict(dict)
    tried: TaskDeltas = defaultdict(lambda: defaultdict(dict))
    for before, after in changes:
        _add_group(deltas, tried, after, labels, 1)
        if before is not None:
            _add_group(deltas, tried, before, labels, -1)
    changes.clear()
    _lock_runs(connection, {key.run or "" for key in deltas})
    _write_task_rollups(connection, tried, deltas)
    _write_rollups(connection, {key: delta for key, delta in deltas.items() if delta})


def _load_labels(connection: Connection, task_ids: Collection[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for some in _split(sorted(task_ids)):
        labelled = select(tasks.c.task_id, tasks.c.label).where(tasks.c.task_id.in_(some), tasks.c.label.is_not(None))
        found |= {task_id: str(decode_json(label)) for task_id, label in connection.execute(labelled)}
    return found


def _split(values: Sequence[str]) -> Iterable[Sequence[str]]:
    return (values[first : first + _MOST_BOUND] for first in range(0, len(values), _MOST_BOUND))


def _add_group(
    deltas: Deltas, tried: TaskDeltas, counted: CountedGroup, labels: Mapping[str, str], sign: Literal[1, -1]
) -> None:
    group, measures = counted.group, list_measures(counted)
    for key in list_keys(counted, labels.get(group.task_id)):
        merge_measures(deltas[key], measures, sign)
    if group.run is not None and group.purpose == "train" and "absolute" in measures:
        of_run = tried[group.run, group.environment]
        merge_measures(of_run[group.task_id], {"absolute": measures["absolute"]}, sign)


def _lock_runs(connection: Connection, runs: Collection[str]) -> None:
    """Replicas that count groups of one run take turns: they read, add and write."""
    if connection.dialect.name != "postgresql":  # SQLite has one writer at a time as it is
        return
    hashes = {
        int.from_bytes(hashlib.sha256(f"rollups {run}".encode()).digest()[:8], "big", signed=True) for run in runs
    }
    for key in sorted(hashes):
        connection.execute(select(func.pg_advisory_xact_lock(key)))


def _write_task_rollups(connection: Connection, tried: TaskDeltas, deltas: Deltas) -> None:
    """Also moves the tasks between the pass-rate bins of their run."""
    for (run, environment), of_tasks in sorted(tried.items()):
        changed = {task_id: delta["absolute"] for task_id, delta in of_tasks.items() if delta}
        here = and_(task_rollups.c.run == run, task_rollups.c.environment == environment)
        known: dict[str, Sums] = {}
        for some in _split(sorted(changed)):
            found = select(task_rollups.c.task_id, task_rollups.c.sums).where(here, task_rollups.c.task_id.in_(some))
            known |= {task_id: json.loads(sums) for task_id, sums in connection.execute(found)}
        bins = deltas[RollupKey("run", environment, run, "train")]
        rows = []
        for task_id, delta in sorted(changed.items()):
            merged: MeasureMap = {"absolute": known.get(task_id, [0, 0, 0])}
            _move_bin(bins, merged, -1)
            merge_measures(merged, {"absolute": delta})
            _move_bin(bins, merged, 1)
            sums = canonical_json(merged.get("absolute", [0, 0, 0]))
            rows.append({"run": run, "environment": environment, "task_id": task_id, "sums": sums})
        if rows:
            connection.execute(_build_upsert(task_rollups, "sums", connection.dialect.name), rows)


def _move_bin(bins: MeasureMap, of_task: MeasureMap, sign: Literal[1, -1]) -> None:
    sums = of_task.get("absolute")
    place = find_pass_rate_bin(sums) if isinstance(sums, list) else None
    if place is not None:
        merge_measures(bins, {f"pass_rate:{place}": 1}, sign)


def _write_rollups(connection: Connection, deltas: Mapping[RollupKey, MeasureMap]) -> None:
    by_digest = {key.digest: key for key in deltas}
    known: dict[str, MeasureMap] = {}
    for some in _split(sorted(by_digest)):
        found = select(rollups.c.digest, rollups.c.measures).where(rollups.c.digest.in_(some))
        known |= {digest: json.loads(measures) for digest, measures in connection.execute(found)}
    rows, empty = [], []
    for digest, key in sorted(by_digest.items()):
        merged = known.get(digest, {})
        merge_measures(merged, deltas[key])
        if merged:
            rows.append({"digest": digest, **_build_key_columns(key), "measures": canonical_json(merged)})
        else:
            empty.append(digest)
    if rows:
        connection.execute(_build_upsert(rollups, "measures", connection.dialect.name), rows)
    for some in _split(empty):
        connection.execute(delete(rollups).where(rollups.c.digest.in_(some)))


def _build_key_columns(key: RollupKey) -> dict[str, Any]:
    return key._asdict() | {"label": None if key.label is None else encode_json(key.label)}


@cache
def _build_upsert(table: Table, changed: str, dialect: str) -> Insert:
    into: Any
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql  # takes long to import

        into = postgresql.insert(table)
    else:
        into = sqlite.insert(table)
    keys = [column.name for column in table.primary_key]
    written: Insert = into.on_conflict_do_update(index_elements=keys, set_={changed: into.excluded[changed]})
    return written


def load_rollups(connection: Connection, where: RollupFilter) -> list[Rollup]:
    """In the order of their keys, nulls first."""
    wanted = [rollups.c.series == where.series]
    for name in ("environment", "run", "purpose"):
        value: str | None = getattr(where, name)
        if value is not None:
            wanted.append(rollups.c[name] == value)
    if where.label is not None:
        wanted.append(rollups.c.label == encode_json(where.label))
    if where.first_bucket is not None:
        wanted.append(rollups.c.bucket >= where.first_bucket)
    found = [_parse_rollup(row) for row in connection.execute(select(rollups).where(*wanted)).mappings()]
    return sorted(found, key=lambda rollup: rollup.key.place)


def _parse_rollup(row: RowMapping) -> Rollup:
    values = {name: row[name] for name in RollupKey._fields}
    label = None if row["label"] is None else str(decode_json(row["label"]))
    return Rollup(RollupKey(**values | {"label": label}), json.loads(row["measures"]))


def load_readings(connection: Connection, sequences: Collection[int]) -> dict[int, tuple[int, int, int]]:
    """Usable and failed judgements of these groups' own scores, and calls made for them, by group."""
    failed = func.sum(case((judgements.c.failed, 1), else_=0))
    made = (
        select(judgements.c.group_sequence, func.count() - failed, failed, func.sum(judgements.c.calls))
        .where(judgements.c.group_sequence.in_(sequences), judgements.c.scoring_sequence.is_(None))
        .group_by(judgements.c.group_sequence)
    )
    return {sequence: (int(one), int(two), int(calls)) for sequence, one, two, calls in connection.execute(made)}


_IS_UNCOUNTED: Final = groups.c.counted == literal_column("0")  # names the partial index


def count_uncounted(connection: Connection) -> int:
    """How many stored groups no rollup includes yet."""
    return int(connection.execute(select(func.count()).select_from(groups).where(_IS_UNCOUNTED)).scalar_one())


def _count_groups(connection: Connection, limit: int) -> int:
    oldest = (
        select(groups.c.sequence, groups.c.group_id)
        .where(_IS_UNCOUNTED)
        .order_by(groups.c.sequence)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    sequences = {group_id: sequence for sequence, group_id in connection.execute(oldest)}
    if not sequences:
        return 0
    here = groups.c.sequence.in_(sequences.values())
    readings = load_readings(connection, sequences.values())
    for group in load_groups(connection, here):
        sequence = sequences[group.group_id]
        note_group(connection, None, CountedGroup(group, sequence, *readings.get(sequence, (0, 0, 0))))
    connection.execute(update(groups).where(here).values(counted=1))
    return len(sequences)


def _forget_rollups(connection: Connection) -> int:
    if connection.dialect.name == "postgresql":  # other replicas finish writing theirs before, or begin after
        connection.exec_driver_sql("LOCK TABLE rollups IN EXCLUSIVE MODE")
    connection.execute(delete(rollups))
    connection.execute(delete(task_rollups))
    connection.execute(update(groups).where(groups.c.counted != 0).values(counted=0))
    return count_uncounted(connection)
