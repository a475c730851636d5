"""The store of tasks, their prompts and frozen contexts, and leases."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from sqlalchemy import Connection, RowMapping, select, update

from app.domain.digests import canonical_json, digest_of_text
from app.domain.groups import TaskPrompt, TaskRecord
from app.domain.runs import HeldLease, Stream
from app.domain.tasks import Context, Message, TaskKey
from app.ports.store import LeaseResult, SlotLocator, StreamPlace, StreamState, TaskNaming, TaskStore
from app.store import leases
from app.store.batched_calls import BatchedCalls, split_by_size
from app.store.database import Database
from app.store.inserts import insert_new_rows
from app.store.lease_tables import contexts
from app.store.prepared_statements import PreparedStatement, is_among
from app.store.rows import Row, decode, decode_json, encode, encode_json, filter_storable
from app.store.tables import groups, prompts, tasks

TITLE_LENGTH = 120

_SELECT_IDS: Final = PreparedStatement(
    lambda postgres: select(tasks.c.task_id).where(is_among(tasks.c.task_id, "ids", postgres))
)
_SELECT_TASKS: Final = PreparedStatement(
    lambda postgres: (
        select(tasks, prompts.c.body).join_from(tasks, prompts).where(is_among(tasks.c.task_id, "ids", postgres))
    )
)


class SqlTaskStore(TaskStore):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._leasing_runs = BatchedCalls(self._find_leasing_runs)
        self._unleased = set[leases.TaskKind]()
        """Of whose tasks none is leased. Empty on PostgreSQL, where other processes lease too."""
        self._lease_calls = 0

    async def put(self, records: Sequence[TaskRecord]) -> None:
        if records:
            stamp = self._database.read_clock()
            await self._database.write(lambda connection: _put_tasks(connection, records, stamp), "tasks")

    async def get(self, task_ids: Sequence[str]) -> dict[str, TaskRecord]:
        wanted = filter_storable(task_ids)
        if not wanted:
            return {}
        return await self._database.read(lambda connection: load_tasks(connection, wanted))

    async def find_missing(self, task_ids: Sequence[str]) -> set[str]:
        wanted = filter_storable(task_ids)
        return set(task_ids) - await self._database.read(lambda connection: _find_stored(connection, wanted))

    async def freeze_contexts(
        self, stream: Stream, contexts: Mapping[StreamPlace, Context]
    ) -> dict[StreamPlace, Context]:
        if not contexts:
            return {}
        return await self._database.write(
            lambda connection: _freeze_contexts(connection, stream, contexts), f"contexts {stream.run}"
        )

    async def get_frozen_contexts(self, stream: Stream, places: Sequence[StreamPlace]) -> dict[StreamPlace, Context]:
        return await self._database.read(lambda connection: _load_contexts(connection, stream, places))

    async def lease(
        self,
        stream: Stream,
        count: int,
        seconds: float,
        locate: SlotLocator,
        step: int | None = None,
        name_tasks: TaskNaming | None = None,
    ) -> LeaseResult:
        def lease_and_look(connection: Connection) -> LeaseResult:
            leased = leases.lease_slots(connection, self._database, stream, count, seconds, locate, step)
            named = [] if name_tasks is None else name_tasks([lease.slot.index for lease in leased.leases])
            return replace(leased, stored=_find_stored(connection, named)) if named else leased

        self._note_leasing(stream)
        try:
            return await self._database.write(lease_and_look, f"leases {stream.run} {stream.environment}")
        finally:
            self._note_leasing(stream)

    def _note_leasing(self, stream: Stream) -> None:
        self._lease_calls += 1
        self._unleased.discard((stream.environment, stream.split))

    async def get_oldest_step(self, run: str) -> int | None:
        return await self._database.read(lambda connection: leases.load_oldest_step(connection, self._database, run))

    async def expire_leases(self, stream: Stream, lease_ids: Sequence[str]) -> None:
        await self._database.write(
            lambda connection: leases.expire_leases(connection, self._database, stream, lease_ids),
            f"leases {stream.run} {stream.environment}",
        )

    async def reserve(self, stream: Stream, count: int) -> int:
        return await self._database.write(
            lambda connection: leases.reserve_positions(connection, self._database, stream, count),
            f"leases {stream.run} {stream.environment}",
        )

    async def get_leases(self, lease_ids: Sequence[str]) -> dict[str, HeldLease]:
        wanted = filter_storable(lease_ids)
        if not wanted:
            return {}
        return await self._database.read(lambda connection: leases.load_leases(connection, wanted))

    async def find_leasing_runs(self, keys: Sequence[TaskKey]) -> list[frozenset[str]]:
        if all((key.environment, key.split) in self._unleased for key in keys):
            return [frozenset()] * len(keys)
        with self._database.open_operation("read", "SqlTaskStore.find_leasing_runs"):
            return await self._leasing_runs.add(keys)

    async def _find_leasing_runs(self, asked: Sequence[Sequence[TaskKey]]) -> list[list[frozenset[str]]]:
        everything = list(chain(*asked))
        kinds = set() if self._database.postgres else {(key.environment, key.split) for key in everything}
        before = self._lease_calls

        def load_runs_and_kinds(connection: Connection) -> tuple[list[frozenset[str]], set[leases.TaskKind]]:
            return leases.load_leasing_runs(connection, everything), leases.find_unleased(connection, kinds)

        found, unleased = await self._database.read(load_runs_and_kinds)
        if before == self._lease_calls:
            self._unleased |= unleased
        return split_by_size(found, asked)

    async def get_stream_state(self, stream: Stream) -> StreamState:
        return await self._database.read(
            lambda connection: leases.load_stream_state(connection, self._database, stream)
        )


def load_tasks(connection: Connection, task_ids: Sequence[str]) -> dict[str, TaskRecord]:
    found = _SELECT_TASKS.run(connection, ids=list(task_ids)).mappings()
    return {row["task_id"]: _parse_record(row) for row in found}


def _find_stored(connection: Connection, task_ids: list[str]) -> frozenset[str]:
    return frozenset(_SELECT_IDS.run(connection, ids=task_ids).scalars())


def find_missing_scenes(connection: Connection, sequences: Collection[int]) -> dict[str, str]:
    """By task, of those that these groups answer: a service of a schema before 0035, which may run beside this one,
    stores tasks without their scenes."""
    asked = (
        select(tasks.c.task_id, prompts.c.body)
        .join_from(groups, tasks, tasks.c.task_id == groups.c.task_id)
        .join(prompts, prompts.c.digest == tasks.c.prompt_digest)
        .where(groups.c.sequence.in_(sequences), tasks.c.scene.is_(None), prompts.c.body.contains('"scene":'))
    )
    found = connection.execute(asked).all()
    scenes = {task_id: _read_scene(body) for task_id, body in found}
    return {task_id: scene for task_id, scene in sorted(scenes.items()) if scene is not None}


def _read_scene(body: str) -> str | None:
    try:
        return decode(TaskPrompt, body).scene
    except ValueError:
        return None


def fill_scenes(connection: Connection, scenes: Mapping[str, str]) -> None:
    for task_id, scene in scenes.items():
        connection.execute(update(tasks).where(tasks.c.task_id == task_id).values(scene=encode_json(scene)))


def build_title(messages: Iterable[Message]) -> str:
    """The last user message, on one line, shortened."""
    said = [message.content or "" for message in messages if message.role == "user"]
    line = " ".join(said[-1][: 20 * TITLE_LENGTH].split()) if said else ""
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1] + "…"


def _put_tasks(connection: Connection, records: Sequence[TaskRecord], stamp: int) -> None:
    bodies = {record.task_id: encode(record.prompt) for record in records}
    digests = {task_id: digest_of_text(body) for task_id, body in bodies.items()}
    by_digest = {digests[task_id]: body for task_id, body in bodies.items()}
    insert_new_rows(
        connection, prompts, [{"digest": one, "body": by_digest[one], "packed": None} for one in sorted(by_digest)]
    )
    rows = {record.task_id: _build_row(record, digests[record.task_id], stamp) for record in records}
    insert_new_rows(connection, tasks, [rows[task_id] for task_id in sorted(rows)])


def _build_row(record: TaskRecord, prompt_digest: str, stamp: int) -> dict[str, str | int | None]:
    key = record.key
    params = canonical_json(key.params)
    return {
        "task_id": record.task_id,
        "environment": key.environment,
        "version": key.version,
        "data_digest": key.data_digest,
        "split": key.split,
        "index": key.index,
        "params": params,
        "params_digest": digest_of_text(params),
        "context": None if key.context is None else encode(key.context),
        "prompt_digest": prompt_digest,
        "title": encode_json(build_title(record.prompt.messages)),
        "created_at": stamp,
        "label": None if record.label is None else encode_json(record.label),
        "dataset": None if record.prompt.dataset is None else encode_json(record.prompt.dataset),
        "scene": None if record.prompt.scene is None else encode_json(record.prompt.scene),
    }


def _parse_record(row: RowMapping) -> TaskRecord:
    key = {name: row[name] for name in ("environment", "version", "data_digest", "split", "index")}
    key |= {"params": decode_json(row["params"]), "context": row["context"] and decode(Context, row["context"])}
    return TaskRecord(
        task_id=row["task_id"],
        key=TaskKey.model_validate(key),
        prompt=decode(TaskPrompt, row["body"]),
        label=None if row["label"] is None else str(decode_json(row["label"])),
    )


def _freeze_contexts(
    connection: Connection, stream: Stream, given: Mapping[StreamPlace, Context]
) -> dict[StreamPlace, Context]:
    rows: list[Row] = [
        {"run": stream.run, "stream": stream.digest, "epoch": epoch, "index": index, "body": encode(context)}
        for (epoch, index), context in sorted(given.items(), key=lambda item: item[0])
    ]
    insert_new_rows(connection, contexts, rows)
    return _load_contexts(connection, stream, list(given))


def _load_contexts(connection: Connection, stream: Stream, places: Sequence[StreamPlace]) -> dict[StreamPlace, Context]:
    by_epoch: defaultdict[int, list[int]] = defaultdict(list)
    for epoch, index in places:
        by_epoch[epoch].append(index)
    found: dict[StreamPlace, Context] = {}
    for epoch, indexes in by_epoch.items():
        statement = select(contexts.c.index, contexts.c.body).where(
            contexts.c.run == stream.run,
            contexts.c.stream == stream.digest,
            contexts.c.epoch == epoch,
            contexts.c.index.in_(indexes),
        )
        found |= {(epoch, index): decode(Context, body) for index, body in connection.execute(statement)}
    return found
