"""Completions scored by their environment, with a panel of judges or by a verifier.

`Scorer` scores completions of a group: in the version of the environment that made the task, under the run's budget,
and never by a judge that is the policy's own model. `score_completions` is the part that previews and estimates use
too. A model's fault is a low score; a fault of the service is no score. So nothing here raises: whatever fails is
`unscored`, with a reason.

An environment sees its panel as `_RecordingPanel`, which notes every judgement, asks the budget before the first, and
calibrates what was drawn for it. Calibration reads a group once more, beside replies of known level. These are what
people wrote, completed by what a judge writes once for each scene and the store keeps. It changes no other part of a
score.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Final

from app.domain.errors import (
    Conflict,
    EnvironmentUnavailable,
    GatewayError,
    InvalidRequest,
    NotFound,
    ScoringFailed,
    StoreUnavailable,
)
from app.domain.groups import Group, TaskRecord
from app.domain.judging import Case, Judgement, PanelResult, Rubric
from app.domain.making import GroupMaking
from app.domain.runs import Pin, Policy, Run, ScoringOptions
from app.domain.scores import (
    CALIBRATION_SECONDS,
    LEVELS,
    CalibratedValue,
    CalibrationGap,
    ReferencePlan,
    References,
    Score,
    is_drawn,
    round_turn_reward,
    split_by_turn,
)
from app.domain.tasks import Completion, Message, Task, is_cut_by_filter
from app.domain.values import SameObject, Unit, bound_tokens, is_same_model
from app.ports.environment import Environment, Programs, Tools, Workers
from app.ports.judges import BackedJudge, CalibratingPanel, Panel, Panels, ReferenceStore
from app.service.catalogue import EnvironmentVersions, ServedEnvironment
from app.service.hosted import HostedEpisodes
from app.service.players import PlayedEpisodes
from app.service.requests import SingleFlight
from app.service.runs import CaseTokens, GroupBudget, JudgingBound, RunRegistry, bound_judging, bound_unknown_group
from app.service.task_cache import TaskCache
from app.toolkit.thoughts import map_completions

log = logging.getLogger(__name__)

_TRUNCATED_SCORE: Final = Score.gated("truncated", rationale="cut off by the token limit")
_FILTERED_SCORE: Final = Score.gated("truncated", rationale="cut off by a filter of the model's server")


ScoreElsewhere = Callable[[Sequence[Completion]], Awaitable[list[Score]]]


class Scorer:
    """Scores completions of groups. Failures of the service become `unscored` with a reason."""

    def __init__(
        self,
        environment_versions: EnvironmentVersions,
        panels: Panels,
        task_cache: TaskCache,
        workers: Workers,
        programs: Programs,
        runs: RunRegistry,
        references: ReferenceStore,
        played: PlayedEpisodes,
        elsewhere: HostedEpisodes,
    ) -> None:
        self._references = ReferenceCache(references)
        self._played = played
        self._elsewhere = elsewhere
        self._runs = runs
        self._environment_versions = environment_versions
        self._task_cache = task_cache
        self._panels = panels
        self._workers = workers
        self._programs = programs

    def scores_at_once(self, record: TaskRecord) -> bool:
        """Whether `score` awaits nothing, unless completions are large."""
        return self._environment_versions.scores_at_once(record.key.environment)

    async def score(
        self,
        record: TaskRecord,
        completions: Sequence[Completion],
        options: ScoringOptions,
        policy: Policy | None,
        *,
        group: Group,
        remade: Task | None = None,
    ) -> PanelResult:
        """One score per completion of the group, in order. Raises only when cancelled. `remade` replaces the record's
        task if the environment has changed since. Work that a restart interrupted waits until its environment has
        started."""
        try:
            name, data_digest = record.key.environment, record.key.data_digest
            await self._environment_versions.wait_until_started(name)
            hosted = (
                self._environment_versions.get_current(name)
                if remade
                else await self._environment_versions.get_version(name, data_digest)
            )
            return await self._score_in_environment(hosted, record, completions, options, policy, remade, group)
        except Exception as error:
            return repeat_score(_convert_error(error, _describe_task(record)), len(completions))

    async def _score_in_environment(
        self,
        hosted: ServedEnvironment,
        record: TaskRecord,
        completions: Sequence[Completion],
        options: ScoringOptions,
        policy: Policy | None,
        remade: Task | None,
        group: Group,
    ) -> PanelResult:
        if remade is None and not hosted.has_made(record.key):
            old, new = record.key.version, hosted.environment.version
            detail = "the task was made from other data" if old == new else f"the task is of version {old}, not {new}"
            return repeat_score(Score.unscored("version_changed", detail), len(completions))
        panel = get_panel(self._panels, hosted, options)
        if own_judge := self._find_own_judge(panel, policy):
            refused = Score.unscored("self_judge", f"judge {own_judge} is the policy's own model")
            return repeat_score(refused, len(completions))
        task = remade or self._task_cache.get_task(hosted, record)
        what = _describe_task(record)
        player = hosted.environment.find_player(task) if hosted.environment.multi_turn else None
        host = hosted.environment.find_host(task) if hosted.environment.runs_elsewhere else None
        checked = None if player is None else await self._played.check(record.task_id, player, completions)
        budget = None
        if panel is not None and group.run is not None:
            budget = await self._runs.find_budget(group.run, group.environment, group.group_id, options)
        judged = await score_completions(
            hosted.environment,
            task,
            completions if checked is None else checked.list_sound(completions),
            options,
            panel,
            self._workers,
            self._programs,
            what=what,
            score_elsewhere=None if host is None else partial(self._elsewhere.score, record.task_id, host),
            budget=budget,
            calibration=None
            if panel is None
            else GroupCalibration(
                self._references,
                partial(hosted.environment.references, task),
                self._panels.resolve_options(hosted.name, options).calibration_share,
                policy,
                budget,
            ),
        )
        if checked is not None:
            judged = checked.complete(judged)
            if options.turn_rewards:  # those that were refused have their parts too
                scores = await _split_by_turn(hosted.environment, task, completions, judged.scores, what)
                judged = judged.model_copy(update={"scores": tuple(scores)})
        digest = hosted.build_pin(options, panel).scoring_digest
        context = record.key.context
        flags = ("no_context",) if context is not None and context.failure is not None else ()
        return judged.model_copy(update={"scores": _complete_scores(judged.scores, digest, flags)})

    def _find_own_judge(self, panel: Panel | None, policy: Policy | None) -> str | None:
        """The name of a judge that is the policy's own model, and must not be."""
        if panel is None or policy is None:
            return None
        for judge, model in self._list_judge_models(panel):
            if is_same_model(model, policy.model) and self._panels.refuses_self_judging(judge):
                return judge
        return None

    def _list_judge_models(self, panel: Panel) -> Iterator[tuple[str, str]]:
        """Names and models of the panel's judges and their fallbacks."""
        for name, model in zip(panel.judges, panel.models, strict=True):
            yield name, model
            judge = self._panels.judges.get(name)
            if isinstance(judge, BackedJudge):
                yield judge.fallback.name, judge.fallback.model


def _complete_scores(scores: Sequence[Score], digest: str, flags: tuple[str, ...]) -> tuple[Score, ...]:
    """The scores with this digest and these flags too."""
    return tuple([_complete_score(SameObject(score), digest, flags) for score in scores])


# A score that several completions share is copied once, and once for many groups where verifiers share it among them.
@lru_cache(maxsize=512)
def _complete_score(score: SameObject[Score], digest: str, flags: tuple[str, ...]) -> Score:
    shared = score.value
    return shared.model_copy(update={"scoring_digest": digest, "flags": (*shared.flags, *flags)})


def _describe_task(record: TaskRecord) -> str:
    return f"{record.key.environment}, {record.task_id}"


# Scoring without a stored group


async def score_completions(
    environment: Environment,
    task: Task,
    completions: Sequence[Completion],
    options: ScoringOptions,
    panel: Panel | None,
    workers: Workers,
    programs: Programs,
    *,
    what: str,
    score_elsewhere: ScoreElsewhere | None = None,
    budget: GroupBudget | None = None,
    calibration: "GroupCalibration | None" = None,
) -> PanelResult:
    """One score per completion, in order, and all judgements, even if scoring failed in the end. Truncated completions
    get 0 in any case. Raises only when cancelled. `what` is for the log. `score_elsewhere` is asked in place of the
    environment where its episodes run on another's server."""
    recorded = None if panel is None else _RecordingPanel(panel, budget, calibration)
    whole = leave_out_cut(completions, options)
    try:
        if score_elsewhere is not None:
            scores = await score_elsewhere(whole)
        else:
            scores = await _call_environment(environment, task, whole, Tools(recorded or NoPanel(), workers, programs))
    except Exception as error:
        scores = [_convert_error(error, what)] * len(whole)
    if budget is not None and recorded is not None and recorded.asked:
        await budget.settle(recorded.made, further=recorded.was_calibrated)
    if len(whole) < len(completions):
        remaining = iter(scores)
        cuts = options.on_truncated == "zero"
        scores = [_score_uncompleted(completion, cuts=cuts) or next(remaining) for completion in completions]
    if any(completion.is_malformed for completion in completions):
        scores = [
            _flag_malformed(score) if completion.is_malformed else score
            for completion, score in zip(completions, scores, strict=True)
        ]
    if options.turn_rewards:
        scores = await _split_by_turn(environment, task, completions, scores, what)
    made, making = ((), None) if recorded is None else (tuple(recorded.made), recorded.making)
    return PanelResult.build_trusted(scores=tuple(scores), judgements=made, making=making)


async def _split_by_turn(
    environment: Environment, task: Task, completions: Sequence[Completion], scores: Sequence[Score], what: str
) -> list[Score]:
    try:
        known = await map_completions(
            completions, lambda one: list_turn_rewards(environment, task, _list_messages(one))
        )
    except Exception as error:
        return [_convert_error(error, what)] * len(scores)
    return [split_by_turn(score, parts) for score, parts in zip(scores, known, strict=True)]


def _list_messages(completion: Completion) -> Sequence[Message]:
    return completion.messages or (Message(role="assistant", content=completion.answer),)


def list_turn_rewards(environment: Environment, task: Task, messages: Sequence[Message]) -> list[float | None]:
    """What was known of the reward when each message of the model came; None where nothing was."""
    turns = sum(message.role == "assistant" for message in messages)
    known = [round_turn_reward(part) for part in environment.turn_rewards(task, messages)[:turns]]
    return [*known, *[None] * (turns - len(known))]


def _score_uncompleted(completion: Completion, *, cuts: bool) -> Score | None:
    """Of what no environment sees; None for what one does."""
    if completion.broken_off:
        return Score.unscored(
            "broken_off", f"the model's server broke off ({completion.finish_reason}): it is no sample"
        )
    if not (cuts and completion.truncated):
        return None
    return _FILTERED_SCORE if is_cut_by_filter(completion.finish_reason) else _TRUNCATED_SCORE


def _flag_malformed(score: Score) -> Score:
    return score.model_copy(update={"flags": (*score.flags, "malformed_text")})


def repeat_score(score: Score, count: int) -> PanelResult:
    """The same score for each of `count` completions, and no judgement."""
    return PanelResult(scores=(score,) * count)


def leave_out_cut(completions: Sequence[Completion], options: ScoringOptions) -> list[Completion]:
    """Those that an environment sees: neither those that broke off, nor the truncated where these get 0 in any case."""
    cuts = options.on_truncated == "zero"
    return [completion for completion in completions if _score_uncompleted(completion, cuts=cuts) is None]


async def _call_environment(
    environment: Environment, task: Task, whole: Sequence[Completion], tools: Tools
) -> list[Score]:
    if not whole:
        return []
    scores = await environment.score(task, whole, tools)
    if len(scores) != len(whole):
        raise ScoringFailed(f"{environment.name} gave {len(scores)} scores for {len(whole)} completions")
    return scores


def _convert_error(error: Exception, what: str) -> Score:
    """The `unscored` result for an error. Unexpected errors are logged and reported in general words."""
    if isinstance(error, ScoringFailed):
        return Score.from_error(error)
    if isinstance(error, EnvironmentUnavailable | NotFound):
        return Score.unscored("environment_unavailable", error.detail)
    if isinstance(error, GatewayError):
        return Score.unscored("internal", error.detail)
    log.error("scoring failed: %s", what, exc_info=error)
    return Score.unscored("internal", "the environment's scorer broke; see the log")


# What an environment is scored by


def get_panel(panels: Panels, hosted: ServedEnvironment, options: ScoringOptions) -> Panel | None:
    """The panel of a judged environment; None if a verifier scores it."""
    if hosted.environment.rubric is None:
        return None
    return panels.build_panel(hosted.name, select_options(hosted.environment, options))


def select_options(environment: Environment | type[Environment], options: ScoringOptions) -> ScoringOptions:
    """The options, without a rubric if the environment takes none."""
    if options.rubric is None or environment.takes_rubric:
        return options
    return options.model_copy(update={"rubric": None})


def find_rubric(panels: Panels, environment: type[Environment], options: ScoringOptions) -> Rubric | None:
    """The rubric that judges score this environment by with these options; None if a verifier scores it."""
    if environment.rubric is None:
        return None
    chosen = panels.resolve_options(environment.name, select_options(environment, options))
    return chosen.rubric or environment.rubric


def require_taker(environment: Environment, field: str) -> None:
    """InvalidRequest when a rubric is given to an environment that takes none."""
    if not environment.takes_rubric:
        raise InvalidRequest(f"{environment.name} takes no other rubric than its own", field=field)


def require_same_scoring(run: Run, same: bool, pin: Pin) -> None:
    """Conflict when the scoring of a strict run has changed since its pin."""
    if run.strict and not same:
        raise Conflict(
            f"run {run.name!r} is strict, and the scoring of {pin.environment} has changed since the run began",
            field="run",
        )


async def bound_scoring(
    environment: Environment,
    task: Task,
    completions: Sequence[Completion],
    options: ScoringOptions,
    panels: Panels,
    *,
    size: int = 0,
) -> list[JudgingBound]:
    """What judging these completions takes at most, calibration included; nothing where no judge is asked. With more of
    `size` they stand for a group that is not whole yet."""
    if environment.rubric is None:
        return []
    chosen = panels.resolve_options(environment.name, select_options(environment, options))
    cases = await environment.build_cases(task, leave_out_cut(completions, options))
    if cases is None:
        return [bound_unknown_group(chosen, panels)]
    further = chosen.model_copy(update={"mode": "listwise", "readings": 1})  # as calibration reads
    bounds: list[JudgingBound] = []
    for case in cases:
        counted = CaseTokens.count(case).add_like(size - len(case.candidates))
        bounds.append(bound_judging(counted, chosen, panels))
        plan = environment.references(task) if is_drawn(case.key, chosen.calibration_share) else None
        bounds += [bound_judging(one, further, panels) for one in _list_calibrations(counted, plan)]
    return bounds


def _list_calibrations(case: CaseTokens, plan: ReferencePlan | None) -> list[CaseTokens]:
    """What calibrating a drawn group asks: one more reading, and one question more where a judge writes references.
    What the judge reads of the scene stands for their length."""
    if plan is None or plan.opted_out:
        return []
    extended = case.add(map(bound_tokens, (*plan.given.values(), plan.brief)))
    return [extended] if plan.given.keys() >= LEVELS.keys() else [extended, extended]


# Panels as environments see them


@dataclass
class _RecordingPanel:
    """Wraps a panel and records its judgements, and how scores were made of them, so that environments need not return
    them."""

    panel: Panel
    budget: GroupBudget | None = None
    calibration: "GroupCalibration | None" = None
    made: list[Judgement] = field(default_factory=list)
    asked: bool = False
    """Whether the budget was asked, which is done once a group."""
    was_calibrated: bool = False
    makings: list[GroupMaking] = field(default_factory=list)

    @property
    def making(self) -> GroupMaking | None:
        return self.makings[0] if len(self.makings) == 1 else None

    @property
    def judges(self) -> tuple[str, ...]:
        return self.panel.judges

    @property
    def models(self) -> tuple[str, ...]:
        return self.panel.models

    @property
    def digest(self) -> str:
        return self.panel.digest

    async def judge(self, case: Case) -> PanelResult:
        if self.budget is not None and not self.asked:
            await self.budget.reserve(case)
            self.asked = True
        result = await self.panel.judge(case)
        self._record(result)
        if self.calibration is None:
            return result
        calibrated = await self.calibration.add_values(self.panel, case, result)
        if calibrated is not result:
            self._record(calibrated)
            self.was_calibrated = True
        return result.model_copy(update={"scores": calibrated.scores})

    def _record(self, result: PanelResult) -> None:
        """Notes every attempt, since failed ones were paid for too. The last attempt is the judgement itself."""
        places: list[int] = []
        for judgement in result.judgements:
            self.made += [
                each.model_copy(update={"purpose": judgement.purpose}) if each.purpose != judgement.purpose else each
                for each in judgement.attempts
            ]
            places.append(len(self.made) - 1)
        if result.making is not None:
            straight = places == list(range(len(places)))
            self.makings.append(result.making if straight else result.making.move_readings(places.__getitem__))


class NoPanel:
    """Stands for the panel in environments without judges. Calling it is a bug in the environment."""

    judges: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    digest = ""

    async def judge(self, case: Case) -> PanelResult:
        raise ScoringFailed(f"{case.rubric.name}: an environment without a rubric has no judges")


# Calibration

RETRY_SECONDS: Final = 60.0
"""A judge that gave no usable references is asked again for the same scene after this."""

ReferencesOrGap = References | CalibrationGap
"""References, or why there are none."""
_Values = Sequence[CalibratedValue | CalibrationGap | None]
"""By candidate; null for gated ones."""


@dataclass(frozen=True)
class GroupCalibration:
    """Whether and how one group of a task is calibrated. `find_plan` gives null for a task that knows no references."""

    references: "ReferenceCache"
    find_plan: Callable[[], ReferencePlan | None]
    share: Unit
    policy: Policy | None
    budget: GroupBudget | None

    async def add_values(self, panel: Panel, case: Case, result: PanelResult) -> PanelResult:
        """The result with calibrated values, and the judgements that they took. Whatever fails here leaves the scores
        as they are, with the reason."""
        judged = [score for score in result.scores if _is_judged(score)]
        if not judged or not is_drawn(case.key, self.share):
            return result
        made: list[Judgement] = []
        values: _Values | CalibrationGap
        try:
            if (plan := self.find_plan()) is None:
                return result
            values = await self._calibrate(panel, case, plan, made)
        except Exception:
            log.exception("a group could not be calibrated: rubric=%s", case.rubric.name)
            values = "internal"
        listed = (values,) * len(result.scores) if isinstance(values, str) else values
        scores = tuple(_add_value(score, value) for score, value in zip(result.scores, listed, strict=True))
        return PanelResult(scores=scores, judgements=tuple(made))

    async def _calibrate(
        self, panel: Panel, case: Case, plan: ReferencePlan, made: list[Judgement]
    ) -> _Values | CalibrationGap:
        if plan.opted_out:
            return "opted_out"
        if not isinstance(panel, CalibratingPanel) or not panel.grades:
            return "no_judge"
        if self.budget is not None and not await self.budget.reserve_further(case):
            return "budget"
        policy = None if self.policy is None else self.policy.model
        clock = asyncio.get_running_loop().time
        # One deadline for both: the references, and the reading beside them.
        ends = clock() + CALIBRATION_SECONDS
        try:
            references = await asyncio.wait_for(
                self.references.find(panel, plan, case, made, policy), CALIBRATION_SECONDS
            )
        except TimeoutError:
            return "references_failed"
        if isinstance(references, str):
            return references
        if references.model and policy is not None and is_same_model(references.model, policy):
            return "made_by_policy"
        reading = await panel.calibrate(case, references, ends - clock())
        made += reading.judgements
        return reading.values


@dataclass
class _ReferenceOutcome:
    """The references that a judge wrote for a scene, and the judgement that it took until a caller records it."""

    references: ReferencesOrGap
    made: list[Judgement] = field(default_factory=list)

    def take_judgements(self) -> list[Judgement]:
        judgements, self.made = self.made, []
        return judgements


class ReferenceCache:
    """References by scene: what people wrote, completed with what a judge writes once."""

    def __init__(self, store: ReferenceStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._flights = SingleFlight[_ReferenceOutcome]("references could not be made")
        self._failed: dict[str, float] = {}
        """By scene the time at which a judge last gave none that can be used."""

    async def find(
        self, panel: CalibratingPanel, plan: ReferencePlan, case: Case, made: list[Judgement], policy: str | None
    ) -> ReferencesOrGap:
        """`made` gets the judgements that were needed: of the callers that wait together, the first that is still
        there. If all have left, they count for the judge alone. The model `policy` writes none."""
        if plan.given.keys() >= LEVELS.keys():
            return References(replies=plan.given)
        try:
            if (stored := await self._store.get(plan.scene)) is not None:
                return stored
        except StoreUnavailable:
            return "references_failed"
        if not plan.brief:
            return "no_references"
        name = f"{plan.scene} {policy or ''}"  # the policy too: it decides which judges may write
        flight = self._flights.find([name]).get(name)
        if flight is None and self._has_just_failed(plan.scene):
            return "references_failed"
        # Shielded: others may wait for the same references, and they are paid for.
        written = await asyncio.shield(flight or self._flights.start([name], self._write(panel, plan, case, policy)))
        made += written.take_judgements()
        return written.references

    async def _write(
        self, panel: CalibratingPanel, plan: ReferencePlan, case: Case, policy: str | None
    ) -> _ReferenceOutcome:
        written = await panel.write_references(plan, case, policy)
        if written is None:
            return _ReferenceOutcome("no_references")
        made = [written.judgement]
        if written.replies is None:
            if written.judgement.failure == "budget":
                return _ReferenceOutcome("budget", made)
            self._failed[plan.scene] = self._clock()
            return _ReferenceOutcome("references_failed", made)
        whole = References(
            replies={**written.replies, **plan.given}, judge=written.judgement.judge, model=written.judgement.model
        )
        try:
            return _ReferenceOutcome(await self._store.put(plan.scene, whole), made)
        except StoreUnavailable:
            return _ReferenceOutcome("references_failed", made)

    def _has_just_failed(self, scene: str) -> bool:
        oldest = self._clock() - RETRY_SECONDS
        self._failed = {name: moment for name, moment in self._failed.items() if moment > oldest}
        return scene in self._failed


def _add_value(score: Score, value: CalibratedValue | CalibrationGap | None) -> Score:
    """The score with its calibrated value. No other part changes."""
    if value is None or not _is_judged(score):
        return score
    if isinstance(value, str):
        return score.model_copy(update={"uncalibrated": value})
    flags = (*score.flags, "calibration_bounded") if value.is_bounded else score.flags
    return score.model_copy(update={"calibrated": value.value, "calibrated_error": value.error, "flags": flags})


def _is_judged(score: Score) -> bool:
    return score.outcome == "scored" and bool(score.judges)
