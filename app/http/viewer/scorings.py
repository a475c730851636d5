"""Scorings of one group side by side: the original first, then the later ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.domain.groups import Group, GroupDetail, Scoring
from app.domain.rewards import compute_statistics
from app.domain.rubrics import RubricLabel
from app.domain.scores import Score
from app.http.viewer.cards import OFFLINE_JUDGE, JudgeReadingView, build_readings
from app.toolkit.display import format_number, format_signed, scale_heat


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


def build_columns(detail: GroupDetail) -> tuple[ScoringColumn, ...]:
    """The original and the later scorings."""
    told = detail.group.scores
    return (
        _build_original_column(detail, told),
        *(_build_later_column(place, one, detail.group) for place, one in enumerate(detail.scorings, 1)),
    )


def _build_original_column(detail: GroupDetail, told: Sequence[Score]) -> ScoringColumn:
    judges = tuple(dict.fromkeys(judge for score in told for judge in score.judges))
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
        mean=format_number(compute_statistics(told).mean),
        flags=detail.group.flags,
        cells=tuple(_build_cell(slot, score, None) for slot, score in enumerate(told, 1)),
        readings=build_readings(detail.judgements, detail.group),
    )


def _build_later_column(place: int, scoring: Scoring, group: Group) -> ScoringColumn:
    told = group.scores
    return ScoringColumn(
        name=f"scoring {place}",
        original=False,
        judges=scoring.judges,
        offline=OFFLINE_JUDGE in scoring.judges,
        mode=scoring.mode or "",
        weight="" if scoring.options.relative_weight is None else format_number(scoring.options.relative_weight, 2),
        rubric="" if scoring.rubric is None else _format_rubric(scoring.rubric),
        on_truncated=scoring.options.on_truncated,
        created_at=scoring.created_at,
        mean=format_number(compute_statistics(scoring.scores).mean),
        flags=scoring.flags,
        cells=tuple(
            _build_cell(slot, score, before.reward)
            for slot, (score, before) in enumerate(zip(scoring.scores, told, strict=True), 1)
        ),
        readings=build_readings(scoring.judgements, _apply_scores(group, scoring)),
    )


def _format_rubric(rubric: RubricLabel) -> str:
    return f"rubric {rubric.name} {rubric.version} ({rubric.digest[:8]})"


def _build_cell(slot: int, score: Score, before: float | None) -> ScoringCell:
    return ScoringCell(
        slot=slot,
        reward=format_number(score.reward),
        heat=None if score.reward is None else scale_heat(score.reward),
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
