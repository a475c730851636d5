"""Sums over groups, and how they are added to the rows of rollups."""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from sqlalchemy import Connection, Table, bindparam, delete, select

from app.domain.digests import canonical_json
from app.domain.exact_sums import NO_VALUES, Sums
from app.domain.groups import Group
from app.domain.rollups import (
    WITH_CRITERIA,
    CountedGroup,
    MeasureMap,
    RollupKey,
    add_measures,
    find_pass_rate_bin,
    list_criteria,
    list_keys,
    list_measures,
    merge_measures,
    negate,
)
from app.store.inserts import upsert_rows
from app.store.prepared_statements import PreparedStatement, is_among
from app.store.retention_tables import sealed_rollups, sealed_task_rollups
from app.store.rollup_tables import rollups, task_rollups
from app.store.rows import Row, decode_json, encode_json
from app.store.tables import tasks

TaskNames = tuple[str | None, str | None]
"""A task's label and data set, where it has them."""

_MOST_BOUND: Final = 500
"""Values of one IN list."""
_FIND_LABELS: Final = PreparedStatement(
    lambda postgres: select(tasks.c.task_id, tasks.c.label, tasks.c.dataset).where(
        is_among(tasks.c.task_id, "given", postgres)
    )
)


@dataclass(frozen=True)
class SumTables:
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


IN_STATISTICS: Final = SumTables(rollups, task_rollups)
SEALED: Final = SumTables(sealed_rollups, sealed_task_rollups)


@dataclass(frozen=True)
class Addend:
    """What one group adds to each of its rollups."""

    group: Group
    keys: Sequence[RollupKey]
    measures: MeasureMap
    """What every one of them gains."""
    criteria: MeasureMap
    """What those of WITH_CRITERIA gain too."""


def load_labels(connection: Connection, task_ids: Collection[str]) -> dict[str, TaskNames]:
    found: dict[str, TaskNames] = {}
    for task_id, *texts in _FIND_LABELS.fetch(connection, given=sorted(task_ids)):
        label, dataset = (None if text is None else str(decode_json(text)) for text in texts)
        found[task_id] = (label, dataset)
    return found


def split(values: Iterable[str]) -> Iterable[Sequence[str]]:
    ordered = sorted(values)
    return (ordered[first : first + _MOST_BOUND] for first in range(0, len(ordered), _MOST_BOUND))


def build_addend(counted: CountedGroup, labels: Mapping[str, TaskNames]) -> Addend:
    keys = list_keys(counted, *labels.get(counted.group.task_id, (None, None)))
    return Addend(counted.group, keys, list_measures(counted), list_criteria(counted.group))


def take_away(addend: Addend) -> Addend:
    return replace(addend, measures=negate(addend.measures), criteria=negate(addend.criteria))


def merge_by_key(addends: Sequence[Addend]) -> dict[RollupKey, MeasureMap]:
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


def write_task_sums(
    connection: Connection, tables: SumTables, addends: Iterable[Addend]
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
    connection: Connection, tables: SumTables, run: str, environment: str, of_tasks: Mapping[str, Sequence[Sums]]
) -> MeasureMap:
    stored = tables.find_task_sums.fetch(connection, run=run, environment=environment, given=sorted(of_tasks))
    known: dict[str, Sums] = {task_id: json.loads(sums) for task_id, sums in stored}
    moved: Counter[int | None] = Counter()
    rows: list[Row] = []
    for task_id, parts in sorted(of_tasks.items()):
        before = known.get(task_id, NO_VALUES)
        after = [sum(column) for column in zip(before, *parts, strict=False)]
        if after != before:
            rows.append({"run": run, "environment": environment, "task_id": task_id, "sums": canonical_json(after)})
            moved[find_pass_rate_bin(before)] -= 1
            moved[find_pass_rate_bin(after)] += 1
    upsert_rows(connection, tables.task_rollups, "sums", rows)
    return {f"pass_rate:{place}": count for place, count in moved.items() if count and place is not None}


def write_sums(connection: Connection, tables: SumTables, deltas: Mapping[RollupKey, MeasureMap]) -> None:
    by_digest = {key.digest: key for key, delta in deltas.items() if delta}
    stored = tables.find_measures.fetch(connection, given=sorted(by_digest))
    known: dict[str, MeasureMap] = {digest: json.loads(measures) for digest, measures in stored}
    rows: list[Row] = []
    empty: list[str] = []
    for digest, key in sorted(by_digest.items()):
        if merged := add_measures(known.get(digest, {}), deltas[key]):
            rows.append({"digest": digest, **_build_key_columns(key), "measures": canonical_json(merged)})
        else:
            empty.append(digest)
    upsert_rows(connection, tables.rollups, "measures", rows)
    for some in split(empty):
        connection.execute(delete(tables.rollups).where(tables.rollups.c.digest.in_(some)))


def _build_key_columns(key: RollupKey) -> dict[str, Any]:
    return key._asdict() | {"label": None if key.label is None else encode_json(key.label)}
