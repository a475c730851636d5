"""Scorings of stored groups beside the original one: with other judges or options, or in the current environment.

`Rescorer` stores one scoring for each group and scoring digest, and a repeat returns it. The original scores never
change. Where the environment has changed since the hand-out, `TaskMatcher` finds the same task in it, and the
completions are scored as answers to the stored prompt. An estimate goes the same way with a panel that only adds up
what it is asked. `RubricFinder` says by which rubric judges read a group.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field

from app.domain.errors import GatewayError, InvalidRequest, NotFound, PartsGone
from app.domain.groups import Group, GroupDetail, Scoring, TaskPrompt, TaskRecord
from app.domain.judging import Judgement, Mode, OwnRubric, PanelResult, Rubric, RubricLabel, combine_outcomes
from app.domain.retention import describe_missing_text_of
from app.domain.runs import Readings, ScoringOptions, Votes
from app.domain.scores import Score
from app.domain.tasks import Completion, Task
from app.domain.values import FiniteNumber, Frozen, Name, Reward, Split, Unit, digest
from app.ports.environment import Clock, Observer
from app.ports.judges import Panels
from app.service.access import QuotaService
from app.service.catalogue import EnvironmentVersions, ServedEnvironment, make_task
from app.service.judging import (
    Scorer,
    bound_scoring,
    get_panel,
    repeat_score,
    require_taker,
    select_options,
)
from app.service.requests import SingleFlight
from app.service.runs import JudgingBound, RunRegistry, add_up_bounds
from app.service.scoring import resolve_scoring_options
from app.service.task_cache import FAILED_CONTEXT_METADATA, TaskCache, rebuild_task
from app.store.groups import GroupStore, ScoringStore
from app.store.runs import RunStore

log = logging.getLogger(__name__)


class RescoreRequest(Frozen):
    """Options that differ from those of the group's run. Options left out stay as they are in the run."""

    judges: tuple[Name, ...] | None = None
    """Judge names from the settings file. Empty means the environment's default judges."""
    mode: Mode | None = None
    votes: Votes | None = None
    """How often a judge is asked the same question."""
    readings: Readings | None = None
    """Most readings of a group by all judges together in `listwise`."""
    relative_weight: Annotated[Unit, Field(strict=True)] | None = None
    """Weight of the comparison within the group in a judged reward."""
    on_truncated: Literal["zero", "score"] | None = None
    calibration_share: Annotated[Unit, Field(strict=True)] | None = None
    """Share of the groups that are read once more beside replies of known level."""
    rubric: OwnRubric | None = None
    """What judges score by this time."""
    dry_run: bool = False
    """Nothing is stored. Only for groups that a verifier scores: judges would cost money."""
    wait_seconds: Annotated[
        Annotated[FiniteNumber, Field(ge=0, le=600)] | None,
        Field(description="Reply after at most this time. If the scoring is still `pending`, ask again."),
    ] = None


class RescoreReply(Frozen):
    """A new scoring next to the original one. Rewards are in the order of the group's completions."""

    scoring: Scoring
    """Without its judgements; read the group to see them."""
    rewards: tuple[Reward | None, ...]
    original: tuple[Unit | None, ...]
    """The rewards that the trainer received."""
    calls: int = 0
    """Requests sent to judges for this scoring; 0 when it was already stored."""
    cost_usd: FiniteNumber = 0.0
    """Cost of these requests. Judges without configured prices count as 0."""


class RescoreEstimate(Frozen):
    """What a new scoring of a group would take at most, but for retries: every answer as long as it may be."""

    stored: bool
    """Whether it is there already: asking for it costs nothing."""
    calls: int = 0
    input_tokens: int = 0
    cost_usd: FiniteNumber | None = 0.0
    """Null where a judge has no prices."""


@dataclass(frozen=True)
class _RescorePlan:
    """A scoring to carry out. `blank` is the scoring before it has scores."""

    group: Group
    record: TaskRecord
    hosted: ServedEnvironment
    blank: Scoring

    @property
    def changed(self) -> bool:
        """Whether the environment has changed since it handed the task out."""
        return not self.hosted.has_made(self.record.key)


@dataclass(frozen=True)
class _RescoreResult:
    """A scoring, and the judgements that it took this time."""

    scoring: Scoring
    judgements: tuple[Judgement, ...] = ()


class Rescorer:
    """Scores stored groups anew."""

    def __init__(
        self,
        *,
        environment_versions: EnvironmentVersions,
        task_cache: TaskCache,
        groups: GroupStore,
        scorings: ScoringStore,
        runs: RunRegistry,
        panels: Panels,
        scorer: Scorer,
        quotas: QuotaService,
        observer: Observer,
        clock: Clock,
    ) -> None:
        self._quotas = quotas
        self._environment_versions = environment_versions
        self._task_cache = task_cache
        self._groups = groups
        self._scorings = scorings
        self._runs = runs
        self._panels = panels
        self._observer = observer
        self._clock = clock
        self._scorer = scorer
        self._matcher = TaskMatcher()
        self._flights = SingleFlight[_RescoreResult]("re-scoring failed")

    async def rescore(self, group_id: str, request: RescoreRequest) -> RescoreReply:
        """Scores a group once per resulting scoring digest; completions that stayed unscored are tried again. NotFound
        for an unknown group, InvalidRequest naming `options.judges` for an unknown judge, or `dry_run` where judges
        would be asked, PartsGone where what there is to score is no longer stored, QuotaExceeded where the key has no
        room for it. What it may take is reserved by whoever begins it, as long as it goes on."""
        group = await self._require_group(group_id)
        planned = await self._plan(group, request)
        # Whoever wants a scoring stored does not wait for one that nobody stores.
        name = f"{'dry ' * request.dry_run}{planned.blank.scoring_id}"
        flight, limits = self._flights.find([name]).get(name), self._quotas.limits
        is_bounded = flight is None and limits is not None and limits.limits_judging
        bound = add_up_bounds(await self._bound(planned) or ()) if is_bounded else None
        async with self._quotas.hold_judging(bound) as hold:
            flight = flight or self._flights.find([name]).get(name)  # begun meanwhile
            if flight is None:
                flight = hold.work = self._flights.start([name], self._run_plan(planned, request))
            # Waited for, not awaited: it goes on when this request has left.
            done, _ = await asyncio.wait({flight}, timeout=request.wait_seconds)
            return _build_reply(group, flight.result() if done else _RescoreResult(planned.blank))

    async def estimate(self, group_id: str, request: RescoreRequest) -> RescoreEstimate:
        """What `rescore` would take. Nothing is asked or stored. A task that can no longer be made takes nothing."""
        bounds = await self._bound(await self._plan(await self._require_group(group_id), request))
        return RescoreEstimate(stored=True) if bounds is None else _add_up_bounds(bounds)

    async def _bound(self, planned: _RescorePlan) -> list[JudgingBound] | None:
        """None where the scoring is stored."""
        name = planned.blank.scoring_id
        stored = (await self._scorings.find([name])).get(name)
        if stored is not None and stored.outcome == "scored":
            return None
        _require_text(planned.group)
        task = await self._find_task(planned)
        if task is None:
            return []
        missing = _list_missing(planned.group, stored or planned.blank)
        return await bound_scoring(planned.hosted.environment, task, missing, planned.blank.options, self._panels)

    async def _find_task(self, planned: _RescorePlan) -> Task | None:
        if not planned.changed:
            return self._task_cache.get_task(planned.hosted, planned.record)
        return await self._matcher.find_task(planned.hosted, planned.record)

    async def _require_group(self, group_id: str) -> Group:
        group = (await self._groups.find([group_id])).get(group_id)
        if group is None:
            raise NotFound(f"there is no group {group_id}")
        return group

    async def close(self) -> None:
        """Cancels scorings in progress. Nothing of them is stored; callers ask again."""
        await self._flights.close()
        await self._quotas.close()

    async def _plan(self, group: Group, request: RescoreRequest) -> _RescorePlan:
        hosted = self._environment_versions.get_current(group.environment)
        if request.dry_run and hosted.environment.rubric is not None:
            raise InvalidRequest(f"{hosted.name} is scored by judges, which a dry run does not ask", field="dry_run")
        if request.judges and hosted.environment.rubric is None:
            raise InvalidRequest(f"{hosted.name} is scored by a verifier and has no judges", field="judges")
        if request.rubric is not None:
            require_taker(hosted.environment, "rubric")
            self._panels.check_rubric(request.rubric, "rubric")
        run = await self._runs.ensure(group.run) if group.run is not None else None
        usual = resolve_scoring_options(run.options if run is not None else ScoringOptions(), group)
        options = select_options(hosted.environment, usual.model_copy(update=_list_changed_options(request)))
        panel = get_panel(self._panels, hosted, options)
        chosen = None if panel is None else self._panels.resolve_options(hosted.name, options)
        scoring_digest = hosted.build_pin(options, panel).scoring_digest
        blank = Scoring(
            scoring_id="scoring_" + digest([group.group_id, scoring_digest]),
            group_id=group.group_id,
            scoring_digest=scoring_digest,
            options=options,
            judges=() if panel is None else panel.judges,
            mode=None if chosen is None else chosen.mode,
            rubric=None if chosen is None or chosen.rubric is None else RubricLabel.from_rubric(chosen.rubric),
            outcome="pending",
            scores=(Score.pending(),) * len(group.rollouts),
            created_at=self._clock(),
        )
        record = (await self._task_cache.get([group.task_id]))[group.task_id]
        return _RescorePlan(group, record, hosted, blank)

    async def _run_plan(self, planned: _RescorePlan, request: RescoreRequest) -> _RescoreResult:
        stored = (await self._scorings.find([planned.blank.scoring_id])).get(planned.blank.scoring_id)
        if stored is not None and stored.outcome == "scored":
            return _RescoreResult(stored)
        _require_text(planned.group)
        before = planned.blank if stored is None else stored
        flags, judged = await self._score_missing(planned, before)
        self._observer.record_judgements(judged.judgements)
        fresh = iter(judged.scores)
        scores = tuple(score if score.outcome == "scored" else next(fresh) for score in before.scores)
        scoring = before.model_copy(
            update={
                "outcome": combine_outcomes(scores),
                "scores": scores,
                "judgements": judged.judgements,
                "flags": flags,
            }
        )
        if request.dry_run:
            return _RescoreResult(scoring)
        return _RescoreResult(await self._scorings.put(scoring), judged.judgements)

    async def _score_missing(self, planned: _RescorePlan, before: Scoring) -> tuple[tuple[str, ...], PanelResult]:
        """The scores of completions that had none, and the flags of the scoring."""
        group = planned.group
        completions = _list_missing(group, before)
        remade: Task | None = None
        flags: tuple[str, ...] = ()
        if planned.changed:
            try:
                remade = await self._matcher.find_task(planned.hosted, planned.record)
            except Exception:
                log.exception("could not rebuild a task: %s", group.task_id)
                failed = Score.unscored("internal", "the task could not be made again; see the log")
                return flags, repeat_score(failed, len(completions))
            if remade is None:
                gone = Score.unscored("version_changed", f"{group.environment} no longer asks what this task asked")
                return flags, repeat_score(gone, len(completions))
            flags = ("task_remade",)
        options = before.options
        return flags, await self._scorer.score(
            planned.record, completions, options, group.policy, group=group, remade=remade
        )


def _require_text(group: Group) -> None:
    if group.lacks_text:
        raise PartsGone(describe_missing_text_of(group.group_id))


def _list_changed_options(request: RescoreRequest) -> dict[str, object]:
    """The options that the request names."""
    options = {
        name: getattr(request, name) for name in RescoreRequest.model_fields if name in ScoringOptions.model_fields
    }
    return {name: value for name, value in options.items() if value is not None}


def _list_missing(group: Group, before: Scoring) -> list[Completion]:
    """Completions without a score in this scoring."""
    pairs = zip(group.rollouts, before.scores, strict=True)
    return [rollout.completion for rollout, score in pairs if score.outcome != "scored"]


def _add_up_bounds(bounds: Sequence[JudgingBound]) -> RescoreEstimate:
    return RescoreEstimate(
        stored=False,
        calls=sum(bound.calls for bound in bounds),
        input_tokens=sum(bound.input_tokens for bound in bounds),
        cost_usd=sum(bound.priced_usd for bound in bounds) if all(bound.is_priced for bound in bounds) else None,
    )


def _build_reply(group: Group, result: _RescoreResult) -> RescoreReply:
    return RescoreReply(
        scoring=result.scoring,
        rewards=tuple(score.reward for score in result.scoring.scores),
        original=tuple(rollout.score.reward for rollout in group.rollouts),
        calls=sum(judgement.calls for judgement in result.judgements),
        cost_usd=sum(judgement.cost_usd or 0.0 for judgement in result.judgements if not judgement.cached),
    )


# Tasks of earlier versions

_MAX_TASKS_SEARCHED: Final = 20_000
"""How many tasks of a split are searched for one that has moved to another index."""
_TASKS_PER_PASS: Final = 50
"""How many tasks are made before others have a turn in the event loop."""
_MAX_INDEXES: Final = 32


class TaskMatcher:
    """Finds the current task that matches a stored one. Tasks match by public metadata, tools and all messages except
    system messages, which contain sheets and passages. Whether retrieval failed is ignored."""

    def __init__(self) -> None:
        self._indexes: dict[tuple[ServedEnvironment, Split, str], dict[str, int]] = {}
        """By environment, split and params: the first task with each fingerprint."""
        self._building = asyncio.Lock()

    async def find_task(self, hosted: ServedEnvironment, record: TaskRecord) -> Task | None:
        """The current task with the stored prompt, which the completions answered. None if no current task matches."""
        try:
            params = hosted.validate_params(record.key.params)
        except InvalidRequest:
            return None
        fingerprint = _compute_fingerprint(record.prompt)
        split, index = record.key.split, record.key.index
        size = hosted.environment.size(split, params)
        if (size is not None and index >= size) or _compute_fingerprint_at(hosted, split, index, params) != fingerprint:
            moved_to = (await self._get_index(hosted, split, params, size)).get(fingerprint)
            if moved_to is None:
                return None
            index = moved_to
        moved = record.model_copy(update={"key": record.key.model_copy(update={"index": index})})
        return rebuild_task(hosted, moved).model_copy(update={"messages": record.prompt.messages})

    async def _get_index(
        self, hosted: ServedEnvironment, split: Split, params: BaseModel, size: int | None
    ) -> dict[str, int]:
        key = (hosted, split, digest(params.model_dump(mode="json")))
        async with self._building:
            if key not in self._indexes:
                if len(self._indexes) >= _MAX_INDEXES:
                    self._indexes.clear()
                self._indexes[key] = await _build_index(hosted, split, params, min(size or 0, _MAX_TASKS_SEARCHED))
            return self._indexes[key]


async def _build_index(hosted: ServedEnvironment, split: Split, params: BaseModel, size: int) -> dict[str, int]:
    first: dict[str, int] = {}
    for index in range(size):
        first.setdefault(_compute_fingerprint_at(hosted, split, index, params), index)
        if index % _TASKS_PER_PASS == _TASKS_PER_PASS - 1:
            await asyncio.sleep(0)
    return first


def _compute_fingerprint_at(hosted: ServedEnvironment, split: Split, index: int, params: BaseModel) -> str:
    return _compute_fingerprint(make_task(hosted.environment, split, index, params))


def _compute_fingerprint(prompt: TaskPrompt | Task) -> str:
    messages = [message.model_dump(mode="json") for message in prompt.messages if message.role != "system"]
    metadata = {key: value for key, value in prompt.metadata.items() if key not in FAILED_CONTEXT_METADATA}
    return digest([metadata, [tool.model_dump(mode="json") for tool in prompt.tools], messages])


# The rubric of a stored group


class RubricFinder:
    """Finds the rubric by which judges read a stored group, for those who want to see how its scores came about."""

    def __init__(
        self,
        environment_versions: EnvironmentVersions,
        panels: Panels,
        task_cache: TaskCache,
        runs: RunStore,
    ) -> None:
        self._environment_versions = environment_versions
        self._panels = panels
        self._task_cache = task_cache
        self._runs = runs

    async def find(self, detail: GroupDetail, options: ScoringOptions | None = None) -> Rubric | None:
        """The rubric with the options of a later scoring, or those of the group's run. None where the task was made by
        another version or from other data, where nothing that judges read is kept, and where no judge is asked."""
        try:
            return await self._find(detail, options or await self._get_options(detail.group.run))
        except GatewayError as error:
            log.info("no rubric for group %s: %s", detail.group.group_id, error.detail)
        except Exception:
            log.exception("no rubric for group %s", detail.group.group_id)
        return None

    async def _get_options(self, run: str | None) -> ScoringOptions:
        stored = None if run is None else await self._runs.get(run)
        return ScoringOptions() if stored is None else stored.options

    async def _find(self, detail: GroupDetail, options: ScoringOptions) -> Rubric | None:
        key, group = detail.task.key, detail.group
        hosted = await self._environment_versions.get_version(key.environment, key.data_digest)
        environment = hosted.environment
        if environment.rubric is None or not hosted.has_made(key):
            return None
        chosen = self._panels.resolve_options(hosted.name, select_options(environment, options)).rubric
        if chosen is not None or group.lacks_text:
            return chosen
        task = self._task_cache.get_task(hosted, detail.task)
        cases = await environment.build_cases(task, [rollout.completion for rollout in group.rollouts])
        return cases[0].rubric if cases else None
