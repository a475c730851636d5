"""Tasks and what they are made from: prompts, frozen contexts, leases, sheets of each epoch, episodes and outcomes.

A task's id says everything about it, so a task that is stored again is the same. What the first hand-out of a place of
a stream retrieved is frozen as its context, and which sheets an epoch began with is written when it begins: so ranks,
replicas and restarts make the same task.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from pydantic import TypeAdapter
from sqlalchemy import Connection, RowMapping, delete, select, update

from app.domain.groups import TaskPrompt, TaskRecord
from app.domain.rollups import TaskOutcome
from app.domain.runs import HeldLease, Stream
from app.domain.tasks import Context, KeptEpisode, Message, TaskKey
from app.domain.values import canonical_json, digest, digest_of_text
from app.ports.store import (
    EpisodeStore,
    LeaseResult,
    OutcomeStore,
    SheetStore,
    SlotLocator,
    StreamPlace,
    StreamState,
    TaskNaming,
    TaskStore,
)
from app.store import leases
from app.store.database import BatchedCalls, Database, split_by_size
from app.store.statements import (
    MICROSECONDS_PER_SECOND,
    PreparedStatement,
    Row,
    decode,
    decode_json,
    encode,
    encode_json,
    filter_storable,
    insert_new_rows,
    is_among,
    is_storable,
)
from app.store.tables import contexts, editions, epochs, groups, kept_episodes, prompts, sheets, tasks

TITLE_LENGTH = 120


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
        storable = filter_storable(task_ids)
        if not storable:
            return {}
        return await self._database.read(lambda connection: load_tasks(connection, storable))

    async def find_missing(self, task_ids: Sequence[str]) -> set[str]:
        storable = filter_storable(task_ids)
        return set(task_ids) - await self._database.read(lambda connection: _find_stored(connection, storable))

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

        # Before and after: a read that began in between may have seen none of these leases.
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
        storable = filter_storable(lease_ids)
        if not storable:
            return {}
        return await self._database.read(lambda connection: leases.load_leases(connection, storable))

    async def find_leasing_runs(self, keys: Sequence[TaskKey]) -> list[frozenset[str]]:
        if all((key.environment, key.split) in self._unleased for key in keys):
            return [frozenset()] * len(keys)
        with self._database.open_operation("read", "SqlTaskStore.find_leasing_runs"):
            return await self._leasing_runs.add(keys)

    async def _find_leasing_runs(self, calls: Sequence[Sequence[TaskKey]]) -> list[list[frozenset[str]]]:
        everything = list(chain(*calls))
        kinds = set() if self._database.postgres else {(key.environment, key.split) for key in everything}
        before = self._lease_calls  # by which it is seen whether somebody leased while this was read

        def load_runs_and_kinds(connection: Connection) -> tuple[list[frozenset[str]], set[leases.TaskKind]]:
            return leases.load_leasing_runs(connection, everything), leases.find_unleased(connection, kinds)

        leasing_runs, unleased = await self._database.read(load_runs_and_kinds)
        if before == self._lease_calls:
            self._unleased |= unleased
        return split_by_size(leasing_runs, calls)

    async def get_stream_state(self, stream: Stream) -> StreamState:
        return await self._database.read(
            lambda connection: leases.load_stream_state(connection, self._database, stream)
        )


_SELECT_TASKS: Final = PreparedStatement(
    lambda postgres: (
        select(tasks, prompts.c.body).join_from(tasks, prompts).where(is_among(tasks.c.task_id, "ids", postgres))
    )
)


def load_tasks(connection: Connection, task_ids: Sequence[str]) -> dict[str, TaskRecord]:
    rows = _SELECT_TASKS.run(connection, ids=list(task_ids)).mappings()
    return {row["task_id"]: _parse_record(row) for row in rows}


def _parse_record(row: RowMapping) -> TaskRecord:
    key = {name: row[name] for name in ("environment", "version", "data_digest", "split", "index")}
    key |= {"params": decode_json(row["params"]), "context": row["context"] and decode(Context, row["context"])}
    return TaskRecord(
        task_id=row["task_id"],
        key=TaskKey.model_validate(key),
        prompt=decode(TaskPrompt, row["body"]),
        label=None if row["label"] is None else str(decode_json(row["label"])),
    )


_SELECT_IDS: Final = PreparedStatement(
    lambda postgres: select(tasks.c.task_id).where(is_among(tasks.c.task_id, "ids", postgres))
)


def _find_stored(connection: Connection, task_ids: list[str]) -> frozenset[str]:
    return frozenset(_SELECT_IDS.run(connection, ids=task_ids).scalars())


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


def build_title(messages: Iterable[Message]) -> str:
    """The last user message, on one line, shortened."""
    contents = [message.content or "" for message in messages if message.role == "user"]
    line = " ".join(contents[-1][: 20 * TITLE_LENGTH].split()) if contents else ""
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1] + "…"


def _freeze_contexts(
    connection: Connection, stream: Stream, retrieved: Mapping[StreamPlace, Context]
) -> dict[StreamPlace, Context]:
    rows: list[Row] = [
        {"run": stream.run, "stream": stream.digest, "epoch": epoch, "index": index, "body": encode(context)}
        for (epoch, index), context in sorted(retrieved.items(), key=lambda item: item[0])
    ]
    insert_new_rows(connection, contexts, rows)
    return _load_contexts(connection, stream, list(retrieved))


def _load_contexts(connection: Connection, stream: Stream, places: Sequence[StreamPlace]) -> dict[StreamPlace, Context]:
    by_epoch: defaultdict[int, list[int]] = defaultdict(list)
    for epoch, index in places:
        by_epoch[epoch].append(index)
    frozen: dict[StreamPlace, Context] = {}
    for epoch, indexes in by_epoch.items():
        statement = select(contexts.c.index, contexts.c.body).where(
            contexts.c.run == stream.run,
            contexts.c.stream == stream.digest,
            contexts.c.epoch == epoch,
            contexts.c.index.in_(indexes),
        )
        frozen |= {(epoch, index): decode(Context, body) for index, body in connection.execute(statement)}
    return frozen


# Character sheets: versions of them, and the version that each epoch began with.

_DIGESTS = TypeAdapter(tuple[str, ...])


class SqlSheetStore(SheetStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def keep(self, environment: str, data_digest: str, texts: Sequence[str]) -> None:
        stamp = self._database.read_clock()
        await self._database.write(
            lambda connection: _keep_edition(connection, self._database, environment, data_digest, texts, stamp),
            "sheets",
        )

    async def get(self, environment: str, data_digest: str) -> tuple[str, ...] | None:
        if not is_storable(environment, data_digest):
            return None
        return await self._database.read(lambda connection: _load_edition(connection, environment, data_digest))

    async def begin_epochs(self, stream: Stream, epochs: Sequence[int], data_digest: str) -> dict[int, str]:
        if not epochs:
            return {}
        return await self._database.write(
            lambda connection: _begin_epochs(connection, self._database, stream, epochs, data_digest),
            f"epochs {stream.run}",
        )


def _keep_edition(
    connection: Connection, database: Database, environment: str, data_digest: str, texts: Sequence[str], stamp: int
) -> None:
    digests = [digest_of_text(text) for text in texts]
    bodies = dict(zip(digests, texts, strict=True))
    if bodies:
        rows = [{"digest": one, "body": bodies[one], "created_at": stamp} for one in sorted(bodies)]
        connection.execute(database.insert_new(sheets), rows)
    row = {
        "environment": environment,
        "data_digest": data_digest,
        "sheets": encode_json([*digests]),
        "created_at": stamp,
    }
    connection.execute(database.insert_new(editions), row)


def _load_edition(connection: Connection, environment: str, data_digest: str) -> tuple[str, ...] | None:
    here = (editions.c.environment == environment, editions.c.data_digest == data_digest)
    listed = connection.execute(select(editions.c.sheets).where(*here)).scalar()
    if listed is None:
        return None
    digests = _DIGESTS.validate_json(listed)
    statement = select(sheets.c.digest, sheets.c.body).where(sheets.c.digest.in_(digests))
    bodies = {one: body for one, body in connection.execute(statement)}
    return tuple(bodies[one] for one in digests)


def _begin_epochs(
    connection: Connection, database: Database, stream: Stream, begun: Sequence[int], data_digest: str
) -> dict[int, str]:
    stamp = database.read_clock()
    rows = [
        {"run": stream.run, "stream": stream.digest, "epoch": epoch, "data_digest": data_digest, "created_at": stamp}
        for epoch in sorted(set(begun))
    ]
    connection.execute(database.insert_new(epochs), rows)
    here = (epochs.c.run == stream.run, epochs.c.stream == stream.digest, epochs.c.epoch.in_(begun))
    return {epoch: one for epoch, one in connection.execute(select(epochs.c.epoch, epochs.c.data_digest).where(*here))}


# Episodes that are played over HTTP by clients that send no history.

_KEPT_SECONDS: Final = 86_400
"""After its last change."""
_CLEARED_AT_ONCE: Final = 8
"""Old episodes that go with each new one: more than one, so that they become fewer."""


class SqlEpisodeStore(EpisodeStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, session: str) -> KeptEpisode | None:
        return await self._database.read(lambda connection: _load(connection, session))

    async def begin(self, session: str, episode: KeptEpisode) -> KeptEpisode:
        return await self._database.write(
            lambda connection: _begin(connection, self._database, session, episode), f"episode {session}"
        )

    async def change(self, session: str, before: KeptEpisode, after: KeptEpisode) -> bool:
        return await self._database.write(
            lambda connection: _change(connection, self._database, session, before, after), f"episode {session}"
        )


def _load(connection: Connection, session: str) -> KeptEpisode | None:
    row = connection.execute(select(kept_episodes).where(kept_episodes.c.session == session)).mappings().one_or_none()
    return None if row is None else decode(KeptEpisode, row["body"])


def _begin(connection: Connection, database: Database, session: str, episode: KeptEpisode) -> KeptEpisode:
    now = database.read_lease_clock(connection)
    old = (
        select(kept_episodes.c.session)
        .where(kept_episodes.c.changed_at < now - _KEPT_SECONDS * MICROSECONDS_PER_SECOND)
        .order_by(kept_episodes.c.changed_at)
        .limit(_CLEARED_AT_ONCE)
        .with_for_update(skip_locked=True)
    )
    sessions = list(connection.execute(old).scalars())
    if sessions:
        connection.execute(delete(kept_episodes).where(kept_episodes.c.session.in_(sessions)))
    row = {
        "session": session,
        "task_id": episode.task_id,
        "revision": episode.revision,
        "body": encode(episode),
        "changed_at": now,
    }
    connection.execute(database.insert_new(kept_episodes), row)
    return _load(connection, session) or episode


def _change(connection: Connection, database: Database, session: str, before: KeptEpisode, after: KeptEpisode) -> bool:
    values = {
        "revision": after.revision,
        "body": encode(after),
        "changed_at": database.read_lease_clock(connection),
    }
    # Of two turns of one episode at the same time, only the first finds the revision that it began with.
    here = (kept_episodes.c.session == session, kept_episodes.c.revision == before.revision)
    return connection.execute(update(kept_episodes).where(*here).values(values)).rowcount == 1


# Outcomes of tasks, from the groups of a run.


class SqlOutcomeStore(OutcomeStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_since(
        self, stream: Stream, sequence: int, limit: int, others: Sequence[int] = ()
    ) -> list[TaskOutcome]:
        return await self._database.read(
            lambda connection: _load_outcomes_after(connection, stream, sequence, limit, others)
        )


_SELECT_OUTCOMES = select(
    groups.c.sequence,
    groups.c.outcome,
    groups.c.absolute_count,
    groups.c.absolute_sum,
    tasks.c.index,
    tasks.c.label,
).join_from(groups, tasks, tasks.c.task_id == groups.c.task_id)


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
    rows = {row["sequence"]: row for row in connection.execute(newest).mappings()}
    if others:
        named = _SELECT_OUTCOMES.where(groups.c.sequence.in_(others))
        rows |= {row["sequence"]: row for row in connection.execute(named).mappings()}
    return [_parse_outcome(rows[position]) for position in sorted(rows)]


def _parse_outcome(row: RowMapping) -> TaskOutcome:
    return TaskOutcome(
        sequence=row["sequence"],
        index=row["index"],
        label=None if row["label"] is None else str(decode_json(row["label"])),
        tried=row["absolute_count"],
        passed=row["absolute_sum"],
        pending=row["outcome"] == "pending",
    )
