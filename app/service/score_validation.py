"""Validates score requests and builds the groups to store."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.domain.access import name_current_caller
from app.domain.errors import Conflict, EnvironmentUnavailable, InvalidRequest, NotFound, RequestRefused
from app.domain.groups import Group, Rollout, TaskRecord
from app.domain.parts import GroupPart
from app.domain.rewards import combine_outcomes
from app.domain.runs import HeldLease, Pin, Run, ScoringOptions
from app.domain.scores import Score
from app.domain.tasks import Completion, are_large
from app.ports.judges import Panels
from app.ports.runtime import Clock, Observer
from app.ports.store import GroupStore, TaskStore
from app.service.identity import compute_group_id, compute_part_group_id
from app.service.judging import get_panel, require_same_scoring
from app.service.quotas import QuotaService
from app.service.request_models import GroupProblem, GroupToScore, ScoreRequest
from app.service.run_registry import RunRegistry
from app.service.sheet_versions import SheetVersions
from app.service.task_cache import TaskCache

REFUSED_SCORE: Final = Score.unscored(
    "version_changed", "the run is strict, and is now scored otherwise than when it began"
)

_DEFAULT_OPTIONS: Final = ScoringOptions()
STALE_SCORE: Final = Score.unscored("stale", "the lag is above the run's `max_lag`, and its `lag_policy` is `drop`")


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

    def put_scores(self, scores: Sequence[Score]) -> Group:
        """The group with these scores of its completions, in order."""
        if self.group.rollouts:
            return self.group.merge_scores(scores)
        build, group_id = Rollout.build_trusted, self.group.group_id
        rollouts = [
            build(rollout_id=f"{group_id}-{place}", completion=completion, score=score, reduced=None)
            for place, (completion, score) in enumerate(zip(self.completions, scores, strict=True))
        ]
        return self.group.model_copy(update={"rollouts": tuple(rollouts), "outcome": combine_outcomes(scores)})

    def mark_pending(self) -> Group:
        """The group with its completions set to pending, also in a retry."""
        return self.put_scores((Score.pending(),) * len(self.completions))


def continue_group(
    stored: Group, record: TaskRecord, options: ScoringOptions, refused: Score | None = None
) -> AcceptedGroup:
    """Takes up a group as it is stored."""
    completions = tuple([rollout.completion for rollout in stored.rollouts if not rollout.score.is_final])
    return AcceptedGroup(stored, completions, are_large(completions), record, options, refused)


class ScoreValidator:
    def __init__(
        self,
        *,
        sheet_versions: SheetVersions,
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
        self._sheet_versions = sheet_versions
        self._tasks = tasks
        self._task_cache = task_cache
        self._groups = groups
        self._runs = runs
        self._panels = panels
        self._observer = observer
        self._clock = clock

    async def validate(self, request: ScoreRequest, environment: str | None) -> list[AcceptedGroup | GroupProblem]:
        """Each group of the request as it will be scored, or what is wrong with it. Conflict where a strict run
        refuses; QuotaExceeded for a run that its key may not begin to score; EnvironmentUnavailable while an
        environment of the request is still starting, so that no lease is used up by a restart."""
        records = await self._task_cache.get(list({group.task_id for group in request.groups}))
        for name in {record.key.environment for record in records.values()}:
            self._sheet_versions.require_started(name)
        lease_ids = [group.lease_id for group in request.groups if group.lease_id is not None]
        leases = await self._tasks.get_leases(lease_ids) if lease_ids else {}
        await self._quotas.admit_scoring(request, records, leases)
        held_by = await self._find_leasing_runs(request, records)
        accepted: list[AcceptedGroup | GroupProblem] = []
        for position, asked in enumerate(request.groups):
            try:
                accepted.append(await self._accept_group(request, asked, records, leases, held_by, environment))
            except Conflict:
                raise
            except RequestRefused as error:
                self._observer.record_refusal(environment or "mix", error.code)
                field = None if error.field is None else f"groups[{position}].{error.field}"
                accepted.append(GroupProblem(task_id=asked.task_id, code=error.code, detail=error.detail, field=field))
        return accepted

    async def _accept_group(
        self,
        request: ScoreRequest,
        asked: GroupToScore,
        records: dict[str, TaskRecord],
        leases: dict[str, HeldLease],
        held_by: dict[str, str],
        environment: str | None,
    ) -> AcceptedGroup:
        record = _find_record(asked, records, environment)
        if asked.lease_id is not None and request.purpose == "eval":
            raise InvalidRequest("evaluation groups take no lease; request their tasks with a cursor", field="lease_id")
        lease = _find_lease(asked, leases, record, request.run)
        named = request.run or (lease.run if lease is not None else None)
        name = named or held_by.get(asked.task_id)
        run = await self._runs.ensure(name) if name is not None else None
        options = run.options if run is not None else _DEFAULT_OPTIONS
        holder = asked.lease_id or named or ""
        large = are_large(asked.completions)
        identity = await _compute_group_id(request, asked, holder, large=large)
        flags: tuple[str, ...] = ()
        if run is not None and (pin := await self._find_pin_mismatch(run, record)) is not None:
            if run.strict:
                require_same_scoring(run, await self._is_final(identity), pin)
            flags = ("scoring_changed",)
        group = Group.build_trusted(
            group_id=identity,
            task_id=asked.task_id,
            environment=record.key.environment,
            run=name,
            lease_id=asked.lease_id,
            policy=request.policy,
            purpose=request.purpose,
            outcome="pending",
            flags=flags,
            rollouts=(),
            created_at=self._clock(),
            hand_out_step=None if lease is None else lease.step,
            sender=name_current_caller() or None,
        )
        group, refused = apply_lag_limit(group, run)
        options = resolve_scoring_options(options, group)
        return AcceptedGroup(group, asked.completions, large, record, options, refused, asked.part)

    async def _find_leasing_runs(self, request: ScoreRequest, records: dict[str, TaskRecord]) -> dict[str, str]:
        """By task the run that it was leased under, for groups that name neither run nor lease. A task that several
        runs hold is nobody's."""
        if request.run is not None or request.purpose == "eval":
            return {}
        unnamed = {group.task_id for group in request.groups if group.lease_id is None} & records.keys()
        listed = sorted(unnamed)
        runs = await self._tasks.find_leasing_runs([records[task_id].key for task_id in listed]) if listed else []
        return {task_id: next(iter(names)) for task_id, names in zip(listed, runs, strict=True) if len(names) == 1}

    async def resume(self, group: Group, record: TaskRecord) -> AcceptedGroup:
        """Prepares a group accepted before a restart, with the current scoring rule."""
        run = await self._runs.ensure(group.run) if group.run is not None else None
        if run is None:
            return continue_group(group, record, resolve_scoring_options(ScoringOptions(), group))
        options = resolve_scoring_options(run.options, group)
        group, refused = apply_lag_limit(group, run)
        if refused is None and await self._find_pin_mismatch(run, record) is not None:
            refused = REFUSED_SCORE if run.strict else None
            if refused is None:
                flags = tuple(dict.fromkeys((*group.flags, "scoring_changed")))
                group = group.model_copy(update={"flags": flags})
        return continue_group(group, record, options, refused)

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
            hosted = await self._sheet_versions.get_version(record.key.environment, record.key.data_digest)
        except (EnvironmentUnavailable, NotFound):
            return None
        return hosted.build_pin(options, get_panel(self._panels, hosted, options))


async def _compute_group_id(request: ScoreRequest, asked: GroupToScore, holder: str, *, large: bool) -> str:
    part = asked.part
    if part is None:
        content = (asked.task_id, holder, request.policy, request.purpose, asked.completions)
        return await asyncio.to_thread(compute_group_id, *content, large=True) if large else compute_group_id(*content)
    if part.index + len(asked.completions) > part.size:
        raise InvalidRequest(f"this piece goes beyond the group's size of {part.size}", field="part.index")
    return compute_part_group_id(asked.task_id, holder, request.policy, request.purpose, part.key)


def apply_lag_limit(group: Group, run: Run | None) -> tuple[Group, Score | None]:
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
        refused = STALE_SCORE if run.drops_stale else None
    return group.model_copy(update={"flags": tuple(dict.fromkeys((*group.flags, *flags)))}), refused


def resolve_scoring_options(options: ScoringOptions, group: Group) -> ScoringOptions:
    """The run's options; evaluations use only `absolute`, since comparisons within a group do not carry over."""
    return options.model_copy(update={"relative_weight": 0.0}) if group.purpose == "eval" else options


def _find_record(asked: GroupToScore, records: dict[str, TaskRecord], environment: str | None) -> TaskRecord:
    record = records.get(asked.task_id)
    if record is None:
        raise NotFound(f"task {asked.task_id} was not handed out by this service", field="task_id")
    if environment is not None and record.key.environment != environment:
        raise InvalidRequest(f"the task belongs to {record.key.environment}, not to {environment}", field="task_id")
    return record


def _find_lease(
    asked: GroupToScore, leases: dict[str, HeldLease], record: TaskRecord, run: str | None
) -> HeldLease | None:
    if asked.lease_id is None:
        return None
    lease = leases.get(asked.lease_id)
    if lease is None:
        raise NotFound(
            f"lease {asked.lease_id} was not issued by this service, or went with a group that was pruned",
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
