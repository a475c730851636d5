"""Reads task outcomes from the groups of a run."""

from collections.abc import Sequence

from sqlalchemy import Connection, RowMapping, select

from app.domain.digests import digest
from app.domain.pass_rates import TaskOutcome
from app.domain.runs import Stream
from app.ports.store import OutcomeStore
from app.store.database import Database
from app.store.rows import decode_json
from app.store.tables import groups, tasks

_SELECT_OUTCOMES = select(
    groups.c.sequence,
    groups.c.outcome,
    groups.c.absolute_count,
    groups.c.absolute_sum,
    tasks.c.index,
    tasks.c.label,
).join_from(groups, tasks, tasks.c.task_id == groups.c.task_id)


class SqlOutcomeStore(OutcomeStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_since(
        self, stream: Stream, sequence: int, limit: int, others: Sequence[int] = ()
    ) -> list[TaskOutcome]:
        return await self._database.read(
            lambda connection: _load_outcomes_after(connection, stream, sequence, limit, others)
        )


def _load_outcomes_after(
    connection: Connection, stream: Stream, sequence: int, limit: int, others: Sequence[int]
) -> list[TaskOutcome]:
    newest = (
        _SELECT_OUTCOMES.where(
            groups.c.run == stream.run,
            groups.c.environment == stream.environment,
            groups.c.purpose == "train",
            groups.c.sequence > sequence,
            tasks.c.split == stream.split,
            tasks.c.params_digest == digest(stream.params),
        )
        .order_by(groups.c.sequence.desc())
        .limit(limit)
    )
    found = {row["sequence"]: row for row in connection.execute(newest).mappings()}
    if others:
        named = _SELECT_OUTCOMES.where(groups.c.sequence.in_(others))
        found |= {row["sequence"]: row for row in connection.execute(named).mappings()}
    return [_parse_outcome(found[place]) for place in sorted(found)]


def _parse_outcome(row: RowMapping) -> TaskOutcome:
    return TaskOutcome(
        sequence=row["sequence"],
        index=row["index"],
        label=None if row["label"] is None else str(decode_json(row["label"])),
        tried=row["absolute_count"],
        passed=row["absolute_sum"],
        pending=row["outcome"] == "pending",
    )
