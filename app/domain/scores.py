"""Scores: a reward, or the reason why there is none, and its parts."""

from functools import cache, lru_cache
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from app.domain.calibration import CalibrationGap
from app.domain.errors import ScoringFailed
from app.domain.values import FiniteNumber, Frozen, Unit

Outcome = Literal["scored", "pending", "unscored"]

Reason = Literal[
    "judge_failed",
    "budget",
    "language_unknown",
    "self_judge",
    "verifier_killed",
    "verifier_failed",
    "version_changed",
    "stale",
    "environment_unavailable",
    "internal",
]
"""Why a rollout is unscored. Each reason is a failure or setting of the service, never the completion's fault."""


def _is_empty(text: str) -> bool:
    return not text


def _is_none(value: float | str | None) -> bool:
    return value is None


class Criterion(Frozen):
    """One named part of a score. If the criterion does not apply, `value` is null and its weight goes to the others."""

    name: str
    value: Unit | None
    weight: Unit
    note: str = ""


class Score(Frozen):
    """`reward` = gate x cap((1 - w) x absolute + w x relative), null unless `outcome` is `scored`."""

    outcome: Outcome
    reason: Reason | None = None
    reward: Unit | None = None
    gate: Unit | None = None
    """0 when a gate failed, else 1."""
    absolute: Unit | None = None
    """Quality on an absolute scale, comparable across groups and steps. Curves and evaluation use it times `gate`."""
    relative: Unit | None = None
    """Quality relative to the rest of the group; null if nothing was compared."""
    relative_weight: Annotated[Unit | None, Field(exclude_if=_is_none)] = None
    """The share w of `relative` in a judged reward."""
    cap: Annotated[Unit | None, Field(exclude_if=_is_none)] = None
    """The bound that a reported defect sets to the reward; null without one."""
    calibrated: FiniteNumber | None = None
    """Quality on the scale of replies of known level that were read beside the group; null if the group was not drawn
    for that. No reward depends on it."""
    calibrated_error: FiniteNumber | None = None
    """Standard error of `calibrated`."""
    uncalibrated: Annotated[CalibrationGap | None, Field(exclude_if=_is_none)] = None
    """Why a drawn group has no `calibrated`."""
    criteria: tuple[Criterion, ...] = ()
    flags: tuple[str, ...] = ()
    rationale: str = ""
    judges: tuple[str, ...] = ()
    """Names of the judges; empty for verified environments."""
    candidate: Annotated[str, Field(exclude_if=_is_empty)] = ""
    """Id of this completion in the judgements. Equal completions share one id."""
    scoring_digest: str = ""
    """Digest of everything that affects rewards: environment version, data, rubric, judges, templates, options."""

    @property
    def is_final(self) -> bool:
        """Whether asking again gives the same. What is stale stays so."""
        return self.outcome == "scored" or self.reason == "stale"

    @model_validator(mode="after")
    def _require_consistency(self) -> Self:
        if (self.outcome == "scored") != (self.reward is not None):
            raise ValueError("a score has a reward exactly when its outcome is scored")
        if (self.outcome == "unscored") != (self.reason is not None):
            raise ValueError("a score has a reason exactly when its outcome is unscored")
        return self

    @classmethod
    def exact(cls, correct: bool, criterion: str = "correct", rationale: str = "") -> "Score":
        """A verifier's score: 1 or 0 under one criterion."""
        return _build_exact(correct, criterion, rationale)

    @classmethod
    def gated(cls, *flags: str, rationale: str = "") -> Self:
        """The score of a completion that failed a deterministic gate: 0, whatever judges say."""
        return cls(outcome="scored", reward=0.0, gate=0.0, absolute=0.0, flags=flags, rationale=rationale)

    @classmethod
    def unscored(cls, reason: Reason, rationale: str = "") -> Self:
        return cls(outcome="unscored", reason=reason, rationale=rationale)

    @classmethod
    def from_error(cls, error: ScoringFailed) -> Self:
        """The unscored result for a failure of the service, with its reason."""
        known: dict[str, Reason] = {reason: reason for reason in get_args(Reason)}
        return cls.unscored(known.get(error.reason, "internal"), error.detail)

    @staticmethod
    @cache
    def pending() -> "Score":
        return Score(outcome="pending")


@lru_cache(maxsize=4096)
def _build_exact(correct: bool, criterion: str, rationale: str) -> Score:
    """Equal completions are many, and so are equal scores."""
    value = 1.0 if correct else 0.0
    return Score(
        outcome="scored",
        reward=value,
        gate=1.0,
        absolute=value,
        criteria=(Criterion(name=criterion, value=value, weight=1.0),),
        rationale=rationale,
    )


class GroupStatistics(Frozen):
    """Statistics over the non-null rewards of a group; all null if there are fewer than two."""

    mean: FiniteNumber | None
    std: FiniteNumber | None
    """Sample standard deviation (n - 1), as TRL and verl compute it."""
    advantages: tuple[FiniteNumber | None, ...]
    low_signal: bool
    """The rewards hardly differ, or the judges disagree: the group has little training signal."""
