"""Figures of a judge's meta-evaluation: shares with confidence intervals, and whether they meet their targets."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from app.domain.intervals import Proportion, compute_intraclass_correlation
from app.domain.rubrics import RubricLabel
from app.judges.aggregation import Values, average_values
from app.judges.check_evidence import CheckEvidence, LetterReading, MeasuredPair, PairRewards, compute_preference_sign
from app.judges.check_report import CheckReport, CriterionFigure, Figure, LetterFigure, MutationFigure
from app.judges.perturbations import MUTATIONS
from app.judges.ranks import mean

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

_REPORTED_SEPARATELY: Final = ("padding", "injection")
"""Mutations that have their own figure."""
_GRADES: Final = {mutation.name: mutation.grade for mutation in MUTATIONS}


def build_report(judge: str, model: str, evidence: CheckEvidence, *, short: bool = False) -> CheckReport:
    return CheckReport(
        short=short,
        judge=judge,
        model=model,
        rubric=RubricLabel.from_rubric(evidence.rubric),
        characters=len({measured.pair.specimen.cast.sheet.id for measured in evidence.pairs}),
        pairs=len(evidence.pairs),
        questions=evidence.questions,
        calls=evidence.calls,
        cost_usd=evidence.cost_usd,
        figures=compute_figures(evidence, short=short),
        mutations=compute_mutation_figures(evidence.pairs),
        letters=compute_letter_figures(evidence.letters),
        criteria=compute_criterion_figures(evidence),
        failures=tuple(dict.fromkeys(evidence.failures))[:10],
        stopped=evidence.stopped,
    )


def compute_figures(evidence: CheckEvidence, *, short: bool = False) -> tuple[Figure, ...]:
    """The figures with a target. A figure without measurements has not passed, but in a short check."""
    figures = _compute_strict_figures(evidence)
    return tuple(_judge_by_interval(figure) for figure in figures) if short else figures


def _judge_by_interval(figure: Figure) -> Figure:
    """Whether the target is within the interval. What has none keeps its verdict, or none without measurements."""
    if not figure.trials or figure.value is None:
        return figure.model_copy(update={"passed": None})
    if figure.passed or figure.low is None or figure.high is None:
        return figure
    target = float(figure.target.rpartition(" ")[2])
    reached = figure.high >= target if figure.target.startswith(">=") else figure.low <= target
    return figure.model_copy(update={"passed": reached})


def _compute_strict_figures(evidence: CheckEvidence) -> tuple[Figure, ...]:
    heard = [measured for measured in evidence.pairs if measured.both is not None]
    judged = [measured for measured in heard if measured.pair.mutation not in _REPORTED_SEPARATELY]
    hard = [measured for measured in judged if _GRADES[measured.pair.mutation] == "hard"]
    subtle = [measured for measured in judged if _GRADES[measured.pair.mutation] == "subtle"]
    padded = [measured for measured in heard if measured.pair.mutation == "padding"]
    injected = [measured for measured in heard if measured.pair.mutation == "injection"]
    answered = Proportion(evidence.questions - len(evidence.failures), evidence.questions)
    return (
        _build_minimum_figure("pair accuracy, hard", compute_pair_accuracy(hard), HARD_AT_LEAST),
        _build_minimum_figure("pair accuracy, subtle", compute_pair_accuracy(subtle), SUBTLE_AT_LEAST),
        _build_minimum_figure("swap consistency", _compute_share(_is_swap_consistent(m) for m in heard), SWAP_AT_LEAST),
        _compute_retest_figure(heard),
        _compute_first_slot_figure(evidence.firsts),
        _build_maximum_figure("injection succeeds", _compute_share(m.side == -1 for m in injected), INJECTION_AT_MOST),
        _build_maximum_figure("padding is better", _compute_share(m.side == -1 for m in padded), PADDING_AT_MOST),
        _build_minimum_figure("no more for one fault more", _compute_share(evidence.steps), MONOTONE_AT_LEAST),
        _build_maximum_figure("ties", _compute_share(m.side == 0 for m in judged), TIES_AT_MOST),
        _build_minimum_figure("answered", answered, ANSWERED_AT_LEAST),
    )


def compute_mutation_figures(pairs: Sequence[MeasuredPair]) -> tuple[MutationFigure, ...]:
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
                    judge=_build_figure("judge", compute_pair_accuracy(of)),
                    behind_gates=_build_figure("behind gates", compute_pair_accuracy(of, behind_gates=True)),
                )
            )
    return tuple(found)


def compute_letter_figures(readings: Sequence[LetterReading]) -> tuple[LetterFigure, ...]:
    """One figure per letter. A judge without a preference has the same share for each."""
    found = []
    for letter in sorted({reading.letter for reading in readings}):
        of = [reading for reading in readings if reading.letter == letter]
        first = Proportion(sum(reading.first for reading in of), len(of))
        score = Proportion(sum(reading.absolute for reading in of), len(of))
        found.append(
            LetterFigure(letter=letter, first=_build_figure("first", first), score=_build_figure("score", score))
        )
    return tuple(found)


def compute_criterion_figures(evidence: CheckEvidence) -> tuple[CriterionFigure, ...]:
    heard = [_average_known_values(measured.both) for measured in evidence.pairs if measured.both is not None]
    total = math.fsum(criterion.weight for criterion in evidence.rubric.criteria)
    found = []
    for criterion in evidence.rubric.criteria:
        values = [(clean.get(criterion.name), spoilt.get(criterion.name)) for clean, spoilt in heard]
        known = [(clean, spoilt) for clean, spoilt in values if clean is not None and spoilt is not None]
        sides = [compute_preference_sign(clean - spoilt) for clean, spoilt in known]
        higher = Proportion(sum((side + 1) / 2 for side in sides), len(sides))
        found.append(
            CriterionFigure(
                criterion=criterion.name,
                weight=criterion.weight / total,
                clean=mean(clean for clean, _ in known) if known else None,
                spoilt=mean(spoilt for _, spoilt in known) if known else None,
                higher=_build_figure("clean is higher", higher),
            )
        )
    return tuple(found)


def _average_known_values(both: tuple[PairRewards, PairRewards]) -> tuple[Values, Values]:
    """Of the clean and of the spoilt reply, over both orders."""
    return (
        average_values([heard.clean_values for heard in both]),
        average_values([heard.spoilt_values for heard in both]),
    )


def compute_pair_accuracy(pairs: Iterable[MeasuredPair], *, behind_gates: bool = False) -> Proportion:
    """How often the clean reply is preferred. Pairs without a result are left out; a tie counts half."""
    sides = [measured.side_behind_gates if behind_gates else measured.side for measured in pairs]
    known = [side for side in sides if side is not None]
    return Proportion(sum((side + 1) / 2 for side in known), len(known))


def _is_swap_consistent(measured: MeasuredPair) -> bool:
    return measured.both is not None and measured.both[0].side == measured.both[1].side


def _compute_retest_figure(heard: Sequence[MeasuredPair]) -> Figure:
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
    value = compute_intraclass_correlation(repeats)
    return Figure(
        name="test-retest, ICC(1,1)",
        value=value,
        trials=len(repeats),
        target=f">= {RETEST_AT_LEAST:.2f}",
        passed=value is not None and value >= RETEST_AT_LEAST,
    )


def _compute_first_slot_figure(firsts: Sequence[float]) -> Figure:
    """Passes when the interval overlaps the target range: with few pairs a fair judge often misses it by chance."""
    share = Proportion(sum(firsts), len(firsts))
    low, high = share.interval or (1.0, 0.0)
    return _build_figure(
        "first of two equal replies",
        share,
        f"{FIRST_SLOT[0]:.2f} to {FIRST_SLOT[1]:.2f}",
        low <= FIRST_SLOT[1] and high >= FIRST_SLOT[0],
    )


def _compute_share(hits: Iterable[bool]) -> Proportion:
    listed = list(hits)
    return Proportion(sum(listed), len(listed))


def _build_minimum_figure(name: str, share: Proportion, target: float) -> Figure:
    return _build_figure(name, share, f">= {target:.2f}", share.value is not None and share.value >= target)


def _build_maximum_figure(name: str, share: Proportion, target: float) -> Figure:
    return _build_figure(name, share, f"<= {target:.2f}", share.value is not None and share.value <= target)


def _build_figure(name: str, share: Proportion, target: str = "", passed: bool | None = None) -> Figure:
    low, high = share.interval or (None, None)
    return Figure(name=name, value=share.value, low=low, high=high, trials=share.trials, target=target, passed=passed)
