"""The report of a judge's check."""

from app.domain.rubrics import RubricLabel
from app.domain.values import FiniteNumber, Frozen


class Figure(Frozen):
    """One number of a check. `passed` is null without a target."""

    name: str
    value: FiniteNumber | None
    low: FiniteNumber | None = None
    high: FiniteNumber | None = None
    """The 95 % Wilson interval; null for values that are not shares."""
    trials: int
    target: str = ""
    passed: bool | None = None


class MutationFigure(Frozen):
    """How often the clean reply was preferred over one kind of spoilt reply; a tie counts half."""

    mutation: str
    does: str
    grade: str
    decidable: bool
    """Words alone decide; no model is needed."""
    judge: Figure
    """The judge alone, without gates."""
    behind_gates: Figure
    """With gates first, as groups are scored."""


class LetterFigure(Frozen):
    """Of equal replies: how often the one under this letter is the best, and its mean absolute score from 0 to 1. The
    score's interval is that of a share, which is at least as wide as it need be."""

    letter: str
    first: Figure
    score: Figure


class CriterionFigure(Frozen):
    """What a criterion says of clean and of spoilt replies, over the pairs to which it applies."""

    criterion: str
    weight: FiniteNumber
    """Its share where every criterion applies."""
    clean: FiniteNumber | None
    spoilt: FiniteNumber | None
    """Means of the values."""
    higher: Figure
    """How often the clean reply has the higher value; a tie counts half."""


class CheckReport(Frozen):
    short: bool = False
    """Few questions: a figure then passes unless its whole interval is beyond the target, and one without measurements
    counts for nothing."""
    judge: str
    model: str
    rubric: RubricLabel
    characters: int
    pairs: int
    questions: int
    calls: int
    cost_usd: FiniteNumber | None
    figures: tuple[Figure, ...]
    mutations: tuple[MutationFigure, ...]
    criteria: tuple[CriterionFigure, ...]
    """In the order of the rubric. None has a target: few faults touch every criterion."""
    letters: tuple[LetterFigure, ...] = ()
    failures: tuple[str, ...]
    """The judge's errors, each kind once."""
    stopped: str | None = None
    """Why the check stopped early. Earlier answers are measured nevertheless."""

    @property
    def passed(self) -> bool:
        return self.stopped is None and all(figure.passed is not False for figure in self.figures)
