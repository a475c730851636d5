"""Prunes stored groups: what they add up to is sealed before their rows go."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, Table, case, delete, exists, func, literal, select

from app.domain.retention import KeptFor, PrunedBatch, PrunePlan, PruneRule
from app.domain.rollups import CountedGroup
from app.ports.store import RetentionStore
from app.store.database import Database
from app.store.group_rows import load_groups
from app.store.health_tables import run_anchors
from app.store.judge_tables import judge_cache, judgements
from app.store.label_tables import label_leases, labels
from app.store.rollup_tables import pruned_groups
from app.store.rollups import load_readings, lock_groups, seal_groups
from app.store.rows import match_names, to_micros
from app.store.tables import groups, idempotency_keys, prompts, rescores, rollouts, scores, scorings, tasks

_LABELLED: Final = exists().where(labels.c.group_id == groups.c.group_id) | exists().where(
    label_leases.c.group_id == groups.c.group_id
)
_KEPT: Final[dict[KeptFor, ColumnElement[bool]]] = {
    "pending": groups.c.outcome == "pending",
    "labelled": _LABELLED,
    "anchor": exists().where(run_anchors.c.group_sequence == groups.c.sequence),
    "uncounted": groups.c.counted != 1,
}
"""In the order in which they are told."""
_REASON: Final = case(*((term, literal(reason)) for reason, term in _KEPT.items()), else_=literal(""))


class SqlRetentionStore(RetentionStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def plan(self, rule: PruneRule) -> PrunePlan:
        return await self._database.read(lambda connection: _plan(connection, rule))

    async def prune(self, rule: PruneRule, after: int, limit: int) -> PrunedBatch:
        return await self._database.write(
            lambda connection: _prune(connection, self._database, rule, after, limit), "groups"
        )

    async def forget_idempotency_keys(self, rule: PruneRule) -> int:
        old = delete(idempotency_keys).where(idempotency_keys.c.created_at < to_micros(rule.before))
        return await self._database.write(lambda connection: int(connection.execute(old).rowcount))


def _match(rule: PruneRule) -> Iterator[ColumnElement[bool]]:
    yield groups.c.created_at < to_micros(rule.before)
    yield groups.c.purpose.in_(rule.purposes)
    if rule.environment is not None:
        yield groups.c.environment == rule.environment
    if rule.runs:
        yield match_names(groups.c.run, rule.runs)


def _plan(connection: Connection, rule: PruneRule) -> PrunePlan:
    reason = _REASON.label("reason")
    counted = select(reason, func.count(), func.sum(groups.c.size)).where(*_match(rule)).group_by(reason)
    found = {name: (int(count), int(size)) for name, count, size in connection.execute(counted)}
    pruned, members = found.pop("", (0, 0))
    return PrunePlan(groups=pruned, rollouts=members, kept={name: count for name, (count, _) in found.items()})


def _prune(connection: Connection, database: Database, rule: PruneRule, after: int, limit: int) -> PrunedBatch:
    lock_groups(connection)
    following: Select[Any] = (
        select(groups.c.sequence, groups.c.group_id, groups.c.size, _REASON.label("reason"))
        .where(*_match(rule), groups.c.sequence > after)
        .order_by(groups.c.sequence)
        .limit(limit)
    )
    rows = connection.execute(following).all()
    gone = {row.sequence: row for row in rows if row.reason == ""}
    if gone:
        _seal(connection, gone)
        stamp = database.read_clock()
        connection.execute(
            database.insert_new(pruned_groups),
            [{"group_id": row.group_id, "pruned_at": stamp} for row in gone.values()],
        )
        _delete_groups(connection, list(gone))
    return PrunedBatch(
        groups=len(gone),
        rollouts=sum(row.size for row in gone.values()),
        after=rows[-1].sequence if len(rows) == limit else None,
    )


def _seal(connection: Connection, sequences: Collection[int]) -> None:
    places = {
        group_id: sequence
        for sequence, group_id in connection.execute(
            select(groups.c.sequence, groups.c.group_id).where(groups.c.sequence.in_(sequences))
        )
    }
    readings = load_readings(connection, sequences)
    found = load_groups(connection, groups.c.sequence.in_(sequences))
    counted = [CountedGroup(group, places[group.group_id]) for group in found]
    seal_groups(
        connection,
        [CountedGroup(one.group, one.sequence, *readings.get(one.sequence, (0, 0, 0))) for one in counted],
    )


def _delete_groups(connection: Connection, sequences: Sequence[int]) -> None:
    """With all that only they need. Cached judgements go too: a reading that no stored group holds would be charged
    again."""
    mine = judgements.c.group_sequence.in_(sequences)
    used = connection.execute(select(judgements.c.prompt_digest, judgements.c.reading).where(mine)).all()
    again = select(scorings.c.sequence).where(scorings.c.group_sequence.in_(sequences))
    connection.execute(delete(rescores).where(rescores.c.scoring_sequence.in_(again)))
    connection.execute(delete(judgements).where(mine))
    for table in (scorings, scores, rollouts):
        connection.execute(delete(table).where(table.c.group_sequence.in_(sequences)))
    connection.execute(delete(groups).where(groups.c.sequence.in_(sequences)))
    digests = sorted({row.prompt_digest for row in used if row.prompt_digest is not None})
    readings = sorted({row.reading for row in used if row.reading is not None})
    _delete_unused(connection, prompts, prompts.c.digest, digests, judgements.c.prompt_digest, tasks.c.prompt_digest)
    _delete_unused(connection, judge_cache, judge_cache.c.reading, readings, judgements.c.reading)


def _delete_unused(
    connection: Connection, table: Table, key: ColumnElement[str], keys: Sequence[str], *users: ColumnElement[str]
) -> None:
    unused = [~exists().where(user == key) for user in users]
    for first in range(0, len(keys), _MOST_BOUND):
        connection.execute(delete(table).where(key.in_(keys[first : first + _MOST_BOUND]), *unused))


_MOST_BOUND: Final = 500
"""Values of one IN list."""
