"""The page of one group, in the order of interest: who and what, the completions, why these numbers, then the rest."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import TypeAdapter, ValidationError

from app.domain.groups import Group, GroupDetail, GroupFilter, GroupSummary
from app.domain.judging import Rubric
from app.domain.keeping import count_written_characters
from app.domain.labels import Label, ReplyLabel
from app.domain.rewards import compute_statistics
from app.domain.tasks import Completion, Message
from app.http.viewer.arithmetic import RewardSum, WinnerContrast, build_sums, contrast_best
from app.http.viewer.calls import build_tools
from app.http.viewer.cards import MessageLine, build_cards, build_lines
from app.http.viewer.group_filters import FilterQuery, build_filter
from app.http.viewer.rendering import Renderer
from app.http.viewer.retrieved_passages import build_retrieved
from app.http.viewer.scorings import build_columns
from app.http.viewer.word_diff import WordDiff, compare_words
from app.http.web.api_keys import CallerBounds
from app.http.web.lazy_routes import LazyRoute
from app.judges.explanation import GroupExplanation, explain_group
from app.judges.text_normalisation import strip_thoughts
from app.ports.views import GroupViews
from app.service.request_models import GroupId
from app.toolkit.bar_charts import build_bar_chart
from app.toolkit.display import as_json, cut_excerpt

_GROUP_ID: Final = TypeAdapter[str](GroupId)

FindRubric = Callable[[GroupDetail], Awaitable[Rubric | None]]
Slot = Annotated[int | None, Query(ge=1, le=100_000)]


ListLabels = Callable[[str, int], Awaitable[Sequence[Label]]]
MOST_LABELS: Final = 50
MOST_SAID: Final = 12
"""Replies and criteria of one label that are shown."""


async def list_no_labels(group_id: str, limit: int) -> Sequence[Label]:
    return ()


async def find_no_rubric(detail: GroupDetail) -> Rubric | None:
    return None


@dataclass(frozen=True)
class Asked:
    """Who was asked what: the character and the scene, where the task names them, and the last line before the
    completions."""

    character: str
    scene: str
    said: MessageLine | None
    before: tuple[MessageLine, ...]
    """The rest of the prompt."""


@dataclass(frozen=True)
class Reason:
    """Why the rewards are what they are. `is_known` is false where judges read the group and nothing says how their
    readings were put together."""

    sums: tuple[RewardSum, ...]
    contrast: WinnerContrast | None
    explanation: GroupExplanation | None
    is_known: bool


@dataclass(frozen=True)
class LabelLine:
    """What a person said of a group, with its completions as they are numbered on the page."""

    labeller: str
    at: datetime
    is_blind: bool
    """The queue chose the group."""
    order: str
    """Best first."""
    replies: tuple[str, ...]
    left_out: int
    comment: str


@dataclass(frozen=True)
class ComparedCompletions:
    """Two completions by their slots, and their words."""

    first: int
    second: int
    diff: WordDiff


def create_group_page_router(
    views: GroupViews, renderer: Renderer, find_rubric: FindRubric, list_labels: ListLabels = list_no_labels
) -> APIRouter:
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse, route_class=LazyRoute)

    @router.get("/view/groups/{group_id}")
    async def group(
        request: Request,
        group_id: str,
        bounds: CallerBounds,
        wanted: FilterQuery,
        at: Annotated[int | None, Query(ge=0, lt=2**53)] = None,
        first: Slot = None,
        second: Slot = None,
    ) -> Response:
        detail = await views.get_group(group_id) if _is_group_id(group_id) else None
        if detail is None:
            return renderer.render_missing(request, "group", group_id, "/view/groups", "Show the newest groups.")
        where = build_filter(wanted, None, bounds)
        newer, older = (None, None) if at is None else await _find_neighbours(views, where, at)
        why = await find_reason(detail, find_rubric)
        compared = await _compare(detail.group, first, second)
        values = {**_build_values(detail), "why": why, "compared": compared}
        labels = await list_labels(group_id, MOST_LABELS)
        lines = build_labels(labels, [one.rollout_id for one in detail.group.rollouts])
        values |= {"words": wanted, "at": at, "newer": newer, "older": older, "labels": lines}
        data = {"group": detail, "why": why, "compared": compared, "newer": newer, "older": older, "labels": lines}
        return renderer.render(request, "group.html", values, data)

    return router


def build_labels(labels: Sequence[Label], rollout_ids: Sequence[str]) -> tuple[LabelLine, ...]:
    slots = {rollout_id: str(slot) for slot, rollout_id in enumerate(rollout_ids, 1)}
    return tuple(_build_label(label, slots) for label in labels)


def _build_label(label: Label, slots: Mapping[str, str]) -> LabelLine:
    tiers = (" = ".join(slots.get(one, "?") for one in tier) for tier in label.order)
    said = [line for rollout_id, reply in label.replies.items() for line in _tell(reply, slots.get(rollout_id, "?"))]
    return LabelLine(
        labeller=label.labeller,
        at=label.created_at,
        is_blind=label.kind == "queue",
        order=" > ".join(tiers),
        replies=tuple(said[:MOST_SAID]),
        left_out=max(0, len(said) - MOST_SAID),
        comment=label.comment,
    )


def _tell(reply: ReplyLabel, slot: str) -> list[str]:
    levels = (f"{name} {'does not apply' if level is None else level}" for name, level in reply.levels.items())
    defect = [] if reply.defect is None else ["a defect" if reply.defect else "no defect"]
    return [f"{slot}: {one}" for one in (*levels, *defect)]


async def find_reason(detail: GroupDetail, find_rubric: FindRubric) -> Reason:
    group, judgements = detail.group, detail.judgements
    judged = any(score.judges and score.outcome == "scored" for score in group.scores)
    rubric = await find_rubric(detail) if judged else None
    explanation = None
    if rubric is not None:
        explanation = await asyncio.to_thread(explain_group, rubric, judgements, group.scores, _read_texts(group))
    return Reason(
        sums=build_sums(group.rollouts, judgements, explanation, rubric),
        contrast=contrast_best(group.rollouts),
        explanation=explanation,
        is_known=explanation is not None or not judged,
    )


def _read_texts(group: Group) -> dict[str, str]:
    """What judges saw of each candidate, where it is a text and is kept."""
    return {
        one.score.candidate: strip_thoughts(one.completion.text)
        for one in group.rollouts
        if one.score.candidate and one.completion.text is not None and one.reduced is None
    }


async def _compare(group: Group, first: int | None, second: int | None) -> ComparedCompletions | None:
    """None unless both are there."""
    count = len(group.rollouts)
    if first is None or second is None or first == second or max(first, second) > count:
        return None
    one, other = (write_out(group.rollouts[slot - 1].completion) for slot in (first, second))
    return ComparedCompletions(first, second, await asyncio.to_thread(compare_words, one, other))


def write_out(completion: Completion) -> str:
    """Its text, or its messages one below the other."""
    if completion.text is not None:
        return completion.text
    return "\n\n".join(_write_message(message) for message in completion.messages or ())


def _write_message(message: Message) -> str:
    calls = [f"{call.function.name}({call.function.arguments})" for call in message.tool_calls]
    return "\n".join([message.role, *([message.content] if message.content else []), *calls])


def _build_values(detail: GroupDetail) -> dict[str, object]:
    """The template values of `group.html`."""
    group, prompt = detail.group, detail.task.prompt
    scores = group.scores
    return {
        "group": group,
        "key": detail.task.key,
        "task_label": detail.task.label,
        "asked": _build_asked(detail),
        "statistics": compute_statistics(scores),
        "chart": build_bar_chart([score.reward for score in scores]),
        "cards": build_cards(group),
        "is_wide": any(one.completion.messages and _is_long(one.completion.messages) for one in group.rollouts),
        "tools": build_tools(prompt.tools),
        "metadata": cut_excerpt(as_json(prompt.metadata), 4000),
        "retrieved": build_retrieved(detail.task.key.context),
        "scorings": build_columns(detail),
    }


def _is_long(messages: Sequence[Message]) -> bool:
    return len(messages) > 2 or count_written_characters(messages) > 4_000


def _build_asked(detail: GroupDetail) -> Asked:
    told = detail.task.prompt.metadata
    lines = build_lines(detail.task.prompt.messages)
    last = next((place for place in reversed(range(len(lines))) if lines[place].role == "user"), None)
    named = told.get("character_name") or told.get("character") or detail.task.label or ""
    return Asked(
        character=str(named),
        scene=str(told.get("scene") or ""),
        said=None if last is None else lines[last],
        before=tuple(line for place, line in enumerate(lines) if place != last),
    )


def _is_group_id(text: str) -> bool:
    try:
        _GROUP_ID.validate_python(text)
    except ValidationError:
        return False
    return True


async def _find_neighbours(
    views: GroupViews, where: GroupFilter, at: int
) -> tuple[GroupSummary | None, GroupSummary | None]:
    """The groups right after and right before sequence `at` in the same listing, newest first."""
    near = where.model_copy(update={"order": None, "limit": 1, "counts": False})
    newer, older = await asyncio.gather(
        views.find_groups(near.model_copy(update={"after": at})),
        views.find_groups(near.model_copy(update={"before": at})),
    )
    return next(iter(newer.groups), None), next(iter(older.groups), None)
