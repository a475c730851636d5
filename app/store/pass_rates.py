"""What a run's groups say of how hard tasks are: read from the groups themselves, nothing is kept twice."""

from sqlalchemy import Connection, select

from app.domain.pass_rates import TaskOutcome
from app.domain.runs import Stream
from app.ports import Outcomes
from app.prompts import digest
from app.store.database import Database
from app.store.payloads import decode_json
from app.store.tables import groups, tasks


class StoredOutcomes(Outcomes):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def since(self, stream: Stream, sequence: int, limit: int) -> list[TaskOutcome]:
        return await self._database.read(lambda connection: _since(connection, stream, sequence, limit))


def _since(connection: Connection, stream: Stream, sequence: int, limit: int) -> list[TaskOutcome]:
    statement = (
        select(
            groups.c.sequence,
            groups.c.outcome,
            groups.c.absolute_count,
            groups.c.absolute_sum,
            tasks.c.index,
            tasks.c.label,
        )
        .join_from(groups, tasks, tasks.c.task_id == groups.c.task_id)
        .where(
            groups.c.run == stream.run,
            groups.c.sequence > sequence,
            groups.c.purpose == "train",
            tasks.c.environment == stream.environment,
            tasks.c.split == stream.split,
            tasks.c.params_digest == digest(stream.params),
        )
        .order_by(groups.c.sequence)
        .limit(limit)
    )
    return [
        TaskOutcome(
            sequence=row["sequence"],
            index=row["index"],
            label=None if row["label"] is None else str(decode_json(row["label"])),
            tried=row["absolute_count"],
            passed=row["absolute_sum"],
            pending=row["outcome"] == "pending",
        )
        for row in connection.execute(statement).mappings()
    ]
