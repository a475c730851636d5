"""What `judges bench` measures of a judge on labelled replies, and what others have published of theirs.

Every figure is a mean over groups, whose 95 % interval resamples them. Beside a judge's figures stand those of judges
without any understanding: one that finds all replies equal, and one that prefers the longer reply.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Final, Literal, TypeVar

import yaml
from pydantic import TypeAdapter

from app.domain.judge_measurements import MeasuredFigure
from app.domain.judging import JudgeFailure, Judgement, Mode, PanelResult
from app.domain.scores import Score
from app.domain.values import FiniteNumber, Frozen, Proportion, compute_intraclass_correlation
from app.evaluation.agreement import AgreementFigure, JudgedLabels, measure_label_agreement
from app.evaluation.labelled_groups import LabelledGroup, RowForm
from app.evaluation.report import Resampler

Headline = Literal["pair_accuracy", "consistent_accuracy", "best_of", "correlation"]
"""The figure that the authors of a data set report."""

_HEADLINES: Final[Mapping[RowForm, Headline]] = {
    "judgebench": "consistent_accuracy",
    "rewardbench2": "best_of",
    "personaeval": "best_of",
    "characterbench": "correlation",
}
_SAME: Final = 1e-9
"""Smaller differences of rewards are rounding errors."""
_FEWEST_FOR_BEST: Final = 3
"""Of two replies the best one is what pair accuracy says."""


class BenchFigures(Frozen):
    """One mode. Calls, tokens, seconds and money are means over the groups that were judged, cached judgements
    included."""

    mode: Mode
    groups: int
    unscored: int
    """Groups without a reward, because the judge failed."""
    pair_accuracy: AgreementFigure
    consistent_accuracy: AgreementFigure = AgreementFigure()
    """How often the verdicts of both orders, added up, are for the better reply: one right verdict and a tie count, a
    tie or a contradiction does not. What sees one reply at a time has one verdict. A judge without a usable answer is
    wrong. JudgeBench's accuracy."""
    swap_consistency: AgreementFigure = AgreementFigure()
    """How often both orders give the same verdict on a pair. Null where no pair was read in both."""
    best_of: AgreementFigure = AgreementFigure()
    """Of groups of three or more with one best reply: how often it got the highest reward. A tie for the highest counts
    its share. The accuracy of RewardBench 2 and PersonaEval."""
    all_right: AgreementFigure = AgreementFigure()
    """Of a subset with groups of several best replies: how often each of these got more than any other reply. The part
    of RewardBench 2's Ties that is an accuracy."""
    correlation: AgreementFigure
    self_agreement: AgreementFigure = AgreementFigure()
    """How often a pair keeps its order when the group is judged again. Null without `--repeat`."""
    retest: FiniteNumber | None = None
    """ICC(1,1) of the rewards of replies that were judged again."""
    unusable: AgreementFigure = AgreementFigure()
    """The share of readings without a usable answer, with Wilson's interval."""
    calls_per_group: FiniteNumber
    input_tokens_per_group: FiniteNumber
    output_tokens_per_group: FiniteNumber
    seconds_per_reading: FiniteNumber = 0.0
    usd_per_thousand_groups: FiniteNumber | None
    """Null without prices."""
    subsets: dict[str, AgreementFigure] = {}
    """The headline of each part of the data set, where it has several; of Ties, `all_right`."""
    failures: tuple[str, ...] = ()
    """The first few reasons of unscored groups."""


class Baselines(Frozen):
    """Figures of judges that understand nothing, on the same groups. A constant finds all replies equal."""

    constant_pair_accuracy: FiniteNumber = 0.5
    constant_best_of: FiniteNumber | None = None
    most_frequent_label: FiniteNumber | None = None
    """The share of replies with the label that most have: so often is right who always gives that label."""
    longer_pair_accuracy: AgreementFigure = AgreementFigure()
    """Of a judge that prefers the longer reply."""
    longer_best_of: AgreementFigure = AgreementFigure()

    def list_beside(self, figure: str) -> tuple[float | None, float | None]:
        """What the constant and the longer reply get; None where that is not known. `figure` is a field of
        BenchFigures."""
        by_figure = {
            "pair_accuracy": (self.constant_pair_accuracy, self.longer_pair_accuracy.value),
            "consistent_accuracy": (0.0, None),
            "best_of": (self.constant_best_of, self.longer_best_of.value),
            "correlation": (0.0, None),
        }
        return by_figure.get(figure, (None, None))

    def describe(self, figure: str) -> str:
        constant, longer = self.list_beside(figure)
        words = [] if constant is None else [f"all equal: {constant:.3f}"]
        return "; ".join([*words, *([] if longer is None else [f"longer reply: {longer:.3f}"])])


class PublishedFigure(Frozen):
    """What somebody else has measured."""

    form: RowForm
    data: str
    """Which part of the data set."""
    judge: str
    figure: str
    """A field of BenchFigures, or the authors' own measure in words."""
    value: FiniteNumber
    known: Literal["computed", "read"]
    """Computed from the answers that the authors publish, or read on a page and not checked."""
    source: str
    date: date


class BenchReport(Frozen):
    judge: str
    model: str
    labels: str
    form: RowForm
    headline: Headline
    repeat: int = 1
    left_out: dict[str, int]
    baselines: Baselines
    modes: tuple[BenchFigures, ...]
    published: tuple[PublishedFigure, ...] = ()


FIGURE_NAMES: Final = {
    "pair_accuracy": "pair accuracy",
    "consistent_accuracy": "consistent accuracy",
    "swap_consistency": "swap consistency",
    "best_of": "best of n",
    "all_right": "all right ones first",
    "correlation": "r",
    "self_agreement": "agreement with itself",
    "unusable": "unusable readings",
}
"""By field of BenchFigures, in the order in which they are shown."""


def list_measured_figures(report: BenchReport) -> tuple[MeasuredFigure, ...]:
    """Those that have a value."""
    measured = (
        (name, mode, figure)
        for mode in report.modes
        for name in FIGURE_NAMES
        if (figure := getattr(mode, name)).value is not None
    )
    return tuple(
        MeasuredFigure(
            name=FIGURE_NAMES[name],
            mode=mode.mode,
            value=figure.value,
            low=figure.low,
            high=figure.high,
            trials=figure.trials,
            beside=report.baselines.describe(name),
        )
        for name, mode, figure in measured
    )


def get_headline(form: RowForm) -> Headline:
    return _HEADLINES.get(form, "pair_accuracy")


def list_published_figures(form: str) -> tuple[PublishedFigure, ...]:
    """Of rows of this form."""
    text = Path(__file__).with_name("published_judges.yaml").read_text(encoding="utf-8")
    found = TypeAdapter(tuple[PublishedFigure, ...]).validate_python(yaml.load(text, yaml.CSafeLoader))
    return tuple(one for one in found if one.form == form)


# What a judge made of a group.

_Pair = tuple[int, int]
"""Two replies by their places in the group, the lower first."""
_Sign = Literal[-1, 0, 1]
"""Of a pair: 1 where the first is better, 0 for a tie."""
_OWN_FAULTS: Final[frozenset[JudgeFailure | None]] = frozenset({"unusable", "refused"})
"""Failures of the judge itself, and not of its server or its budget."""


@dataclass(frozen=True)
class _JudgedGroup:
    """`rewards` are null for replies without a score. `orders`: the verdicts on a pair where its first reply was shown
    before the other, and where after it; null for an order without a usable answer."""

    labels: tuple[float, ...]
    rewards: tuple[float | None, ...]
    subset: str
    orders: Mapping[_Pair, tuple[_Sign | None, _Sign | None]]
    is_own_fault: bool
    """Every failed reading is the judge's own fault."""

    @property
    def scored(self) -> JudgedLabels | None:
        """None unless every reply has a reward: part of a group would be another question."""
        rewards = [reward for reward in self.rewards if reward is not None]
        return JudgedLabels(self.labels, tuple(rewards), self.subset) if len(rewards) == len(self.labels) else None

    def list_pairs(self) -> Iterator[tuple[_Pair, _Sign]]:
        """Those with different labels, and how people ordered them."""
        for one, other in combinations(range(len(self.labels)), 2):
            if sign := _get_sign(self.labels[one] - self.labels[other]):
                yield (one, other), sign


def _get_sign(difference: float) -> _Sign:
    return 0 if abs(difference) <= _SAME else 1 if difference > 0 else -1


def _pair_with_labels(group: LabelledGroup, result: PanelResult) -> _JudgedGroup:
    faults = [made.failure for made in result.judgements if made.error is not None]
    return _JudgedGroup(
        labels=tuple(reply.label for reply in group.replies),
        rewards=tuple(score.reward for score in result.scores),
        subset=group.subset,
        orders=_collect_orders(result.scores, result.judgements),
        is_own_fault=bool(faults) and _OWN_FAULTS.issuperset(faults),
    )


def _collect_orders(
    scores: Sequence[Score], judgements: Iterable[Judgement]
) -> dict[_Pair, tuple[_Sign | None, _Sign | None]]:
    """By the ranking of the first usable reading in each order. Later ones were asked for because of these."""
    found: dict[_Pair, list[_Sign | None]] = {}
    for made in judgements:
        if made.error is not None:
            continue
        shown = {name: place for place, name in enumerate(made.order)}
        tiers = {name: tier for tier, names in enumerate(made.ranking) for name in names}
        for one, other in combinations(range(len(scores)), 2):
            names = scores[one].candidate, scores[other].candidate
            if names[0] == names[1] or not tiers.keys() >= set(names) or not shown.keys() >= set(names):
                continue
            signs = found.setdefault((one, other), [None, None])
            place = int(shown[names[0]] > shown[names[1]])
            if signs[place] is None:
                signs[place] = _get_sign(tiers[names[1]] - tiers[names[0]])
    return {pair: (forth, back) for pair, (forth, back) in found.items()}


# Figures.


def build_figures(
    groups: Sequence[LabelledGroup],
    judged: Sequence[PanelResult],
    mode: Mode,
    seed: int,
    headline: Headline = "pair_accuracy",
    repeats: Sequence[Sequence[PanelResult]] = (),
) -> BenchFigures:
    """`repeats`: the same groups, judged again."""
    paired = [_pair_with_labels(group, result) for group, result in zip(groups, judged, strict=True)]
    scored = [one for group in paired if (one := group.scored) is not None]
    agreement = measure_label_agreement(scored, seed)
    made = [judgement for each in judged for judgement in each.judgements]
    costs = [judgement.cost_usd for judgement in made if judgement.cost_usd is not None]
    reasons = [score.rationale for each in judged for score in each.scores if score.reward is None]
    estimate = _Estimator(seed)
    rest, tied = _split_ties(scored)
    self_agreement, retest = _measure_repeats(judged, repeats, estimate)
    return BenchFigures(
        mode=mode,
        groups=len(groups),
        unscored=len(paired) - len(scored),
        pair_accuracy=agreement.pair_accuracy,
        consistent_accuracy=estimate(_list_known(_compute_consistent_accuracy, paired)),
        swap_consistency=estimate(_list_known(_compute_swap_consistency, paired)),
        best_of=estimate(_list_known(_compute_best_of, rest)),
        all_right=estimate([_is_all_right(one) for one in tied]),
        correlation=agreement.correlation,
        self_agreement=self_agreement,
        retest=retest,
        unusable=_build_share([judgement.error is not None for judgement in made]),
        calls_per_group=sum(judgement.calls for judgement in made) / len(judged),
        input_tokens_per_group=sum(judgement.input_tokens for judgement in made) / len(judged),
        output_tokens_per_group=sum(judgement.output_tokens for judgement in made) / len(judged),
        seconds_per_reading=fmean(judgement.latency_seconds for judgement in made) if made else 0.0,
        usd_per_thousand_groups=1000 * math.fsum(costs) / len(judged) if costs else None,
        subsets=_measure_subsets(paired, headline, seed),
        failures=tuple(dict.fromkeys(reasons))[:5],
    )


@dataclass(frozen=True)
class _Estimator:
    seed: int

    def __call__(self, values: Sequence[float]) -> AgreementFigure:
        found = Resampler(self.seed).estimate(values)
        return AgreementFigure(value=found.value, low=found.low, high=found.high, trials=found.tasks)


_GroupT = TypeVar("_GroupT")


def _list_known(compute: Callable[[_GroupT], float | None], groups: Iterable[_GroupT]) -> list[float]:
    return [value for group in groups if (value := compute(group)) is not None]


def _compute_consistent_accuracy(group: _JudgedGroup) -> float | None:
    hits = [
        bool(signs) and sum(signs) * wanted > 0
        for pair, wanted in group.list_pairs()
        if (signs := _list_verdicts(group, pair)) is not None
    ]
    return fmean(hits) if hits else None


def _list_verdicts(group: _JudgedGroup, pair: _Pair) -> list[_Sign] | None:
    """Empty where the judge gave none; None where that is not its fault. A pair that no reading compares is decided by
    the rewards, as behind gates and one by one."""
    if signs := [sign for sign in group.orders.get(pair, ()) if sign is not None]:
        return signs
    one, other = (group.rewards[place] for place in pair)
    if one is not None and other is not None:
        return [_get_sign(one - other)]
    return [] if group.is_own_fault else None


def _compute_swap_consistency(group: _JudgedGroup) -> float | None:
    both = [signs for pair, _ in group.list_pairs() if None not in (signs := group.orders.get(pair, (None, None)))]
    return fmean(forth == back for forth, back in both) if both else None


def _compute_best_of(group: JudgedLabels) -> float | None:
    best = _find_best(group)
    if len(group.labels) < _FEWEST_FOR_BEST or len(best) != 1:
        return None
    top = [place for place, reward in enumerate(group.rewards) if max(group.rewards) - reward <= _SAME]
    return (best[0] in top) / len(top)


def _find_best(group: JudgedLabels) -> list[int]:
    return [place for place, label in enumerate(group.labels) if max(group.labels) - label <= _SAME]


def _split_ties(groups: Sequence[JudgedLabels]) -> tuple[list[JudgedLabels], list[JudgedLabels]]:
    """The groups of subsets in which every group of three or more has one best reply, and those of the others."""
    several = {
        group.subset
        for group in groups
        if len(group.labels) >= _FEWEST_FOR_BEST and 1 < len(_find_best(group)) < len(group.labels)
    }
    return [one for one in groups if one.subset not in several], [one for one in groups if one.subset in several]


def _is_all_right(group: JudgedLabels) -> float:
    best = _find_best(group)
    others = [reward for place, reward in enumerate(group.rewards) if place not in best]
    return float(not others or min(group.rewards[place] for place in best) - max(others) > _SAME)


def _measure_subsets(paired: Sequence[_JudgedGroup], headline: Headline, seed: int) -> dict[str, AgreementFigure]:
    names = sorted({group.subset for group in paired})
    if len(names) < 2:
        return {}
    measured = {
        name: _measure_headline([one for one in paired if one.subset == name], headline, seed) for name in names
    }
    return {name: figure for name, figure in measured.items() if figure.value is not None}


def _measure_headline(paired: Sequence[_JudgedGroup], headline: Headline, seed: int) -> AgreementFigure:
    estimate = _Estimator(seed)
    if headline == "consistent_accuracy":
        return estimate(_list_known(_compute_consistent_accuracy, paired))
    scored = [one for group in paired if (one := group.scored) is not None]
    if headline == "best_of":
        rest, tied = _split_ties(scored)
        return estimate([_is_all_right(one) for one in tied] if tied else _list_known(_compute_best_of, rest))
    agreement = measure_label_agreement(scored, seed)
    return agreement.correlation if headline == "correlation" else agreement.pair_accuracy


def _measure_repeats(
    judged: Sequence[PanelResult], repeats: Sequence[Sequence[PanelResult]], estimate: _Estimator
) -> tuple[AgreementFigure, float | None]:
    """How often pairs keep their order, and the ICC of the rewards. Each repeat is compared with the first time."""
    shares: list[float] = []
    values: list[tuple[float, float]] = []
    for first, *again in zip(judged, *repeats, strict=True):
        kept = [same for later in again for same in _compare_orders(first, later)]
        shares += [fmean(kept)] if kept else []
        values += [pair for later in again for pair in _pair_rewards(first, later)]
    return estimate(shares), compute_intraclass_correlation(values)


def _pair_rewards(first: PanelResult, later: PanelResult) -> list[tuple[float, float]]:
    both = zip(first.scores, later.scores, strict=True)
    return [(one.reward, other.reward) for one, other in both if one.reward is not None and other.reward is not None]


def _compare_orders(first: PanelResult, later: PanelResult) -> list[bool]:
    """For each pair that has rewards both times, whether its order is the same."""
    rewards = _pair_rewards(first, later)
    return [_get_sign(one[0] - other[0]) == _get_sign(one[1] - other[1]) for one, other in combinations(rewards, 2)]


def _build_share(hits: Sequence[bool]) -> AgreementFigure:
    share = Proportion(sum(hits), len(hits))
    low, high = share.interval or (None, None)
    return AgreementFigure(value=share.value, low=low, high=high, trials=share.trials)


def measure_baselines(groups: Sequence[LabelledGroup], seed: int) -> Baselines:
    by_length = [
        JudgedLabels(
            tuple(reply.label for reply in group.replies),
            tuple(float(len(reply.text)) for reply in group.replies),
            group.subset,
        )
        for group in groups
    ]
    estimate = _Estimator(seed)
    rest, _ = _split_ties(by_length)
    alike = [JudgedLabels(one.labels, (0.0,) * len(one.labels), one.subset) for one in rest]
    best = _list_known(_compute_best_of, alike)
    labels = Counter(label for one in by_length for label in one.labels)
    return Baselines(
        constant_best_of=fmean(best) if best else None,
        most_frequent_label=labels.most_common(1)[0][1] / labels.total(),
        longer_pair_accuracy=measure_label_agreement(by_length, seed).pair_accuracy,
        longer_best_of=estimate(_list_known(_compute_best_of, rest)),
    )
