"""Two forms of answers compared on one judge: the same questions, and how far accuracy, agreement and cost differ."""

import math
from collections.abc import Callable, Sequence

from app.domain.intervals import Proportion, compute_mean_interval
from app.domain.values import FiniteNumber, Frozen
from app.judges.check_evidence import CheckEvidence, MeasuredPair, ReadingUsage
from app.judges.configuration import VerdictForm


class FormDifference(Frozen):
    """A figure of both forms, and by how much the second is above the first: mean and 95 % interval over questions that
    both answered."""

    name: str
    first: FiniteNumber | None
    second: FiniteNumber | None
    difference: FiniteNumber | None
    low: FiniteNumber | None
    high: FiniteNumber | None
    trials: int


class FormComparison(Frozen):
    judge: str
    model: str
    forms: tuple[VerdictForm, VerdictForm]
    agreement: FiniteNumber | None
    """How often both forms prefer the same reply of a pair, ties included; with its 95 % Wilson interval."""
    agreement_low: FiniteNumber | None
    agreement_high: FiniteNumber | None
    agreement_trials: int
    differences: tuple[FormDifference, ...]


def compare_forms(
    judge: str, model: str, forms: tuple[VerdictForm, VerdictForm], first: CheckEvidence, second: CheckEvidence
) -> FormComparison:
    """`first` and `second` are of the same questions."""
    sides = _pair_sides(first.pairs, second.pairs)
    same = Proportion(sum(one == other for one, other in sides), len(sides))
    low, high = same.interval or (None, None)
    return FormComparison(
        judge=judge,
        model=model,
        forms=forms,
        agreement=same.value,
        agreement_low=low,
        agreement_high=high,
        agreement_trials=same.trials,
        differences=(
            _compute_difference("pair accuracy", [((one + 1) / 2, (other + 1) / 2) for one, other in sides]),
            _compare_usage("tokens in, per answer", first, second, lambda used: used.input_tokens),
            _compare_usage("tokens out, per answer", first, second, lambda used: used.output_tokens),
            _compare_usage("US dollars, per answer", first, second, lambda used: used.cost_usd),
        ),
    )


def _pair_sides(first: Sequence[MeasuredPair], second: Sequence[MeasuredPair]) -> list[tuple[int, int]]:
    """The preferences of both forms for each pair that both measured."""
    others = {_identify(measured): measured.side for measured in second}
    found = [(measured.side, others.get(_identify(measured))) for measured in first]
    return [(one, other) for one, other in found if one is not None and other is not None]


def _identify(measured: MeasuredPair) -> tuple[str, str, str]:
    return measured.pair.mutation, measured.pair.specimen.cast.scene.id, measured.pair.spoilt


def _compare_usage(
    name: str, first: CheckEvidence, second: CheckEvidence, read: Callable[[ReadingUsage], float | None]
) -> FormDifference:
    used = [
        (read(one), read(other))
        for one, other in zip(first.usage, second.usage, strict=True)
        if one is not None and other is not None
    ]
    return _compute_difference(name, [(one, other) for one, other in used if one is not None and other is not None])


def _compute_difference(name: str, values: Sequence[tuple[float, float]]) -> FormDifference:
    count = len(values)
    means = [math.fsum(column) / count for column in zip(*values, strict=True)] if count else [None, None]
    gaps = [other - one for one, other in values]
    low, high = compute_mean_interval(gaps) or (None, None)
    return FormDifference(
        name=name,
        first=means[0],
        second=means[1],
        difference=math.fsum(gaps) / count if count else None,
        low=low,
        high=high,
        trials=count,
    )
