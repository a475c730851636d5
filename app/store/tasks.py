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
from app.store import leases
from app.store.database import BatchedCalls, Database, StorePart, reads, split_by_size, writes
from app.store.leases import LeaseResult, SlotLocator, StreamPlace, StreamState, TaskNaming
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


class TaskStore(StorePart):
    """Tasks that were handed out, and leases on them."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._leasing_runs = BatchedCalls(self._find_leasing_runs)
        self._unleased = set[leases.TaskKind]()
        """Of whose tasks none is leased. Empty on PostgreSQL, where other processes lease too."""
        self._lease_calls = 0

    async def put(self, records: Sequence[TaskRecord]) -> None:
        """Stores tasks; durable on return. Existing ids are unchanged."""
        if records:
            stamp = self.database.read_clock()
            await self.database.write(lambda connection: _put_tasks(connection, records, stamp), "tasks")

    @reads
    def get(self, connection: Connection, task_ids: Sequence[str]) -> dict[str, TaskRecord]:
        storable = filter_storable(task_ids)
        if not storable:
            return {}
        return load_tasks(connection, storable)

    @reads
    def find_missing(self, connection: Connection, task_ids: Sequence[str]) -> set[str]:
        """Those that are not stored."""
        return set(task_ids) - _find_stored(connection, filter_storable(task_ids))

    @writes(lambda stream, *_: f"contexts {stream.run}")
    def freeze_contexts(
        self, connection: Connection, stream: Stream, retrieved: Mapping[StreamPlace, Context]
    ) -> dict[StreamPlace, Context]:
        """Stores the first context of each place of a stream and returns the stored ones."""
        rows: list[Row] = [
            {"run": stream.run, "stream": stream.digest, "epoch": epoch, "index": index, "body": encode(context)}
            for (epoch, index), context in sorted(retrieved.items(), key=lambda item: item[0])
        ]
        insert_new_rows(connection, contexts, rows)
        return _load_contexts(connection, stream, list(retrieved))

    @reads
    def get_frozen_contexts(
        self, connection: Connection, stream: Stream, places: Sequence[StreamPlace]
    ) -> dict[StreamPlace, Context]:
        return _load_contexts(connection, stream, places)

    async def lease(
        self,
        stream: Stream,
        count: int,
        seconds: float,
        locate: SlotLocator,
        step: int | None = None,
        name_tasks: TaskNaming | None = None,
    ) -> LeaseResult:
        """Leases expired slots first, then new positions. A task with a live lease in this run is never leased again.
        `step` is the holder's training step. `name_tasks` is called in the store's thread."""

        def lease_and_look(connection: Connection) -> LeaseResult:
            leased = leases.lease_slots(connection, self.database, stream, count, seconds, locate, step)
            named = [] if name_tasks is None else name_tasks([lease.slot.index for lease in leased.leases])
            return replace(leased, stored=_find_stored(connection, named)) if named else leased

        # Before and after: a read that began in between may have seen none of these leases.
        self._note_leasing(stream)
        try:
            return await self.database.write(lease_and_look, f"leases {stream.run} {stream.environment}")
        finally:
            self._note_leasing(stream)

    def _note_leasing(self, stream: Stream) -> None:
        self._lease_calls += 1
        self._unleased.discard((stream.environment, stream.split))

    @reads
    def get_oldest_step(self, connection: Connection, run: str) -> int | None:
        """The lowest training step of the run's leases that are neither answered nor expired; None where none has
        one."""
        return leases.load_oldest_step(connection, self.database, run)

    @writes(lambda stream, *_: f"leases {stream.run} {stream.environment}")
    def expire_leases(self, connection: Connection, stream: Stream, lease_ids: Sequence[str]) -> None:
        """Expires leases whose tasks never reached a holder; they are handed out next."""
        leases.expire_leases(connection, self.database, stream, lease_ids)

    @writes(lambda stream, *_: f"leases {stream.run} {stream.environment}")
    def reserve(self, connection: Connection, stream: Stream, count: int) -> int:
        """Advances the stream by `count` positions and returns the first one. Mixtures use these."""
        return leases.reserve_positions(connection, self.database, stream, count)

    @reads
    def get_leases(self, connection: Connection, lease_ids: Sequence[str]) -> dict[str, HeldLease]:
        """The task of each lease, whatever its present state."""
        storable = filter_storable(lease_ids)
        if not storable:
            return {}
        return leases.load_leases(connection, storable)

    async def find_leasing_runs(self, keys: Sequence[TaskKey]) -> list[frozenset[str]]:
        """For each task the runs that hold it by a lease which is not answered yet, expired ones included."""
        if all((key.environment, key.split) in self._unleased for key in keys):
            return [frozenset()] * len(keys)
        with self.database.open_operation("read", "TaskStore.find_leasing_runs"):
            return await self._leasing_runs.add(keys)

    async def _find_leasing_runs(self, calls: Sequence[Sequence[TaskKey]]) -> list[list[frozenset[str]]]:
        everything = list(chain(*calls))
        kinds = set() if self.database.postgres else {(key.environment, key.split) for key in everything}
        before = self._lease_calls  # by which it is seen whether somebody leased while this was read

        def load_runs_and_kinds(connection: Connection) -> tuple[list[frozenset[str]], set[leases.TaskKind]]:
            return leases.load_leasing_runs(connection, everything), leases.find_unleased(connection, kinds)

        leasing_runs, unleased = await self.database.read(load_runs_and_kinds)
        if before == self._lease_calls:
            self._unleased |= unleased
        return split_by_size(leasing_runs, calls)

    @reads
    def get_stream_state(self, connection: Connection, stream: Stream) -> StreamState:
        """The current state of a stream. Others may lease meanwhile."""
        return leases.load_stream_state(connection, self.database, stream)


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


class SheetStore(StorePart):
    """Versions of the character sheets that tasks were made from. A version is all of an environment's sheets, in
    order, under the digest of the data that they belong to."""

    @writes("sheets")
    def keep(self, connection: Connection, environment: str, data_digest: str, texts: Sequence[str]) -> None:
        """Stores a version; durable on return. An existing one is unchanged."""
        stamp = self.database.read_clock()
        digests = [digest_of_text(text) for text in texts]
        bodies = dict(zip(digests, texts, strict=True))
        if bodies:
            rows = [{"digest": one, "body": bodies[one], "created_at": stamp} for one in sorted(bodies)]
            connection.execute(self.database.insert_new(sheets), rows)
        row = {
            "environment": environment,
            "data_digest": data_digest,
            "sheets": encode_json([*digests]),
            "created_at": stamp,
        }
        connection.execute(self.database.insert_new(editions), row)

    @reads
    def get(self, connection: Connection, environment: str, data_digest: str) -> tuple[str, ...] | None:
        """The texts of a version; None if it was never stored."""
        if not is_storable(environment, data_digest):
            return None
        here = (editions.c.environment == environment, editions.c.data_digest == data_digest)
        listed = connection.execute(select(editions.c.sheets).where(*here)).scalar()
        if listed is None:
            return None
        digests = _DIGESTS.validate_json(listed)
        statement = select(sheets.c.digest, sheets.c.body).where(sheets.c.digest.in_(digests))
        bodies = {one: body for one, body in connection.execute(statement)}
        return tuple(bodies[one] for one in digests)

    @writes(lambda stream, *_: f"epochs {stream.run}")
    def begin_epochs(
        self, connection: Connection, stream: Stream, epochs: Sequence[int], data_digest: str
    ) -> dict[int, str]:
        """The data digest that each epoch of the stream began with. Epochs that have not begun begin with this one.
        Durable on return."""
        if not epochs:
            return {}
        return _begin_epochs(connection, self.database, stream, epochs, data_digest)


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


class EpisodeStore(StorePart):
    """Episodes by the name of their session; kept for a day after their last change. Writes are durable on return."""

    @reads
    def find(self, connection: Connection, session: str) -> KeptEpisode | None:
        return _load(connection, session)

    @writes(lambda session, *_: f"episode {session}")
    def begin(self, connection: Connection, session: str, episode: KeptEpisode) -> KeptEpisode:
        """The episode that has this name already, or else this one."""
        return _begin(connection, self.database, session, episode)

    @writes(lambda session, *_: f"episode {session}")
    def change(self, connection: Connection, session: str, before: KeptEpisode, after: KeptEpisode) -> bool:
        """False if it has changed since `before`."""
        return _change(connection, self.database, session, before, after)


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


class OutcomeStore(StorePart):
    """What groups made of their tasks, for choosing the next ones."""

    @reads
    def list_since(
        self, connection: Connection, stream: Stream, sequence: int, limit: int, others: Sequence[int] = ()
    ) -> list[TaskOutcome]:
        """Outcomes of training groups with the stream's run, environment, split and params, from any stream of the run:
        the newest `limit` after `sequence`, and those with the sequences `others`. Ordered by sequence."""
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


_SELECT_OUTCOMES = select(
    groups.c.sequence,
    groups.c.outcome,
    groups.c.absolute_count,
    groups.c.absolute_sum,
    tasks.c.index,
    tasks.c.label,
).join_from(groups, tasks, tasks.c.task_id == groups.c.task_id)


def _parse_outcome(row: RowMapping) -> TaskOutcome:
    return TaskOutcome(
        sequence=row["sequence"],
        index=row["index"],
        label=None if row["label"] is None else str(decode_json(row["label"])),
        tried=row["absolute_count"],
        passed=row["absolute_sum"],
        pending=row["outcome"] == "pending",
    )
