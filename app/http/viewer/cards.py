"""A stored group as values for the page's template."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.domain.groups import Group, Rollout
from app.domain.judging import Judgement, JudgingPurpose, Verdict
from app.domain.keeping import PartDigest, ReducedCompletion, ReducedReading
from app.domain.rewards import compute_statistics
from app.domain.scores import Criterion, Score
from app.domain.tasks import Message
from app.http.viewer.calls import CallView, ResultView, build_call, build_result
from app.toolkit.display import (
    SHOWN_AT_ONCE,
    Excerpt,
    cut_excerpt,
    escape_invisible,
    format_number,
    format_signed,
    scale_heat,
)

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
    reason: str
    reward: str
    share: float
    """The reward, for the meter."""
    heat: int | None
    advantage: str
    parts: tuple[tuple[str, str], ...]
    sum: str
    """How a judged reward is worked out; empty if a verifier decided or a gate failed."""
    calibrated: str
    """Calibrated value and error, or why there is none; empty where the group was not drawn."""
    chips: tuple[CriterionChip, ...]
    flags: tuple[str, ...]
    gated: bool
    rationale: Excerpt | None
    judges: tuple[str, ...]
    offline: bool
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
    advantages = compute_statistics(scores).advantages
    order = sorted(range(len(scores)), key=lambda slot: _compute_best_first_key(scores[slot]))
    ranks = dict(zip(order, _compute_ranks([scores[slot] for slot in order]), strict=True))
    together: list[list[int]] = []
    for slot in order:
        same = next((slots for slots in together if _are_same(group.rollouts[slots[0]], group.rollouts[slot])), None)
        if same is None:
            together.append([slot])
        else:
            same.append(slot)
    why = [next(slot for slot, other in enumerate(scores, 1) if other == score) for score in scores]
    return tuple(
        _build_card(group.rollouts[slots[0]], slots, ranks[slots[0]], advantages[slots[0]], why[slots[0]])
        for slots in together
    )


def _are_same(one: Rollout, other: Rollout) -> bool:
    kept = one.reduced is None and other.reduced is None
    return kept and one.score == other.score and one.completion.identity == other.completion.identity


def _compute_best_first_key(score: Score) -> float:
    return 1.0 if score.reward is None else -score.reward


def _compute_ranks(ordered: Sequence[Score]) -> list[str]:
    """Equal rewards share a rank."""
    rewards = [score.reward for score in ordered]
    return ["" if reward is None else str(rewards.index(reward) + 1) for reward in rewards]


def _build_card(rollout: Rollout, slots: Sequence[int], rank: str, advantage: float | None, why: int) -> CompletionCard:
    score, completion, slot = rollout.score, rollout.completion, slots[0] + 1
    return CompletionCard(
        rank=rank,
        slot=slot,
        copies=tuple(copy + 1 for copy in slots[1:]),
        why=why,
        rollout_id=rollout.rollout_id,
        candidate=escape_invisible(score.candidate),
        outcome=score.outcome,
        reason=score.reason or "",
        reward=format_number(score.reward),
        share=score.reward or 0.0,
        heat=None if score.reward is None else scale_heat(score.reward),
        advantage="" if advantage is None else format_signed(advantage),
        parts=_list_score_parts(score),
        sum=_write_sum(score),
        calibrated=_write_calibrated(score),
        chips=tuple(map(_build_chip, score.criteria)),
        flags=tuple(map(escape_invisible, score.flags)),
        gated=score.gate == 0,
        rationale=cut_excerpt(score.rationale, 600) if score.rationale else None,
        judges=score.judges,
        offline=OFFLINE_JUDGE in score.judges,
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


def _write_sum(score: Score) -> str:
    weight = score.relative_weight
    if weight is None or None in (score.reward, score.gate, score.absolute, score.relative):
        return ""
    mixed = (
        f"{format_number(1.0 - weight, 2)} × {format_number(score.absolute)} absolute"
        f" + {format_number(weight, 2)} × {format_number(score.relative)} relative"
    )
    bounded = f"({mixed})" if score.cap is None else f"min(cap {format_number(score.cap, 2)}, {mixed})"
    return f"{format_number(score.reward)} = gate {format_number(score.gate, 0)} × {bounded}"


def _write_calibrated(score: Score) -> str:
    """Empty where the group was not drawn."""
    if score.calibrated is None:
        return "" if score.uncalibrated is None else f"not calibrated: {score.uncalibrated.replace('_', ' ')}"
    return f"calibrated {format_number(score.calibrated, 2)} ± {format_number(score.calibrated_error, 2)}"


def _list_score_parts(score: Score) -> tuple[tuple[str, str], ...]:
    named = (("gate", score.gate), ("absolute", score.absolute), ("relative", score.relative))
    return tuple((name, format_number(value, 2)) for name, value in named if value is not None)


def _build_chip(criterion: Criterion) -> CriterionChip:
    return CriterionChip(
        name=criterion.name.replace("_", " "),
        value="n/a" if criterion.value is None else format_number(criterion.value, 2),
        heat=None if criterion.value is None else scale_heat(criterion.value),
        weight=format_number(criterion.weight, 2),
        note=escape_invisible(criterion.note),
    )


def build_lines(messages: Sequence[Message], at_once: int = SHOWN_AT_ONCE) -> tuple[MessageLine, ...]:
    """`at_once` is the number of characters per message that are not folded."""
    return tuple(_build_line(message, at_once) for message in messages)


def _build_line(message: Message, at_once: int) -> MessageLine:
    content = message.content
    answer = build_result(content) if message.role == "tool" and content is not None else None
    return MessageLine(
        role=message.role,
        name=escape_invisible(message.name or ""),
        content=None if content is None or answer is not None else cut_excerpt(content, at_once),
        calls=tuple(map(build_call, message.tool_calls)),
        result=answer,
    )


def build_readings(judgements: Sequence[Judgement], group: Group) -> tuple[JudgeReadingView, ...]:
    slots: dict[str, list[int]] = {}
    for place, rollout in enumerate(group.rollouts, start=1):
        if rollout.score.candidate:
            slots.setdefault(rollout.score.candidate, []).append(place)
    return tuple(_build_reading(judgement, slots) for judgement in judgements)


_PURPOSES: Final[Mapping[JudgingPurpose, str]] = {
    "score": "",
    "calibration": "for calibrated values alone: read beside replies of known level",
    "references": "wrote replies of known level for this scene",
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
            (find_candidate(verdict.candidate), verdict, _build_verdict_chips(verdict))
            for verdict in judgement.verdicts
        ),
        prompt=cut_excerpt(judgement.prompt, 4000) if judgement.prompt else None,
        raw=cut_excerpt(judgement.raw, 4000) if judgement.raw else None,
        not_kept=_describe_missing(judgement.reduced, ("prompt", "raw")),
    )


def _build_verdict_chips(verdict: Verdict) -> tuple[CriterionChip, ...]:
    return tuple(
        CriterionChip(
            name=name.replace("_", " "),
            value="n/a" if value is None else format_number(value, 2),
            heat=None if value is None else scale_heat(value),
            weight="",
            note="",
        )
        for name, value in verdict.scores.items()
    )
