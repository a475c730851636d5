"""How far a judge agrees with people: on labelled data sets, and on the queue that people label here.

Labels of a data set are compared group by group. Labels of the queue are those that it drew uniformly: every group
counts once, whatever number of people labelled it. Intervals resample whole units, such as all that was labelled of one
task. Whoever is still labelling sees plain counts only, in whole blocks: a figure that moved with each label would tell
what the judge thinks of the last one.
"""

import math
import random
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from statistics import fmean, stdev
from typing import Final, Literal

from app.domain.labels import LEVELS_OF_LABELS, Label, LabelledGroupRecord
from app.domain.values import Z_95, FiniteNumber, Frozen
from app.evaluation.report import MeanEstimate, Resampler, bound_resampled, bound_unseen

# Of two replies: which one is better

_SAME: Final = 1e-9
"""Smaller differences of rewards are rounding errors."""
_ORDERS: Final = 3
Order = Literal[0, 1, 2]
"""Of two replies: the first is better, they are equal, the second is better."""


def _order_by(gap: float) -> Order:
    """By what the first has more than the second."""
    return 1 if abs(gap) <= _SAME else 0 if gap > 0 else 2


def _score_order(wanted: Order, given: Order) -> float:
    """1 for the same order, 0.5 for no order, else 0."""
    return 0.5 if given == 1 else float(given == wanted)


# Rewards against the labels of a data set

FEWEST_FOR_CORRELATION: Final = 3
"""Of two replies a correlation is only a sign, which pair accuracy already is."""


@dataclass(frozen=True)
class JudgedLabels:
    """One group: people's labels and the judge's rewards of the same replies, in one order. Replies without a reward
    are left out beforehand."""

    labels: tuple[float, ...]
    rewards: tuple[float, ...]
    subset: str = ""


class AgreementFigure(Frozen):
    """A figure with its 95 % interval; null where nothing can be compared."""

    value: FiniteNumber | None = None
    low: FiniteNumber | None = None
    high: FiniteNumber | None = None
    trials: int = 0
    """Groups that it rests on; replies, where each group is a single one."""


@dataclass(frozen=True)
class LabelAgreement:
    pair_accuracy: AgreementFigure
    """How often the reply that people rated higher got the higher reward. A tie of rewards counts half; replies with
    equal labels are not compared."""
    correlation: AgreementFigure
    """Pearson's r of reward and label: the mean over the groups of three or more, 0 where all rewards are equal."""


def measure_label_agreement(groups: Sequence[JudgedLabels], seed: int = 0) -> LabelAgreement:
    """Groups weigh the same, and are what is resampled. Where each is a single reply, the replies of a subset are
    compared with each other instead, and the subsets' figures averaged."""
    if groups and all(len(group.labels) == 1 for group in groups):
        return _compare_across_groups(groups)
    accuracies = [share for group in groups if (share := _compute_pair_accuracy(group)) is not None]
    correlations = [r for group in groups if (r := _compute_group_correlation(group)) is not None]
    resampler = Resampler(seed)
    return LabelAgreement(
        _to_figure(resampler.estimate(accuracies)), _to_figure(resampler.estimate(correlations, least=-1.0))
    )


def _to_figure(estimate: MeanEstimate) -> AgreementFigure:
    return AgreementFigure(value=estimate.value, low=estimate.low, high=estimate.high, trials=estimate.tasks)


def _compute_pair_accuracy(group: JudgedLabels) -> float | None:
    scored = list(zip(group.labels, group.rewards, strict=True))
    hits = [
        _score_order(_order_by(one[0] - other[0]), _order_by(one[1] - other[1]))
        for one, other in combinations(scored, 2)
        if abs(one[0] - other[0]) > _SAME
    ]
    return fmean(hits) if hits else None


def _compute_group_correlation(group: JudgedLabels) -> float | None:
    """None for fewer than three replies, or without different labels."""
    if len(group.labels) < FEWEST_FOR_CORRELATION:
        return None
    return compute_correlation(group.labels, group.rewards)


def compute_correlation(labels: Sequence[float], rewards: Sequence[float]) -> float | None:
    """Pearson's r; 0 for equal rewards, which say nothing, None for equal labels."""
    middle, centre = fmean(labels), fmean(rewards)
    spread = math.fsum((label - middle) ** 2 for label in labels)
    other = math.fsum((reward - centre) ** 2 for reward in rewards)
    if spread <= _SAME:
        return None
    if other <= _SAME**2:
        return 0.0
    products = ((label - middle) * (reward - centre) for label, reward in zip(labels, rewards, strict=True))
    return math.fsum(products) / math.sqrt(spread * other)


def _compare_across_groups(groups: Sequence[JudgedLabels]) -> LabelAgreement:
    by_subset: defaultdict[str, list[JudgedLabels]] = defaultdict(list)
    for group in groups:
        by_subset[group.subset].append(group)
    merged = [
        JudgedLabels(tuple(one.labels[0] for one in some), tuple(one.rewards[0] for one in some))
        for some in by_subset.values()
    ]
    return LabelAgreement(
        _average([_measure_pooled_accuracy(one) for one in merged]),
        _average([_measure_pooled_correlation(one) for one in merged]),
    )


def _measure_pooled_accuracy(pool: JudgedLabels) -> AgreementFigure:
    """A U-statistic of order two: four times the variance of each reply's own share over their number (Hoeffding, Ann.
    Math. Stat. 19, 1948)."""
    scored = list(zip(pool.labels, pool.rewards, strict=True))
    shares = []
    for label, reward in scored:
        hits = [
            _score_order(_order_by(label - other), _order_by(reward - its))
            for other, its in scored
            if abs(label - other) > _SAME
        ]
        if hits:
            shares.append((fmean(hits), len(hits)))
    if len(shares) < 2:
        return AgreementFigure()
    value = math.fsum(share * pairs for share, pairs in shares) / sum(pairs for _, pairs in shares)
    error = 2 * stdev(share for share, _ in shares) / math.sqrt(len(shares))
    return _bound(value, error, len(shares), least=0.0)


def _measure_pooled_correlation(pool: JudgedLabels) -> AgreementFigure:
    """Fisher's z interval (Metron 1, 1921), given as its half width around r."""
    value = compute_correlation(pool.labels, pool.rewards)
    if value is None or len(pool.labels) < 4:
        return AgreementFigure()
    error = (1 - value**2) / math.sqrt(len(pool.labels) - 3)
    return _bound(value, error, len(pool.labels), least=-1.0)


def _bound(value: float, error: float, trials: int, least: float) -> AgreementFigure:
    low, high = max(least, value - Z_95 * error), min(1.0, value + Z_95 * error)
    return AgreementFigure(value=value, low=low, high=high, trials=trials)


def _average(figures: Sequence[AgreementFigure]) -> AgreementFigure:
    """The mean of independent figures, with the error of their mean."""
    bounded = [one for one in figures if one.value is not None and one.low is not None and one.high is not None]
    if not bounded:
        return AgreementFigure()
    half = [max(one.high - one.value, one.value - one.low) for one in bounded]  # type: ignore[operator]
    value, width = fmean(one.value or 0.0 for one in bounded), math.hypot(*half) / len(bounded)
    return AgreementFigure(
        value=value,
        low=max(-1.0, value - width),
        high=min(1.0, value + width),
        trials=sum(one.trials for one in bounded),
    )


# What is measured of a judge against people

_CONSTANT_PAIRS: Final = 0.5
"""What a judge that finds all replies equal would get."""


class PairAgreement(Frozen):
    """Of two replies that a person ordered: how often the judge gives the better one more. A tie of the judge counts
    half."""

    groups: int
    pairs: int
    judge: AgreementFigure = AgreementFigure()
    shared_pairs: int = 0
    """Pairs that two people ordered, blind to each other."""
    people: AgreementFigure = AgreementFigure()
    """How often these two agree: no judge can be shown to be better by these labels."""
    judge_on_shared: AgreementFigure = AgreementFigure()
    """The judge's figure on the same pairs, against both."""
    people_ties: FiniteNumber | None = None
    judge_ties: FiniteNumber | None = None
    constant: FiniteNumber = _CONSTANT_PAIRS


class CriterionAgreement(Frozen):
    """Levels from 0 to 4. Kappa depends on how often each level occurs, so the base rates stand beside it."""

    criterion: str
    groups: int
    replies: int
    kappa: AgreementFigure = AgreementFigure()
    """With quadratic weights; null where it is not defined."""
    agreement: AgreementFigure = AgreementFigure()
    """The share of equal levels."""
    pabak: FiniteNumber | None = None
    ac1: FiniteNumber | None = None
    bias: FiniteNumber | None = None
    """The judge's level less the person's."""
    people: tuple[FiniteNumber, ...] = ()
    """Base rates of the levels."""
    judge: tuple[FiniteNumber, ...] = ()
    constant: FiniteNumber | None = None
    """The agreement of a judge that always gives the people's most frequent level."""


class DefectAgreement(Frozen):
    """Whether a reply has a defect, against gates, caps and the absolute score."""

    groups: int
    replies: int
    base_rate: FiniteNumber | None = None
    auc: AgreementFigure = AgreementFigure()
    """How often a sound reply has the higher absolute score; a tie counts half."""
    gate_precision: AgreementFigure = AgreementFigure()
    gate_recall: AgreementFigure = AgreementFigure()
    cap_precision: AgreementFigure = AgreementFigure()
    cap_recall: AgreementFigure = AgreementFigure()
    constant: FiniteNumber | None = None
    """The share of right answers of a judge that always says the more frequent one."""


class AgreementSlice(Frozen):
    """All labels, or those of one language or rubric version."""

    name: str
    pairs: PairAgreement
    criteria: tuple[CriterionAgreement, ...]
    defects: DefectAgreement


# Agreement of two raters, with intervals by the unit that repeats

RESAMPLES: Final = 1_000
Table = Mapping[tuple[int, int], float]
"""Weight by the classes that both raters chose."""


def build_table(rows: Iterable[tuple[int, int, float]]) -> dict[tuple[int, int], float]:
    table: defaultdict[tuple[int, int], float] = defaultdict(float)
    for one, other, weight in rows:
        table[one, other] += weight
    return dict(table)


def compute_observed_agreement(table: Table) -> float | None:
    total = math.fsum(table.values())
    return math.fsum(weight for (one, other), weight in table.items() if one == other) / total if total else None


def _compute_margins(table: Table, classes: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The shares of each class, by the first and by the second rater."""
    total = math.fsum(table.values()) or 1.0
    rows, columns = [0.0] * classes, [0.0] * classes
    for (one, other), weight in table.items():
        rows[one] += weight / total
        columns[other] += weight / total
    return tuple(rows), tuple(columns)


def compute_kappa(table: Table, classes: int) -> float | None:
    """Cohen's kappa with quadratic weights, which for two classes is the plain one. None where both raters used one
    class alone, so that it is not defined."""
    total = math.fsum(table.values())
    if not total:
        return None
    rows, columns = _compute_margins(table, classes)
    seen = math.fsum((one - other) ** 2 * weight for (one, other), weight in table.items()) / total
    chance = math.fsum(
        (one - other) ** 2 * rows[one] * columns[other] for one in range(classes) for other in range(classes)
    )
    return 1 - seen / chance if chance > 1e-12 else None


def compute_pabak(table: Table, classes: int) -> float | None:
    """Kappa as it would be if all classes were equally frequent (Byrt, Bishop and Carlin, 1993)."""
    agreed = compute_observed_agreement(table)
    return None if agreed is None else (classes * agreed - 1) / (classes - 1)


def compute_ac1(table: Table, classes: int) -> float | None:
    """Gwet's AC1 (Br. J. Math. Stat. Psychol. 61, 2008)."""
    agreed = compute_observed_agreement(table)
    if agreed is None:
        return None
    rows, columns = _compute_margins(table, classes)
    shares = [(one + other) / 2 for one, other in zip(rows, columns, strict=True)]
    chance = math.fsum(share * (1 - share) for share in shares) / (classes - 1)
    return (agreed - chance) / (1 - chance) if chance < 1 else None


def _compute_bias(table: Table) -> float | None:
    """The mean difference: the second rater's class less the first's."""
    total = math.fsum(table.values())
    return math.fsum((other - one) * weight for (one, other), weight in table.items()) / total if total else None


def compute_auc(rows: Iterable[tuple[bool, float, float]]) -> float | None:
    """How often a sound item has a higher value than a defective one, a tie counting half: rows are defective, value,
    weight. None without both kinds."""
    sound: defaultdict[float, float] = defaultdict(float)
    faulty: defaultdict[float, float] = defaultdict(float)
    for defective, value, weight in rows:
        (faulty if defective else sound)[value] += weight
    total = math.fsum(sound.values()) * math.fsum(faulty.values())
    if not total:
        return None
    values = sorted(faulty)
    below = [0.0]
    for value in values:
        below.append(below[-1] + faulty[value])
    won = (
        weight * (below[bisect_left(values, value)] + below[bisect_right(values, value)]) / 2
        for value, weight in sound.items()
    )
    return math.fsum(won) / total


@dataclass(frozen=True)
class Bootstrap:
    """Resamples units. The same units always get the same interval."""

    seed: int = 0
    resamples: int = RESAMPLES

    def estimate(
        self,
        units: Sequence[Hashable],
        figure: Callable[[Mapping[Hashable, int]], float | None],
        least: float = 0.0,
    ) -> AgreementFigure:
        """`figure` of how often each unit counts. Resamples in which the figure is not defined are left out."""
        named = sorted(set(units), key=str)
        value = figure(dict.fromkeys(named, 1))
        if value is None or len(named) < 2:
            return AgreementFigure(value=value, trials=len(named))
        chance = random.Random(f"units {self.seed}")  # noqa: S311
        found = []
        for _ in range(self.resamples):
            counts: defaultdict[Hashable, int] = defaultdict(int)
            for unit in chance.choices(named, k=len(named)):
                counts[unit] += 1
            if (again := figure(counts)) is not None:
                found.append(again)
        ordered = sorted(found)
        if not ordered or ordered[-1] - ordered[0] < _SAME:
            low, high = bound_unseen(value, len(named), least)
        else:
            low, high = bound_resampled(ordered, len(named))
        return AgreementFigure(value=value, low=low, high=high, trials=len(named))


# A judge against the people who labelled the queue's items

FEWEST_GROUPS: Final = 50
"""Below so many groups only counts are given."""


@dataclass(frozen=True)
class _Item:
    """A group with labels."""

    record: LabelledGroupRecord

    @property
    def unit(self) -> Hashable:
        return self.record.task_id

    @property
    def share(self) -> float:
        """What each of its labels counts, so that all of them count as one."""
        return 1 / len(self.record.labels)


def measure_judge_agreement(records: Sequence[LabelledGroupRecord], seed: int = 0) -> AgreementSlice:
    return _measure_slice("all", [_Item(record) for record in records], Bootstrap(seed))


def measure_slices(
    records: Sequence[LabelledGroupRecord], name: Callable[[Label], str], seed: int = 0
) -> tuple[AgreementSlice, ...]:
    """By what a label belongs to, where there is more than one of it."""
    names = sorted({name(label) for record in records for label in record.labels})
    if len(names) < 2:
        return ()
    return tuple(_measure_slice(each, _keep_labels(records, each, name), Bootstrap(seed)) for each in names)


def find_lower_bound(records: Sequence[LabelledGroupRecord], seed: int = 0) -> tuple[int, float | None]:
    """The number of groups with an order, and the lower bound of the pair accuracy; None where there are too few."""
    pairs = _measure_pairs([_Item(record) for record in records], Bootstrap(seed))
    return pairs.groups, pairs.judge.low


def _keep_labels(records: Sequence[LabelledGroupRecord], chosen: str, name: Callable[[Label], str]) -> list[_Item]:
    cut = ((record, tuple(label for label in record.labels if name(label) == chosen)) for record in records)
    return [_Item(record.model_copy(update={"labels": labels})) for record, labels in cut if labels]


def _measure_slice(name: str, items: Sequence[_Item], bootstrap: Bootstrap) -> AgreementSlice:
    criteria = sorted(
        {
            criterion
            for item in items
            for label in item.record.labels
            for reply in label.replies.values()
            for criterion in reply.levels
        }
    )
    return AgreementSlice(
        name=name,
        pairs=_measure_pairs(items, bootstrap),
        criteria=tuple(_measure_criterion(one, items, bootstrap) for one in criteria),
        defects=_measure_defects(items, bootstrap),
    )


@dataclass(frozen=True)
class _Row:
    """One comparison: `share` is what it counts, `value` what is averaged."""

    unit: Hashable
    value: float
    share: float


def _measure_pairs(items: Sequence[_Item], bootstrap: Bootstrap) -> PairAgreement:
    ordered, hits, ties, shared, on_shared = 0, list[_Row](), [], list[_Row](), list[_Row]()
    for item in items:
        pairs = [each for label in item.record.labels for each in _order_pairs(label, item.record)]
        ordered += bool(pairs)
        for pair, order in pairs:
            judged = _order_by_rewards(item.record, pair)
            ties.append((item.share, order == 1, judged == 1))
            if order != 1:
                hits.append(_Row(item.unit, _score_order(order, judged), item.share))
        for pair, one, other in _meet(item.record):
            if 1 not in (one, other):
                judged = _order_by_rewards(item.record, pair)
                against_both = (_score_order(one, judged) + _score_order(other, judged)) / 2
                shared.append(_Row(item.unit, float(one == other), 1.0))
                on_shared.append(_Row(item.unit, against_both, 1.0))
    counts = PairAgreement(groups=ordered, pairs=len(hits), shared_pairs=len(shared))
    if ordered < FEWEST_GROUPS:
        return counts
    total = math.fsum(share for share, _, _ in ties)
    return counts.model_copy(
        update={
            "judge": _estimate_mean(hits, bootstrap),
            "people": _estimate_mean(shared, bootstrap),
            "judge_on_shared": _estimate_mean(on_shared, bootstrap),
            "people_ties": math.fsum(share for share, tied, _ in ties if tied) / total,
            "judge_ties": math.fsum(share for share, _, tied in ties if tied) / total,
        }
    )


def _order_pairs(label: Label, record: LabelledGroupRecord) -> Iterator[tuple[tuple[str, str], Order]]:
    """How a person ordered each pair of replies that have a reward: decided ones first."""
    tiers = [tuple(one for one in tier if one in record.rewards) for tier in label.order]
    for place, tier in enumerate(tiers):
        for better in tier:
            for worse in chain.from_iterable(tiers[place + 1 :]):
                yield ((better, worse), 0) if better < worse else ((worse, better), 2)
    for tier in tiers:
        for one, other in combinations(tier, 2):
            yield (min(one, other), max(one, other)), 1


def _order_by_rewards(record: LabelledGroupRecord, pair: tuple[str, str]) -> Order:
    return _order_by(record.rewards[pair[0]] - record.rewards[pair[1]])


def _meet(record: LabelledGroupRecord) -> Iterator[tuple[tuple[str, str], Order, Order]]:
    """Each pair that two people ordered, blind to each other, and how."""
    for one, other in combinations([dict(_order_pairs(label, record)) for label in record.labels], 2):
        yield from ((pair, one[pair], other[pair]) for pair in sorted(one.keys() & other.keys()))


def _list_levels(record: LabelledGroupRecord) -> Iterator[tuple[str, int, int]]:
    """A criterion with a person's level of it and the judge's, for each reply that has both."""
    for label in record.labels:
        for rollout_id, reply in label.replies.items():
            for criterion, level in reply.levels.items():
                value = record.levels.get(rollout_id, {}).get(criterion)
                if level is not None and value is not None:
                    yield criterion, level, round(value * (LEVELS_OF_LABELS - 1))


def _estimate_mean(rows: Iterable[_Row], bootstrap: Bootstrap) -> AgreementFigure:
    """A weighted mean."""
    above: defaultdict[Hashable, float] = defaultdict(float)
    below: defaultdict[Hashable, float] = defaultdict(float)
    for row in rows:
        above[row.unit] += row.value * row.share
        below[row.unit] += row.share

    def divide(counts: Mapping[Hashable, int]) -> float | None:
        total = sum(below[unit] * count for unit, count in counts.items())
        return sum(above[unit] * count for unit, count in counts.items()) / total if total else None

    return bootstrap.estimate(list(below), divide) if below else AgreementFigure()


def _measure_criterion(criterion: str, items: Sequence[_Item], bootstrap: Bootstrap) -> CriterionAgreement:
    tables: defaultdict[Hashable, list[tuple[int, int, float]]] = defaultdict(list)
    used: set[int] = set()
    for index, item in enumerate(items):
        for name, level, judged in _list_levels(item.record):
            if name == criterion:
                tables[item.unit].append((level, judged, item.share))
                used.add(index)
    rows = [row for some in tables.values() for row in some]
    counts = CriterionAgreement(criterion=criterion, groups=len(used), replies=len(rows))
    if len(used) < FEWEST_GROUPS:
        return counts
    table = build_table(rows)
    people, judge = _compute_margins(table, LEVELS_OF_LABELS)

    def kappa(units: Mapping[Hashable, int]) -> float | None:
        again = ((one, other, share * units[unit]) for unit in units for one, other, share in tables[unit])
        return compute_kappa(build_table(again), LEVELS_OF_LABELS)

    equal = [_Row(unit, float(one == other), share) for unit, some in tables.items() for one, other, share in some]
    return counts.model_copy(
        update={
            "kappa": bootstrap.estimate(list(tables), kappa, least=-1.0),
            "agreement": _estimate_mean(equal, bootstrap),
            "pabak": compute_pabak(table, LEVELS_OF_LABELS),
            "ac1": compute_ac1(table, LEVELS_OF_LABELS),
            "bias": _compute_bias(table),
            "people": people,
            "judge": judge,
            "constant": max(people),
        }
    )


def _measure_defects(items: Sequence[_Item], bootstrap: Bootstrap) -> DefectAgreement:
    rows: list[tuple[_Item, str, bool]] = []
    used: set[int] = set()
    for index, item in enumerate(items):
        for label in item.record.labels:
            named = [(name, one.defect) for name, one in label.replies.items() if one.defect is not None]
            compared = [(item, name, defect) for name, defect in named if name in item.record.rewards]
            rows += compared
            used |= {index} if compared else set()
    counts = DefectAgreement(groups=len(used), replies=len(rows))
    if len(used) < FEWEST_GROUPS:
        return counts
    observed = compute_observed_agreement(build_table((int(defect), 1, item.share) for item, _, defect in rows)) or 0.0
    return counts.model_copy(
        update={
            "base_rate": observed,
            "constant": max(observed, 1 - observed),
            "auc": _estimate_auc(rows, bootstrap),
            **_measure_alarm("gate", rows, lambda item, name: name in item.record.gated, bootstrap),
            **_measure_alarm("cap", rows, lambda item, name: name in item.record.capped, bootstrap),
        }
    )


def _measure_alarm(
    alarm: str, rows: Sequence[tuple[_Item, str, bool]], raised: Callable[[_Item, str], bool], bootstrap: Bootstrap
) -> dict[str, AgreementFigure]:
    flagged = [_Row(item.unit, float(defect), item.share) for item, name, defect in rows if raised(item, name)]
    faulty = [_Row(item.unit, float(raised(item, name)), item.share) for item, name, defect in rows if defect]
    return {
        f"{alarm}_precision": _estimate_mean(flagged, bootstrap),
        f"{alarm}_recall": _estimate_mean(faulty, bootstrap),
    }


def _estimate_auc(rows: Sequence[tuple[_Item, str, bool]], bootstrap: Bootstrap) -> AgreementFigure:
    by_unit: defaultdict[Hashable, list[tuple[bool, float, float]]] = defaultdict(list)
    for item, name, defect in rows:
        value = item.record.absolutes.get(name, item.record.rewards[name])
        by_unit[item.unit].append((defect, 0.0 if name in item.record.gated else value, item.share))

    def order(counts: Mapping[Hashable, int]) -> float | None:
        return compute_auc(
            (defect, value, share * count) for unit, count in counts.items() for defect, value, share in by_unit[unit]
        )

    return bootstrap.estimate(list(by_unit), order)


# Plain counts for whoever is still labelling, without intervals


@dataclass(frozen=True)
class AgreementCount:
    """Two raters. Kappa has quadratic weights: to find equal what the other orders is half as far off. None where it is
    not defined, as where both say the same of everything."""

    name: str
    items: int
    equal: int
    share: float | None
    kappa: float | None
    ac1: float | None


def keep_whole_blocks(records: Sequence[LabelledGroupRecord], size: int) -> list[LabelledGroupRecord]:
    """With the oldest labels alone, a multiple of `size`: what grows with every label would tell what the judge thinks
    of the one that was labelled last."""
    dated = sorted((label.created_at, label.label_id) for record in records for label in record.labels)
    oldest = {label_id for _, label_id in dated[: len(dated) // size * size]}
    cut = (
        record.model_copy(update={"labels": tuple(label for label in record.labels if label.label_id in oldest)})
        for record in records
    )
    return [record for record in cut if record.labels]


def count_judge_pairs(records: Iterable[LabelledGroupRecord]) -> AgreementCount:
    """A person's order of each pair against the judge's rewards."""
    return _count_pairs(
        (order, _order_by_rewards(record, pair))
        for record in records
        for label in record.labels
        for pair, order in _order_pairs(label, record)
    )


def count_people_pairs(records: Iterable[LabelledGroupRecord]) -> AgreementCount:
    """Of pairs that two people ordered, blind to each other."""
    return _count_pairs((one, other) for record in records for _, one, other in _meet(record))


def count_levels(records: Iterable[LabelledGroupRecord]) -> tuple[AgreementCount, ...]:
    """A person's level of each criterion against the judge's."""
    rows: defaultdict[str, list[tuple[int, int, float]]] = defaultdict(list)
    for criterion, level, judged in chain.from_iterable(map(_list_levels, records)):
        rows[criterion].append((level, judged, 1.0))
    return tuple(_count(name, pairs, LEVELS_OF_LABELS) for name, pairs in sorted(rows.items()))


def _count_pairs(orders: Iterable[tuple[Order, Order]]) -> AgreementCount:
    """From both sides, since none of two replies is the first."""
    rows = [row for one, other in orders for row in ((one, other, 0.5), (2 - one, 2 - other, 0.5))]
    return _count("pairs", rows, _ORDERS)


def _count(name: str, rows: Sequence[tuple[int, int, float]], classes: int) -> AgreementCount:
    table = build_table(rows)
    return AgreementCount(
        name=name,
        items=round(sum(table.values())),
        equal=round(sum(weight for (one, other), weight in table.items() if one == other)),
        share=compute_observed_agreement(table),
        kappa=compute_kappa(table, classes),
        ac1=compute_ac1(table, classes),
    )
