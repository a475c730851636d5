"""The page that compares two checkpoints: on the tasks of both, who is ahead by how much, then task by task."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import HTMLResponse

from app.domain.access import KeyBounds
from app.domain.errors import InvalidRequest, NotFound
from app.domain.groups import GroupFilter, StoredScores
from app.domain.runs import StepRange
from app.domain.suggestions import suggest
from app.domain.values import Frozen
from app.evaluation.attempts import Evaluation
from app.evaluation.charts import build_whisker, fit_around_zero
from app.evaluation.comparison import Comparison, TaskChange, compare_with_changes
from app.evaluation.report_builder import OFFLINE_MEANING, list_offline_judges
from app.evaluation.resampling import Resampler
from app.http.viewer.checkpoints import (
    Checkpoint,
    SharedTasks,
    build_evaluations,
    find_shared_tasks,
    list_other_judges,
    list_own_judges,
    load_scores,
)
from app.http.viewer.compared_replies import BestReply, ReplyReader, TaskPair
from app.http.viewer.forms import FilterRoute
from app.http.viewer.group_filters import ModelWord, Word, clean_word
from app.http.viewer.rendering import Renderer, build_link
from app.http.viewer.run_pages import MOST_CHOICES, RunPages, list_run_names, parse_run_name
from app.http.web.api_keys import CallerBounds
from app.toolkit.bar_charts import build_difference_histogram
from app.toolkit.charts import Scale
from app.toolkit.display import Excerpt, cut_excerpt, escape_invisible

PATH: Final = "/view/compare"
SHOWN: Final = 8
"""Tasks of one page: their words are compared, which takes up to a tenth of a second each."""
RESAMPLES: Final = 2_000
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
        given = {each.name: str(getattr(self, each.name)).strip() for each in fields(self)}
        return build_link(PATH, **{**given, **more})


@dataclass(frozen=True)
class ScoredBy:
    """Whose scores are compared. `used` is None where somebody has to choose, and empty for verifiers."""

    own: tuple[str, ...]
    others: tuple[str, ...]
    used: tuple[str, ...] | None

    @property
    def is_own(self) -> bool:
        return bool(self.own) and self.used == self.own


@dataclass(frozen=True)
class ComparedCheckpoints:
    """`comparison` is None where no task is shared, or somebody has to choose a judge first."""

    names: tuple[str, str]
    looked_at: tuple[int, int]
    is_whole: bool
    tasks: int
    """Tasks that both have groups for, scored by anybody."""
    left_out: int
    scored_by: ScoredBy
    notice: str
    """What the reader has to know first; empty for nothing."""
    offline_judges: tuple[tuple[str, ...], tuple[str, ...]]
    """Of each side: judges that are only for trying the system."""
    comparison: Comparison | None
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
        return GroupFilter(
            environment=clean_word(self.words.environment),
            label=clean_word(self.words.label),
            environments=self.bounds.environments,
            runs=self.bounds.runs,
        )


class ComparePage(Frozen):
    """The page as data: `compared` is None where two runs were not understood, and `problems` say why."""

    problems: tuple[str, ...]
    compared: ComparedCheckpoints | None


Models = Mapping[str, str]
"""Models of judges, by the judges' names."""


def create_compare_router(pages: RunPages, renderer: Renderer) -> APIRouter:
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse, route_class=FilterRoute)

    @router.get(PATH)
    async def compare(
        request: Request,
        bounds: CallerBounds,
        words: Annotated[CompareWords, Depends(CompareWords)],
        skip: Annotated[int, Query(ge=0, le=100_000)] = 0,
    ) -> Response:
        chosen, problems = parse_checkpoints(words)
        for checkpoint in chosen:
            if not await _is_known(pages, checkpoint.run, bounds):
                names = await list_run_names(pages, bounds, MOST_CHOICES)
                near = suggest(checkpoint.run, names)
                return renderer.render_missing(request, "run", checkpoint.run, "/view/runs", "Show every run.", near)
        found = None
        if len(chosen) == 2 and not problems:
            asked = CompareQuestion((chosen[0], chosen[1]), words, bounds, skip)
            found = await compare_checkpoints(pages, asked)
        shown = {
            "words": words,
            "problems": problems,
            "found": found,
            "choices": await list_run_names(pages, bounds, MOST_CHOICES),
            "skip": skip,
            **_build_charts(found),
        }
        return renderer.render(request, "compare.html", shown, ComparePage(problems=tuple(problems), compared=found))

    return router


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
    found, problems = list[Checkpoint](), list[str]()
    for run, steps, model in sent:
        try:
            parsed = StepRange.parse(steps) if steps.strip() else None
        except ValueError as error:
            problems.append(escape_invisible(str(error)))
            parsed = None
        found.append(Checkpoint(parse_run_name(run) or run[:64], parsed, clean_word(model)))
    if found[0] == found[1] and not problems:
        problems.append("Both sides are the same: choose another run, or other steps or another model of this one.")
    return found, problems


async def compare_checkpoints(pages: RunPages, asked: CompareQuestion) -> ComparedCheckpoints:
    checkpoints, skip = asked.checkpoints, asked.skip
    shared = await find_shared_tasks(pages.views, *checkpoints, asked.where)
    scores = await load_scores(pages.views, shared.list_group_ids())
    scored_by = _choose_judge(shared, scores, asked.words.judge.strip(), pages.list_judge_models())
    empty = _build_result(checkpoints, shared, scored_by)
    if scored_by.used is None or not shared.tasks:
        return empty
    chosen = None if scored_by.used == scored_by.own else scored_by.used[0]
    now = pages.clock()
    measured = await asyncio.to_thread(
        _measure, empty, lambda: build_evaluations(checkpoints, shared, scores, chosen, now)
    )
    if measured is None:
        return empty
    compared, changes = measured
    reader = ReplyReader(pages.views, asked.bounds, shared, scores, chosen)
    loaded = [await reader.load_pair(change) for change in changes[skip : skip + SHOWN]]  # in turn: each holds texts
    return replace(compared, pairs=tuple(loaded), next_skip=skip + SHOWN if skip + SHOWN < len(changes) else None)


def _measure(
    empty: ComparedCheckpoints, build: Callable[[], tuple[Evaluation, Evaluation]]
) -> tuple[ComparedCheckpoints, list[TaskChange]] | None:
    """With the figures, and the tasks with the largest differences first. None without a task with a score in both."""
    before, after = build()
    try:
        comparison, changes = compare_with_changes(before, after, Resampler(0, RESAMPLES))
    except InvalidRequest:
        return None
    changes.sort(key=lambda each: (-abs(each.after - each.before), each.place))
    offline = (list_offline_judges(before), list_offline_judges(after))
    compared = replace(
        empty,
        notice=f"{empty.notice} {warn_of_offline_judges(*offline)}".strip(),
        offline_judges=offline,
        comparison=comparison,
        differences=tuple(change.after - change.before for change in changes),
    )
    return compared, changes


def warn_of_offline_judges(first: Sequence[str], second: Sequence[str]) -> str:
    """Empty for none."""
    if not first and not second:
        return ""
    sides = "Both sides were" if first and second else "The first side was" if first else "The second side was"
    return f"{sides} scored by {', '.join(sorted({*first, *second}))}, which {OFFLINE_MEANING}"


def _choose_judge(shared: SharedTasks, scores: Mapping[str, StoredScores], judge: str, models: Models) -> ScoredBy:
    """One of another model than the runs' own, unless somebody asks for those. Verifiers need no choice."""
    own = list_own_judges(scores)
    others = list_other_judges(shared, scores, own, models) if own else ()
    if not own or judge == OWN:
        return ScoredBy(own, others, own)
    if judge in others:
        return ScoredBy(own, others, (judge,))
    return ScoredBy(own, others, others[:1] if others and not judge else None)


def _build_result(
    checkpoints: tuple[Checkpoint, Checkpoint], shared: SharedTasks, scored_by: ScoredBy
) -> ComparedCheckpoints:
    notice = ""
    if scored_by.is_own:
        judges = ", ".join(scored_by.own)
        notice = (
            f"Scored by {judges}, by which these groups were scored when they were sent: a model that was trained on a "
            "judge may only have learnt what that judge likes."
        )
    return ComparedCheckpoints(
        names=(checkpoints[0].name, checkpoints[1].name),
        looked_at=(shared.first.looked_at, shared.second.looked_at),
        is_whole=shared.first.is_whole and shared.second.is_whole,
        tasks=len(shared.tasks),
        left_out=shared.left_out,
        scored_by=scored_by,
        notice=notice,
        offline_judges=((), ()),
        comparison=None,
        differences=(),
        pairs=(),
        next_skip=None,
    )


def _build_charts(found: ComparedCheckpoints | None) -> dict[str, object]:
    """What the page draws beside the data."""
    if found is None or found.comparison is None:
        return {"differing": (), "labels": (), "scale": Scale(-1.0, 1.0), "columns": None, "texts": []}
    comparison = found.comparison
    rows = (comparison.overall, *comparison.criteria)
    scale = fit_around_zero(row.difference for row in (*rows, *comparison.labels))
    return {
        "differing": [(row, build_whisker(row.difference, scale)) for row in rows],
        "labels": [(row, build_whisker(row.difference, scale)) for row in comparison.labels],
        "scale": scale,
        "columns": build_difference_histogram(found.differences),
        "texts": [(_cut(pair.first), _cut(pair.second)) for pair in found.pairs],
    }


def _cut(reply: BestReply | None) -> Excerpt | None:
    return None if reply is None else cut_excerpt(reply.text)
