"""Tasks in memory: a cache of those that were made, batches of those that were handed out, and some built ahead.

A task is made by its environment from a split, an index and params, and stored as a record under the digest of these.
`TaskCache` holds records and made tasks, since most tasks are scored shortly after they were handed out, and a task of
a finite split is handed out again in every epoch. `DealtBatch` is a batch on its way to the reply, whose JSON is joined
from parts that repeated tasks have ready. `TasksAhead` builds slow tasks of endless streams before they are asked for.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Final, TypeVar

from pydantic import BaseModel, JsonValue
from pydantic_core import to_json

from app.domain.errors import NotFound
from app.domain.groups import TaskPrompt, TaskRecord
from app.domain.runs import Lease, Slot, Stream
from app.domain.tasks import Context, Task, TaskKey
from app.domain.values import MEBIBYTE, ByteCache, Split, measure_bytes
from app.ports.environment import Environment
from app.service.catalogue import ServedEnvironment, make_task
from app.service.requests import HandedOutTask, TaskBatch, build_handed_out_task, compute_task_id
from app.store.leases import SlotLocator
from app.store.tasks import TaskStore

WrittenT = TypeVar("WrittenT")

MAX_CACHED_BYTES: Final = 12 * MEBIBYTE
"""Of tasks with their records by their ids, and again by their origin: the two share most of it. Of a third of it are
records without their tasks."""

TaskOrigin = tuple[ServedEnvironment, Split, str, int]
"""An environment with its data, split, params as JSON, and index."""


@dataclass(frozen=True)
class MadeTask:
    """A task with what is stored of it."""

    record: TaskRecord
    task: Task

    @cached_property
    def held_bytes(self) -> int:
        """Of record and task."""
        return measure_bytes((self.record, self.task))

    @cached_property
    def reply_parts(self) -> tuple[bytes, bytes]:
        """The JSON of the handed out task up to its lease, and from there to the end of the lease."""
        beginning = b'{"task_id":"%b","lease_id":' % self.record.task_id.encode()
        whole = build_handed_out_task(self.record, None).model_dump_json().encode()
        return beginning, whole[len(beginning) + len(b"null") : -len(b"null}")]


@dataclass
class TaskCache:
    """A cache in front of the store. A missing task is read from the store and rebuilt. A cached one may be missing in
    the store, which loses rows when it fails over to a replica that lagged, or is restored from a backup."""

    tasks: TaskStore
    _made: ByteCache[str, MadeTask] = field(default_factory=lambda: ByteCache(MAX_CACHED_BYTES))
    _records: ByteCache[str, TaskRecord] = field(default_factory=lambda: ByteCache(MAX_CACHED_BYTES // 3))
    """Read from the store, of tasks that were not made here."""
    _by_origin: ByteCache[TaskOrigin, MadeTask] = field(default_factory=lambda: ByteCache(MAX_CACHED_BYTES))
    """Tasks without retrieved passages, which are the same whenever they are made."""

    def find_made(self, origins: Sequence[TaskOrigin]) -> list[MadeTask | None]:
        """None for those that have to be made."""
        return [self._by_origin.get(origin) for origin in origins]

    def keep_made(self, origin: TaskOrigin, made: MadeTask) -> None:
        """Call for tasks without retrieved passages only."""
        # A copy, which gets its JSON when it is handed out again: most tasks of endless streams never are.
        self._by_origin.put(origin, replace(made), made.held_bytes * 3 // 2)  # its JSON is half as much

    def name_tasks(self, hosted: ServedEnvironment, split: Split, params: str, indexes: Sequence[int]) -> list[str]:
        """The ids of those that need not be made again. Callable from any thread."""
        made = self.find_made([(hosted, split, params, index) for index in indexes])
        return [one.record.task_id for one in made if one is not None]

    async def put(self, made: Sequence[MadeTask], stored: Collection[str] = ()) -> None:
        """Durable on return. `stored`: ids of those that the store was just seen to have."""
        known = self._find_records([one.record.task_id for one in made])
        unsure = [one for one in made if one.record.task_id not in known or one.record.task_id not in stored]
        if not unsure:
            return
        cached = [one.record.task_id for one in unsure if one.record.task_id in known]
        lost = await self.tasks.find_missing(cached) if cached else set()
        to_store = [one.record for one in unsure if one.record.task_id in lost or one.record.task_id not in known]
        if to_store:
            await self.tasks.put(to_store)
        for one in unsure:
            self._made.put(one.record.task_id, replace(one), one.held_bytes)  # without its JSON, which is sent once

    async def write_with_tasks(self, task_ids: Collection[str], write: Callable[[], Awaitable[WrittenT]]) -> WrittenT:
        """The result of a write that refers to tasks. If it finds that one is not stored, cached ones are stored again
        and the write is repeated."""
        try:
            return await write()
        except NotFound:
            cached = [*self._find_records(task_ids).values()]
            if not cached:
                raise
            await self.tasks.put(cached)
        return await write()

    async def get(self, task_ids: Sequence[str]) -> dict[str, TaskRecord]:
        """Records by id; those that were never stored are left out."""
        records = self._find_records(task_ids)
        missing = [name for name in task_ids if name not in records]
        if missing:
            stored = await self.tasks.get(missing)
            for name, record in stored.items():
                self._records.put(name, record)
            records |= stored
        return records

    def get_task(self, hosted: ServedEnvironment, record: TaskRecord) -> Task:
        """The task of a record made by `hosted` in its current version, including the reference."""
        made = self._made.get(record.task_id)
        if made is None:
            made = MadeTask(record, rebuild_task(hosted, record))
            self._made.put(record.task_id, made, made.held_bytes)
            self._records.pop(record.task_id)
        return made.task

    def _find_records(self, task_ids: Collection[str]) -> dict[str, TaskRecord]:
        made = self._made.find_all(task_ids)
        records = {name: one.record for name, one in made.items()}
        return records | self._records.find_all([name for name in task_ids if name not in records])


# Tasks and their records

FAILED_CONTEXT_METADATA: Final[Mapping[str, JsonValue]] = {"context": "failed"}
"""Metadata of a task that is handed out without passages because retrieval failed."""


def place_context(environment: Environment, task: Task, context: Context | None) -> Task:
    """The task with the context in its prompt. Pure. None means that nothing was requested."""
    if context is None:
        return task
    placed = environment.place(task, context)
    if context.failure is None:
        return placed
    return placed.model_copy(update={"metadata": {**placed.metadata, **FAILED_CONTEXT_METADATA}})


def rebuild_task(hosted: ServedEnvironment, record: TaskRecord) -> Task:
    """The task of a record, made again by this version of its environment."""
    environment = hosted.environment
    params = hosted.validate_params(record.key.params)
    task = make_task(environment, record.key.split, record.key.index, params)
    return place_context(environment, task, record.key.context)


def build_record(
    hosted: ServedEnvironment, stream: Stream, index: int, task: Task, context: Context | None
) -> TaskRecord:
    """What is stored of a task that is handed out."""
    key = TaskKey(
        environment=hosted.name,
        version=hosted.environment.version,
        data_digest=hosted.data_digest,
        split=stream.split,
        index=index,
        params=stream.params,
        context=context,
    )
    prompt = TaskPrompt(messages=task.messages, tools=task.tools, max_turns=task.max_turns, metadata=task.metadata)
    label = task.metadata.get(hosted.environment.stats_label or "")
    return TaskRecord(
        task_id=compute_task_id(key), key=key, prompt=prompt, label=label if isinstance(label, str) else None
    )


# Batches


@dataclass(frozen=True)
class DealtSlot:
    """A slot of a stream with its lease, if it was leased."""

    slot: Slot
    lease: Lease | None = None


DealtTask = tuple[MadeTask, Lease | None]
"""A task with its lease, if it was leased."""


@dataclass(frozen=True)
class DealtBatch:
    """A batch before it is a reply. See `TaskBatch`."""

    tasks: Sequence[DealtTask]
    next_cursor: int | None
    exhausted: bool
    paced: bool = False
    warnings: tuple[str, ...] = ()

    def to_task_batch(self) -> TaskBatch:
        return self._build_reply([build_handed_out_task(made.record, lease) for made, lease in self.tasks])

    def to_json(self) -> bytes:
        """The JSON of `to_task_batch`, joined from parts that repeated tasks have ready."""
        empty = self._build_reply(()).model_dump_json().encode()
        opening = b'{"tasks":['
        return b"".join([opening, b",".join(self._write_tasks()), empty[len(opening) :]])

    def _write_tasks(self) -> Iterator[bytes]:
        times: dict[datetime, bytes] = {}  # leases of one call expire at one time
        for made, lease in self.tasks:
            beginning, rest = made.reply_parts
            if lease is None:
                yield b"%bnull%bnull}" % (beginning, rest)
                continue
            if lease.expires_at not in times:
                times[lease.expires_at] = to_json(lease.expires_at)
            yield b'%b"%b"%b%b}' % (beginning, lease.lease_id.encode(), rest, times[lease.expires_at])

    def _build_reply(self, tasks: Sequence[HandedOutTask]) -> TaskBatch:
        return TaskBatch(
            tasks=tuple(tasks),
            next_cursor=self.next_cursor,
            exhausted=self.exhausted,
            paced=self.paced,
            warnings=self.warnings,
        )


# Tasks that are built ahead

MAX_SECONDS_PER_PASS: Final = 0.005
"""Maximum time spent per pass of the event loop; a single task may take longer."""


async def build_tasks(requested: Sequence[tuple[Environment, int]], split: Split, params: BaseModel) -> list[Task]:
    """Builds one task per environment and index, in order, and lets others run in between."""
    tasks: list[Task] = []
    began = time.perf_counter()
    for environment, index in requested:
        if time.perf_counter() - began > MAX_SECONDS_PER_PASS:
            await asyncio.sleep(0)
            began = time.perf_counter()
        tasks.append(make_task(environment, split, index, params))
    return tasks


SLOW_TASK: Final = 0.000_5
"""Seconds. Tasks that take longer are built ahead."""
_MAX_BYTES_AHEAD: Final = 8 * MEBIBYTE
"""Of tasks built ahead; the oldest are dropped."""

_BuildKey = tuple[Environment, Split, str, int]
"""An environment, split, params as JSON, and index."""


@dataclass
class TasksAhead:
    """Builds tasks, and those that come next in a stream before they are asked for. It does so while nobody waits for
    tasks, and at most two thirds of the time. A request then waits only for what is not ready."""

    _ready: ByteCache[_BuildKey, Task] = field(default_factory=lambda: ByteCache(_MAX_BYTES_AHEAD))
    _planned: dict[_BuildKey, BaseModel] = field(default_factory=dict)
    _sizes: dict[tuple[Environment, Split, str], int] = field(default_factory=dict)
    """Of the tasks of the stream that was built last."""
    _slow: set[str] = field(default_factory=set)
    """Names of environments whose tasks are slow."""
    _warm: set[Environment] = field(default_factory=set)
    """Environments with a costly first task that have made one."""
    _requests: int = 0
    """How many requests wait for tasks."""
    work: asyncio.Task[None] | None = None
    """Runs while there is something to build."""

    async def build(self, requested: Sequence[tuple[Environment, int]], split: Split, params: BaseModel) -> list[Task]:
        """As `build_tasks`."""
        dumped = params.model_dump_json()
        keys = [(environment, split, dumped, index) for environment, index in requested]
        for key in keys:
            self._planned.pop(key, None)
        ready = {key: task for key in keys if (task := self._ready.pop(key)) is not None}
        missing = [key for key in keys if key not in ready]
        self._requests += 1
        try:
            await self._warm_up(missing, params)
            began = time.process_time()  # not the wall clock, since others run in between
            built = await build_tasks([(key[0], key[3]) for key in missing], split, params)
            if missing and time.process_time() - began > SLOW_TASK * len(missing):
                self._slow |= {environment.name for environment, _ in requested}
        finally:
            self._requests -= 1
        ready |= zip(missing, built, strict=True)
        return [ready[key] for key in keys]

    async def _warm_up(self, missing: Sequence[_BuildKey], params: BaseModel) -> None:
        """Makes a costly first task in a thread, so that other requests are answered meanwhile."""
        for environment, split, _, index in missing:
            if environment.costly_first_task and environment not in self._warm:
                await asyncio.to_thread(make_task, environment, split, index, params)
                self._warm.add(environment)

    def plan(
        self, environment: Environment, split: Split, params: BaseModel, locate: SlotLocator, slots: Sequence[Slot]
    ) -> None:
        """Builds as many tasks soon as these of an endless stream, which come after them, if they are slow ones."""
        if not slots or environment.name not in self._slow or environment.size(split, params) is not None:
            return
        last, dumped = max(slot.position for slot in slots), params.model_dump_json()
        for position in range(last + 1, last + 1 + len(slots)):
            slot = locate(position)
            if slot is not None and (key := (environment, split, dumped, slot.index)) not in self._ready:
                self._planned[key] = params
        if self._planned and self.work is None:
            self.work = asyncio.create_task(self._build_planned())
            self.work.add_done_callback(self._forget_work)

    def _keep_ready(self, key: _BuildKey, task: Task) -> None:
        """Tasks of a stream are drawn by the same code, so the first says how large they are: to measure each takes as
        long as to make it."""
        stream = key[:3]
        if stream not in self._sizes:
            self._sizes = {stream: measure_bytes(task)}
        self._ready.put(key, task, self._sizes[stream])

    def _forget_work(self, _: object) -> None:
        self.work = None

    async def _build_planned(self) -> None:
        while self._planned:
            await asyncio.sleep(0)
            if self._requests:
                await asyncio.sleep(MAX_SECONDS_PER_PASS)
                continue
            key = next(iter(self._planned))
            params = self._planned.pop(key)
            environment, split, _, index = key
            began = time.perf_counter()
            with suppress(Exception):  # whoever asks for the task gets the error
                self._keep_ready(key, make_task(environment, split, index, params))
            await asyncio.sleep((time.perf_counter() - began) / 2)
