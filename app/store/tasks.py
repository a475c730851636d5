"""The store of tasks, their prompts and frozen contexts, and leases."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection, RowMapping, select

from app.domain.digests import canonical_json, digest, digest_of_text
from app.domain.groups import Prompt, TaskRecord
from app.domain.runs import HeldLease, Stream
from app.domain.tasks import Context, Message, TaskKey
from app.ports.store import Front, Leased, Locate, Place, Tasks
from app.store import leases
from app.store.database import Database
from app.store.rows import decode, decode_json, encode, encode_json, findable
from app.store.tables import contexts, prompts, tasks

TITLE_LENGTH = 120


class StoredTasks(Tasks):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, records: Sequence[TaskRecord]) -> None:
        if records:
            stamp = self._database.stamp()
            await self._database.write(lambda connection: _put(connection, self._database, records, stamp), "tasks")

    async def get(self, task_ids: Sequence[str]) -> dict[str, TaskRecord]:
        wanted = findable(task_ids)
        if not wanted:
            return {}
        return await self._database.read(lambda connection: load_tasks(connection, wanted))

    async def freeze(self, stream: Stream, contexts: Mapping[Place, Context]) -> dict[Place, Context]:
        if not contexts:
            return {}
        return await self._database.write(
            lambda connection: _freeze(connection, self._database, stream, contexts), f"contexts {stream.run}"
        )

    async def frozen(self, stream: Stream, places: Sequence[Place]) -> dict[Place, Context]:
        return await self._database.read(lambda connection: _frozen(connection, stream, places))

    async def lease(self, stream: Stream, count: int, seconds: float, locate: Locate) -> Leased:
        return await self._database.write(
            lambda connection: leases.hand_out(connection, self._database, stream, count, seconds, locate),
            f"leases {stream.run} {stream.environment}",
        )

    async def give_back(self, stream: Stream, lease_ids: Sequence[str]) -> None:
        await self._database.write(
            lambda connection: leases.give_back(connection, self._database, stream, lease_ids),
            f"leases {stream.run} {stream.environment}",
        )

    async def reserve(self, stream: Stream, count: int) -> int:
        return await self._database.write(
            lambda connection: leases.reserve(connection, self._database, stream, count),
            f"leases {stream.run} {stream.environment}",
        )

    async def leases(self, lease_ids: Sequence[str]) -> dict[str, HeldLease]:
        wanted = findable(lease_ids)
        if not wanted:
            return {}
        return await self._database.read(lambda connection: leases.held(connection, wanted))

    async def front(self, stream: Stream) -> Front:
        return await self._database.read(lambda connection: leases.front(connection, self._database, stream))


def load_tasks(connection: Connection, task_ids: Sequence[str]) -> dict[str, TaskRecord]:
    statement = select(tasks, prompts.c.body).join_from(tasks, prompts).where(tasks.c.task_id.in_(task_ids))
    return {row["task_id"]: _record(row) for row in connection.execute(statement).mappings()}


def title_of(messages: Iterable[Message]) -> str:
    """The last user message, on one line, shortened."""
    said = [message.content or "" for message in messages if message.role == "user"]
    line = " ".join(said[-1][: 20 * TITLE_LENGTH].split()) if said else ""
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1] + "…"


def _put(connection: Connection, database: Database, records: Sequence[TaskRecord], stamp: int) -> None:
    bodies = {record.task_id: encode(record.prompt) for record in records}
    digests = {task_id: digest_of_text(body) for task_id, body in bodies.items()}
    by_digest = {digests[task_id]: body for task_id, body in bodies.items()}
    connection.execute(
        database.insert_new(prompts), [{"digest": one, "body": by_digest[one]} for one in sorted(by_digest)]
    )
    rows = {record.task_id: _row(record, digests[record.task_id], stamp) for record in records}
    connection.execute(database.insert_new(tasks), [rows[task_id] for task_id in sorted(rows)])


def _row(record: TaskRecord, prompt_digest: str, stamp: int) -> dict[str, str | int | None]:
    key = record.key
    return {
        "task_id": record.task_id,
        "environment": key.environment,
        "version": key.version,
        "data_digest": key.data_digest,
        "split": key.split,
        "index": key.index,
        "params": canonical_json(key.params),
        "params_digest": digest(key.params),
        "context": None if key.context is None else encode(key.context),
        "prompt_digest": prompt_digest,
        "title": encode_json(title_of(record.prompt.messages)),
        "created_at": stamp,
        "label": None if record.label is None else encode_json(record.label),
    }


def _record(row: RowMapping) -> TaskRecord:
    key = {name: row[name] for name in ("environment", "version", "data_digest", "split", "index")}
    key |= {"params": decode_json(row["params"]), "context": row["context"] and decode(Context, row["context"])}
    return TaskRecord(
        task_id=row["task_id"],
        key=TaskKey.model_validate(key),
        prompt=decode(Prompt, row["body"]),
        label=None if row["label"] is None else str(decode_json(row["label"])),
    )


def _freeze(
    connection: Connection, database: Database, stream: Stream, given: Mapping[Place, Context]
) -> dict[Place, Context]:
    rows = [
        {"run": stream.run, "stream": stream.digest, "epoch": epoch, "index": index, "body": encode(context)}
        for (epoch, index), context in sorted(given.items(), key=lambda item: item[0])
    ]
    connection.execute(database.insert_new(contexts), rows)
    return _frozen(connection, stream, list(given))


def _frozen(connection: Connection, stream: Stream, places: Sequence[Place]) -> dict[Place, Context]:
    by_epoch: defaultdict[int, list[int]] = defaultdict(list)
    for epoch, index in places:
        by_epoch[epoch].append(index)
    found: dict[Place, Context] = {}
    for epoch, indexes in by_epoch.items():
        statement = select(contexts.c.index, contexts.c.body).where(
            contexts.c.run == stream.run,
            contexts.c.stream == stream.digest,
            contexts.c.epoch == epoch,
            contexts.c.index.in_(indexes),
        )
        found |= {(epoch, index): decode(Context, body) for index, body in connection.execute(statement)}
    return found
