"""The page of one group, in the order of interest: who and what, the completions, why these numbers, then the rest.

Everything that is shown is untrusted: models, games, judges and retrievers wrote it.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import JsonValue, TypeAdapter, ValidationError

from app.domain.groups import Group, GroupDetail, GroupFilter, GroupSummary, Rollout, Scoring
from app.domain.judging import Judgement, JudgingPurpose, Rubric, RubricLabel, Verdict, summarise_scores
from app.domain.keeping import PartDigest, ReducedCompletion, ReducedReading, count_written_characters
from app.domain.scores import Criterion, Score
from app.domain.tasks import Completion, Context, Message, ToolCall, ToolSpec
from app.http.viewer.arithmetic import RewardSum, WinnerContrast, build_sums, contrast_best, gather_equal
from app.http.viewer.rendering import FilterQuery, Renderer, ViewerParts, WordDiff, build_filter, compare_words
from app.http.viewer.sentences import tell_group, tell_reply
from app.http.web.api_keys import CallerBounds, needs
from app.http.web.routes import LazyRoute
from app.judges.explanation import GroupExplanation, explain_group
from app.service.requests import GroupId
from app.store.views import GroupViews
from app.toolkit.charts import UNIT, build_bar_chart
from app.toolkit.texts import (
    SHOWN_AT_ONCE,
    Excerpt,
    as_json,
    cut_excerpt,
    escape_invisible,
    format_number,
    format_signed,
    format_time,
    scale_heat,
)
from app.toolkit.tool_calls.calls import MalformedCall, read_json

# The page.

_GROUP_ID: Final = TypeAdapter[str](GroupId)

FindRubric = Callable[[GroupDetail], Awaitable[Rubric | None]]
_Slot = Annotated[int | None, Query(ge=1, le=100_000)]


async def find_no_rubric(detail: GroupDetail) -> Rubric | None:
    return None


@dataclass(frozen=True)
class Reason:
    """Why the rewards are what they are. `is_known` is false where judges read the group and how their readings were
    put together was not written down."""

    sums: tuple[RewardSum, ...]
    contrast: WinnerContrast | None
    explanation: GroupExplanation | None
    is_known: bool


@dataclass(frozen=True)
class ComparedCompletions:
    """Two completions by their slots, and their words."""

    first: int
    second: int
    diff: WordDiff


def create_group_page_router(
    views: GroupViews, renderer: Renderer, find_rubric: FindRubric, parts: ViewerParts
) -> APIRouter:
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse, route_class=LazyRoute)

    @router.get("/view/groups/{group_id}")
    @needs("read", "group")
    async def group(
        request: Request,
        group_id: str,
        bounds: CallerBounds,
        words: FilterQuery,
        at: Annotated[int | None, Query(ge=0, lt=2**53)] = None,
        first: _Slot = None,
        second: _Slot = None,
    ) -> Response:
        detail = await views.get_group(group_id) if _is_group_id(group_id) else None
        if detail is None:
            return renderer.render_missing(request, "group", group_id, "/view/groups", "Show the newest groups.")
        where = build_filter(words, None, bounds)
        newer, older = (None, None) if at is None else await _find_neighbours(views, where, at)
        why = await _find_reason(detail, find_rubric)
        compared = await _compare(detail.group, first, second)
        values: dict[str, object] = {**_build_values(detail), "why": why, "compared": compared}
        sections = [await show(detail.group) for show in parts.show_group]
        links = [link for find_link in parts.link_group if (link := find_link(detail.group)) is not None]
        values |= {"words": words, "at": at, "newer": newer, "older": older, "sections": sections, "links": links}
        data: dict[str, object] = {"group": detail, "why": why, "compared": compared, "newer": newer, "older": older}
        for section in sections:
            values |= section.values
            data |= section.data
        return renderer.render(request, "group.html", values, data)

    return router


async def _find_reason(detail: GroupDetail, find_rubric: FindRubric) -> Reason:
    group, judgements = detail.group, detail.judgements
    judged = any(score.judges and score.outcome == "scored" for score in group.scores)
    rubric = await find_rubric(detail) if judged else None
    explanation = None if detail.making is None else explain_group(detail.making, judgements)
    return Reason(
        sums=build_sums(group.rollouts, judgements, explanation, rubric),
        contrast=contrast_best(group.rollouts),
        explanation=explanation,
        is_known=explanation is not None or not judged,
    )


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


# Tools and tool calls.

MAX_ARGUMENTS: Final = 30
"""A call with more arguments is shown as JSON."""
_MAX_NAME_LENGTH: Final = 100
_VISIBLE_CHARACTERS: Final = 600
"""Characters of a value or a result that are shown before folding."""


@dataclass(frozen=True)
class CallView:
    """A tool call: `arguments` by name, or `written` if they are not a small object."""

    name: str
    arguments: tuple[tuple[str, Excerpt], ...]
    written: Excerpt | None


@dataclass(frozen=True)
class ResultView:
    """A tool's result; JSON is indented."""

    content: Excerpt
    failed: bool


@dataclass(frozen=True)
class ArgumentView:
    name: str
    kind: str
    required: bool
    description: str


@dataclass(frozen=True)
class ToolView:
    """A tool in the prompt; `arguments` come from `schema`."""

    name: str
    description: str
    arguments: tuple[ArgumentView, ...]
    schema: Excerpt


def build_call(call: ToolCall) -> CallView:
    arguments = call.function.arguments
    value = _parse_json(arguments) if isinstance(arguments, str) else arguments
    name = _shorten_name(call.function.name)
    if isinstance(value, dict) and len(value) <= MAX_ARGUMENTS:
        return CallView(
            name,
            tuple(
                (_shorten_name(key), cut_excerpt(_write_json(one), _VISIBLE_CHARACTERS)) for key, one in value.items()
            ),
            None,
        )
    return CallView(
        name, (), cut_excerpt(arguments if isinstance(arguments, str) else as_json(arguments), _VISIBLE_CHARACTERS)
    )


def _build_result(content: str) -> ResultView:
    """A tool's result; `failed` if it is an object with an `error`."""
    value = _parse_json(content)
    laid_out = as_json(value) if isinstance(value, dict | list) else content
    return ResultView(cut_excerpt(laid_out, _VISIBLE_CHARACTERS), isinstance(value, dict) and bool(value.get("error")))


def build_tools(tools: Sequence[ToolSpec]) -> tuple[ToolView, ...]:
    return tuple(_build_tool(tool) for tool in tools)


def _build_tool(tool: ToolSpec) -> ToolView:
    schema = tool.function.parameters
    properties, required = schema.get("properties"), schema.get("required")
    needed = required if isinstance(required, list) else []
    members = properties if isinstance(properties, dict) else {}
    return ToolView(
        name=_shorten_name(tool.function.name),
        description=tool.function.description,
        arguments=tuple(_build_argument(name, one, required=name in needed) for name, one in members.items()),
        schema=cut_excerpt(as_json(schema)),
    )


def _build_argument(name: str, described: JsonValue, *, required: bool) -> ArgumentView:
    schema = described if isinstance(described, dict) else {}
    description = schema.get("description")
    return ArgumentView(
        _shorten_name(name),
        _describe_type(schema),
        required,
        str(description or ""),
    )


def _describe_type(schema: Mapping[str, JsonValue]) -> str:
    """Describes a type: name, choices and default."""
    choices = schema.get("enum")
    if isinstance(choices, list):
        words = " | ".join(map(_write_json, choices))
    else:
        kind = schema.get("type")
        words = " | ".join(map(str, kind)) if isinstance(kind, list) else str(kind or "any")
        inside = schema.get("items")
        words += f" of {_describe_type(inside)}" if isinstance(inside, dict) else ""
    return f"{words} = {_write_json(schema['default'])}" if "default" in schema else words


def _write_json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)


def _parse_json(text: str) -> JsonValue:
    """The parsed JSON; None if it is invalid or ambiguous."""
    try:
        return read_json(text)
    except MalformedCall:
        return None


def _shorten_name(name: str) -> str:
    return escape_invisible(name if len(name) <= _MAX_NAME_LENGTH else f"{name[:_MAX_NAME_LENGTH]}…")


# Completions, and the readings of judges.

OFFLINE_JUDGE = "offline"
"""The judge without a model: only for trying the system, not for training."""


@dataclass(frozen=True)
class MessageLine:
    """One message of a conversation."""

    role: str
    name: str
    content: Excerpt | None
    calls: tuple[CallView, ...]
    result: ResultView | None = None
    """A tool's result, instead of `content`."""


@dataclass(frozen=True)
class CriterionChip:
    """A criterion with its colour; `heat` is None if it did not apply."""

    name: str
    value: str
    heat: int | None
    weight: str
    note: str


@dataclass(frozen=True)
class CompletionCard:
    """One completion with its score."""

    rank: str
    slot: int
    copies: tuple[int, ...]
    """The places of further completions that are the same, with the same score."""
    why: int
    """The place under which the arithmetic of the reward stands."""
    rollout_id: str
    candidate: str
    """The id in judgements; empty if no judge saw it."""
    outcome: str
    why_not: str
    """The code of why there is no reward."""
    reward: str
    share: float
    """The reward, for the meter."""
    heat: int | None
    advantage: str
    reason: str
    """Why it earned that, in a sentence."""
    reason_more: str
    calibrated: str
    """Calibrated value and error, or why there is none; empty where the group was not drawn."""
    turn_rewards: str
    """The parts of the reward by turn; empty where the run has none."""
    chips: tuple[CriterionChip, ...]
    flags: tuple[str, ...]
    gated: bool
    rationale: Excerpt | None
    """What its judge or verifier wrote, where that is more than the sentence."""
    judges: tuple[str, ...]
    finish_reason: str
    tokens: int | None
    text: Excerpt | None
    lines: tuple[MessageLine, ...]
    not_kept: tuple[str, ...]
    """A line for each part that is not kept."""


@dataclass(frozen=True)
class PresentedCandidate:
    """A candidate of a judgement, and the positions of its completions in the request, if they are known."""

    id: str
    slots: tuple[int, ...]


@dataclass(frozen=True)
class JudgeReadingView:
    """One judge's answer to one presentation of the group. `ranking` is best first, with ties in one tuple."""

    judgement: Judgement
    offline: bool
    purpose: str
    """Empty for a reading that scores."""
    order: tuple[PresentedCandidate, ...]
    ranking: tuple[tuple[PresentedCandidate, ...], ...]
    cost: str
    latency: str
    verdicts: tuple[tuple[PresentedCandidate, Verdict, tuple[CriterionChip, ...]], ...]
    prompt: Excerpt | None
    raw: Excerpt | None
    not_kept: tuple[str, ...]


def build_cards(group: Group) -> tuple[CompletionCard, ...]:
    """Best first; completions without a reward last, in request order. Equal ones with equal scores are one card."""
    scores = group.scores
    advantages = summarise_scores(scores).compute_advantages()
    order = sorted(range(len(scores)), key=lambda slot: _compute_best_first_key(scores[slot]))
    ranks = dict(zip(order, _compute_ranks([scores[slot] for slot in order]), strict=True))
    together = gather_equal(order, lambda one, other: _are_same(group.rollouts[one], group.rollouts[other]))
    why = [next(slot for slot, other in enumerate(scores, 1) if other == score) for score in scores]
    return tuple(
        _build_card(group.rollouts[slots[0]], slots, ranks[slots[0]], advantages[slots[0]], why[slots[0]])
        for slots in together
    )


def _are_same(one: Rollout, other: Rollout) -> bool:
    # Of a reduced completion the text is gone, so nobody can say that it is the same.
    is_whole = one.reduced is None and other.reduced is None
    return is_whole and one.score == other.score and one.completion.identity == other.completion.identity


def _compute_best_first_key(score: Score) -> tuple[bool, float]:
    return score.reward is None, -(score.reward or 0.0)


def _find_share(score: Score) -> float:
    """Of the whole that a bar may show: the reward, or where it lies in the range of another's environment."""
    reward = score.reward or 0.0
    if not 0.0 <= reward <= 1.0 and score.absolute is not None:
        return score.absolute
    return UNIT.place(reward)


def _compute_ranks(ordered: Sequence[Score]) -> list[str]:
    """Equal rewards share a rank."""
    rewards = [score.reward for score in ordered]
    return ["" if reward is None else str(rewards.index(reward) + 1) for reward in rewards]


def _build_card(rollout: Rollout, slots: Sequence[int], rank: str, advantage: float | None, why: int) -> CompletionCard:
    score, completion, slot = rollout.score, rollout.completion, slots[0] + 1
    reason = tell_reply(score, is_offline=OFFLINE_JUDGE in score.judges)
    return CompletionCard(
        rank=rank,
        slot=slot,
        copies=tuple(copy + 1 for copy in slots[1:]),
        why=why,
        rollout_id=rollout.rollout_id,
        candidate=escape_invisible(score.candidate),
        outcome=score.outcome,
        why_not=score.reason or "",
        reward=format_number(score.reward),
        share=_find_share(score),
        heat=None if score.reward is None else scale_heat(_find_share(score)),
        advantage="" if advantage is None else format_signed(advantage),
        reason=reason.sentence,
        reason_more=reason.more,
        calibrated=_write_calibrated(score),
        turn_rewards=", ".join(format_signed(part, 3) for part in score.turn_rewards),
        chips=tuple(_build_chip(one.name, one.value, one) for one in score.criteria),
        flags=tuple(map(escape_invisible, score.flags)),
        gated=score.gate == 0,
        rationale=cut_excerpt(reason.rationale, 600) if reason.rationale else None,
        judges=score.judges,
        finish_reason=escape_invisible(completion.finish_reason or ""),
        tokens=None if completion.token_ids is None else len(completion.token_ids),
        text=None if completion.text is None else cut_excerpt(completion.text),
        lines=build_lines(completion.messages or ()),
        not_kept=_describe_missing(rollout.reduced, ("text", "thought", "tokens", "logprobs")),
    )


def _describe_missing(reduced: ReducedCompletion | ReducedReading | None, names: Sequence[str]) -> tuple[str, ...]:
    if reduced is None:
        return ()
    who = "the run keeps" if reduced.by == "run" else "the settings keep"
    digests: list[tuple[str, PartDigest | None]] = [(name, getattr(reduced, name)) for name in names]
    return tuple(
        f"{name}: {who} a digest alone since {reduced.at:%Y-%m-%d %H:%M} UTC"
        f" ({_describe_size(digest)}, sha256 {digest.sha256[:16]}…)"
        for name, digest in digests
        if digest is not None
    )


def _describe_size(digest: PartDigest) -> str:
    return f"{digest.count:,} numbers" if digest.characters is None else f"{digest.characters:,} characters"


def _write_calibrated(score: Score) -> str:
    """Empty where the group was not drawn."""
    if score.calibrated is None:
        return "" if score.uncalibrated is None else f"not calibrated: {score.uncalibrated.replace('_', ' ')}"
    return f"calibrated {format_number(score.calibrated, 2)} ± {format_number(score.calibrated_error, 2)}"


def _build_chip(name: str, value: float | None, criterion: Criterion | None = None) -> CriterionChip:
    """A reading alone has no weight and no note."""
    return CriterionChip(
        name=name.replace("_", " "),
        value="n/a" if value is None else format_number(value, 2),
        heat=None if value is None else scale_heat(value),
        weight="" if criterion is None else format_number(criterion.weight, 2),
        note="" if criterion is None else escape_invisible(criterion.note),
    )


def build_lines(messages: Sequence[Message], at_once: int = SHOWN_AT_ONCE) -> tuple[MessageLine, ...]:
    """`at_once` is the number of characters per message that are not folded."""
    return tuple(_build_line(message, at_once) for message in messages)


def _build_line(message: Message, at_once: int) -> MessageLine:
    content = message.content
    answer = _build_result(content) if message.role == "tool" and content is not None else None
    return MessageLine(
        role=message.role,
        name=escape_invisible(message.name or ""),
        content=None if content is None or answer is not None else cut_excerpt(content, at_once),
        calls=tuple(map(build_call, message.tool_calls)),
        result=answer,
    )


def split_last_said(messages: Sequence[Message]) -> tuple[MessageLine | None, tuple[MessageLine, ...]]:
    """The last message of the user, and all others."""
    lines = build_lines(messages)
    last = next((index for index in reversed(range(len(lines))) if lines[index].role == "user"), None)
    others = tuple(line for index, line in enumerate(lines) if index != last)
    return (None if last is None else lines[last]), others


def build_readings(judgements: Sequence[Judgement], group: Group) -> tuple[JudgeReadingView, ...]:
    slots: dict[str, list[int]] = {}
    for slot, rollout in enumerate(group.rollouts, start=1):
        if rollout.score.candidate:
            slots.setdefault(rollout.score.candidate, []).append(slot)
    return tuple(_build_reading(judgement, slots) for judgement in judgements)


_PURPOSES: Final[Mapping[JudgingPurpose, str]] = {
    "score": "",
    "calibration": "for calibrated values alone: read beside replies of known level",
    "references": "wrote replies of known level for this scene",
    "player": "played the player",
}


def _build_reading(judgement: Judgement, slots: Mapping[str, Sequence[int]]) -> JudgeReadingView:
    def find_candidate(candidate: str) -> PresentedCandidate:
        return PresentedCandidate(candidate, tuple(slots.get(candidate, ())))

    return JudgeReadingView(
        judgement=judgement,
        offline=judgement.judge == OFFLINE_JUDGE,
        purpose=_PURPOSES[judgement.purpose],
        order=tuple(map(find_candidate, judgement.order)),
        ranking=tuple(tuple(map(find_candidate, tied)) for tied in judgement.ranking),
        cost="" if judgement.cost_usd is None else f"${judgement.cost_usd:.4f}",
        latency=f"{judgement.latency_seconds:.2f} s",
        verdicts=tuple(
            (find_candidate(one.candidate), one, tuple(_build_chip(*each) for each in one.scores.items()))
            for one in judgement.verdicts
        ),
        prompt=cut_excerpt(judgement.prompt, 4000) if judgement.prompt else None,
        raw=cut_excerpt(judgement.raw, 4000) if judgement.raw else None,
        not_kept=_describe_missing(judgement.reduced, ("prompt", "raw")),
    )


# Scorings side by side: the original first, then the later ones.


@dataclass(frozen=True)
class ScoringCell:
    """One completion's score in one scoring. `change` is relative to the original; empty if either has no reward."""

    slot: int
    reward: str
    heat: int | None
    change: str
    why_not: str
    """`pending`, or the reason for the missing reward."""
    rationale: str


@dataclass(frozen=True)
class ScoringColumn:
    """One scoring of all completions, in request order."""

    name: str
    original: bool
    judges: tuple[str, ...]
    offline: bool
    mode: str
    """Empty without judges, and for the original, which has its run's options."""
    weight: str
    rubric: str
    """Name, version and digest of a rubric that was given; empty for the environment's own."""
    on_truncated: str
    created_at: datetime
    mean: str
    flags: tuple[str, ...]
    cells: tuple[ScoringCell, ...]
    readings: tuple[JudgeReadingView, ...]

    @property
    def readings_count(self) -> int:
        return len(self.readings)


def _build_columns(detail: GroupDetail) -> tuple[ScoringColumn, ...]:
    """The original and the later scorings."""
    return (
        _build_original_column(detail),
        *(_build_later_column(number, one, detail.group) for number, one in enumerate(detail.scorings, 1)),
    )


def _build_original_column(detail: GroupDetail) -> ScoringColumn:
    scores = detail.group.scores
    judges = tuple(dict.fromkeys(judge for score in scores for judge in score.judges))
    return ScoringColumn(
        name="original",
        original=True,
        judges=judges,
        offline=OFFLINE_JUDGE in judges,
        mode="",
        weight="",
        rubric="",
        on_truncated="",
        created_at=detail.group.created_at,
        mean=format_number(summarise_scores(scores).mean),
        flags=detail.group.flags,
        cells=tuple(_build_cell(slot, score, None) for slot, score in enumerate(scores, 1)),
        readings=build_readings(detail.judgements, detail.group),
    )


def _build_later_column(number: int, scoring: Scoring, group: Group) -> ScoringColumn:
    return ScoringColumn(
        name=f"scoring {number}",
        original=False,
        judges=scoring.judges,
        offline=OFFLINE_JUDGE in scoring.judges,
        mode=scoring.mode or "",
        weight="" if scoring.options.relative_weight is None else format_number(scoring.options.relative_weight, 2),
        rubric="" if scoring.rubric is None else _format_rubric(scoring.rubric),
        on_truncated=scoring.options.on_truncated,
        created_at=scoring.created_at,
        mean=format_number(summarise_scores(scoring.scores).mean),
        flags=scoring.flags,
        cells=tuple(
            _build_cell(slot, score, before.reward)
            for slot, (score, before) in enumerate(zip(scoring.scores, group.scores, strict=True), 1)
        ),
        readings=build_readings(scoring.judgements, _apply_scores(group, scoring)),
    )


def _format_rubric(rubric: RubricLabel) -> str:
    return f"rubric {rubric.name} {rubric.version} ({rubric.digest[:8]})"


def _build_cell(slot: int, score: Score, before: float | None) -> ScoringCell:
    return ScoringCell(
        slot=slot,
        reward=format_number(score.reward),
        heat=None if score.reward is None else scale_heat(_find_share(score)),
        change=format_signed(score.reward - before) if score.reward is not None and before is not None else "",
        why_not="" if score.outcome == "scored" else score.reason or score.outcome,
        rationale=score.rationale[:300],
    )


def _apply_scores(group: Group, scoring: Scoring) -> Group:
    """The group with the scoring's scores, which have the candidate ids that its judges saw."""
    rollouts = tuple(
        rollout.model_copy(update={"score": score})
        for rollout, score in zip(group.rollouts, scoring.scores, strict=True)
    )
    return group.model_copy(update={"rollouts": rollouts})


# Retrieved and withheld passages.

_REASONS: Final[Mapping[str, str]] = {
    "future": "later than as_of",
    "not_visible": "not visible to the character",
    "superseded": "superseded",
    "not_yet_valid": "not yet valid",
    "no_longer_valid": "no longer valid",
}
"""Reasons of the built-in retriever; those of others are shown unchanged."""


@dataclass(frozen=True)
class PassageView:
    id: str
    source: str
    time: str
    text: Excerpt


@dataclass(frozen=True)
class WithheldView:
    """A withheld passage; `text` is None if the retriever gave none."""

    id: str
    reason: str
    text: Excerpt | None
    leak_terms: str


@dataclass(frozen=True)
class RetrievedView:
    as_of: str
    told: tuple[PassageView, ...]
    held: tuple[WithheldView, ...]
    failure: str


def build_retrieved(context: Context | None) -> RetrievedView | None:
    """The retrieved passages of a task; None if nothing was retrieved for it."""
    if context is None:
        return None
    return RetrievedView(
        as_of=format_time(context.as_of),
        told=tuple(
            PassageView(
                escape_invisible(passage.id),
                escape_invisible(passage.source),
                format_time(passage.time),
                cut_excerpt(passage.text, _VISIBLE_CHARACTERS),
            )
            for passage in context.passages
        ),
        held=tuple(
            WithheldView(
                id=escape_invisible(item.id),
                reason=describe_reason(item.reason),
                text=cut_excerpt(item.text, _VISIBLE_CHARACTERS) if item.text else None,
                leak_terms=escape_invisible(", ".join(item.leak_terms)),
            )
            for item in context.withheld
        ),
        failure=escape_invisible(context.failure or ""),
    )


def describe_reason(word: str) -> str:
    return _REASONS.get(word, escape_invisible(word.replace("_", " ")))


# Values of the template.


@dataclass(frozen=True)
class Asked:
    """Who was asked what: the character and the scene, where the task names them, and the last line before the
    completions."""

    character: str
    scene: str
    said: MessageLine | None
    before: tuple[MessageLine, ...]
    """The rest of the prompt."""


def _build_values(detail: GroupDetail) -> dict[str, object]:
    """The template values of `group.html`."""
    group, prompt = detail.group, detail.task.prompt
    scores = group.scores
    summary = summarise_scores(scores)
    return {
        "group": group,
        "key": detail.task.key,
        "task_label": detail.task.label,
        "asked": _build_asked(detail),
        "statistics": summary,
        "says": tell_group(scores, summary, group.purpose),
        "offline": any(OFFLINE_JUDGE in score.judges for score in scores),
        "chart": build_bar_chart([score.reward for score in scores]),
        "cards": build_cards(group),
        "is_wide": any(one.completion.messages and _is_long(one.completion.messages) for one in group.rollouts),
        "tools": build_tools(prompt.tools),
        "metadata": cut_excerpt(as_json(prompt.metadata), 4000),
        "retrieved": build_retrieved(detail.task.key.context),
        "scorings": _build_columns(detail),
    }


def _is_long(messages: Sequence[Message]) -> bool:
    return len(messages) > 2 or count_written_characters(messages) > 4_000


def _build_asked(detail: GroupDetail) -> Asked:
    metadata = detail.task.prompt.metadata
    said, before = split_last_said(detail.task.prompt.messages)
    character = metadata.get("character_name") or metadata.get("character") or detail.task.label or ""
    return Asked(
        character=str(character),
        scene=str(metadata.get("scene") or ""),
        said=said,
        before=before,
    )
