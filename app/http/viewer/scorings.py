"""Scorings of one group side by side: the original first, then the later ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.domain.groups import Group, GroupDetail, Scoring
from app.domain.rewards import group_statistics
from app.domain.scores import Score
from app.http.viewer.cards import OFFLINE_JUDGE, Reading, readings_of
from app.toolkit.display import heat, number, signed, visible


@dataclass(frozen=True)
class Cell:
    """One completion's score in one scoring. `change` is relative to the original; empty if either has no reward."""

    slot: int
    reward: str
    heat: int | None
    change: str
    why_not: str
    """`pending`, or the reason for the missing reward."""
    rationale: str


@dataclass(frozen=True)
class Column:
    """One scoring of all completions, in request order."""

    name: str
    original: bool
    judges: tuple[str, ...]
    offline: bool
    mode: str
    """Empty without judges, and for the original, which has its run's options."""
    weight: str
    on_truncated: str
    created_at: datetime
    mean: str
    flags: tuple[str, ...]
    cells: tuple[Cell, ...]
    readings: tuple[Reading, ...]

    @property
    def readings_count(self) -> int:
        return len(self.readings)


def columns_of(detail: GroupDetail) -> tuple[Column, ...]:
    """The original and the later scorings."""
    told = [rollout.score for rollout in detail.group.rollouts]
    return (
        _original(detail, told),
        *(_later(place, one, detail.group) for place, one in enumerate(detail.scorings, 1)),
    )


def _original(detail: GroupDetail, told: Sequence[Score]) -> Column:
    judges = tuple(dict.fromkeys(visible(judge) for score in told for judge in score.judges))
    return Column(
        name="original",
        original=True,
        judges=judges,
        offline=OFFLINE_JUDGE in judges,
        mode="",
        weight="",
        on_truncated="",
        created_at=detail.group.created_at,
        mean=number(group_statistics(told).mean),
        flags=tuple(map(visible, detail.group.flags)),
        cells=tuple(_cell(slot, score, None) for slot, score in enumerate(told, 1)),
        readings=readings_of(detail.judgements, detail.group),
    )


def _later(place: int, scoring: Scoring, group: Group) -> Column:
    told = [rollout.score for rollout in group.rollouts]
    return Column(
        name=f"scoring {place}",
        original=False,
        judges=tuple(map(visible, scoring.judges)),
        offline=OFFLINE_JUDGE in scoring.judges,
        mode=scoring.mode or "",
        weight="" if scoring.options.relative_weight is None else number(scoring.options.relative_weight, 2),
        on_truncated=scoring.options.on_truncated,
        created_at=scoring.created_at,
        mean=number(group_statistics(scoring.scores).mean),
        flags=tuple(map(visible, scoring.flags)),
        cells=tuple(
            _cell(slot, score, before.reward)
            for slot, (score, before) in enumerate(zip(scoring.scores, told, strict=True), 1)
        ),
        readings=readings_of(scoring.judgements, _as_scored(group, scoring)),
    )


def _cell(slot: int, score: Score, before: float | None) -> Cell:
    return Cell(
        slot=slot,
        reward=number(score.reward),
        heat=None if score.reward is None else heat(score.reward),
        change=signed(score.reward - before) if score.reward is not None and before is not None else "",
        why_not="" if score.outcome == "scored" else score.reason or score.outcome,
        rationale=visible(score.rationale[:300]),
    )


def _as_scored(group: Group, scoring: Scoring) -> Group:
    """The group with the scoring's scores, which have the candidate ids that its judges saw."""
    rollouts = tuple(
        rollout.model_copy(update={"score": score})
        for rollout, score in zip(group.rollouts, scoring.scores, strict=True)
    )
    return group.model_copy(update={"rollouts": rollouts})
