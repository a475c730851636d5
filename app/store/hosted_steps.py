"""Answers of others' servers to episodes that run on them. The first one of a key stays."""

from collections.abc import Collection, Sequence
from typing import Any, Final

from sqlalchemy import Connection, select

from app.domain.hosting import HostedStep, StoredSteps
from app.ports.hosts import HostedStepStore
from app.store.database import StorePart, reads, writes
from app.store.statements import PreparedStatement, decode, encode, is_among
from app.store.tables import hosted_steps

_SELECT_STEPS: Final = PreparedStatement(
    lambda postgres: select(hosted_steps.c.key, hosted_steps.c.body).where(
        is_among(hosted_steps.c.key, "asked", postgres)
    )
)


class SqlHostedSteps(StorePart, HostedStepStore):
    @reads
    def find_steps(self, connection: Connection, keys: Collection[str]) -> StoredSteps:
        rows: Sequence[Sequence[Any]] = _SELECT_STEPS.fetch(connection, asked=sorted(set(keys)))
        return {key: decode(HostedStep, body) for key, body in rows}

    @writes(lambda key, *_: f"hosted_steps {key}")
    def put(self, connection: Connection, key: str, task_id: str, step: HostedStep) -> HostedStep:
        row = {"key": key, "task_id": task_id, "body": encode(step), "created_at": self.database.read_clock()}
        connection.execute(self.database.insert_new(hosted_steps), row)
        body = connection.execute(select(hosted_steps.c.body).where(hosted_steps.c.key == key)).scalar_one()
        return decode(HostedStep, body)
