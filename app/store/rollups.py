"""Statistics: rollups of what groups add up to, written in the transaction that stores the groups.

A rollup is a row of sums and counts under one key (series, environment, run, purpose, step, label, bucket). A group
adds to several; when its scores change, what it added is taken away and what it adds now is added. The changes of a
transaction are collected and written once, right before it commits, so that many groups share one write. `counted` in
the row of a group says whether rollups include it, so that all of them can be built anew.
"""

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Connection,
    RowMapping,
    Select,
    Table,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    update,
)

from app.domain.groups import Group
from app.domain.rollups import (
    NO_VALUES,
    PICODOLLARS,
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
from app.domain.values import canonical_json
from app.store.database import StorePart, writes
from app.store.group_rows import load_groups
from app.store.statements import (
    PreparedStatement,
    Row,
    decode_json,
    encode_json,
    is_among,
    lock_names,
    match_names,
    upsert_rows,
)
from app.store.tables import groups, judgements, rollups, sealed_rollups, sealed_task_rollups, task_rollups, tasks

log = logging.getLogger(__name__)


class StatisticsStore(StorePart):
    """Counts stored groups into the statistics. Groups count when they are stored; these are for all others."""

    @writes("groups")
    def count_groups(self, connection: Connection, limit: int) -> int:
        """Counts the oldest groups that no statistics include yet, and returns how many they were; 0 when all are
        counted. It may be interrupted at any time, and replicas share the work."""
        return _count_groups(connection, limit)

    @writes("groups")
    def forget_all(self, connection: Connection) -> int:
        """Empties the statistics and returns the number of groups to count again."""
        # What groups added that are pruned stays: nothing could count them again. Whoever writes rollups has written
        # groups before. So this waits for them whole, and they wait before their first lock: a lock of `rollups` alone
        # would let them add to what they read before, and would deadlock with them.
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("LOCK TABLE groups IN EXCLUSIVE MODE")
        _restore_sealed(connection)
        connection.execute(update(groups).where(groups.c.counted != 0).values(counted=0))
        return count_uncounted(connection)


def load_rollups(connection: Connection, where: RollupFilter) -> list[Rollup]:
    """In the order of their keys, nulls first."""
    conditions = [rollups.c.series == where.series]
    for name in ("environment", "run", "purpose"):
        value: str | None = getattr(where, name)
        if value is not None:
            conditions.append(rollups.c[name] == value)
    if where.label is not None:
        conditions.append(rollups.c.label == encode_json(where.label))
    for column, patterns in ((rollups.c.environment, where.environments), (rollups.c.run, where.runs)):
        if patterns:
            conditions.append(match_names(column, patterns))
    if where.first_bucket is not None:
        conditions.append(rollups.c.bucket >= where.first_bucket)
    if where.min_step is not None:
        conditions.append(rollups.c.step >= where.min_step)
    if where.max_step is not None:
        conditions.append(rollups.c.step <= where.max_step)
    matches = [_parse_rollup(row) for row in connection.execute(select(rollups).where(*conditions)).mappings()]
    return sorted(matches, key=lambda rollup: rollup.key.place)


def sample_rollups(connection: Connection, where: RollupFilter, most: int) -> list[Rollup]:
    """As `load_rollups`, of the series `step`: of each run about `most` steps, evenly spread, its first and last among
    them. Measures are read of these alone."""
    named = [rollups.c.series == "step", rollups.c.step.is_not(None), match_names(rollups.c.run, where.runs)]
    named += [rollups.c[name] == value for name in ("environment", "purpose") if (value := getattr(where, name))]
    if where.environments:
        named.append(match_names(rollups.c.environment, where.environments))
    of_run = func.dense_rank().over(partition_by=rollups.c.run, order_by=rollups.c.step)
    ranked = select(rollups.c.digest, rollups.c.run, of_run.label("place")).where(*named).subquery()
    last = func.max(ranked.c.place).over(partition_by=ranked.c.run)
    counted = select(ranked.c.digest, ranked.c.place, last.label("last")).subquery()
    every = (counted.c.last + (most - 1)) // most
    chosen = select(counted.c.digest).where(or_((counted.c.place - 1) % every == 0, counted.c.place == counted.c.last))
    rows = connection.execute(select(rollups).where(rollups.c.digest.in_(chosen))).mappings()
    return sorted((_parse_rollup(row) for row in rows), key=lambda rollup: rollup.key.place)


def _parse_rollup(row: RowMapping) -> Rollup:
    values = {name: row[name] for name in RollupKey._fields}
    label = None if row["label"] is None else str(decode_json(row["label"]))
    return Rollup(RollupKey(**values | {"label": label}), json.loads(row["measures"]))


# Writing: changes of a transaction are collected, and written once, right before it commits.

_CHANGES: Final = "rollup_changes"


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
    labels = load_labels(connection, {after.group.task_id for _, after in changes})
    addends = [build_addend(after, labels) for _, after in changes]
    addends += [_take_away(build_addend(before, labels)) for before, _ in changes if before is not None]
    changes.clear()
    # Replicas that count groups of one run take turns: they read, add and write.
    lock_names(connection, {f"rollups {addend.group.run or ''}" for addend in addends})
    deltas = _merge_by_key(addends)
    for key, bins in _write_task_sums(connection, IN_STATISTICS, addends).items():
        deltas[key] = merge_measures((deltas[key], bins))
    _write_sums(connection, IN_STATISTICS, deltas)


# Sums over groups, and how they are added to the rows of rollups.

_TaskNames = tuple[str | None, str | None]
"""A task's label and data set, where it has them."""


@dataclass(frozen=True)
class Addend:
    """What one group adds to each of its rollups."""

    group: Group
    keys: Sequence[RollupKey]
    measures: MeasureMap
    """What every one of them gains."""
    criteria: MeasureMap
    """What those of WITH_CRITERIA gain too."""


def build_addend(counted: CountedGroup, labels: Mapping[str, _TaskNames]) -> Addend:
    keys = list_keys(counted, *labels.get(counted.group.task_id, (None, None)))
    return Addend(counted.group, keys, list_measures(counted), list_criteria(counted.group))


def _take_away(addend: Addend) -> Addend:
    return replace(addend, measures=negate(addend.measures), criteria=negate(addend.criteria))


def load_labels(connection: Connection, task_ids: Collection[str]) -> dict[str, _TaskNames]:
    names: dict[str, _TaskNames] = {}
    for task_id, *texts in _FIND_LABELS.fetch(connection, given=sorted(task_ids)):
        label, dataset = (None if text is None else str(decode_json(text)) for text in texts)
        names[task_id] = (label, dataset)
    return names


_FIND_LABELS: Final = PreparedStatement(
    lambda postgres: select(tasks.c.task_id, tasks.c.label, tasks.c.dataset).where(
        is_among(tasks.c.task_id, "given", postgres)
    )
)
_MOST_BOUND: Final = 500
"""Values of one IN list."""


def _split(values: Iterable[str]) -> Iterable[Sequence[str]]:
    ordered = sorted(values)
    return (ordered[first : first + _MOST_BOUND] for first in range(0, len(ordered), _MOST_BOUND))


@dataclass(frozen=True)
class _SumTables:
    """Where sums are: those of statistics, or those of pruned groups alone."""

    rollups: Table
    task_rollups: Table

    @cached_property
    def find_measures(self) -> PreparedStatement:
        here = self.rollups.c
        return PreparedStatement(
            lambda postgres: select(here.digest, here.measures).where(is_among(here.digest, "given", postgres))
        )

    @cached_property
    def find_task_sums(self) -> PreparedStatement:
        here = self.task_rollups.c
        mine = here.run == bindparam("run"), here.environment == bindparam("environment")
        return PreparedStatement(
            lambda postgres: select(here.task_id, here.sums).where(*mine, is_among(here.task_id, "given", postgres))
        )


IN_STATISTICS: Final = _SumTables(rollups, task_rollups)
_SEALED: Final = _SumTables(sealed_rollups, sealed_task_rollups)


def _merge_by_key(addends: Sequence[Addend]) -> dict[RollupKey, MeasureMap]:
    """What each rollup gains. Keys of the same groups, such as a run and its only step here, share one sum."""
    members: defaultdict[RollupKey, list[int]] = defaultdict(list)
    for number, addend in enumerate(addends):
        for key in addend.keys:
            members[key].append(number)
    plain: dict[tuple[int, ...], MeasureMap] = {}
    criteria: dict[tuple[int, ...], MeasureMap] = {}
    deltas: dict[RollupKey, MeasureMap] = {}
    for key, numbers in members.items():
        same = tuple(numbers)
        if same not in plain:
            plain[same] = merge_measures([addends[number].measures for number in numbers])
        deltas[key] = plain[same]
        if key.series in WITH_CRITERIA:
            if same not in criteria:
                criteria[same] = merge_measures([addends[number].criteria for number in numbers])
            deltas[key] = plain[same] | criteria[same]
    return deltas


def _write_task_sums(
    connection: Connection, tables: _SumTables, addends: Iterable[Addend]
) -> dict[RollupKey, MeasureMap]:
    """Returns how the tasks moved between the pass-rate bins of their runs."""
    tried: defaultdict[tuple[str, str], defaultdict[str, list[Sums]]] = defaultdict(lambda: defaultdict(list))
    for addend in addends:
        group, absolute = addend.group, addend.measures.get("absolute")
        if group.run is not None and group.purpose == "train" and isinstance(absolute, list):
            tried[group.run, group.environment][group.task_id].append(absolute)
    return {
        RollupKey("run", environment, run, "train"): _write_tasks_of_run(connection, tables, run, environment, of_tasks)
        for (run, environment), of_tasks in sorted(tried.items())
    }


def _write_tasks_of_run(
    connection: Connection, tables: _SumTables, run: str, environment: str, of_tasks: Mapping[str, Sequence[Sums]]
) -> MeasureMap:
    stored = tables.find_task_sums.fetch(connection, run=run, environment=environment, given=sorted(of_tasks))
    stored_sums: dict[str, Sums] = {task_id: json.loads(sums) for task_id, sums in stored}
    moved: Counter[int | None] = Counter()
    rows: list[Row] = []
    for task_id, parts in sorted(of_tasks.items()):
        before = stored_sums.get(task_id, NO_VALUES)
        after = [sum(column) for column in zip(before, *parts, strict=False)]
        if after != before:
            rows.append({"run": run, "environment": environment, "task_id": task_id, "sums": canonical_json(after)})
            moved[find_pass_rate_bin(before)] -= 1
            moved[find_pass_rate_bin(after)] += 1
    upsert_rows(connection, tables.task_rollups, "sums", rows)
    return {
        f"pass_rate:{pass_rate_bin}": count
        for pass_rate_bin, count in moved.items()
        if count and pass_rate_bin is not None
    }


def _write_sums(connection: Connection, tables: _SumTables, deltas: Mapping[RollupKey, MeasureMap]) -> None:
    by_digest = {key.digest: key for key, delta in deltas.items() if delta}
    stored = tables.find_measures.fetch(connection, given=sorted(by_digest))
    stored_measures: dict[str, MeasureMap] = {digest: json.loads(measures) for digest, measures in stored}
    rows: list[Row] = []
    empty: list[str] = []
    for digest, key in sorted(by_digest.items()):
        if merged := add_measures(stored_measures.get(digest, {}), deltas[key]):
            rows.append({"digest": digest, **_build_key_columns(key), "measures": canonical_json(merged)})
        else:
            empty.append(digest)
    upsert_rows(connection, tables.rollups, "measures", rows)
    for some in _split(empty):
        connection.execute(delete(tables.rollups).where(tables.rollups.c.digest.in_(some)))


def _build_key_columns(key: RollupKey) -> dict[str, Any]:
    return key._asdict() | {"label": None if key.label is None else encode_json(key.label)}


# What pruned groups had added, sealed so that counting all groups again does not lose it.


def lock_sealed(connection: Connection) -> None:
    """Call before the groups are locked: processes that prune take turns."""
    lock_names(connection, ["sealed sums"])


def seal(connection: Connection, addends: Sequence[Addend]) -> None:
    """Pass rates are left out: they follow from the sums of tasks, to which groups to come add."""
    _write_task_sums(connection, _SEALED, addends)
    _write_sums(connection, _SEALED, _merge_by_key(addends))


def _restore_sealed(connection: Connection) -> None:
    """The statistics are those of pruned groups alone."""
    for table, sealed in ((rollups, sealed_rollups), (task_rollups, sealed_task_rollups)):
        names = [column.name for column in table.columns]
        connection.execute(delete(table))
        connection.execute(insert(table).from_select(names, select(*(sealed.c[name] for name in names))))
    bins: defaultdict[RollupKey, Counter[str]] = defaultdict(Counter)
    sums = select(sealed_task_rollups.c.run, sealed_task_rollups.c.environment, sealed_task_rollups.c.sums)
    for run, environment, text in connection.execute(sums):
        if (pass_rate_bin := find_pass_rate_bin(json.loads(text))) is not None:
            bins[RollupKey("run", environment, run, "train")][f"pass_rate:{pass_rate_bin}"] += 1
    _write_sums(connection, IN_STATISTICS, {key: dict(counts) for key, counts in bins.items()})


# Groups that no rollup includes yet, and readings of those that are counted.

_SET_ASIDE: Final = 2
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
    readable, unreadable = load_readable_groups(connection, sequences)
    for group in readable:
        sequence = sequences[group.group_id]
        note_group(connection, None, CountedGroup(group, sequence, *readings.get(sequence, ())))
    here = groups.c.sequence.in_(sequences.values())
    connection.execute(update(groups).where(here).values(counted=1))
    if unreadable:
        set_aside = groups.c.sequence.in_(unreadable)
        connection.execute(update(groups).where(set_aside).values(counted=_SET_ASIDE))
    return len(sequences)


def load_readable_groups(connection: Connection, sequences: Mapping[str, int]) -> tuple[list[Group], list[int]]:
    """The groups, and the sequences of those that cannot be read: one broken row must not keep the others out."""
    try:
        return load_groups(connection, groups.c.sequence.in_(sequences.values())), []
    except ValueError:
        readable, unreadable = list[Group](), list[int]()
    for group_id, sequence in sequences.items():
        try:
            readable += load_groups(connection, groups.c.sequence == sequence)
        except ValueError:
            log.exception("group %s cannot be read; statistics leave it out", group_id)
            unreadable.append(sequence)
    return readable, unreadable


def load_readings(connection: Connection, sequences: Collection[int]) -> dict[int, tuple[int, ...]]:
    """By group what `CountedGroup` has of the judgements of its own scores, in that order: usable and failed ones, the
    calls made for them, priced and unpriced ones, and what they cost."""
    rows = _SELECT_READINGS.run(connection, given=list(sequences))
    return {row[0]: tuple(map(int, row[1:])) for row in rows}


def _select_readings(postgres: bool) -> Select[Any]:
    failed = func.sum(case((judgements.c.failed, 1), else_=0))
    unpriced = func.sum(case((judgements.c.cost_usd.is_(None) & (judgements.c.calls > 0), 1), else_=0))
    cost = func.sum(cast(func.round(judgements.c.cost_usd * float(PICODOLLARS)), BigInteger))
    return (
        select(
            judgements.c.group_sequence,
            func.count() - failed,
            failed,
            func.sum(judgements.c.calls),
            func.count(judgements.c.cost_usd),
            unpriced,
            func.coalesce(cost, 0),
        )
        .where(is_among(judgements.c.group_sequence, "given", postgres), judgements.c.scoring_sequence.is_(None))
        .where(judgements.c.purpose.is_(None))
        .group_by(judgements.c.group_sequence)
    )


_SELECT_READINGS: Final = PreparedStatement(_select_readings)
