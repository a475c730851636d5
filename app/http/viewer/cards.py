"""A stored group as values for the page's template."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.domain.groups import Group, Rollout
from app.domain.judging import Judgement, Verdict
from app.domain.rewards import group_statistics
from app.domain.scores import Criterion, Score
from app.domain.tasks import Message
from app.http.viewer.calls import Call, Result, call_of, result_of
from app.toolkit.display import SHOWN_AT_ONCE, Excerpt, excerpt, heat, number, signed, visible

OFFLINE_JUDGE = "offline"
"""The judge without a model: only for trying the system, not for training."""


@dataclass(frozen=True)
class Line:
    """One message of a conversation."""

    role: str
    name: str
    content: Excerpt | None
    calls: tuple[Call, ...]
    result: Result | None = None
    """A tool's result, instead of `content`."""


@dataclass(frozen=True)
class Chip:
    """A criterion with its colour; `heat` is None if it did not apply."""

    name: str
    value: str
    heat: int | None
    weight: str
    note: str


@dataclass(frozen=True)
class Card:
    """One completion with its score."""

    rank: str
    slot: int
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
    chips: tuple[Chip, ...]
    flags: tuple[str, ...]
    gated: bool
    rationale: Excerpt | None
    judges: tuple[str, ...]
    offline: bool
    finish_reason: str
    tokens: int | None
    text: Excerpt | None
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Seen:
    """A candidate of a judgement, and the positions of its completions in the request, if they are known."""

    id: str
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Reading:
    """One judge's answer to one presentation of the group. `ranking` is best first, with ties in one tuple."""

    judgement: Judgement
    offline: bool
    order: tuple[Seen, ...]
    ranking: tuple[tuple[Seen, ...], ...]
    cost: str
    latency: str
    verdicts: tuple[tuple[Seen, Verdict, tuple[Chip, ...]], ...]
    prompt: Excerpt | None
    raw: Excerpt | None


def cards_of(group: Group) -> tuple[Card, ...]:
    """Best first; completions without a reward last, in request order."""
    scores = [rollout.score for rollout in group.rollouts]
    advantages = group_statistics(scores).advantages
    order = sorted(range(len(scores)), key=lambda slot: _standing(scores[slot]))
    ranks = _ranks([scores[slot] for slot in order])
    return tuple(
        _card(group.rollouts[slot], slot, rank, advantages[slot]) for slot, rank in zip(order, ranks, strict=True)
    )


def _standing(score: Score) -> float:
    return 1.0 if score.reward is None else -score.reward


def _ranks(ordered: Sequence[Score]) -> list[str]:
    """Equal rewards share a rank."""
    rewards = [score.reward for score in ordered]
    return ["" if reward is None else str(rewards.index(reward) + 1) for reward in rewards]


def _card(rollout: Rollout, slot: int, rank: str, advantage: float | None) -> Card:
    score, completion = rollout.score, rollout.completion
    return Card(
        rank=rank,
        slot=slot + 1,
        rollout_id=rollout.rollout_id,
        candidate=visible(score.candidate),
        outcome=score.outcome,
        reason=score.reason or "",
        reward=number(score.reward),
        share=score.reward or 0.0,
        heat=None if score.reward is None else heat(score.reward),
        advantage="" if advantage is None else signed(advantage),
        parts=_parts(score),
        chips=tuple(map(_chip, score.criteria)),
        flags=tuple(map(visible, score.flags)),
        gated=score.gate == 0,
        rationale=excerpt(score.rationale, 600) if score.rationale else None,
        judges=score.judges,
        offline=OFFLINE_JUDGE in score.judges,
        finish_reason=visible(completion.finish_reason or ""),
        tokens=None if completion.token_ids is None else len(completion.token_ids),
        text=None if completion.text is None else excerpt(completion.text),
        lines=lines_of(completion.messages or ()),
    )


def _parts(score: Score) -> tuple[tuple[str, str], ...]:
    named = (("gate", score.gate), ("absolute", score.absolute), ("relative", score.relative))
    return tuple((name, number(value, 2)) for name, value in named if value is not None)


def _chip(criterion: Criterion) -> Chip:
    return Chip(
        name=criterion.name.replace("_", " "),
        value="n/a" if criterion.value is None else number(criterion.value, 2),
        heat=None if criterion.value is None else heat(criterion.value),
        weight=number(criterion.weight, 2),
        note=visible(criterion.note),
    )


def lines_of(messages: Sequence[Message], at_once: int = SHOWN_AT_ONCE) -> tuple[Line, ...]:
    """`at_once` is the number of characters per message that are not folded."""
    return tuple(_line(message, at_once) for message in messages)


def _line(message: Message, at_once: int) -> Line:
    content = message.content
    answer = result_of(content) if message.role == "tool" and content is not None else None
    return Line(
        role=message.role,
        name=visible(message.name or ""),
        content=None if content is None or answer is not None else excerpt(content, at_once),
        calls=tuple(map(call_of, message.tool_calls)),
        result=answer,
    )


def readings_of(judgements: Sequence[Judgement], group: Group) -> tuple[Reading, ...]:
    slots: dict[str, list[int]] = {}
    for place, rollout in enumerate(group.rollouts, start=1):
        if rollout.score.candidate:
            slots.setdefault(rollout.score.candidate, []).append(place)
    return tuple(_reading(judgement, slots) for judgement in judgements)


def _reading(judgement: Judgement, slots: Mapping[str, Sequence[int]]) -> Reading:
    def seen(candidate: str) -> Seen:
        return Seen(visible(candidate), tuple(slots.get(candidate, ())))

    return Reading(
        judgement=judgement,
        offline=judgement.judge == OFFLINE_JUDGE,
        order=tuple(map(seen, judgement.order)),
        ranking=tuple(tuple(map(seen, tied)) for tied in judgement.ranking),
        cost="" if judgement.cost_usd is None else f"${judgement.cost_usd:.4f}",
        latency=f"{judgement.latency_seconds:.2f} s",
        verdicts=tuple((seen(verdict.candidate), verdict, _verdict_chips(verdict)) for verdict in judgement.verdicts),
        prompt=excerpt(judgement.prompt, 4000) if judgement.prompt else None,
        raw=excerpt(judgement.raw, 4000) if judgement.raw else None,
    )


def _verdict_chips(verdict: Verdict) -> tuple[Chip, ...]:
    return tuple(
        Chip(
            name=visible(name).replace("_", " "),
            value="n/a" if value is None else number(value, 2),
            heat=None if value is None else heat(value),
            weight="",
            note="",
        )
        for name, value in verdict.scores.items()
    )
