"""Hand-out of tasks: by lease, by cursor, or without a run; from one environment or from a mixture.

A batch is drawn from a task source: an environment with a split, params and a selection. A run has one stream for each
source, and every position of a stream is a task, by a pure function (`app.service.task_order`). By cursor a request
names the positions, and gets the same tasks whenever it asks. By lease the store deals them: it decides in one
transaction who holds which task (`TaskStore.lease`), expired leases first, then places that were kept back, then new
positions. This module says which task a position is, makes the tasks, and stores them before the reply.

A mixture shares the positions of a stream of its own among its members, exactly by weight in blocks of 1,000
(docs/decisions.md#0004). Each member then leases from its own stream.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pydantic import BaseModel, JsonValue

from app.domain.errors import InvalidRequest, StoreUnavailable
from app.domain.runs import Run, ScoringOptions, Slot, Stream
from app.domain.tasks import Context, ContextQuery, Task
from app.domain.values import digest
from app.ports.environment import Environment, Observer
from app.ports.hosts import EpisodeHost
from app.ports.judges import Panels
from app.service.access import QuotaService, share_batch
from app.service.catalogue import Catalogue, EnvironmentVersions, ServedEnvironment
from app.service.hosted import HostedEpisodes
from app.service.judging import get_panel, require_same_scoring
from app.service.players import PlayedEpisodes
from app.service.requests import (
    TARGET_KEY,
    BatchOptions,
    MixMember,
    NextBatch,
    NextMixedBatch,
    TaskBatch,
    TaskSelection,
    build_stream,
)
from app.service.retrieval import RetrievalService
from app.service.runs import HasLeft, RunRegistry, await_pace, stays_connected
from app.service.task_cache import (
    DealtBatch,
    DealtSlot,
    DealtTask,
    MadeTask,
    TaskCache,
    TaskOrigin,
    TasksAhead,
    build_record,
    place_context,
)
from app.service.task_order import (
    DifficultyEstimator,
    build_label_lookup,
    build_locator,
    choose_nearest_to_pass_rate,
    count_draws_below,
    find_draw,
    memoise_slots,
)
from app.store.leases import LeaseResult, SlotLocator, StreamPlace
from app.store.tasks import TaskStore

# Task sources


@dataclass(frozen=True)
class TaskSource:
    """An environment with a split, params and selection, from which a batch draws tasks. `weight` is its weight in a
    mixture."""

    hosted: ServedEnvironment
    params: BaseModel
    stream: Stream
    locate: SlotLocator
    weight: float = 1.0


NameVersion = Callable[[ServedEnvironment, Run | None, BaseModel], BaseModel]
"""Says in params which version of a model plays the player."""


def _build_source(
    hosted: ServedEnvironment, run: Run | None, request: NextBatch, name_version: NameVersion
) -> TaskSource:
    params = name_version(hosted, run, hosted.validate_params(request.params))
    return TaskSource(
        hosted=hosted,
        params=params,
        stream=build_stream(
            run.name if run is not None else "",
            hosted.name,
            request.split,
            params.model_dump(mode="json"),
            _build_selection(request.select),
            request.weights,
        ),
        locate=build_locator(hosted, request, params, run.seed if run is not None else None),
    )


def _build_selection(select: TaskSelection) -> dict[str, tuple[JsonValue, ...]]:
    target = select.target_pass_rate
    return dict(select.chosen) | ({} if target is None else {TARGET_KEY: (target,)})


def _build_member(
    position: int, hosted: ServedEnvironment, run: Run | None, member: MixMember, name_version: NameVersion
) -> TaskSource:
    try:
        source = _build_source(hosted, run, NextBatch(split=member.split, params=member.params), name_version)
    except InvalidRequest as error:
        raise InvalidRequest(error.detail, field=f"mix[{position}].{error.field}") from error
    return replace(source, weight=member.weight)


def _merge_sources(sources: Sequence[TaskSource]) -> list[TaskSource]:
    """Merges members that use the same stream, and adds their weights. Separately they would hand out the same tasks
    twice."""
    by_stream: dict[str, TaskSource] = {}
    for source in sources:
        met = by_stream.get(source.stream.digest)
        by_stream[source.stream.digest] = source if met is None else replace(met, weight=met.weight + source.weight)
    return list(by_stream.values())


def _list_weights(sources: Sequence[TaskSource]) -> tuple[float, ...]:
    return tuple(source.weight for source in sources)


def _follow_policy(hosted: ServedEnvironment, request: NextBatch) -> NextBatch:
    """The request with the target pass rate that its params ask for. Only leases of a run can follow a policy: a cursor
    gives the same tasks twice."""
    follows = request.run is not None and request.cursor is None and request.split == "train"
    if not follows or request.select.target_pass_rate is not None:
        return request
    target = hosted.environment.find_target_pass_rate(hosted.validate_params(request.params))
    if target is None:
        return request
    return request.model_copy(update={"select": request.select.model_copy(update={TARGET_KEY: target})})


# Mixtures


@dataclass(frozen=True)
class Draw:
    """The member that a position of a mixture belongs to. `position` counts this member's own tasks."""

    member: int
    position: int


def build_mix_stream(run: str, mix: Sequence[MixMember]) -> Stream:
    """The stream that counts the positions of a leased mixture. It has no environment, so its name is a placeholder."""
    identity = digest(["mix", *(member.model_dump(mode="json") for member in mix)])
    return Stream(run=run, environment="mix", split="train", params={}, select={}, digest=identity)


def draw_members(weights: Sequence[float], seed: int, first: int, count: int) -> tuple[Draw, ...]:
    """The members drawn at positions first … first + count - 1."""
    return tuple(Draw(*find_draw(tuple(weights), seed, position)) for position in range(first, first + count))


# Hand-out

_PACED: Final = DealtBatch(tasks=(), next_cursor=None, exhausted=False, paced=True)
"""The reply of a run that waits for its oldest outstanding lease."""


class Dispatcher:
    """Answers requests for tasks."""

    def __init__(
        self,
        *,
        catalogue: Catalogue,
        environment_versions: EnvironmentVersions,
        tasks: TaskStore,
        task_cache: TaskCache,
        runs: RunRegistry,
        retrieval: RetrievalService,
        panels: Panels,
        difficulty: DifficultyEstimator,
        quotas: QuotaService,
        observer: Observer,
        played: PlayedEpisodes,
        elsewhere: HostedEpisodes,
    ) -> None:
        self._played = played
        self._elsewhere = elsewhere
        self._quotas = quotas
        self._catalogue = catalogue
        self._difficulty = difficulty
        self._environment_versions = environment_versions
        self._tasks = tasks
        self._task_cache = task_cache
        self._runs = runs
        self._retrieval = retrieval
        self._panels = panels
        self._observer = observer
        self._ahead = TasksAhead()

    async def next_batch(self, environment: str, request: NextBatch) -> TaskBatch:
        return (await self.deal_batch(environment, request)).to_task_batch()

    async def deal_batch(self, environment: str, request: NextBatch, has_left: HasLeft = stays_connected) -> DealtBatch:
        hosted = self._catalogue.get_environment_or_current(environment)
        _refuse_contradictions(request)
        _refuse_unleased_target(request)
        return await self._quotas.hand_out(
            request, {hosted.name: request.batch_size}, lambda: self._hand_out(hosted, request, has_left)
        )

    async def _hand_out(self, hosted: ServedEnvironment, request: NextBatch, has_left: HasLeft) -> DealtBatch:
        run, (hosted,) = await self._enter_run(request, [hosted])
        request = _follow_policy(hosted, request)
        source = _build_source(hosted, run, request, self._name_player)
        if run is not None and not await await_pace(run, request, self._runs, self._tasks, has_left):
            return _PACED
        source = await self._apply_target(source, request, run)
        if run is not None and request.cursor is None:
            leased = await self._lease(source, request, request.batch_size)
            dealt = [DealtSlot(lease.slot, lease) for lease in leased.leases]
            exhausted = leased.drained and leased.outstanding == 0
            async with self._return_leases_on_failure([source], [dealt]):
                tasks = await self._build_and_store_tasks(source, dealt, leased.stored)
            if request.select.target_pass_rate is None:  # with one, the tasks that come next are not known yet
                params, slots = source.params, [lease.slot for lease in leased.leases]
                self._ahead.plan(hosted.environment, request.split, params, source.locate, slots)
            return DealtBatch(tasks=tasks, next_cursor=None, exhausted=exhausted)
        first = request.cursor or 0
        ahead = first + request.batch_size
        slots = [slot for position in range(first, ahead) if (slot := source.locate(position)) is not None]
        tasks = await self._build_and_store_tasks(source, [DealtSlot(slot) for slot in slots])
        return DealtBatch(tasks=tasks, next_cursor=ahead, exhausted=source.locate(ahead) is None)

    def _name_player(self, hosted: ServedEnvironment, run: Run | None, params: BaseModel) -> BaseModel:
        panel = get_panel(self._panels, hosted, ScoringOptions() if run is None else run.options)
        return self._played.name_version(params, () if panel is None else panel.models)

    async def _lease(self, source: TaskSource, request: BatchOptions, count: int) -> LeaseResult:
        name_tasks = partial(
            self._task_cache.name_tasks, source.hosted, source.stream.split, source.params.model_dump_json()
        )
        return await self._tasks.lease(
            source.stream, count, request.lease_seconds, source.locate, request.policy_step, name_tasks
        )

    @asynccontextmanager
    async def _return_leases_on_failure(
        self, sources: Sequence[TaskSource], dealt: Sequence[Sequence[DealtSlot]]
    ) -> AsyncIterator[None]:
        """On failure, expires the new leases at once, so that their tasks are handed out next."""
        try:
            yield
        except Exception:
            # A task without a holder would else stand out until its lease is over.
            for source, slots in zip(sources, dealt, strict=True):
                if lease_ids := [one.lease.lease_id for one in slots if one.lease is not None]:
                    with suppress(StoreUnavailable):  # they then expire by themselves
                        await self._tasks.expire_leases(source.stream, lease_ids)
            raise

    async def _apply_target(self, source: TaskSource, request: NextBatch, run: Run | None) -> TaskSource:
        """Applies the target pass rate to the source, if the request has one."""
        target = request.select.target_pass_rate
        if target is None or run is None:
            return source
        rates = await self._difficulty.estimate_rates(source.stream)
        state = await self._tasks.get_stream_state(source.stream)
        label = build_label_lookup(source.hosted, request.split, source.params)
        passed_over = set(state.held)

        def narrow_to_target(locate: SlotLocator) -> SlotLocator:
            return choose_nearest_to_pass_rate(locate, target, rates, label, passed_over)

        locate = build_locator(source.hosted, request, source.params, run.seed, narrow_to_target)
        # Whoever leases holds the store's writer: nothing that takes time is left for then.
        ready = await asyncio.to_thread(memoise_slots, locate, state.position, request.batch_size + 1)
        return replace(source, locate=ready)

    async def deal_mixed_batch(self, request: NextMixedBatch, has_left: HasLeft = stays_connected) -> DealtBatch:
        _refuse_contradictions(request)
        members = [self._catalogue.get_environment_or_current(member.env) for member in request.mix]
        counts = share_batch(request)
        return await self._quotas.hand_out(request, counts, lambda: self._hand_out_mixed(members, request, has_left))

    async def _hand_out_mixed(
        self, members: Sequence[ServedEnvironment], request: NextMixedBatch, has_left: HasLeft
    ) -> DealtBatch:
        run, members = await self._enter_run(request, members)
        pairs = enumerate(zip(members, request.mix, strict=True))
        sources = _merge_sources(
            [_build_member(position, hosted, run, one, self._name_player) for position, (hosted, one) in pairs]
        )
        if run is not None and not await await_pace(run, request, self._runs, self._tasks, has_left):
            return _PACED
        if run is not None and request.cursor is None:
            first = await self._tasks.reserve(build_mix_stream(run.name, request.mix), request.batch_size)
            drawn = draw_members(_list_weights(sources), run.seed, first, request.batch_size)
            return await self._lease_mixture(request, sources, drawn)
        return await self._preview_mixture(request, sources, run.seed if run is not None else 0)

    async def _lease_mixture(
        self, request: NextMixedBatch, sources: Sequence[TaskSource], drawn: Sequence[Draw]
    ) -> DealtBatch:
        """Leases the drawn tasks. Shortfalls of exhausted members are filled from the others."""
        counts = [sum(one.member == member for one in drawn) for member in range(len(sources))]
        dealt: list[list[DealtSlot]] = [[] for _ in sources]
        spent = [False] * len(sources)
        finished = [False] * len(sources)
        stored: set[str] = set()
        async with self._return_leases_on_failure(sources, dealt):
            while any(counts):
                for member, source in enumerate(sources):
                    if counts[member] == 0:
                        continue
                    leased = await self._lease(source, request, counts[member])
                    dealt[member] += [DealtSlot(lease.slot, lease) for lease in leased.leases]
                    stored |= leased.stored
                    # One that gave less than it was asked for is not asked again.
                    spent[member] = spent[member] or len(leased.leases) < counts[member]
                    finished[member] = leased.drained and leased.outstanding == 0
                missing = request.batch_size - sum(map(len, dealt))
                able = [member for member, is_spent in enumerate(spent) if not is_spent]
                counts = [0] * len(sources)
                for turn in range(missing if able else 0):
                    counts[able[turn % len(able)]] += 1
            tasks = await self._build_in_drawn_order(sources, dealt, drawn, stored)
        return DealtBatch(tasks=tasks, next_cursor=None, exhausted=all(finished))

    async def _preview_mixture(self, request: NextMixedBatch, sources: Sequence[TaskSource], seed: int) -> DealtBatch:
        first = request.cursor or 0
        ahead = first + request.batch_size
        drawn = draw_members(_list_weights(sources), seed, first, request.batch_size)
        dealt: list[list[DealtSlot]] = [[] for _ in sources]
        for one in drawn:
            slot = sources[one.member].locate(one.position)
            if slot is not None:
                dealt[one.member].append(DealtSlot(slot))
        following = count_draws_below(_list_weights(sources), seed, ahead)
        return DealtBatch(
            tasks=await self._build_in_drawn_order(sources, dealt, drawn),
            next_cursor=ahead,
            exhausted=all(source.locate(after) is None for source, after in zip(sources, following, strict=True)),
        )

    async def _build_in_drawn_order(
        self,
        sources: Sequence[TaskSource],
        dealt: Sequence[Sequence[DealtSlot]],
        drawn: Sequence[Draw],
        stored: Collection[str] = (),
    ) -> tuple[DealtTask, ...]:
        """Tasks in drawing order; additionally leased ones follow."""
        ready = [
            list(await self._build_and_store_tasks(source, slots, stored))
            for source, slots in zip(sources, dealt, strict=True)
        ]
        ordered = [ready[one.member].pop(0) for one in drawn if ready[one.member]]
        return tuple([*ordered, *(task for rest in ready for task in rest)])

    async def _enter_run(
        self, request: NextBatch | NextMixedBatch, members: Sequence[ServedEnvironment]
    ) -> tuple[Run | None, Sequence[ServedEnvironment]]:
        """The run, and the environments with the characters that it uses."""
        if request.run is None:
            return None, members
        run = await self._runs.ensure(request.run)
        if run.characters == "pinned":
            members = [await self._environment_versions.get_pinned(run, hosted) for hosted in members]
        for hosted in members:
            pin = hosted.build_pin(run.options, get_panel(self._panels, hosted, run.options))
            require_same_scoring(run, await self._runs.check_pin(run, pin), pin)
        judged = [hosted.name for hosted in members if hosted.environment.rubric is not None]
        await self._runs.require_open(run, request.purpose, judged)
        return run, members

    async def _build_and_store_tasks(
        self, source: TaskSource, dealt: Sequence[DealtSlot], stored: Collection[str] = ()
    ) -> tuple[DealtTask, ...]:
        stream, params = source.stream, source.params
        by_epoch = await self._environment_versions.get_epoch_versions(
            source.hosted, stream, params, {one.slot.epoch for one in dealt}
        )
        dumped = params.model_dump_json()
        origins = [(by_epoch[one.slot.epoch], stream.split, dumped, one.slot.index) for one in dealt]
        made = self._task_cache.find_made(origins)
        missing = [(origin, one.slot) for origin, one, task in zip(origins, dealt, made, strict=True) if task is None]
        fresh = iter(await self._make_tasks(source, missing) if missing else ())
        ready = [next(fresh) if task is None else task for task in made]
        await self._task_cache.put(ready, stored)
        self._observer.record_hand_out(source.hosted.name, len(ready))
        return tuple((task, one.lease) for task, one in zip(ready, dealt, strict=True))

    async def _make_tasks(self, source: TaskSource, missing: Sequence[tuple[TaskOrigin, Slot]]) -> list[MadeTask]:
        versions = [origin[0] for origin, _ in missing]
        slots = [slot for _, slot in missing]
        indexes = [(hosted.environment, slot.index) for hosted, slot in zip(versions, slots, strict=True)]
        bare_tasks = await self._ahead.build(indexes, source.stream.split, source.params)
        contexts = await self._retrieve_contexts(source, slots, bare_tasks)
        made: list[MadeTask] = []
        for (origin, slot), hosted, bare, context in zip(missing, versions, bare_tasks, contexts, strict=True):
            task = place_context(hosted.environment, bare, context)
            made.append(MadeTask(build_record(hosted, source.stream, slot.index, task, context), task))
            if context is None:
                self._task_cache.keep_made(origin, made[-1])
        return made

    async def _retrieve_contexts(
        self, source: TaskSource, slots: Sequence[Slot], bare_tasks: Sequence[Task]
    ) -> list[Context | None]:
        """Retrieved contexts of the tasks, and openings of episodes that run elsewhere. A run keeps the first one of
        each task in an epoch, so that a task whose lease has expired is handed out again with the same prompt."""
        needs = [_find_need(source.hosted.environment, task) for task in bare_tasks]
        keys: list[StreamPlace] = [(slot.epoch, slot.index) for slot in slots]
        by_key = {key: need for key, need in zip(keys, needs, strict=True) if need is not None}
        if not by_key:
            return [None] * len(bare_tasks)
        frozen = await self._tasks.get_frozen_contexts(source.stream, list(by_key)) if source.stream.run else {}
        missing = {key: need for key, need in by_key.items() if key not in frozen}
        queries = [need for need in missing.values() if isinstance(need, ContextQuery)]
        hosts = [need for need in missing.values() if not isinstance(need, ContextQuery)]
        retrieved = await (
            self._elsewhere.open_all(hosts) if hosts else self._retrieval.retrieve_all(queries, "params")
        )
        fresh = dict(zip(missing, retrieved, strict=True))
        if source.stream.run and fresh:
            # The stored ones, which are another replica's where that was faster.
            fresh = await self._tasks.freeze_contexts(source.stream, fresh)
        contexts = {**frozen, **fresh}
        return [contexts.get(key) for key in keys]


def _find_need(environment: Environment, task: Task) -> ContextQuery | EpisodeHost | None:
    """What the prompt of a task waits for. All tasks of one environment wait for the same kind of thing."""
    if environment.runs_elsewhere:
        return None if task.messages else environment.find_host(task)
    return environment.query(task)


def _refuse_contradictions(request: NextBatch | NextMixedBatch) -> None:
    if request.purpose == "eval" and request.cursor is None:
        raise InvalidRequest("evaluation requests need a cursor; start with 0", field="cursor")
    if request.policy_step is not None and (request.run is None or request.cursor is not None):
        raise InvalidRequest("the step is kept with leases, so it needs a run and no cursor", field="policy.step")


def _refuse_unleased_target(request: NextBatch) -> None:
    """A target depends on the run's latest groups, so a cursor could not give the same tasks twice."""
    if request.select.target_pass_rate is None:
        return
    if request.run is None or request.cursor is not None:
        raise InvalidRequest("a target pass rate needs a run and no cursor", field=f"select.{TARGET_KEY}")
    if request.split == "test":
        raise InvalidRequest("a target pass rate applies to the train split only", field=f"select.{TARGET_KEY}")
