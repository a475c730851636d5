"""What a judge preferred when it was checked."""

from dataclasses import dataclass
from typing import Final

from app.domain.judging import Rubric
from app.judges.aggregation import Values
from app.judges.perturbations import PerturbedPair
from app.judges.ranks import mean

_TOLERANCE: Final = 1e-6


@dataclass(frozen=True)
class PairRewards:
    """One judgement of a pair: each reply's reward, its absolute score, and its values by criterion."""

    clean: float
    spoilt: float
    clean_absolute: float
    spoilt_absolute: float
    clean_values: Values
    spoilt_values: Values

    @property
    def side(self) -> int:
        return compute_preference_sign(self.clean - self.spoilt)


@dataclass(frozen=True)
class MeasuredPair:
    """The results of one pair. `both` holds one per order; None when a judgement failed."""

    pair: PerturbedPair
    clean_gated: bool
    spoilt_gated: bool
    both: tuple[PairRewards, PairRewards] | None
    again: PairRewards | None = None

    @property
    def side(self) -> int | None:
        """1 when the clean reply is preferred over both orders, -1 for the spoilt one, 0 for a tie."""
        if self.both is None:
            return None
        return compute_preference_sign(
            mean(heard.clean for heard in self.both) - mean(heard.spoilt for heard in self.both)
        )

    @property
    def side_behind_gates(self) -> int | None:
        if self.clean_gated or self.spoilt_gated:
            return int(self.spoilt_gated) - int(self.clean_gated)
        return self.side


@dataclass(frozen=True)
class LetterReading:
    """What a copy of a reply got under its letter, beside equal copies."""

    letter: str
    first: float
    """1 where it alone ranks first; copies that tie for it share that."""
    absolute: float


@dataclass(frozen=True)
class ReadingUsage:
    """What an answered question took."""

    input_tokens: int
    output_tokens: int
    cost_usd: float | None


@dataclass(frozen=True)
class CheckEvidence:
    """`firsts`: for pairs of equal replies, the preference for the first one: 1, 0.5 or 0."""

    pairs: tuple[MeasuredPair, ...]
    firsts: tuple[float, ...]
    steps: tuple[bool, ...]
    """Per degradation step, over both orders: whether the reply with one more fault earned no more."""
    rubric: Rubric
    failures: tuple[str, ...]
    questions: int
    calls: int
    cost_usd: float | None
    letters: tuple[LetterReading, ...] = ()
    usage: tuple[ReadingUsage | None, ...] = ()
    """Of each question in order; None where there is no usable answer."""
    stopped: str | None = None
    """Why the check stopped early. Then `pairs` holds only those that were asked in both orders."""


def compute_preference_sign(difference: float) -> int:
    return 0 if abs(difference) < _TOLERANCE else (1 if difference > 0 else -1)
