"""Score requests: groups are accepted, scored, stored, and replied to.

`ScoreValidator` turns each group of a request into the group to store: its id, which a repeat has too, its run, its
lease, its lag, and whether a strict run refuses it. A lease is looked up here to name the run and the step; it ends in
the store, in the transaction that adds its group.

`GroupScoring` scores a group once in this process, and stores it before anybody is answered:

- Where the environment awaits nothing, groups are scored in the task of their request, and stored by an insert that
  leaves known rows alone (docs/decisions.md#0038).
- Otherwise the store is asked first. What has scores is returned; what another request is scoring is waited for; the
  rest is judged, and stored in one transaction.
- What is not finished when the wait is over is stored as pending, and its scoring goes on in the background. A client
  that hangs up stops no scoring.
- A retry is judged only where it has no score yet. A pruned group is never scored again.
- What a restart interrupted is in the store as pending, and is taken up again by `resume`.

`ScoringService` answers a request: its whole groups by `GroupScoring`, its pieces by `app.service.pending_groups`.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from app.domain.access import Caller, name_current_caller, work_for
from app.domain.budgets import Amount, KeyQuotas
from app.domain.errors import (
    Conflict,
    EnvironmentUnavailable,
    Gone,
    InvalidRequest,
    NotFound,
    RequestRefused,
    StoreUnavailable,
)
from app.domain.groups import Group, Rollout, TaskRecord
from app.domain.judging import combine_outcomes, summarise_scores
from app.domain.parts import GroupPart, name_late_group
from app.domain.retention import describe_pruned
from app.domain.runs import HeldLease, Pin, Run, ScoringOptions
from app.domain.scores import Score
from app.domain.tasks import Completion, are_large
from app.ports.environment import Clock, Observer, ScoredGroup
from app.ports.judges import Panels
from app.ports.tracing import Attributes, note_work, open_span
from app.service.access import QuotaService, ScoringAdmission
from app.service.catalogue import Catalogue, EnvironmentVersions
from app.service.judging import Scorer, bound_scoring, get_panel, repeat_score, require_same_scoring
from app.service.requests import (
    GroupProblem,
    GroupReply,
    GroupToScore,
    ScoreRequest,
    ScoreResponse,
    SingleFlight,
    compute_group_id,
    compute_part_group_id,
)
from app.service.runs import RunRegistry, add_up_bounds
from app.service.task_cache import MAX_SECONDS_PER_PASS, TaskCache
from app.store.budgets import JudgingDemand
from app.store.group_rows import GroupToStore
from app.store.groups import GroupStore, IdempotencyKey
from app.store.tasks import TaskStore

_DEFAULT_OPTIONS: Final = ScoringOptions()
_REFUSED_SCORE: Final = Score.unscored(
    "version_changed", "the run is strict, and is now scored otherwise than when it began"
)
_STALE_SCORE: Final = Score.unscored("stale", "the lag is above the run's `max_lag`, and its `lag_policy` is `drop`")


@dataclass(frozen=True)
class AcceptedGroup:
    """A valid group to score, its task and its scoring options."""

    group: Group
    """Without rollouts while it is new: each is made once, with its score."""
    completions: tuple[Completion, ...]
    """Those that have no score yet."""
    large: bool
    """Whether work on them belongs in a thread."""
    record: TaskRecord
    options: ScoringOptions
    refused: Score | None = None
    """A score for all unscored completions, used instead of scoring them."""
    part: GroupPart | None = None
    """For a group sent in pieces: which piece these completions are."""
    named_run: str | None = None
    """The run that its request names."""

    def put_scores(self, scores: Sequence[Score]) -> Group:
        """The group with these scores of its completions, in order."""
        if self.group.rollouts:
            return self.group.merge_scores(scores)
        build, group_id = Rollout.build_trusted, self.group.group_id
        rollouts = [
            build(rollout_id=f"{group_id}-{position}", completion=completion, score=score, reduced=None)
            for position, (completion, score) in enumerate(zip(self.completions, scores, strict=True))
        ]
        return self.group.model_copy(update={"rollouts": tuple(rollouts), "outcome": combine_outcomes(scores)})

    def mark_pending(self) -> Group:
        """The group with its completions set to pending, also in a retry."""
        return self.put_scores((Score.pending(),) * len(self.completions))

    @classmethod
    def from_stored(
        cls, stored: Group, record: TaskRecord, options: ScoringOptions, refused: Score | None = None
    ) -> "AcceptedGroup":
        """A group as it is stored, of which only completions without a score are scored."""
        completions = tuple([rollout.completion for rollout in stored.rollouts if not rollout.score.is_final])
        return cls(stored, completions, are_large(completions), record, options, refused)


@dataclass(frozen=True)
class _IdentifiedGroup:
    """A group of a request, and the id that a repeat has too."""

    sent: GroupToScore
    record: TaskRecord
    lease: HeldLease | None
    run: str | None
    group_id: str
    large: bool
    """Whether work on its completions belongs in a thread."""


@dataclass(frozen=True)
class ValidatedGroups:
    """In request order, and what the quotas of their key say of them."""

    groups: tuple[AcceptedGroup | RequestRefused, ...]
    admission: ScoringAdmission


class ScoreValidator:
    """Accepts the groups of a request, or refuses each by itself."""

    def __init__(
        self,
        *,
        environment_versions: EnvironmentVersions,
        tasks: TaskStore,
        task_cache: TaskCache,
        groups: GroupStore,
        runs: RunRegistry,
        panels: Panels,
        quotas: QuotaService,
        observer: Observer,
        clock: Clock,
    ) -> None:
        self._quotas = quotas
        self._environment_versions = environment_versions
        self._tasks = tasks
        self._task_cache = task_cache
        self._groups = groups
        self._runs = runs
        self._panels = panels
        self._observer = observer
        self._clock = clock

    async def validate(self, request: ScoreRequest, environment: str | None) -> ValidatedGroups:
        """Each group of the request as it will be scored, or why it is refused. Conflict where a strict run
        refuses; QuotaExceeded where no group has room in the quotas of its key; EnvironmentUnavailable while an
        environment of the request is still starting, so that no lease is used up by a restart. What judging the groups
        may take is reserved last: nobody gives back what was reserved for a request that is refused."""
        accepted = await self._accept(request, environment)
        sound = [one for one in accepted if isinstance(one, AcceptedGroup)]
        admission = await self._quotas.admit_scoring(await self._list_demands(sound))
        groups = []
        for one in accepted:
            refusal = None if isinstance(one, RequestRefused) else admission.refused.get(one.group.group_id)
            if refusal is not None:
                self._observer.record_refusal(environment or "mix", refusal.code)
            groups.append(one if refusal is None else refusal)
        if admission.refused and not any(isinstance(one, AcceptedGroup) for one in groups):
            raise next(iter(admission.refused.values()))
        return ValidatedGroups(tuple(groups), admission)

    async def validate_sample(
        self, request: ScoreRequest, environment: str, size: int
    ) -> tuple[AcceptedGroup, tuple[JudgingDemand, ...]]:
        """The one group of the request, which is a sample of a group of `size`, and what judging that group demands:
        it is reserved with the place of the sample."""
        (accepted,) = await self._accept(request, environment)
        if isinstance(accepted, RequestRefused):
            raise accepted
        return accepted, tuple(await self._list_demands([accepted], size))

    async def _accept(self, request: ScoreRequest, environment: str | None) -> list[AcceptedGroup | RequestRefused]:
        await self._quotas.require_request()  # what is accepted may make its run, with pins
        records = await self._task_cache.get(list({group.task_id for group in request.groups}))
        for name in {record.key.environment for record in records.values()}:
            self._environment_versions.require_started(name)
        lease_ids = [group.lease_id for group in request.groups if group.lease_id is not None]
        leases = await self._tasks.get_leases(lease_ids) if lease_ids else {}
        leasing_runs = await self._find_leasing_runs(request, records)
        accepted: list[AcceptedGroup | RequestRefused] = []
        for sent in request.groups:
            try:
                record = _find_record(sent, records, environment)
                one = await _identify_group(request, sent, record, leases, leasing_runs)
                accepted.append(await self._accept_group(request, one))
            except Conflict:  # a strict run refuses the whole request
                raise
            except RequestRefused as error:
                self._observer.record_refusal(environment or "mix", error.code)
                accepted.append(error.with_traceback(None))  # which would keep the request
        return accepted

    async def _list_demands(self, groups: Sequence[AcceptedGroup], size: int = 1) -> list[JudgingDemand]:
        limits, demands = self._quotas.limits, list[JudgingDemand]()
        if limits is None or not limits.limits_judging:
            return demands
        for one in groups:
            bound = await self._bound(one, limits, size)
            if bound is not None:
                demands.append(_build_demand(one, bound, with_late=limits.hard))
        return demands

    async def _bound(self, one: AcceptedGroup, limits: KeyQuotas, size: int) -> Amount | None:
        """What judging the group takes at most; None where no judge is asked. What is no cap needs no more than what is
        expected of any group."""
        name = one.group.environment
        unknown = self._quotas.bound_unknown(name, one.options)
        if unknown is None or not limits.hard:
            return unknown
        try:
            hosted = await self._environment_versions.get_version(name, one.record.key.data_digest)
        except (EnvironmentUnavailable, NotFound):
            return None  # it is stored unscored
        if not hosted.has_made(one.record.key):
            return None  # as it is where its task was made by another version
        try:
            task = self._task_cache.get_task(hosted, one.record)
            bounds = await bound_scoring(
                hosted.environment,
                task,
                one.completions,
                one.options,
                self._panels,
                size=size if one.part is None else one.part.size,
            )
        except Exception:  # of the environment: its own group alone will be unscored, and not the others of the request
            log.exception("what judging takes could not be bounded: %s", one.record.task_id)
            return limits.widen(unknown)
        most = add_up_bounds(bounds)
        return None if most is None else limits.widen(most)

    async def _accept_group(self, request: ScoreRequest, one: _IdentifiedGroup) -> AcceptedGroup:
        sent, record, lease = one.sent, one.record, one.lease
        run = await self._runs.ensure(one.run) if one.run is not None else None
        options = run.options if run is not None else _DEFAULT_OPTIONS
        flags: tuple[str, ...] = ()
        if run is not None and (pin := await self._find_pin_mismatch(run, record)) is not None:
            if run.strict:
                require_same_scoring(run, await self._is_final(one.group_id), pin)
            flags = ("scoring_changed",)
        group = Group.build_trusted(
            group_id=one.group_id,
            task_id=sent.task_id,
            environment=record.key.environment,
            run=one.run,
            lease_id=sent.lease_id,
            policy=request.policy,
            purpose=request.purpose,
            outcome="pending",
            flags=flags,
            rollouts=(),
            created_at=self._clock(),
            hand_out_step=None if lease is None else lease.step,
            sender=name_current_caller() or None,
        )
        group, refused = _apply_lag_limit(group, run)
        options = resolve_scoring_options(options, group)
        return AcceptedGroup(group, sent.completions, one.large, record, options, refused, sent.part, request.run)

    async def _find_leasing_runs(self, request: ScoreRequest, records: dict[str, TaskRecord]) -> dict[str, str]:
        """By task the run that it was leased under, for groups that name neither run nor lease. A task that several
        runs hold is nobody's."""
        if request.run is not None or request.purpose == "eval":
            return {}
        unnamed = {group.task_id for group in request.groups if group.lease_id is None} & records.keys()
        task_ids = sorted(unnamed)
        runs = await self._tasks.find_leasing_runs([records[name].key for name in task_ids]) if task_ids else []
        return {task_id: next(iter(names)) for task_id, names in zip(task_ids, runs, strict=True) if len(names) == 1}

    async def resume(self, group: Group, record: TaskRecord) -> AcceptedGroup:
        """Prepares a group accepted before a restart, with the current scoring rule."""
        run = await self._runs.ensure(group.run) if group.run is not None else None
        if run is None:
            return AcceptedGroup.from_stored(group, record, resolve_scoring_options(_DEFAULT_OPTIONS, group))
        options = resolve_scoring_options(run.options, group)
        group, refused = _apply_lag_limit(group, run)
        if refused is None and await self._find_pin_mismatch(run, record) is not None:
            refused = _REFUSED_SCORE if run.strict else None
            if refused is None:
                flags = tuple(dict.fromkeys((*group.flags, "scoring_changed")))
                group = group.model_copy(update={"flags": flags})
        return AcceptedGroup.from_stored(group, record, options, refused)

    async def _find_pin_mismatch(self, run: Run, record: TaskRecord) -> Pin | None:
        """The current pin, if it differs from the one that the run recorded; else None."""
        pin = await self._build_pin(record, run.options)
        return None if pin is None or await self._runs.check_pin(run, pin) else pin

    async def _is_final(self, identity: str) -> bool:
        """Whether the group already has its scores. They are returned again, whatever the current rule is."""
        stored = (await self._groups.find([identity])).get(identity)
        return stored is not None and stored.is_final

    async def _build_pin(self, record: TaskRecord, options: ScoringOptions) -> Pin | None:
        """The current pin; None while the environment cannot serve, since its groups are then stored unscored."""
        try:
            hosted = await self._environment_versions.get_version(record.key.environment, record.key.data_digest)
        except (EnvironmentUnavailable, NotFound):
            return None
        return hosted.build_pin(options, get_panel(self._panels, hosted, options))


async def _identify_group(
    request: ScoreRequest,
    sent: GroupToScore,
    record: TaskRecord,
    leases: Mapping[str, HeldLease],
    leasing_runs: Mapping[str, str],
) -> _IdentifiedGroup:
    if sent.lease_id is not None and request.purpose == "eval":
        raise InvalidRequest("evaluation groups take no lease; request their tasks with a cursor", field="lease_id")
    lease = _find_lease(sent, leases, record, request.run)
    stated_run = request.run or (lease.run if lease is not None else None)
    # Not the run that was found by its leases: a repeat may come when the lease is answered, and needs the same id.
    holder = sent.lease_id or stated_run or ""
    large = are_large(sent.completions)
    identity = await _compute_group_id(request, sent, holder, large=large)
    return _IdentifiedGroup(sent, record, lease, stated_run or leasing_runs.get(sent.task_id), identity, large)


def _build_demand(one: AcceptedGroup, bound: Amount, *, with_late: bool) -> JudgingDemand:
    """Only caps ask for the late name, which is a digest of all texts."""
    group, part = one.group, one.part
    places = () if part is None else tuple(range(part.index, part.index + len(one.completions)))
    return JudgingDemand(
        name=group.group_id,
        environment=group.environment,
        bound=bound,
        # Without a lease the run that the request names is admitted: another key may hold the task.
        run=group.run if group.lease_id is not None else one.named_run,
        task_id=group.task_id,
        lease_id=group.lease_id,
        places=places,
        late_name=name_late_group(group.group_id, dict(zip(places, one.completions, strict=True)))
        if places and with_late
        else "",
    )


async def _compute_group_id(request: ScoreRequest, sent: GroupToScore, holder: str, *, large: bool) -> str:
    part = sent.part
    if part is None:
        content = (sent.task_id, holder, request.policy, request.purpose, sent.completions)
        return await asyncio.to_thread(compute_group_id, *content, large=True) if large else compute_group_id(*content)
    if part.index + len(sent.completions) > part.size:
        raise InvalidRequest(f"this piece goes beyond the group's size of {part.size}", field="part.index")
    return compute_part_group_id(sent.task_id, holder, request.policy, request.purpose, part.key)


def _apply_lag_limit(group: Group, run: Run | None) -> tuple[Group, Score | None]:
    """The group with the flags of its lag, and the score of its completions where the run drops it."""
    lag = group.lag
    if lag is None:
        return group, None
    flags: tuple[str, ...] = ()
    refused: Score | None = None
    if lag < 0:
        flags = ("older_policy",)
    elif run is not None and run.is_stale(lag):
        flags = ("stale",)
        refused = _STALE_SCORE if run.drops_stale else None
    return group.model_copy(update={"flags": tuple(dict.fromkeys((*group.flags, *flags)))}), refused


def resolve_scoring_options(options: ScoringOptions, group: Group) -> ScoringOptions:
    """The run's options; evaluations use only `absolute`, since comparisons within a group do not carry over."""
    return options.model_copy(update={"relative_weight": 0.0}) if group.purpose == "eval" else options


def _find_record(sent: GroupToScore, records: dict[str, TaskRecord], environment: str | None) -> TaskRecord:
    record = records.get(sent.task_id)
    if record is None:
        raise NotFound(f"task {sent.task_id} was not handed out by this service", field="task_id")
    if environment is not None and record.key.environment != environment:
        raise InvalidRequest(f"the task belongs to {record.key.environment}, not to {environment}", field="task_id")
    return record


def _find_lease(
    sent: GroupToScore, leases: Mapping[str, HeldLease], record: TaskRecord, run: str | None
) -> HeldLease | None:
    if sent.lease_id is None:
        return None
    lease = leases.get(sent.lease_id)
    if lease is None:
        raise NotFound(
            f"lease {sent.lease_id} was not issued by this service, or went with a group that was pruned",
            field="lease_id",
        )
    key = record.key
    leased = (lease.environment, lease.split, lease.index, lease.params)
    if leased != (key.environment, key.split, key.index, key.params):
        raise InvalidRequest("the lease is for another task", field="lease_id")
    if run is not None and run != lease.run:
        raise InvalidRequest(
            f"the lease belongs to run {lease.run!r}, but the request names run {run!r}", field="lease_id"
        )
    return lease


# Scoring of accepted groups

log = logging.getLogger(__name__)

_RESUME_BATCH_SIZE: Final = 64
POLL_SECONDS: Final = 0.2
"""Interval of the looks whether another replica has closed or scored what somebody here waits for."""
STORE_RETRY_SECONDS: Final = (0.2, 1.0, 5.0)
"""Pauses before what is already judged and paid for is written again, while the store is away."""

WorkT = TypeVar("WorkT")

StoredGroups = asyncio.Future[dict[str, Group]]
"""A scoring under way: its groups as they are stored when it ends."""


class GroupScoring:
    """Scores accepted groups and stores them. Whoever asks for a group that is being scored waits for that scoring."""

    def __init__(
        self,
        *,
        validator: ScoreValidator,
        scorer: Scorer,
        groups: GroupStore,
        task_cache: TaskCache,
        observer: Observer,
    ) -> None:
        self._validator = validator
        self._scorer = scorer
        self._groups = groups
        self._task_cache = task_cache
        self._observer = observer
        self._flights = SingleFlight[dict[str, Group]]("groups could not be stored")

    @property
    def longest_seconds(self) -> float:
        """Age of the oldest scoring under way here; 0 without any."""
        return self._flights.longest_seconds

    def find_running(self, group_ids: Iterable[str]) -> dict[str, StoredGroups]:
        """The scorings under way of these groups."""
        return self._flights.find(group_ids)

    async def score(
        self, accepted: Sequence[AcceptedGroup], wait_seconds: float | None, key: IdempotencyKey | None = None
    ) -> dict[str, Group]:
        """Every accepted group as it is in the store when the reply is due: after `wait_seconds` some are pending, and
        are scored in the background. Pruned ones are left out: they were scored once, and are not scored again."""
        unique = {one.group.group_id: one for one in accepted}
        if key is None and self._can_score_at_once(unique):
            with suppress(Gone):  # a group was pruned: which one is looked up below
                return await self._score_at_once(list(unique.values()))
        due = None if wait_seconds is None else asyncio.get_running_loop().time() + wait_seconds
        # Looked up before and after the read, which does not see a scoring that ends meanwhile.
        running = self.find_running(unique)
        recalled = await self._groups.recall(list(unique))
        existing = {identity: group for identity, group in recalled.items() if group is not None}
        unique = {identity: one for identity, one in unique.items() if identity in existing or identity not in recalled}
        running |= self.find_running(unique)
        stored = {identity: group for identity, group in existing.items() if group.is_final}
        own = [one for identity, one in unique.items() if identity not in stored and identity not in running]
        if own or key is not None:
            # Shielded: a client that hangs up cancels its request, not the scoring, which others may wait for.
            scoring = self._judge_and_store(own, existing, wait_seconds, key)
            stored |= await asyncio.shield(self._flights.start([one.group.group_id for one in own], scoring))
        stored |= await self._await_others(running, due)
        # What another request still scores may not be stored yet, and what a reply says is committed.
        waiting = [GroupToStore(one.mark_pending()) for identity, one in unique.items() if identity not in stored]
        stored |= {group.group_id: group for group in await self._add(waiting)} if waiting else {}
        return stored

    def _can_score_at_once(self, unique: Mapping[str, AcceptedGroup]) -> bool:
        return not self.find_running(unique) and all(
            one.refused is None and not one.large and self._scorer.scores_at_once(one.record) for one in unique.values()
        )

    async def _score_at_once(self, accepted: Sequence[AcceptedGroup]) -> dict[str, Group]:
        """Scores groups in turn, and stores them without looking for known ones first: scoring one again takes less
        time than that. What the store has stays as it is."""
        loop = asyncio.get_running_loop()
        judged: list[GroupToStore] = []
        turn = loop.time()
        for one in accepted:
            if loop.time() - turn > MAX_SECONDS_PER_PASS:
                await asyncio.sleep(0)
                turn = loop.time()
            judged.append(await self._judge(one))
        stored = await self._store_results(judged, {}, None)
        # The store returns a new group with the rollouts that it was given, and a known one with those it has read.
        self.record([one for one in judged if stored[one.group.group_id].rollouts is one.group.rollouts])
        return stored

    async def score_unstored(self, one: AcceptedGroup) -> GroupToStore | None:
        """The scores of a group that is not stored yet; None where something has to be awaited for them."""
        return await self._judge(one) if self._can_score_at_once({one.group.group_id: one}) else None

    async def start(self, groups: Sequence[Group]) -> list[StoredGroups]:
        """Scores groups that are stored as pending in the background, except those that are being scored here."""
        records = await self._task_cache.get([group.task_id for group in groups])
        started = []
        for group in groups:
            one = await self._validator.resume(group, records[group.task_id])
            if not self.find_running([group.group_id]):  # asked last: another request may have begun it meanwhile
                started.append(self._store_in_background(one, asyncio.ensure_future(self._judge_and_record(one))))
        return started

    async def resume(self) -> None:
        """Takes up accepted work that a restart interrupted, a few groups at a time."""
        seen: set[str] = set()
        while True:
            seen.update(self._flights.names)
            # Groups that were seen before may still be pending, and stand before newer ones in the list.
            unfinished = await self._groups.list_unfinished(_RESUME_BATCH_SIZE + len(seen))
            groups = [group for group in unfinished if group.group_id not in seen]
            if not groups:
                return
            seen.update(group.group_id for group in groups)
            if started := await self.start(groups):
                await asyncio.wait(started)

    async def close(self) -> tuple[str, ...]:
        """Lets go of what is still being scored and returns its ids. What is in the store as pending is taken up by
        another replica or at the next start."""
        return await self._flights.close()

    async def _await_others(self, running: dict[str, StoredGroups], due: float | None) -> dict[str, Group]:
        """What other requests' scorings stored until the loop's time is `due`. Whoever began one may have waited for a
        shorter time, so a group that came back without scores is followed to its scoring in the background."""
        results: dict[str, Group] = {}
        while running:
            left = None if due is None else max(0.0, due - asyncio.get_running_loop().time())
            done, _ = await asyncio.wait(set(running.values()), timeout=left)
            if not done:
                break
            ended = {name: scoring.result()[name] for name, scoring in running.items() if scoring in done}
            results |= ended
            running = {name: scoring for name, scoring in running.items() if scoring not in done}
            running |= self.find_running(name for name, group in ended.items() if not group.is_final)
        return results

    async def _judge_and_store(
        self,
        own: Sequence[AcceptedGroup],
        existing: dict[str, Group],
        wait_seconds: float | None,
        key: IdempotencyKey | None,
    ) -> dict[str, Group]:
        """Scores what nobody else is scoring, and writes it in one transaction. What takes longer than the wait is
        written there as pending, and goes on in the background."""
        own = [_continue_stored(one, existing) for one in own]
        judging = await start_each(self._judge_and_record(one) for one in own)
        try:
            if judging:
                await asyncio.wait(judging, timeout=wait_seconds)
            # Noted now, since more may be done by the time these are written.
            in_time = [future.done() for future in judging]
            results = [
                future.result() if done else GroupToStore(one.mark_pending())
                for one, future, done in zip(own, judging, in_time, strict=True)
            ]
            stored = await self._store_results(results, existing, key)
        except BaseException:  # nothing is stored: whoever asks again has it judged anew
            for future in judging:
                future.cancel()
            raise
        for one, future, done in zip(own, judging, in_time, strict=True):
            if not done:
                self._store_in_background(one, future)
        return stored

    async def _store_results(
        self, results: Sequence[GroupToStore], existing: dict[str, Group], key: IdempotencyKey | None
    ) -> dict[str, Group]:
        """New groups are added. What the store holds otherwise than we now have it is completed: retries, and groups
        that another request put there as pending meanwhile."""
        fresh = [result for result in results if result.group.group_id not in existing]
        added = await self._add(fresh, key) if fresh or key is not None else []
        stored = existing | {group.group_id: group for group in added}
        # A retry that is still being judged is written only where it opens an unscored group again.
        incomplete = [
            result
            for result in results
            if not stored[result.group.group_id].is_final
            # What judges took is noted also where they failed again in the same way.
            and (
                stored[result.group.group_id].scores != result.group.scores
                or (result.judgements and result.group.group_id in existing)
            )
            and (result.group.outcome != "pending" or stored[result.group.group_id].outcome == "unscored")
        ]
        finished = await self._finish(incomplete) if incomplete else []
        return stored | {group.group_id: group for group in finished}

    async def _add(self, groups: Sequence[GroupToStore], key: IdempotencyKey | None = None) -> list[Group]:
        task_ids = {one.group.task_id for one in groups}
        return await self._task_cache.write_with_tasks(task_ids, lambda: self._groups.add(groups, key))

    async def _finish(self, groups: Sequence[GroupToStore]) -> list[Group]:
        """Writes scores, also of groups that were stored as pending and that a failover of the store has lost since."""
        try:
            return await self._groups.finish(groups)
        except NotFound:
            await self._add([GroupToStore(one.group.mark_pending()) for one in groups])
            return await self._groups.finish(groups)

    def _store_in_background(self, one: AcceptedGroup, judging: asyncio.Future[GroupToStore]) -> StoredGroups:
        return self._flights.start([one.group.group_id], self._store_when_judged(one, judging))

    async def _store_when_judged(self, one: AcceptedGroup, judging: asyncio.Future[GroupToStore]) -> dict[str, Group]:
        result = await judging
        for pause in STORE_RETRY_SECONDS:
            try:
                return {one.group.group_id: (await self._finish([result]))[0]}
            except StoreUnavailable:
                await asyncio.sleep(pause)
        log.error("a finished group could not be written and stays pending: %s", one.group.group_id)
        return {one.group.group_id: one.mark_pending()}

    async def _judge_and_record(self, one: AcceptedGroup) -> GroupToStore:
        """The scores of a group, judged under the key that sent it: whoever waits for it, or the loop that resumes it,
        may be another."""
        sender = one.group.sender
        with work_for(None if sender is None else Caller(sender, frozenset())):
            result = await self._judge(one)
        self.record([result])
        return result

    def record(self, judged: Sequence[GroupToStore]) -> None:
        """Counts groups in the metrics. Those that are scored before they are stored count once they are: a repeat is
        dropped, and not counted."""
        scored: defaultdict[str, list[ScoredGroup]] = defaultdict(list)
        for result in judged:
            self._observer.record_judgements(result.judgements)
            scored[result.group.environment].append((result.group.scores, result.seconds))
        for environment, groups in scored.items():
            self._observer.record_scores(environment, groups)

    async def _judge(self, one: AcceptedGroup) -> GroupToStore:
        """Scores the completions that have no score yet."""
        note_work(one.group.environment, one.group.run)
        began = time.monotonic()
        with open_span("score group", _describe_group(one)) as span:
            if one.refused is not None:
                judged = repeat_score(one.refused, len(one.completions))
            else:
                group = one.group
                judged = await self._scorer.score(one.record, one.completions, one.options, group.policy, group=group)
            scored = one.put_scores(judged.scores)
            span.describe({"atropos.outcome": scored.outcome})
            return GroupToStore(scored, judged.judgements, judged.making, seconds=time.monotonic() - began)


def build_reply(group: Group) -> GroupReply:
    scores = group.scores
    summary = summarise_scores(scores)
    return GroupReply.build_trusted(
        group_id=group.group_id,
        task_id=group.task_id,
        outcome=group.outcome,
        rewards=summary.rewards,
        scores=scores,
        mean=summary.mean,
        std=summary.std,
        advantages=summary.compute_advantages(),
        low_signal=summary.low_signal,
        lag=group.lag,
        flags=group.flags,
    )


async def start_each(work: Iterable[Coroutine[None, None, WorkT]]) -> list[asyncio.Task[WorkT]]:
    """Each under way, begun in a pass of the event loop of its own: before its first wait a group may need
    milliseconds, and hundreds of them in one pass would stop everything else for seconds."""
    tasks = []
    try:
        for one in work:
            tasks.append(asyncio.ensure_future(one))
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        raise
    return tasks


def _describe_group(one: AcceptedGroup) -> Attributes:
    return {
        "atropos.environment": one.group.environment,
        "atropos.run": one.group.run,
        "atropos.group_id": one.group.group_id,
        "atropos.completions": len(one.group.rollouts or one.completions),
    }


def _continue_stored(one: AcceptedGroup, existing: dict[str, Group]) -> AcceptedGroup:
    """A retry goes on with the group as it is stored, under the flags of both. One that judges failed is asked about
    again, whatever the run does with stale groups by now."""
    stored = existing.get(one.group.group_id)
    if stored is None:
        return one
    flags = tuple(dict.fromkeys((*stored.flags, *one.group.flags)))
    refused = one.refused if stored.outcome == "pending" else None
    return AcceptedGroup.from_stored(stored.model_copy(update={"flags": flags}), one.record, one.options, refused)


# Score requests


class Pieces(Protocol):
    """Groups that are not whole yet: `app.service.pending_groups.GroupAssembler`."""

    async def score_piece(self, piece: AcceptedGroup, part: GroupPart, wait_seconds: float | None) -> GroupReply: ...

    async def find_groups(self, group_ids: Collection[str]) -> dict[str, Group]: ...


class ScoringService:
    """Answers score requests, and the questions after groups that were pending."""

    def __init__(
        self,
        *,
        catalogue: Catalogue,
        runs: RunRegistry,
        validator: ScoreValidator,
        scoring: GroupScoring,
        pieces: Pieces,
        groups: GroupStore,
        quotas: QuotaService,
    ) -> None:
        self._quotas = quotas
        self._catalogue = catalogue
        self._runs = runs
        self._validator = validator
        self._scoring = scoring
        self._pieces = pieces
        self._groups = groups

    async def score(
        self, request: ScoreRequest, environment: str | None = None, key: IdempotencyKey | None = None
    ) -> ScoreResponse:
        """Groups or problems in request order. A group that the reply calls scored is committed."""
        note_work(environment, request.run)
        if environment is not None:
            self._catalogue.get_environment_or_current(environment)
        if key is not None:
            await self._groups.check_key(key)
        validated = await self._validator.validate(request, environment)
        reserved = validated.admission.reserved
        kept: set[str] = set()
        try:
            replies = await self._score_validated(request, validated.groups, key)
            # The store frees what it writes, and a group that no judge was asked about again is not written.
            kept |= {
                one.group.group_id
                for one, reply in zip(validated.groups, replies, strict=True)
                if isinstance(one, AcceptedGroup) and isinstance(reply, GroupReply) and reply.outcome != "unscored"
            }
        except BaseException:
            # What goes on without this request, and pieces, which their groups may have by now.
            kept |= self._scoring.find_running(reserved).keys()
            kept |= {one.group.group_id for one in validated.groups if isinstance(one, AcceptedGroup) and one.part}
            raise
        finally:
            await self._quotas.give_back([one for name, one in reserved.items() if name not in kept])
        return ScoreResponse(groups=tuple(replies), warnings=validated.admission.warnings)

    async def _score_validated(
        self, request: ScoreRequest, accepted: Sequence[AcceptedGroup | RequestRefused], key: IdempotencyKey | None
    ) -> list[GroupReply | GroupProblem]:
        if request.run is not None:
            await self._runs.ensure(request.run)
        whole = [one for one in accepted if isinstance(one, AcceptedGroup) and one.part is None]
        pieces = [(one, one.part) for one in accepted if isinstance(one, AcceptedGroup) and one.part is not None]
        of_pieces: list[GroupReply | RequestRefused] = []
        if not pieces:
            stored = await self._scoring.score(whole, request.wait_seconds, key)
        else:
            if key is not None:  # stored first: another body under this key must not take a place in a group
                await self._groups.add([], key)
            telling = asyncio.gather(*(self._score_piece(one, part, request.wait_seconds) for one, part in pieces))
            stored, of_pieces = await asyncio.gather(self._scoring.score(whole, request.wait_seconds, key), telling)
        told = iter(of_pieces)
        replies: list[GroupReply | GroupProblem] = []
        for position, (sent, one) in enumerate(zip(request.groups, accepted, strict=True)):
            reply = next(told) if isinstance(one, AcceptedGroup) and one.part is not None else _reply_to(one, stored)
            replies.append(reply if isinstance(reply, GroupReply) else _build_problem(sent.task_id, reply, position))
        return replies

    async def _score_piece(
        self, piece: AcceptedGroup, part: GroupPart, wait_seconds: float | None
    ) -> GroupReply | RequestRefused:
        """What is refused, as a piece of a pruned group is, keeps nothing from the other groups of the request."""
        try:
            return await self._pieces.score_piece(piece, part, wait_seconds)
        except RequestRefused as error:
            return error.with_traceback(None)  # which would keep the request

    async def collect(self, identities: Sequence[str], wait_seconds: float) -> dict[str, Group]:
        """Groups by id as they are stored, after waiting for those that are still pending."""
        end = asyncio.get_running_loop().time() + wait_seconds
        while True:
            groups = await self._pieces.find_groups(identities)
            left = end - asyncio.get_running_loop().time()
            pending = [identity for identity, group in groups.items() if group.outcome == "pending"]
            if not pending or left <= 0:
                return groups
            running = set(self._scoring.find_running(pending).values())
            if running:
                await asyncio.wait(running, timeout=left)
            else:  # it is open, or another replica scores it
                await asyncio.sleep(min(left, POLL_SECONDS))


def _reply_to(one: AcceptedGroup | RequestRefused, stored: dict[str, Group]) -> GroupReply | RequestRefused:
    """The group as it is stored; refused where it was scored long ago, and is pruned since."""
    if isinstance(one, RequestRefused):
        return one
    group = stored.get(one.group.group_id)
    return Gone(describe_pruned(one.group.group_id)) if group is None else build_reply(group)


def _build_problem(task_id: str, error: RequestRefused, position: int) -> GroupProblem:
    """Names the group of the request that it is about."""
    field = None if error.field is None else f"groups[{position}].{error.field}"
    return GroupProblem(task_id=task_id, code=error.code, detail=error.detail, field=field)
