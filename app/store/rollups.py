"""Rollups are written with the groups that they count.

Changes of a transaction are collected and written once, right before it commits, so that many groups share one write.
"""

import hashlib
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import (
    BindParameter,
    Connection,
    RowMapping,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    select,
    update,
)

from app.domain.digests import canonical_json
from app.domain.groups import Group
from app.domain.rollups import (
    NO_VALUES,
    WITH_CRITERIA,
    CountedGroup,
    MeasureMap,
    Rollup,
    RollupFilter,
    RollupKey,
    Sums,
    add_measures,
    find_pass_rate_bin,
    list_criteria,
    list_keys,
    list_measures,
    merge_measures,
    negate,
)
from app.ports.views import StatisticsStore
from app.store.database import Database
from app.store.group_rows import load_groups
from app.store.judge_tables import judgements
from app.store.rollup_tables import rollups, task_rollups
from app.store.rows import Row, decode_json, encode_json, upsert_rows
from app.store.tables import groups, tasks

log = logging.getLogger(__name__)

_TaskNames = tuple[str | None, str | None]
"""A task's label and data set, where it has them."""

_CHANGES: Final = "rollup_changes"
_MOST_BOUND: Final = 500
"""Values of one IN list."""
_WANTED: Final[BindParameter[str]] = bindparam("wanted", expanding=True)
_FIND_LABELS: Final = select(tasks.c.task_id, tasks.c.label, tasks.c.dataset).where(tasks.c.task_id.in_(_WANTED))
_FIND_MEASURES: Final = select(rollups.c.digest, rollups.c.measures).where(rollups.c.digest.in_(_WANTED))
_FIND_TASK_SUMS: Final = select(task_rollups.c.task_id, task_rollups.c.sums).where(
    task_rollups.c.run == bindparam("run"),
    task_rollups.c.environment == bindparam("environment"),
    task_rollups.c.task_id.in_(_WANTED),
)


@dataclass(frozen=True)
class _Addend:
    """What one group adds to each of its rollups."""

    group: Group
    keys: Sequence[RollupKey]
    measures: MeasureMap
    """What every one of them gains."""
    criteria: MeasureMap
    """What those of WITH_CRITERIA gain too."""


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
    addends = [_build_addend(after, labels) for _, after in changes]
    addends += [_take_away(_build_addend(before, labels)) for before, _ in changes if before is not None]
    changes.clear()
    _lock_runs(connection, {addend.group.run or "" for addend in addends})
    deltas = _merge_by_key(addends)
    for key, bins in _write_task_rollups(connection, addends).items():
        deltas[key] = merge_measures((deltas[key], bins))
    _write_rollups(connection, deltas)


def _load_labels(connection: Connection, task_ids: Collection[str]) -> dict[str, _TaskNames]:
    found: dict[str, _TaskNames] = {}
    for some in _split(task_ids):
        for task_id, *texts in connection.execute(_FIND_LABELS, {"wanted": some}):
            label, dataset = (None if text is None else str(decode_json(text)) for text in texts)
            found[task_id] = (label, dataset)
    return found


def _split(values: Iterable[str]) -> Iterable[Sequence[str]]:
    ordered = sorted(values)
    return (ordered[first : first + _MOST_BOUND] for first in range(0, len(ordered), _MOST_BOUND))


def _build_addend(counted: CountedGroup, labels: Mapping[str, _TaskNames]) -> _Addend:
    keys = list_keys(counted, *labels.get(counted.group.task_id, (None, None)))
    return _Addend(counted.group, keys, list_measures(counted), list_criteria(counted.group))


def _take_away(addend: _Addend) -> _Addend:
    return replace(addend, measures=negate(addend.measures), criteria=negate(addend.criteria))


def _merge_by_key(addends: Sequence[_Addend]) -> dict[RollupKey, MeasureMap]:
    """What each rollup gains. Keys of the same groups, such as a run and its only step here, share one sum."""
    members: defaultdict[RollupKey, list[int]] = defaultdict(list)
    for place, addend in enumerate(addends):
        for key in addend.keys:
            members[key].append(place)
    plain: dict[tuple[int, ...], MeasureMap] = {}
    criteria: dict[tuple[int, ...], MeasureMap] = {}
    deltas: dict[RollupKey, MeasureMap] = {}
    for key, places in members.items():
        same = tuple(places)
        if same not in plain:
            plain[same] = merge_measures([addends[place].measures for place in places])
        deltas[key] = plain[same]
        if key.series in WITH_CRITERIA:
            if same not in criteria:
                criteria[same] = merge_measures([addends[place].criteria for place in places])
            deltas[key] = plain[same] | criteria[same]
    return deltas


def _lock_runs(connection: Connection, runs: Collection[str]) -> None:
    """Replicas that count groups of one run take turns: they read, add and write."""
    if connection.dialect.name != "postgresql":  # SQLite has one writer at a time as it is
        return
    hashes = {
        int.from_bytes(hashlib.sha256(f"rollups {run}".encode()).digest()[:8], "big", signed=True) for run in runs
    }
    for key in sorted(hashes):
        connection.execute(select(func.pg_advisory_xact_lock(key)))


def _write_task_rollups(connection: Connection, addends: Iterable[_Addend]) -> dict[RollupKey, MeasureMap]:
    """Returns how the tasks moved between the pass-rate bins of their runs."""
    tried: defaultdict[tuple[str, str], defaultdict[str, list[Sums]]] = defaultdict(lambda: defaultdict(list))
    for addend in addends:
        group, absolute = addend.group, addend.measures.get("absolute")
        if group.run is not None and group.purpose == "train" and isinstance(absolute, list):
            tried[group.run, group.environment][group.task_id].append(absolute)
    return {
        RollupKey("run", environment, run, "train"): _write_tasks_of_run(connection, run, environment, of_tasks)
        for (run, environment), of_tasks in sorted(tried.items())
    }


def _write_tasks_of_run(
    connection: Connection, run: str, environment: str, of_tasks: Mapping[str, Sequence[Sums]]
) -> MeasureMap:
    known: dict[str, Sums] = {}
    for some in _split(of_tasks):
        here = {"run": run, "environment": environment, "wanted": some}
        known |= {task_id: json.loads(sums) for task_id, sums in connection.execute(_FIND_TASK_SUMS, here)}
    moved: Counter[int | None] = Counter()
    rows: list[Row] = []
    for task_id, parts in sorted(of_tasks.items()):
        before = known.get(task_id, NO_VALUES)
        after = [sum(column) for column in zip(before, *parts, strict=False)]
        if after != before:
            rows.append({"run": run, "environment": environment, "task_id": task_id, "sums": canonical_json(after)})
            moved[find_pass_rate_bin(before)] -= 1
            moved[find_pass_rate_bin(after)] += 1
    upsert_rows(connection, task_rollups, "sums", rows)
    return {f"pass_rate:{place}": count for place, count in moved.items() if count and place is not None}


def _write_rollups(connection: Connection, deltas: Mapping[RollupKey, MeasureMap]) -> None:
    by_digest = {key.digest: key for key, delta in deltas.items() if delta}
    known: dict[str, MeasureMap] = {}
    for some in _split(by_digest):
        found = connection.execute(_FIND_MEASURES, {"wanted": some})
        known |= {digest: json.loads(measures) for digest, measures in found}
    rows: list[Row] = []
    empty: list[str] = []
    for digest, key in sorted(by_digest.items()):
        if merged := add_measures(known.get(digest, {}), deltas[key]):
            rows.append({"digest": digest, **_build_key_columns(key), "measures": canonical_json(merged)})
        else:
            empty.append(digest)
    upsert_rows(connection, rollups, "measures", rows)
    for some in _split(empty):
        connection.execute(delete(rollups).where(rollups.c.digest.in_(some)))


def _build_key_columns(key: RollupKey) -> dict[str, Any]:
    return key._asdict() | {"label": None if key.label is None else encode_json(key.label)}


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
        .where(judgements.c.purpose.is_(None))
        .group_by(judgements.c.group_sequence)
    )
    return {sequence: (int(one), int(two), int(calls)) for sequence, one, two, calls in connection.execute(made)}


SET_ASIDE: Final = 2
"""In `groups.counted`: it cannot be read. A rebuild tries it again."""
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
    readings = load_readings(connection, sequences.values())
    found, unreadable = _load_readable_groups(connection, sequences)
    for group in found:
        sequence = sequences[group.group_id]
        note_group(connection, None, CountedGroup(group, sequence, *readings.get(sequence, (0, 0, 0))))
    here = groups.c.sequence.in_(sequences.values())
    connection.execute(update(groups).where(here).values(counted=1))
    if unreadable:
        set_aside = groups.c.sequence.in_(unreadable)
        connection.execute(update(groups).where(set_aside).values(counted=SET_ASIDE))
    return len(sequences)


def _load_readable_groups(connection: Connection, sequences: Mapping[str, int]) -> tuple[list[Group], list[int]]:
    """The groups, and the sequences of those that cannot be read: one broken row must not keep the others out."""
    try:
        return load_groups(connection, groups.c.sequence.in_(sequences.values())), []
    except ValueError:
        found, unreadable = list[Group](), list[int]()
    for group_id, sequence in sequences.items():
        try:
            found += load_groups(connection, groups.c.sequence == sequence)
        except ValueError:
            log.exception("group %s cannot be read; statistics leave it out", group_id)
            unreadable.append(sequence)
    return found, unreadable


def _forget_rollups(connection: Connection) -> int:
    # Whoever writes rollups has written groups before. So this waits for them whole, and they wait before their first
    # lock: a lock of `rollups` alone would let them add to what they read before, and would deadlock with them.
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("LOCK TABLE groups IN EXCLUSIVE MODE")
    connection.execute(delete(rollups))
    connection.execute(delete(task_rollups))
    connection.execute(update(groups).where(groups.c.counted != 0).values(counted=0))
    return count_uncounted(connection)
