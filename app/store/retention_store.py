"""The store of retention: groups and leftovers that go, and whose turn it is to remove them."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Table, delete, exists, or_, select, update

from app.domain.retention import LeftoverKind, PrunePlan, PruneRule, ReducePlan, ReduceRule
from app.ports.retention import PrunedBatch, ReducedBatch, RetentionStore, SweptBatch
from app.store.database import Database
from app.store.judge_tables import judge_cache
from app.store.lease_tables import leases
from app.store.pruning import plan_pruning, prepare_batch, remove_batch
from app.store.reduction import prepare_reduction, reduce_batch
from app.store.reduction_plans import load_keep_rules, plan_reduction
from app.store.retention_tables import job_turns, pruned_groups
from app.store.rows import from_micros, match_names, to_micros
from app.store.tables import idempotency_keys

_MICROSECONDS: Final = 1_000_000
_TABLES: Final[dict[LeftoverKind, Table]] = {
    "leases": leases,
    "idempotency_keys": idempotency_keys,
    "judge_cache": judge_cache,
}


class SqlRetentionStore(RetentionStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def plan(self, rule: PruneRule) -> PrunePlan:
        return await self._database.read(lambda connection: plan_pruning(connection, rule))

    async def prune_groups(self, plan: PrunePlan, after: int, limit: int) -> PrunedBatch:
        batch = await self._database.read(lambda connection: prepare_batch(connection, plan, after, limit))
        pruned = await self._database.write(
            lambda connection: remove_batch(connection, self._database, batch), "groups"
        )
        return PrunedBatch(pruned, batch.after)

    async def sweep(self, rule: PruneRule, kind: LeftoverKind, after: str, limit: int) -> SweptBatch:
        """Looked for by a reader, since it may have to pass by many that stay."""
        table = _TABLES[kind]
        key = next(iter(table.primary_key))
        old = _choose_leftovers(rule, table)
        wanted = select(key).where(*old, key > after).order_by(key).limit(limit)
        keys = await self._database.read(lambda connection: connection.execute(wanted).scalars().all())
        removed = 0
        if keys:
            removed = await self._database.write(lambda connection: _delete(connection, table, key, keys, old), kind)
        return SweptBatch(removed, str(keys[-1]) if len(keys) == limit else None)

    async def has_keep_rules(self) -> bool:
        return bool(await self._database.read(load_keep_rules))

    async def plan_reduction(self, rule: ReduceRule) -> ReducePlan:
        return await self._database.read(lambda connection: plan_reduction(connection, rule))

    async def reduce_groups(self, plan: ReducePlan, after: int, limit: int) -> ReducedBatch:
        at = from_micros(self._database.read_clock())
        batch = await self._database.read(lambda connection: prepare_reduction(connection, plan, after, limit, at))
        reduced = await self._database.write(lambda connection: reduce_batch(connection, batch), "groups")
        return ReducedBatch(reduced, batch.after)

    async def take_turn(self, job: str, holder: str, *, every_seconds: float, seconds: float) -> bool:
        return await self._database.write(
            lambda connection: _take_turn(connection, self._database, job, holder, every_seconds, seconds), "job_turns"
        )

    async def end_turn(self, job: str, holder: str) -> None:
        mine = (job_turns.c.job == job, job_turns.c.holder == holder)

        def end(connection: Connection) -> None:
            now = self._database.read_lease_clock(connection)
            connection.execute(update(job_turns).where(*mine).values(ended_at=now, held_until=0))

        await self._database.write(end, "job_turns")


def _choose_leftovers(rule: PruneRule, table: Table) -> list[ColumnElement[bool]]:
    old = [table.c.created_at < to_micros(rule.before)] if rule.before is not None else []
    if table is not leases:
        return old
    # The lease of a stored group stays: who sends the group again must find it.
    is_answered = leases.c.group_id.is_not(None)
    is_pruned = exists().where(pruned_groups.c.group_id == leases.c.group_id)
    ended = or_(leases.c.state == "superseded", (leases.c.state == "done") & (is_pruned | ~is_answered))
    return [*old, ended, *([match_names(leases.c.run, rule.runs)] if rule.runs else [])]


def _delete(
    connection: Connection,
    table: Table,
    key: ColumnElement[Any],
    keys: Sequence[Any],
    old: Sequence[ColumnElement[bool]],
) -> int:
    return connection.execute(delete(table).where(key.in_(keys), *old)).rowcount


def _take_turn(
    connection: Connection, database: Database, job: str, holder: str, every_seconds: float, seconds: float
) -> bool:
    blank = {"job": job, "holder": "", "held_until": 0, "ended_at": 0}
    connection.execute(database.insert_new(job_turns), blank)
    now = database.read_lease_clock(connection)
    is_free = (job_turns.c.held_until < now) & (job_turns.c.ended_at <= now - int(every_seconds * _MICROSECONDS))
    is_mine = (job_turns.c.holder == holder) & (job_turns.c.held_until > 0)
    values = {"holder": holder, "held_until": now + int(seconds * _MICROSECONDS)}
    mine = update(job_turns).where(job_turns.c.job == job, or_(is_free, is_mine)).values(values)
    return connection.execute(mine).rowcount == 1
