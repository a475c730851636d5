"""Rollups are written with the groups that they count.

Changes of a transaction are collected and written once, right before it commits, so that many groups share one write.
"""

import hashlib
import json
import logging
from collections.abc import Collection, Mapping
from typing import Any, Final

from sqlalchemy import BigInteger, Connection, RowMapping, Select, case, cast, func, literal_column, select, update

from app.domain.groups import Group
from app.domain.rollups import PICODOLLARS, CountedGroup, Rollup, RollupFilter, RollupKey, merge_measures
from app.ports.views import StatisticsStore
from app.store.database import Database
from app.store.group_rows import load_groups
from app.store.judge_tables import judgements
from app.store.prepared_statements import PreparedStatement, is_among
from app.store.rollup_sums import (
    IN_STATISTICS,
    build_addend,
    load_labels,
    merge_by_key,
    take_away,
    write_sums,
    write_task_sums,
)
from app.store.rollup_tables import rollups
from app.store.rows import decode_json, encode_json
from app.store.sealed_rollups import restore_sealed
from app.store.tables import groups

log = logging.getLogger(__name__)

_CHANGES: Final = "rollup_changes"


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
    labels = load_labels(connection, {after.group.task_id for _, after in changes})
    addends = [build_addend(after, labels) for _, after in changes]
    addends += [take_away(build_addend(before, labels)) for before, _ in changes if before is not None]
    changes.clear()
    _lock_runs(connection, {addend.group.run or "" for addend in addends})
    deltas = merge_by_key(addends)
    for key, bins in write_task_sums(connection, IN_STATISTICS, addends).items():
        deltas[key] = merge_measures((deltas[key], bins))
    write_sums(connection, IN_STATISTICS, deltas)


def _lock_runs(connection: Connection, runs: Collection[str]) -> None:
    """Replicas that count groups of one run take turns: they read, add and write."""
    if connection.dialect.name != "postgresql":  # SQLite has one writer at a time as it is
        return
    hashes = {
        int.from_bytes(hashlib.sha256(f"rollups {run}".encode()).digest()[:8], "big", signed=True) for run in runs
    }
    for key in sorted(hashes):
        connection.execute(select(func.pg_advisory_xact_lock(key)))


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


def load_readings(connection: Connection, sequences: Collection[int]) -> dict[int, tuple[int, ...]]:
    """By group what `CountedGroup` has of the judgements of its own scores, in that order: usable and failed ones, the
    calls made for them, priced and unpriced ones, and what they cost."""
    found = _SELECT_READINGS.run(connection, given=list(sequences))
    return {row[0]: tuple(map(int, row[1:])) for row in found}


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
    found, unreadable = load_readable_groups(connection, sequences)
    for group in found:
        sequence = sequences[group.group_id]
        note_group(connection, None, CountedGroup(group, sequence, *readings.get(sequence, ())))
    here = groups.c.sequence.in_(sequences.values())
    connection.execute(update(groups).where(here).values(counted=1))
    if unreadable:
        set_aside = groups.c.sequence.in_(unreadable)
        connection.execute(update(groups).where(set_aside).values(counted=SET_ASIDE))
    return len(sequences)


def load_readable_groups(connection: Connection, sequences: Mapping[str, int]) -> tuple[list[Group], list[int]]:
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
    """What groups added that are pruned stays: nothing could count them again."""
    # Whoever writes rollups has written groups before. So this waits for them whole, and they wait before their first
    # lock: a lock of `rollups` alone would let them add to what they read before, and would deadlock with them.
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("LOCK TABLE groups IN EXCLUSIVE MODE")
    restore_sealed(connection)
    connection.execute(update(groups).where(groups.c.counted != 0).values(counted=0))
    return count_uncounted(connection)
