"""Scores completions with their environment; failures of the service become `unscored` with a reason."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial

from app.domain.errors import (
    Conflict,
    EnvironmentUnavailable,
    GatewayError,
    InvalidRequest,
    NotFound,
    ScoringFailed,
)
from app.domain.groups import Group, TaskRecord
from app.domain.judging import Case, Judgement, PanelResult, Rubric
from app.domain.model_names import is_same_model
from app.domain.runs import Pin, Policy, Run, ScoringOptions
from app.domain.scores import Score
from app.domain.tasks import Completion, Task
from app.domain.values import SameObject
from app.ports.environment import Environment, Tools
from app.ports.judges import BackedJudge, Panel, Panels, ReferenceStore
from app.ports.sandbox import Programs, Workers
from app.service.calibration import GroupCalibration, ReferenceCache
from app.service.catalogue import ServedEnvironment
from app.service.run_budgets import GroupBudget
from app.service.run_registry import RunRegistry
from app.service.sheet_versions import SheetVersions
from app.service.task_cache import TaskCache

log = logging.getLogger(__name__)

TRUNCATED_SCORE = Score.gated("truncated", rationale="cut off by the token limit")


@dataclass(frozen=True)
class JudgedCompletions:
    scores: tuple[Score, ...]
    judgements: tuple[Judgement, ...] = ()


@dataclass
class RecordingPanel:
    """Wraps a panel and records its judgements, so that environments need not return them."""

    panel: Panel
    budget: GroupBudget | None = None
    calibration: GroupCalibration | None = None
    made: list[Judgement] = field(default_factory=list)
    asked: bool = False
    was_calibrated: bool = False

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
        self.made += [
            each.model_copy(update={"purpose": judgement.purpose}) if each.purpose != judgement.purpose else each
            for judgement in result.judgements
            for each in judgement.attempts
        ]


class NoPanel:
    """Stands for the panel in environments without judges. Calling it is a bug in the environment."""

    judges: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    digest = ""

    async def judge(self, case: Case) -> PanelResult:
        raise ScoringFailed(f"{case.rubric.name}: an environment without a rubric has no judges")


def get_panel(panels: Panels, hosted: ServedEnvironment, options: ScoringOptions) -> Panel | None:
    """The panel of a judged environment; None if a verifier scores it."""
    if hosted.environment.rubric is None:
        return None
    return panels.build_panel(hosted.name, select_options(hosted.environment, options))


def select_options(environment: Environment | type[Environment], options: ScoringOptions) -> ScoringOptions:
    """Without a rubric, if the environment takes none."""
    if options.rubric is None or environment.takes_rubric:
        return options
    return options.model_copy(update={"rubric": None})


def find_rubric(panels: Panels, environment: type[Environment], options: ScoringOptions) -> Rubric | None:
    """What judges score this environment by with these options; None if a verifier scores it."""
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
    budget: GroupBudget | None = None,
    calibration: GroupCalibration | None = None,
) -> JudgedCompletions:
    """One score per completion, in order, and all judgements, even if scoring failed in the end. Truncated completions
    get 0 in any case. Raises only when cancelled. `what` is for the log."""
    recorded = None if panel is None else RecordingPanel(panel, budget, calibration)
    cuts = options.on_truncated == "zero"
    whole = [completion for completion in completions if not (cuts and completion.truncated)]
    try:
        given = await _call_environment(environment, task, whole, Tools(recorded or NoPanel(), workers, programs))
    except Exception as error:
        given = [convert_error(error, what)] * len(whole)
    if budget is not None and recorded is not None and recorded.asked:
        await budget.settle(recorded.made, further=recorded.was_calibrated)
    if len(whole) < len(completions):
        scores = iter(given)
        given = [TRUNCATED_SCORE if completion.truncated else next(scores) for completion in completions]
    return JudgedCompletions(tuple(given), tuple(recorded.made) if recorded is not None else ())


async def _call_environment(
    environment: Environment, task: Task, whole: Sequence[Completion], tools: Tools
) -> list[Score]:
    if not whole:
        return []
    scores = await environment.score(task, whole, tools)
    if len(scores) != len(whole):
        raise ScoringFailed(f"{environment.name} gave {len(scores)} scores for {len(whole)} completions")
    return scores


def convert_error(error: Exception, what: str) -> Score:
    """The `unscored` result for an error. Unexpected errors are logged and reported in general words."""
    if isinstance(error, ScoringFailed):
        return Score.from_error(error)
    if isinstance(error, EnvironmentUnavailable | NotFound):
        return Score.unscored("environment_unavailable", error.detail)
    if isinstance(error, GatewayError):
        return Score.unscored("internal", error.detail)
    log.error("scoring failed: %s", what, exc_info=error)
    return Score.unscored("internal", "the environment's scorer broke; see the log")


class Scorer:
    """Turns completions into scores. Failures of the service become `unscored` with a reason."""

    def __init__(
        self,
        sheet_versions: SheetVersions,
        panels: Panels,
        task_cache: TaskCache,
        workers: Workers,
        programs: Programs,
        runs: RunRegistry,
        references: ReferenceStore,
    ) -> None:
        self._references = ReferenceCache(references)
        self._runs = runs
        self._sheet_versions = sheet_versions
        self._task_cache = task_cache
        self._panels = panels
        self._workers = workers
        self._programs = programs

    def scores_at_once(self, record: TaskRecord) -> bool:
        """Whether `score` awaits nothing, unless completions are large."""
        return self._sheet_versions.scores_at_once(record.key.environment)

    async def score(
        self,
        record: TaskRecord,
        completions: Sequence[Completion],
        options: ScoringOptions,
        policy: Policy | None,
        *,
        group: Group,
        remade: Task | None = None,
    ) -> JudgedCompletions:
        """One score per completion of the group, in order. Raises only when cancelled. `remade` replaces the record's
        task if the environment has changed since. Work that a restart interrupted waits until its environment has
        started."""
        try:
            name, data_digest = record.key.environment, record.key.data_digest
            await self._sheet_versions.wait_until_started(name)
            hosted = (
                self._sheet_versions.get_current(name)
                if remade
                else await self._sheet_versions.get_version(name, data_digest)
            )
            return await self._score_in_environment(hosted, record, completions, options, policy, remade, group)
        except Exception as error:
            return _repeat_score(len(completions), convert_error(error, _describe_task(record)))

    async def _score_in_environment(
        self,
        hosted: ServedEnvironment,
        record: TaskRecord,
        completions: Sequence[Completion],
        options: ScoringOptions,
        policy: Policy | None,
        remade: Task | None,
        group: Group,
    ) -> JudgedCompletions:
        present = (hosted.environment.version, hosted.data_digest)
        if remade is None and (record.key.version, record.key.data_digest) != present:
            old, new = record.key.version, hosted.environment.version
            detail = "the task was made from other data" if old == new else f"the task is of version {old}, not {new}"
            return _repeat_score(len(completions), Score.unscored("version_changed", detail))
        panel = get_panel(self._panels, hosted, options)
        if own := self._find_own_model(panel, policy):
            return _repeat_score(
                len(completions), Score.unscored("self_judge", f"judge {own} is the policy's own model")
            )
        task = remade or self._task_cache.get_task(hosted, record)
        what = _describe_task(record)
        budget = None if panel is None else await self._runs.find_budget(group, options)
        judged = await score_completions(
            hosted.environment,
            task,
            completions,
            options,
            panel,
            self._workers,
            self._programs,
            what=what,
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
        digest = hosted.build_pin(options, panel).scoring_digest
        context = record.key.context
        flags = ("no_context",) if context is not None and context.failure is not None else ()
        return JudgedCompletions(_complete_scores(judged.scores, digest, flags), judged.judgements)

    def _find_own_model(self, panel: Panel | None, policy: Policy | None) -> str | None:
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


def _repeat_score(count: int, score: Score) -> JudgedCompletions:
    return JudgedCompletions((score,) * count)


def _complete_scores(scores: Sequence[Score], digest: str, flags: tuple[str, ...]) -> tuple[Score, ...]:
    """The scores with this digest and these flags too. One that several completions share is copied once, and once for
    many groups where verifiers share it between them."""
    return tuple([_complete_score(SameObject(score), digest, flags) for score in scores])


@lru_cache(maxsize=512)
def _complete_score(score: SameObject[Score], digest: str, flags: tuple[str, ...]) -> Score:
    one = score.value
    return one.model_copy(update={"scoring_digest": digest, "flags": (*one.flags, *flags)})


def _describe_task(record: TaskRecord) -> str:
    return f"{record.key.environment}, {record.task_id}"
