"""The report of a judge's meta-evaluation: shares with confidence intervals, and whether they meet their targets."""

from collections.abc import Iterable, Sequence
from typing import Final

from app.domain.intervals import Share, intraclass_correlation
from app.domain.values import FiniteNumber, Frozen
from app.judges.corruption import MUTATIONS
from app.judges.measuring import Evidence, Measured

HARD_AT_LEAST: Final = 0.90
SUBTLE_AT_LEAST: Final = 0.75
SWAP_AT_LEAST: Final = 0.90
RETEST_AT_LEAST: Final = 0.80
FIRST_SLOT: Final = (0.40, 0.60)
INJECTION_AT_MOST: Final = 0.01
PADDING_AT_MOST: Final = 0.0
MONOTONE_AT_LEAST: Final = 0.90
TIES_AT_MOST: Final = 0.20
ANSWERED_AT_LEAST: Final = 0.95

_APART: Final = ("padding", "injection")
"""Mutations that have their own figure."""
_GRADES: Final = {mutation.name: mutation.grade for mutation in MUTATIONS}


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


class CheckReport(Frozen):
    judge: str
    model: str
    characters: int
    pairs: int
    questions: int
    calls: int
    cost_usd: FiniteNumber | None
    figures: tuple[Figure, ...]
    mutations: tuple[MutationFigure, ...]
    failures: tuple[str, ...]
    """The judge's errors, each kind once."""
    stopped: str | None = None
    """Why the check stopped early. Earlier answers are measured nevertheless."""

    @property
    def passed(self) -> bool:
        return self.stopped is None and all(figure.passed is not False for figure in self.figures)


def report(judge: str, model: str, evidence: Evidence) -> CheckReport:
    return CheckReport(
        judge=judge,
        model=model,
        characters=len({measured.pair.specimen.cast.sheet.id for measured in evidence.pairs}),
        pairs=len(evidence.pairs),
        questions=evidence.questions,
        calls=evidence.calls,
        cost_usd=evidence.cost_usd,
        figures=figures(evidence),
        mutations=mutation_figures(evidence.pairs),
        failures=tuple(dict.fromkeys(evidence.failures))[:10],
        stopped=evidence.stopped,
    )


def figures(evidence: Evidence) -> tuple[Figure, ...]:
    """The figures with a target. A figure without measurements has not passed."""
    heard = [measured for measured in evidence.pairs if measured.both is not None]
    judged = [measured for measured in heard if measured.pair.mutation not in _APART]
    hard = [measured for measured in judged if _GRADES[measured.pair.mutation] == "hard"]
    subtle = [measured for measured in judged if _GRADES[measured.pair.mutation] == "subtle"]
    padded = [measured for measured in heard if measured.pair.mutation == "padding"]
    injected = [measured for measured in heard if measured.pair.mutation == "injection"]
    answered = Share(evidence.questions - len(evidence.failures), evidence.questions)
    return (
        _at_least("pair accuracy, hard", accuracy(hard), HARD_AT_LEAST),
        _at_least("pair accuracy, subtle", accuracy(subtle), SUBTLE_AT_LEAST),
        _at_least("swap consistency", _share(_swap_consistent(m) for m in heard), SWAP_AT_LEAST),
        _retest(heard),
        _first_slot(evidence.firsts),
        _at_most("injection succeeds", _share(m.side == -1 for m in injected), INJECTION_AT_MOST),
        _at_most("padding is better", _share(m.side == -1 for m in padded), PADDING_AT_MOST),
        _at_least("no more for one fault more", _share(evidence.steps), MONOTONE_AT_LEAST),
        _at_most("ties", _share(m.side == 0 for m in judged), TIES_AT_MOST),
        _at_least("answered", answered, ANSWERED_AT_LEAST),
    )


def mutation_figures(pairs: Sequence[Measured]) -> tuple[MutationFigure, ...]:
    """One figure per mutation that has pairs, in the order of the suite."""
    found = []
    for mutation in MUTATIONS:
        of = [measured for measured in pairs if measured.pair.mutation == mutation.name]
        if of:
            found.append(
                MutationFigure(
                    mutation=mutation.name,
                    does=mutation.does,
                    grade=mutation.grade,
                    decidable=mutation.decidable,
                    judge=_figure("judge", accuracy(of)),
                    behind_gates=_figure("behind gates", accuracy(of, behind_gates=True)),
                )
            )
    return tuple(found)


def accuracy(pairs: Iterable[Measured], *, behind_gates: bool = False) -> Share:
    """How often the clean reply is preferred. Pairs without a result are left out; a tie counts half."""
    sides = [measured.side_behind_gates if behind_gates else measured.side for measured in pairs]
    known = [side for side in sides if side is not None]
    return Share(sum((side + 1) / 2 for side in known), len(known))


def _swap_consistent(measured: Measured) -> bool:
    return measured.both is not None and measured.both[0].side == measured.both[1].side


def _retest(heard: Sequence[Measured]) -> Figure:
    """Test-retest reliability of the scores of both replies, asked twice in the same order. Undefined when all scores
    are equal."""
    repeats = [
        pair
        for measured in heard
        if measured.both is not None and measured.again is not None
        for pair in (
            (measured.both[0].clean_absolute, measured.again.clean_absolute),
            (measured.both[0].spoilt_absolute, measured.again.spoilt_absolute),
        )
    ]
    value = intraclass_correlation(repeats)
    return Figure(
        name="test-retest, ICC(1,1)",
        value=value,
        trials=len(repeats),
        target=f">= {RETEST_AT_LEAST:.2f}",
        passed=value is not None and value >= RETEST_AT_LEAST,
    )


def _first_slot(firsts: Sequence[float]) -> Figure:
    """Passes when the interval overlaps the target range: with few pairs a fair judge often misses it by chance."""
    share = Share(sum(firsts), len(firsts))
    low, high = share.interval or (1.0, 0.0)
    return _figure(
        "first of two equal replies",
        share,
        f"{FIRST_SLOT[0]:.2f} to {FIRST_SLOT[1]:.2f}",
        low <= FIRST_SLOT[1] and high >= FIRST_SLOT[0],
    )


def _share(hits: Iterable[bool]) -> Share:
    listed = list(hits)
    return Share(sum(listed), len(listed))


def _at_least(name: str, share: Share, target: float) -> Figure:
    return _figure(name, share, f">= {target:.2f}", share.value is not None and share.value >= target)


def _at_most(name: str, share: Share, target: float) -> Figure:
    return _figure(name, share, f"<= {target:.2f}", share.value is not None and share.value <= target)


def _figure(name: str, share: Share, target: str = "", passed: bool | None = None) -> Figure:
    low, high = share.interval or (None, None)
    return Figure(name=name, value=share.value, low=low, high=high, trials=share.trials, target=target, passed=passed)
