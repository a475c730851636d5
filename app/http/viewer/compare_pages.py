"""The page that compares two checkpoints: on the tasks of both, who is ahead by how much, then task by task.

The stored groups of each are found in bounded looks and compared as if they were two evaluations. A model that was
trained on a judge may only have learnt what that judge likes, so scores by another judge are shown where there are any.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from statistics import fmean
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import HTMLResponse

from app.domain.access import KeyBounds
from app.domain.errors import GatewayError, InvalidRequest, NotFound
from app.domain.groups import GroupFilter, GroupSummary, StoredScores
from app.domain.judging import compute_own_reward
from app.domain.rollups import RollupFilter
from app.domain.runs import StepRange
from app.domain.scores import Score
from app.domain.values import Frozen, is_same_model, suggest
from app.evaluation.comparison import Comparison, TaskChange, compare_with_changes
from app.evaluation.report import (
    Attempt,
    Evaluation,
    EvaluationSetup,
    Resampler,
    describe_offline_tasks,
    list_offline_judges,
)
from app.http.viewer.group_pages import OFFLINE_JUDGE, write_out
from app.http.viewer.rendering import (
    FilterRoute,
    ModelWord,
    Renderer,
    Word,
    WordDiff,
    build_link,
    clean_word,
    compare_words,
    explain_environment,
)
from app.http.viewer.run_pages import MOST_CHOICES, RunPages, list_run_names, parse_run_name
from app.http.viewer.sentences import tell_comparison
from app.http.web.api_keys import CallerBounds, needs
from app.service.access import allows_task
from app.store.views import GroupOutline, GroupViews
from app.toolkit.charts import Scale, build_difference_histogram, fit_around_zero
from app.toolkit.texts import Excerpt, cut_excerpt, escape_invisible

# The groups of both checkpoints on the same tasks.

_WINDOW: Final = 1_250
"""Groups that one search looks at, and the page of it that is read."""
_MOST_WINDOWS: Final = 2
_MOST_TASKS: Final = 400
"""Tasks that are compared: the newest that both have."""
_MOST_GROUPS: Final = 8
"""Of one task, of each checkpoint: the newest."""
_ASKED_AT_ONCE: Final = 400


@dataclass(frozen=True)
class Checkpoint:
    """A run's groups, or of these what one model or some steps of it answered."""

    run: str
    steps: StepRange | None = None
    model: str | None = None

    @property
    def name(self) -> str:
        return ", ".join(str(part) for part in (self.run, self.model, self.steps) if part is not None)

    def narrow(self, where: GroupFilter) -> GroupFilter:
        return where.model_copy(
            update={
                "run": self.run,
                "model": self.model,
                "min_step": None if self.steps is None else self.steps.first,
                "max_step": None if self.steps is None else self.steps.last,
            }
        )


@dataclass(frozen=True)
class _Scanned:
    """What was found of a checkpoint: the sequences of groups."""

    by_task: Mapping[str, tuple[int, ...]]
    """The newest group of a task first, and tasks in the order of their newest groups."""
    groups: int
    is_whole: bool


@dataclass(frozen=True)
class CheckpointGroups:
    """What was found of a checkpoint. `is_whole`: nothing older was left to look at."""

    by_task: Mapping[str, tuple[GroupSummary, ...]]
    """Of the tasks that both have; the newest group of a task first."""
    groups: int
    is_whole: bool


@dataclass(frozen=True)
class SharedTasks:
    """Both checkpoints' groups of the newest tasks that both have. `left_out` are the first's tasks that are older than
    those."""

    first: CheckpointGroups
    second: CheckpointGroups
    tasks: tuple[str, ...]
    left_out: int

    def list_group_ids(self) -> list[str]:
        return [group.group_id for group in self._iter_groups()]

    def count_groups(self) -> tuple[int, int]:
        first, second = (sum(len(side.by_task[task]) for task in self.tasks) for side in (self.first, self.second))
        return first, second

    def list_policy_models(self) -> list[str]:
        return sorted({group.policy.model for group in self._iter_groups() if group.policy is not None})

    def _iter_groups(self) -> Iterator[GroupSummary]:
        for side in (self.first, self.second):
            for task in self.tasks:
                yield from side.by_task[task]


async def find_shared_tasks(
    views: GroupViews, first: Checkpoint, second: Checkpoint, where: GroupFilter
) -> SharedTasks:
    """Of the first the newest groups are looked at, of the second those of the same tasks, until enough are
    shared."""
    one = await _scan(views, first.narrow(where))
    candidates = list(one.by_task)
    parts = list[_Scanned]()
    for begin in range(0, len(candidates), _ASKED_AT_ONCE):
        tasks = tuple(candidates[begin : begin + _ASKED_AT_ONCE])
        parts.append(await _scan(views, second.narrow(where).model_copy(update={"task_ids": tasks})))
        if sum(len(part.by_task) for part in parts) >= _MOST_TASKS:
            break
    other = _Scanned(
        by_task={task: groups for part in parts for task, groups in part.by_task.items()},
        groups=sum(part.groups for part in parts),
        is_whole=all(part.is_whole for part in parts),
    )
    shared = [task for task in candidates if task in other.by_task][:_MOST_TASKS]
    left_out = len(candidates) - candidates.index(shared[-1]) - 1 if len(shared) == _MOST_TASKS else 0
    sides = [await _load_groups(views, side, shared) for side in (one, other)]
    # Groups may have been pruned since they were looked at.
    loaded = tuple(task for task in shared if all(task in side.by_task for side in sides))
    return SharedTasks(sides[0], sides[1], loaded, left_out)


async def _scan(views: GroupViews, where: GroupFilter) -> _Scanned:
    groups: list[GroupOutline] = []
    before = where.before
    for _ in range(_MOST_WINDOWS):
        page = await views.find_outlines(where.model_copy(update={"before": before, "limit": _WINDOW}))
        groups += (group for group in page.outlines if group.scored)
        before = page.next_before
        if before is None:
            break
    by_task: dict[str, list[int]] = {}
    for group in groups:
        by_task.setdefault(group.task_id, []).append(group.sequence)
    newest = {task: tuple(sequences[:_MOST_GROUPS]) for task, sequences in by_task.items()}
    return _Scanned(newest, len(groups), before is None)


async def _load_groups(views: GroupViews, scanned: _Scanned, tasks: Sequence[str]) -> CheckpointGroups:
    """Of these tasks alone: most groups that are looked at are of others. What was pruned meanwhile is left out."""
    sequences = [sequence for task in tasks for sequence in scanned.by_task[task]]
    by_task: dict[str, tuple[GroupSummary, ...]] = {}
    for begin in range(0, len(sequences), _ASKED_AT_ONCE):
        for group in await views.load_summaries(sequences[begin : begin + _ASKED_AT_ONCE]):
            by_task[group.task_id] = (*by_task.get(group.task_id, ()), group)
    return CheckpointGroups(by_task, scanned.groups, scanned.is_whole)


async def _load_scores(views: GroupViews, group_ids: Sequence[str]) -> dict[str, StoredScores]:
    scores: dict[str, StoredScores] = {}
    for begin in range(0, len(group_ids), _ASKED_AT_ONCE):
        scores |= await views.load_scores(group_ids[begin : begin + _ASKED_AT_ONCE])
    return scores


def _list_own_judges(scores: Mapping[str, StoredScores]) -> tuple[str, ...]:
    """Those by whom the groups were scored when they were sent; none where verifiers decide."""
    return tuple(sorted({judge for each in scores.values() for score in each.scores for judge in score.judges}))


def _list_other_judges(
    shared: SharedTasks, scores: Mapping[str, StoredScores], own: Sequence[str], models: Mapping[str, str]
) -> tuple[str, ...]:
    """Judges of a model that neither scored nor answered these groups, and that scored groups of both checkpoints anew;
    those of the most tasks first. `models` are the models of judges by name."""
    used = {models.get(judge, judge) for judge in own} | set(shared.list_policy_models())
    counts: dict[str, int] = {}
    for task in shared.tasks:
        sides = [
            {judge for group in side.by_task[task] for judge in _list_sole_judges(scores.get(group.group_id))}
            for side in (shared.first, shared.second)
        ]
        for judge in sides[0] & sides[1]:
            if judge not in own and not any(is_same_model(models.get(judge, judge), model) for model in used):
                counts[judge] = counts.get(judge, 0) + 1
    return tuple(sorted(counts, key=lambda judge: (-counts[judge], judge)))


def _list_sole_judges(scores: StoredScores | None) -> Iterator[str]:
    for scoring in () if scores is None else scores.scorings:
        if len(scoring.judges) == 1 and scoring.outcome == "scored":
            yield scoring.judges[0]


def _pick_scores(scores: StoredScores | None, judge: str | None) -> tuple[Score, ...]:
    """The newest by this judge alone, or the group's own for None; nothing where there are none."""
    if scores is None or judge is None:
        return () if scores is None else scores.scores
    own = [each for each in scores.scorings if each.judges == (judge,) and each.outcome == "scored"]
    return own[-1].scores if own else ()


def _build_evaluations(
    checkpoints: tuple[Checkpoint, Checkpoint],
    shared: SharedTasks,
    scores: Mapping[str, StoredScores],
    judge: str | None,
    now: datetime,
) -> tuple[Evaluation, Evaluation]:
    """What `compare` would be given, had the groups been evaluations."""
    one, other = (
        _build_evaluation(checkpoint, side, shared.tasks, scores, judge, now)
        for checkpoint, side in zip(checkpoints, (shared.first, shared.second), strict=True)
    )
    return one, other


def _build_evaluation(
    checkpoint: Checkpoint,
    side: CheckpointGroups,
    tasks: Sequence[str],
    scores: Mapping[str, StoredScores],
    judge: str | None,
    now: datetime,
) -> Evaluation:
    groups = [group for task in tasks for group in side.by_task[task]]
    models = sorted({group.policy.model for group in groups if group.policy is not None})
    steps = {None if group.policy is None else group.policy.step for group in groups}
    setup = EvaluationSetup(
        environment=" + ".join(sorted({group.environment for group in groups})) or "none",
        version="",
        tasks=max(1, len(tasks)),
        samples=1,
        model=", ".join(models) or checkpoint.name,
        step=next(iter(steps)) if len(steps) == 1 else None,
        run=checkpoint.run,
        label="label",
        offline_judges=(OFFLINE_JUDGE,),
        started_at=min((group.created_at for group in groups), default=now),
    )
    attempts = tuple(
        attempt
        for position, task in enumerate(tasks)
        for attempt in _build_attempts(position, side.by_task[task], scores, judge)
    )
    return Evaluation(setup=setup, attempts=attempts, finished_at=now)


def _build_attempts(
    position: int, groups: Sequence[GroupSummary], scores: Mapping[str, StoredScores], judge: str | None
) -> Iterator[Attempt]:
    sample = 0
    for group in groups:
        for score in _pick_scores(scores.get(group.group_id), judge):
            reward = compute_own_reward(score)
            yield Attempt(
                task_id=group.task_id,
                place=position,
                sample=sample,
                outcome="unscored" if reward is None else "scored",
                reason=(score.reason or "pending") if reward is None else None,
                reward=reward,
                calibrated=score.calibrated,
                criteria={criterion.name: criterion.value for criterion in score.criteria},
                label=group.label,
                flags=score.flags,
                judges=score.judges,
                scoring_digest=score.scoring_digest,
                group_id=group.group_id,
            )
            sample += 1


# The best reply of each checkpoint to a task, and their words.


@dataclass(frozen=True)
class BestReply:
    """The best completion that a checkpoint has for a task; None of its text where it is not kept."""

    group: GroupSummary
    slot: int
    reward: float
    text: str


@dataclass(frozen=True)
class TaskPair:
    """A task with the best reply of each checkpoint, and their words."""

    change: TaskChange
    title: str
    first: BestReply | None
    second: BestReply | None
    diff: WordDiff | None


@dataclass(frozen=True)
class _ReplyReader:
    """Reads the best replies of both checkpoints, by the scores that are compared."""

    views: GroupViews
    bounds: KeyBounds
    shared: SharedTasks
    scores: Mapping[str, StoredScores]
    judge: str | None

    async def load_pair(self, change: TaskChange) -> TaskPair:
        groups = [side.by_task[change.task_id] for side in (self.shared.first, self.shared.second)]
        first, second = [await self._load_best(some) for some in groups]
        diff = None
        if first is not None and second is not None:
            diff = await asyncio.to_thread(compare_words, first.text, second.text)
        return TaskPair(change, groups[0][0].title, first, second, diff)

    async def _load_best(self, groups: Sequence[GroupSummary]) -> BestReply | None:
        """None where the group is gone by now, is of a task that the caller may not see, or its text is not kept."""
        reward, group, slot = max(self._iter_rewards(groups), key=lambda each: each[0])
        try:
            detail = await self.views.get_group(group.group_id)
        except GatewayError as error:
            if error.status in {404, 410}:
                return None
            raise
        if detail is None or slot >= len(detail.group.rollouts) or not allows_task(self.bounds, detail.task):
            return None
        rollout = detail.group.rollouts[slot]
        has_text = rollout.reduced is None or rollout.reduced.text is None
        return BestReply(group, slot + 1, reward, write_out(rollout.completion)) if has_text else None

    def _iter_rewards(self, groups: Sequence[GroupSummary]) -> Iterator[tuple[float, GroupSummary, int]]:
        for group in groups:
            for slot, score in enumerate(_pick_scores(self.scores.get(group.group_id), self.judge)):
                if (reward := compute_own_reward(score)) is not None:
                    yield reward, group, slot


# The page.

_PATH: Final = "/view/compare"
_MOST_STEPS: Final = 60
"""Of a run, to choose from."""
_SHOWN: Final = 8
"""Tasks of one page: their words are compared, which takes up to a tenth of a second each."""
_RESAMPLES: Final = 2_000
OWN: Final = "own"
"""The word for the judges that scored the groups when they were sent."""


@dataclass(frozen=True)
class CompareWords:
    """As sent. Without `second` it is the first run."""

    first: Word = ""
    second: Word = ""
    first_steps: Word = ""
    second_steps: Word = ""
    first_model: ModelWord = ""
    second_model: ModelWord = ""
    environment: Word = ""
    label: Word = ""
    judge: Word = ""

    def link(self, **more: object) -> str:
        words = {each.name: str(getattr(self, each.name)).strip() for each in fields(self)}
        return build_link(_PATH, **{**words, **more})


@dataclass(frozen=True)
class ScoredBy:
    """Whose scores are compared. `used` is None where the judge that was asked for did not score both sides, and empty
    for verifiers."""

    own: tuple[str, ...]
    others: tuple[str, ...]
    used: tuple[str, ...] | None

    @property
    def is_own(self) -> bool:
        return bool(self.own) and self.used == self.own


@dataclass(frozen=True)
class ComparedCheckpoints:
    """`comparison` is None where no task with a score is shared."""

    names: tuple[str, str]
    groups: tuple[int, int]
    """Of each side those that are compared; where no task is shared, all scored ones that were found."""
    is_whole: bool
    """No older group was left to look at."""
    tasks: int
    """Tasks that both have groups for, scored by anybody."""
    left_out: int
    scored_by: ScoredBy
    notice: str
    """What the reader has to know first; empty for nothing."""
    offline_judges: tuple[tuple[str, ...], tuple[str, ...]]
    """Of each side: judges that are only for trying the system."""
    comparison: Comparison | None
    environments: Mapping[str, float]
    """The mean difference of the tasks of each."""
    differences: tuple[float, ...]
    pairs: tuple[TaskPair, ...]
    next_skip: int | None


@dataclass(frozen=True)
class CompareQuestion:
    checkpoints: tuple[Checkpoint, Checkpoint]
    words: CompareWords
    bounds: KeyBounds
    skip: int

    @property
    def where(self) -> GroupFilter:
        where = GroupFilter(environment=clean_word(self.words.environment), label=clean_word(self.words.label))
        return where.within(self.bounds)


class ComparePage(Frozen):
    """The page as data: `compared` is None where two runs were not understood, and `problems` say why."""

    problems: tuple[str, ...]
    compared: ComparedCheckpoints | None


_Models = Mapping[str, str]
"""Models of judges, by the judges' names."""


def create_compare_router(pages: RunPages, renderer: Renderer) -> APIRouter:
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse, route_class=FilterRoute)

    @router.get(_PATH)
    @needs("read", "handler")
    async def compare(
        request: Request,
        bounds: CallerBounds,
        words: Annotated[CompareWords, Depends(CompareWords)],
        skip: Annotated[int, Query(ge=0, le=100_000)] = 0,
    ) -> Response:
        words = await _choose_steps(pages, words, bounds)
        chosen, problems = parse_checkpoints(words)
        for checkpoint in chosen:
            if not await _is_known(pages, checkpoint.run, bounds):
                names = await list_run_names(pages, bounds, MOST_CHOICES)
                near = suggest(checkpoint.run, names)
                return renderer.render_missing(request, "run", checkpoint.run, "/view/runs", "Show every run.", near)
        compared = None
        if len(chosen) == 2 and not problems:
            question = CompareQuestion((chosen[0], chosen[1]), words, bounds, skip)
            compared = await _compare_checkpoints(pages, question)
        shown = {
            "words": words,
            "problems": problems,
            "found": compared,
            "choices": await list_run_names(pages, bounds, MOST_CHOICES),
            "steps": [
                await _list_steps(pages, run, words.environment, bounds)
                for run in (words.first, words.second or words.first)
            ],
            "environments": pages.environments,
            "no_environment": explain_environment(words.environment, pages.environments),
            "says": _tell(chosen, compared),
            "skip": skip,
            **_build_charts(compared),
        }
        return renderer.render(request, "compare.html", shown, ComparePage(problems=tuple(problems), compared=compared))

    return router


async def _list_steps(pages: RunPages, run: str, environment: str, bounds: KeyBounds) -> list[int]:
    """Some steps of a run, in one environment where that is named, evenly spread, its first and last among them."""
    name = parse_run_name(run.strip())
    if name is None or not bounds.allows_run(name):
        return []
    where = replace(RollupFilter("step", clean_word(environment), purpose=None).within(bounds), runs=(name,))
    sampled = await pages.views.sample_steps(where, _MOST_STEPS)
    return sorted({rollup.key.step for rollup in sampled if rollup.key.step is not None})


async def _choose_steps(pages: RunPages, words: CompareWords, bounds: KeyBounds) -> CompareWords:
    """A run alone is compared by its first and its last step, and some steps of it with the last one that is not
    them."""
    others = (words.second, words.second_steps, words.first_model, words.second_model)
    if not words.first.strip() or any(word.strip() for word in others):
        return words
    steps = await _list_steps(pages, words.first, words.environment, bounds)
    if len(steps) < 2:
        return words
    first = words.first_steps.strip() or str(steps[0])
    try:
        is_last = StepRange.parse(first).last >= steps[-1]
    except ValueError:  # the page says so
        return words
    return replace(words, first_steps=first, second_steps=str(steps[0 if is_last else -1]))


def _tell(chosen: Sequence[Checkpoint], compared: ComparedCheckpoints | None) -> str:
    if len(chosen) < 2:
        return "Choose a run: its first and its last step are compared, or other steps, or another run."
    if compared is None:
        return "Nothing to compare yet."
    of_one_run = chosen[0].run == chosen[1].run
    names = [str(one.steps) if of_one_run and one.steps and not one.model else one.name for one in chosen]
    if compared.scored_by.used is None:
        return f"The judge that was asked for has not scored groups of both {names[0]} and {names[1]}."
    return tell_comparison(
        (names[0], names[1]), compared.comparison, compared.groups, compared.tasks, compared.environments
    )


async def _is_known(pages: RunPages, run: str, bounds: KeyBounds) -> bool:
    """What the caller may not see is not there."""
    if not bounds.allows_run(run):
        return False
    try:
        await pages.runs.require(run)
    except NotFound:
        return False
    return True


def parse_checkpoints(words: CompareWords) -> tuple[list[Checkpoint], list[str]]:
    """Both, or none where no run is named; and what was not understood."""
    first = clean_word(words.first)
    if first is None:
        return [], []
    second = clean_word(words.second) or first
    sent = (
        (first, words.first_steps, words.first_model),
        (second, words.second_steps, words.second_model),
    )
    checkpoints, problems = list[Checkpoint](), list[str]()
    for run, steps, model in sent:
        try:
            parsed = StepRange.parse(steps) if steps.strip() else None
        except ValueError as error:
            problems.append(escape_invisible(str(error)))
            parsed = None
        checkpoints.append(Checkpoint(parse_run_name(run) or run[:64], parsed, clean_word(model)))
    if checkpoints[0] == checkpoints[1] and not problems:
        problems.append("Both sides are the same. Choose another run, other steps or another model.")
    return checkpoints, problems


async def _compare_checkpoints(pages: RunPages, question: CompareQuestion) -> ComparedCheckpoints:
    checkpoints, skip = question.checkpoints, question.skip
    shared = await find_shared_tasks(pages.views, *checkpoints, question.where)
    scores = await _load_scores(pages.views, shared.list_group_ids())
    scored_by = _choose_judge(shared, scores, question.words.judge.strip(), pages.list_judge_models())
    groups = shared.count_groups()
    if not shared.tasks:  # of the second only those on the first's tasks were looked at
        other = await _scan(pages.views, checkpoints[1].narrow(question.where))
        groups = (shared.first.groups, other.groups)
    empty = _build_result(checkpoints, shared, scored_by, groups)
    if scored_by.used is None or not shared.tasks:
        return empty
    chosen = None if scored_by.used == scored_by.own else scored_by.used[0]
    now = pages.clock()
    measured = await asyncio.to_thread(
        _measure, empty, shared, lambda: _build_evaluations(checkpoints, shared, scores, chosen, now)
    )
    if measured is None:
        return empty
    compared, changes = measured
    reader = _ReplyReader(pages.views, question.bounds, shared, scores, chosen)
    loaded = [await reader.load_pair(change) for change in changes[skip : skip + _SHOWN]]  # in turn: each holds texts
    return replace(compared, pairs=tuple(loaded), next_skip=skip + _SHOWN if skip + _SHOWN < len(changes) else None)


def _measure(
    empty: ComparedCheckpoints, shared: SharedTasks, build: Callable[[], tuple[Evaluation, Evaluation]]
) -> tuple[ComparedCheckpoints, list[TaskChange]] | None:
    """With the figures, and the tasks with the largest differences first. None without a task with a score in both."""
    before, after = build()
    try:
        comparison, changes = compare_with_changes(before, after, Resampler(0, _RESAMPLES))
    except InvalidRequest:
        return None
    changes.sort(key=lambda each: (-abs(each.after - each.before), each.place))
    offline = (list_offline_judges(before), list_offline_judges(after))
    compared = replace(
        empty,
        notice=f"{empty.notice} {warn_of_offline_judges(before, after)}".strip(),
        offline_judges=offline,
        comparison=comparison,
        environments=_average_by_environment(shared, changes),
        differences=tuple(change.after - change.before for change in changes),
    )
    return compared, changes


def _average_by_environment(shared: SharedTasks, changes: Sequence[TaskChange]) -> Mapping[str, float]:
    moved: dict[str, list[float]] = {}
    for change in changes:
        environment = shared.first.by_task[change.task_id][0].environment
        moved.setdefault(environment, []).append(change.after - change.before)
    return {name: fmean(moved[name]) for name in sorted(moved)}


def warn_of_offline_judges(before: Evaluation, after: Evaluation) -> str:
    """Empty for none."""
    first, second = describe_offline_tasks(before), describe_offline_tasks(after)
    if first and second:
        return describe_offline_tasks(before, after)
    return f"First: {first}" if first else f"Second: {second}" if second else ""


def _choose_judge(shared: SharedTasks, scores: Mapping[str, StoredScores], judge: str, models: _Models) -> ScoredBy:
    """One of another model than the runs' own, unless somebody asks for those. Verifiers need no choice."""
    own = _list_own_judges(scores)
    others = _list_other_judges(shared, scores, own, models) if own else ()
    if not own or judge == OWN:
        return ScoredBy(own, others, own)
    if not judge:
        return ScoredBy(own, others, others[:1] or own)
    return ScoredBy(own, others, (judge,) if judge in others else None)


def _build_result(
    checkpoints: tuple[Checkpoint, Checkpoint], shared: SharedTasks, scored_by: ScoredBy, groups: tuple[int, int]
) -> ComparedCheckpoints:
    notice = ""
    if scored_by.is_own and scored_by.own != (OFFLINE_JUDGE,):  # that one has a warning of its own
        judges = ", ".join(scored_by.own)
        notice = (
            f"Scored by {judges}, as when the groups were sent: a model that was trained on a judge may only have "
            "learnt what that judge likes. Score both with a judge of another model: atropos-envs rescore --run "
            f"{checkpoints[0].run} --judge …"
        )
    return ComparedCheckpoints(
        names=(checkpoints[0].name, checkpoints[1].name),
        groups=groups,
        is_whole=shared.first.is_whole and shared.second.is_whole,
        tasks=len(shared.tasks),
        left_out=shared.left_out,
        scored_by=scored_by,
        notice=notice,
        offline_judges=((), ()),
        comparison=None,
        environments={},
        differences=(),
        pairs=(),
        next_skip=None,
    )


def _build_charts(compared: ComparedCheckpoints | None) -> dict[str, object]:
    """What the page draws beside the data."""
    if compared is None or compared.comparison is None:
        return {"differing": (), "labels": (), "scale": Scale(-1.0, 1.0), "columns": None, "texts": []}
    comparison = compared.comparison
    rows = (comparison.overall, *comparison.criteria)
    scale = fit_around_zero(row.difference for row in (*rows, *comparison.labels))
    return {
        "differing": rows,
        "labels": comparison.labels,
        "scale": scale,
        "columns": build_difference_histogram(compared.differences),
        "texts": [(_cut(pair.first), _cut(pair.second)) for pair in compared.pairs],
    }


def _cut(reply: BestReply | None) -> Excerpt | None:
    return None if reply is None else cut_excerpt(reply.text)
