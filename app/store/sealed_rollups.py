"""What pruned groups had added to the statistics, kept so that counting all groups again does not lose it."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence

from sqlalchemy import Connection, delete, func, insert, select

from app.domain.rollups import RollupKey, find_pass_rate_bin
from app.store.retention_tables import sealed_rollups, sealed_task_rollups
from app.store.rollup_sums import IN_STATISTICS, SEALED, Addend, merge_by_key, write_sums, write_task_sums
from app.store.rollup_tables import rollups, task_rollups

_ADVISORY_LOCK_KEY = 7_305_811_962_049
"""An arbitrary constant: PostgreSQL's advisory lock on the sealed sums."""


def lock_sealed(connection: Connection) -> None:
    """Call before the groups are locked: processes that prune take turns."""
    if connection.dialect.name == "postgresql":  # SQLite has one writer at a time as it is
        connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK_KEY)))


def seal(connection: Connection, addends: Sequence[Addend]) -> None:
    """Pass rates are left out: they follow from the sums of tasks, to which groups to come add."""
    write_task_sums(connection, SEALED, addends)
    write_sums(connection, SEALED, merge_by_key(addends))


def restore_sealed(connection: Connection) -> None:
    """The statistics are those of pruned groups alone."""
    for table, kept in ((rollups, sealed_rollups), (task_rollups, sealed_task_rollups)):
        names = [column.name for column in table.columns]
        connection.execute(delete(table))
        connection.execute(insert(table).from_select(names, select(*(kept.c[name] for name in names))))
    bins: defaultdict[RollupKey, Counter[str]] = defaultdict(Counter)
    sums = select(sealed_task_rollups.c.run, sealed_task_rollups.c.environment, sealed_task_rollups.c.sums)
    for run, environment, text in connection.execute(sums):
        if (place := find_pass_rate_bin(json.loads(text))) is not None:
            bins[RollupKey("run", environment, run, "train")][f"pass_rate:{place}"] += 1
    write_sums(connection, IN_STATISTICS, {key: dict(counts) for key, counts in bins.items()})
