"""Scores: a reward or the reason why there is none, and the parts it was made from."""

from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

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
    "environment_unavailable",
    "internal",
]
"""Why a rollout is unscored. Each is the service's doing or setting, never a judgement of the completion."""


def _empty(text: str) -> bool:
    return not text


class Criterion(Frozen):
    """One named part of a score. `value` is null where the criterion did not apply; its weight is then shared out."""

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
    """Comparable across groups and steps: what curves, pass rates and evaluation use (times `gate`)."""
    relative: Unit | None = None
    """Standing within the group; null where nothing was compared."""
    criteria: tuple[Criterion, ...] = ()
    flags: tuple[str, ...] = ()
    rationale: str = ""
    judges: tuple[str, ...] = ()
    """Who judged, by name; empty when the rule itself decides."""
    candidate: Annotated[str, Field(exclude_if=_empty)] = ""
    """The id under which judges saw this completion, as in their judgements; equal completions share it."""
    scoring_digest: str = ""
    """Of everything that decides about rewards: environment version, data, rubric, judges, templates, options."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.outcome == "scored") != (self.reward is not None):
            raise ValueError("a score has a reward exactly when its outcome is scored")
        if (self.outcome == "unscored") != (self.reason is not None):
            raise ValueError("a score has a reason exactly when its outcome is unscored")
        return self

    @classmethod
    def exact(cls, correct: bool, criterion: str = "correct", rationale: str = "") -> Self:
        """What a verifier says: 1 or 0 under one criterion."""
        value = 1.0 if correct else 0.0
        return cls(
            outcome="scored",
            reward=value,
            gate=1.0,
            absolute=value,
            criteria=(Criterion(name=criterion, value=value, weight=1.0),),
            rationale=rationale,
        )

    @classmethod
    def gated(cls, *flags: str, rationale: str = "") -> Self:
        """A completion that failed a deterministic gate: 0, whatever a judge would have said."""
        return cls(outcome="scored", reward=0.0, gate=0.0, absolute=0.0, flags=flags, rationale=rationale)

    @classmethod
    def unscored(cls, reason: Reason, rationale: str = "") -> Self:
        return cls(outcome="unscored", reason=reason, rationale=rationale)

    @classmethod
    def after(cls, error: ScoringFailed) -> Self:
        """What failed on our side is no score, and says why."""
        known: dict[str, Reason] = {reason: reason for reason in get_args(Reason)}
        return cls.unscored(known.get(error.reason, "internal"), error.detail)

    @classmethod
    def pending(cls) -> Self:
        return cls(outcome="pending")

    def under(self, scoring_digest: str) -> Self:
        """The same score, saying what it was made under."""
        return self.model_copy(update={"scoring_digest": scoring_digest})


class GroupStatistics(Frozen):
    """Over the non-null rewards of one group; all null below two of them."""

    mean: FiniteNumber | None
    std: FiniteNumber | None
    """Sample standard deviation (n - 1), as TRL and verl compute it."""
    advantages: tuple[FiniteNumber | None, ...]
    low_signal: bool
    """The rewards hardly differ, or judges could not agree: the group teaches nothing."""

    @property
    def teaches_nothing(self) -> bool:
        """There are rewards to compare, and their signal is low: what is counted. Where there are none, it is for
        another reason."""
        return self.std is not None and self.low_signal
