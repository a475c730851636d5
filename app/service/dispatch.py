"""Hands out tasks: by lease, by cursor, or without a run; from one environment or a mixture."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

from pydantic import BaseModel, JsonValue

from app.domain.errors import InvalidRequest, StoreUnavailable
from app.domain.groups import Prompt, TaskRecord
from app.domain.runs import Lease, Run, Slot, Stream
from app.domain.tasks import Context, Task, TaskKey
from app.ports.judges import Panels
from app.ports.runtime import Observer
from app.ports.store import Locate, Place, Tasks
from app.service.catalogue import Catalogue, Hosted
from app.service.choosing import labels_in, locate_in
from app.service.difficulty import Difficulty, settled, targeted
from app.service.editions import Editions
from app.service.identity import stream_of, task_id
from app.service.judging import panel_for, require_same_scoring
from app.service.mixture import Draw, draw, drawn_before, mix_stream
from app.service.requests import TARGET, Batch, HandedOut, MixMember, NextBatch, NextMixedBatch, Select
from app.service.retrieval import Retrieval
from app.service.runs import RunBook
from app.service.shelf import Shelf, made, placed


@dataclass(frozen=True)
class Dealt:
    """A slot of a stream with its lease, if it was leased."""

    slot: Slot
    lease: Lease | None = None


@dataclass(frozen=True)
class Source:
    """An environment with a split, params and selection, from which a batch draws tasks. `weight` is its weight in a
    mixture."""

    hosted: Hosted
    params: BaseModel
    stream: Stream
    locate: Locate
    weight: float = 1.0


class Dispatcher:
    def __init__(
        self,
        *,
        catalogue: Catalogue,
        editions: Editions,
        tasks: Tasks,
        shelf: Shelf,
        runs: RunBook,
        retrieval: Retrieval,
        panels: Panels,
        difficulty: Difficulty,
        observer: Observer,
    ) -> None:
        self._catalogue = catalogue
        self._difficulty = difficulty
        self._editions = editions
        self._tasks = tasks
        self._shelf = shelf
        self._runs = runs
        self._retrieval = retrieval
        self._panels = panels
        self._observer = observer

    async def next_batch(self, environment: str, request: NextBatch) -> Batch:
        hosted = self._catalogue.hosted(environment)
        _refuse_leased_evaluation(request)
        _refuse_a_target_without_leases(request)
        run = await self._run(request.run, [hosted])
        source = await self._aimed(_source(hosted, run, request), request, run)
        if run is not None and request.cursor is None:
            leased = await self._tasks.lease(source.stream, request.batch_size, request.lease_seconds, source.locate)
            dealt = [Dealt(lease.slot, lease) for lease in leased.leases]
            exhausted = leased.drained and leased.outstanding == 0
            async with self._given_back_on_failure([source], [dealt]):
                tasks = await self._hand_out(source, dealt)
            return Batch(tasks=tasks, next_cursor=None, exhausted=exhausted)
        first = request.cursor or 0
        ahead = first + request.batch_size
        slots = [slot for position in range(first, ahead) if (slot := source.locate(position)) is not None]
        tasks = await self._hand_out(source, [Dealt(slot) for slot in slots])
        return Batch(tasks=tasks, next_cursor=ahead, exhausted=source.locate(ahead) is None)

    @asynccontextmanager
    async def _given_back_on_failure(
        self, sources: Sequence[Source], dealt: Sequence[Sequence[Dealt]]
    ) -> AsyncIterator[None]:
        """On failure, expires the new leases at once, so that their tasks are handed out next."""
        try:
            yield
        except Exception:
            for source, some in zip(sources, dealt, strict=True):
                if lease_ids := [one.lease.lease_id for one in some if one.lease is not None]:
                    with suppress(StoreUnavailable):
                        await self._tasks.give_back(source.stream, lease_ids)
            raise

    async def _aimed(self, source: Source, request: NextBatch, run: Run | None) -> Source:
        """Applies the target pass rate to the source, if the request has one."""
        target = request.select.target_pass_rate
        if target is None or run is None:
            return source
        rates = await self._difficulty.rates(source.stream)
        front = await self._tasks.front(source.stream)
        label = labels_in(source.hosted, request.split, source.params)
        passed_over = set(front.held)

        def narrowed(locate: Locate) -> Locate:
            return targeted(locate, target, rates, label, passed_over)

        locate = locate_in(source.hosted, request, source.params, run.seed, narrowed)
        # Whoever leases holds the store's writer: nothing that takes time is left for then.
        ready = await asyncio.to_thread(settled, locate, front.position, request.batch_size + 1)
        return replace(source, locate=ready)

    async def next_mixed_batch(self, request: NextMixedBatch) -> Batch:
        _refuse_leased_evaluation(request)
        members = [self._catalogue.hosted(member.env) for member in request.mix]
        run = await self._run(request.run, members)
        named = enumerate(zip(members, request.mix, strict=True))
        sources = _merged([_member(place, hosted, run, member) for place, (hosted, member) in named])
        if run is not None and request.cursor is None:
            first = await self._tasks.reserve(mix_stream(run.name, request.mix), request.batch_size)
            drawn = draw(_weights(sources), run.seed, first, request.batch_size)
            return await self._lease_mixture(request, sources, drawn)
        return await self._look_at_mixture(request, sources, run.seed if run is not None else 0)

    async def _lease_mixture(self, request: NextMixedBatch, sources: Sequence[Source], drawn: Sequence[Draw]) -> Batch:
        """Leases the drawn tasks. Shortfalls of exhausted members are filled from the others."""
        wanted = [sum(one.member == member for one in drawn) for member in range(len(sources))]
        dealt: list[list[Dealt]] = [[] for _ in sources]
        spent = [False] * len(sources)
        finished = [False] * len(sources)
        async with self._given_back_on_failure(sources, dealt):
            while any(wanted):
                for member, source in enumerate(sources):
                    if wanted[member] == 0:
                        continue
                    leased = await self._tasks.lease(
                        source.stream, wanted[member], request.lease_seconds, source.locate
                    )
                    dealt[member] += [Dealt(lease.slot, lease) for lease in leased.leases]
                    spent[member] = spent[member] or len(leased.leases) < wanted[member]
                    finished[member] = leased.drained and leased.outstanding == 0
                missing = request.batch_size - sum(map(len, dealt))
                able = [member for member, dry in enumerate(spent) if not dry]
                wanted = [0] * len(sources)
                for turn in range(missing if able else 0):
                    wanted[able[turn % len(able)]] += 1
            tasks = await self._hand_out_mixture(sources, dealt, drawn)
        return Batch(tasks=tasks, next_cursor=None, exhausted=all(finished))

    async def _look_at_mixture(self, request: NextMixedBatch, sources: Sequence[Source], seed: int) -> Batch:
        first = request.cursor or 0
        ahead = first + request.batch_size
        drawn = draw(_weights(sources), seed, first, request.batch_size)
        dealt: list[list[Dealt]] = [[] for _ in sources]
        for one in drawn:
            slot = sources[one.member].locate(one.position)
            if slot is not None:
                dealt[one.member].append(Dealt(slot))
        following = drawn_before(_weights(sources), seed, ahead)
        return Batch(
            tasks=await self._hand_out_mixture(sources, dealt, drawn),
            next_cursor=ahead,
            exhausted=all(s.locate(place) is None for s, place in zip(sources, following, strict=True)),
        )

    async def _hand_out_mixture(
        self, sources: Sequence[Source], dealt: Sequence[Sequence[Dealt]], drawn: Sequence[Draw]
    ) -> tuple[HandedOut, ...]:
        """Tasks in drawing order; additionally leased ones follow."""
        ready = [list(await self._hand_out(source, some)) for source, some in zip(sources, dealt, strict=True)]
        ordered = [ready[one.member].pop(0) for one in drawn if ready[one.member]]
        return tuple([*ordered, *(task for rest in ready for task in rest)])

    async def _run(self, name: str | None, members: Sequence[Hosted]) -> Run | None:
        if name is None:
            return None
        run = await self._runs.ensure(name)
        for hosted in members:
            pin = hosted.pin(run.options, panel_for(self._panels, hosted, run.options))
            require_same_scoring(run, await self._runs.pinned(run, pin), pin)
        return run

    async def _hand_out(self, source: Source, dealt: Sequence[Dealt]) -> tuple[HandedOut, ...]:
        stream, params = source.stream, source.params
        by_epoch = await self._editions.dealt(source.hosted, stream, params, {one.slot.epoch for one in dealt})
        editions = [by_epoch[one.slot.epoch] for one in dealt]
        wanted = [(hosted.environment, one.slot.index) for hosted, one in zip(editions, dealt, strict=True)]
        bare = await made(wanted, stream.split, params)
        contexts = await self._contexts(source, dealt, bare)
        tasks = [
            placed(hosted.environment, task, context)
            for hosted, task, context in zip(editions, bare, contexts, strict=True)
        ]
        records = [
            _record(hosted, stream, one.slot.index, task, context)
            for hosted, one, task, context in zip(editions, dealt, tasks, contexts, strict=True)
        ]
        await self._shelf.put(records, tasks)
        self._observer.handed_out(source.hosted.name, len(records))
        return tuple(_handed_out(record, one.lease) for record, one in zip(records, dealt, strict=True))

    async def _contexts(self, source: Source, dealt: Sequence[Dealt], bare: Sequence[Task]) -> list[Context | None]:
        """Retrieved contexts of the tasks. A run keeps the first retrieval of each place."""
        queries = [source.hosted.environment.query(task) for task in bare]
        places: list[Place] = [(one.slot.epoch, one.slot.index) for one in dealt]
        asked = [place for place, query in zip(places, queries, strict=True) if query is not None]
        if not asked:
            return [None] * len(bare)
        kept = await self._tasks.frozen(source.stream, asked) if source.stream.run else {}
        missing = {
            place: query
            for place, query in zip(places, queries, strict=True)
            if query is not None and place not in kept
        }
        found = await self._retrieval.of_all(tuple(missing.values()), "params")
        fresh = dict(zip(missing, found, strict=True))
        if source.stream.run and fresh:
            fresh = await self._tasks.freeze(source.stream, fresh)
        contexts = {**kept, **fresh}
        return [contexts.get(place) for place in places]


def _refuse_leased_evaluation(request: NextBatch | NextMixedBatch) -> None:
    if request.purpose == "eval" and request.cursor is None:
        raise InvalidRequest("evaluation requests need a cursor; start with 0", field="cursor")


def _refuse_a_target_without_leases(request: NextBatch) -> None:
    """A target depends on the run's latest groups, so a cursor could not give the same tasks twice."""
    if request.select.target_pass_rate is None:
        return
    if request.run is None or request.cursor is not None:
        raise InvalidRequest("a target pass rate needs a run and no cursor", field=f"select.{TARGET}")
    if request.split == "test":
        raise InvalidRequest("a target pass rate applies to the train split only", field=f"select.{TARGET}")


def _source(hosted: Hosted, run: Run | None, request: NextBatch) -> Source:
    params = hosted.params(request.params)
    return Source(
        hosted=hosted,
        params=params,
        stream=stream_of(
            run.name if run is not None else "",
            hosted.name,
            request.split,
            params.model_dump(mode="json"),
            _selection(request.select),
            request.weights,
        ),
        locate=locate_in(hosted, request, params, run.seed if run is not None else None),
    )


def _selection(select: Select) -> dict[str, tuple[JsonValue, ...]]:
    target = select.target_pass_rate
    return dict(select.chosen) | ({} if target is None else {TARGET: (target,)})


def _member(place: int, hosted: Hosted, run: Run | None, member: MixMember) -> Source:
    try:
        source = _source(hosted, run, NextBatch(split=member.split, params=member.params))
    except InvalidRequest as error:
        raise InvalidRequest(error.detail, field=f"mix[{place}].{error.field}") from error
    return replace(source, weight=member.weight)


def _merged(sources: Sequence[Source]) -> list[Source]:
    """Merges members that use the same stream and adds their weights. Separately they would hand out the same tasks
    twice."""
    by_stream: dict[str, Source] = {}
    for source in sources:
        met = by_stream.get(source.stream.digest)
        by_stream[source.stream.digest] = source if met is None else replace(met, weight=met.weight + source.weight)
    return list(by_stream.values())


def _weights(sources: Sequence[Source]) -> tuple[float, ...]:
    return tuple(source.weight for source in sources)


def _record(hosted: Hosted, stream: Stream, index: int, task: Task, context: Context | None) -> TaskRecord:
    key = TaskKey(
        environment=hosted.name,
        version=hosted.environment.version,
        data_digest=hosted.data_digest,
        split=stream.split,
        index=index,
        params=stream.params,
        context=context,
    )
    prompt = Prompt(messages=task.messages, tools=task.tools, max_turns=task.max_turns, metadata=task.metadata)
    label = task.metadata.get(hosted.environment.stats_label or "")
    return TaskRecord(task_id=task_id(key), key=key, prompt=prompt, label=label if isinstance(label, str) else None)


def _handed_out(record: TaskRecord, lease: Lease | None) -> HandedOut:
    return HandedOut(
        task_id=record.task_id,
        lease_id=None if lease is None else lease.lease_id,
        environment=record.key.environment,
        messages=record.prompt.messages,
        tools=record.prompt.tools,
        max_turns=record.prompt.max_turns,
        metadata=record.prompt.metadata,
        lease_expires_at=None if lease is None else lease.expires_at,
    )
