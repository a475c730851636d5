"""What a judge's readings of a group come to: a group of distinct texts, its usable judgements, and one view per judge.

A view holds the means over the readings: of the criteria's scores, and of the ranks, which are spaced like the
quantiles of a normal distribution. Its standings are shrunk towards the middle by their reliability, the share of their
spread that is no noise. Noise is what a text gets in one reading and not in another, beyond what a steady slope over
the places explains, since mirrored orders cancel that slope. So a judge that agrees with itself loses nothing, and no
reading is discarded for what it says.

Where only some pairs were compared, the others are estimated by the Bradley-Terry model (decision 0008).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations, groupby
from statistics import NormalDist
from typing import Final

from app.domain.judging import (
    REWARD_CRITERION,
    Candidate,
    Case,
    Defect,
    Judgement,
    JudgeRequest,
    Mode,
    Rubric,
    Verdict,
    apply_bounds,
    compute_absolute_scores,
    find_cap,
)
from app.domain.making import NEUTRAL
from app.domain.tasks import Message
from app.domain.values import MEBIBYTE, remember
from app.judges.verdicts import derive_opaque_ids, drop_unproven_defects
from app.ports.judges import Judge

# Ranks: how far two lists of them agree, and win rates from comparisons of pairs.

Shares = Mapping[tuple[int, int], float]
"""By two indices, the lower first: how often the first was preferred; a tie counts half. Missing pairs were not
compared."""

Pairings = Sequence[tuple[int, int]]
"""Which items are compared, each pair once, the lower index first."""

ROUND_ROBIN: Final = 4
"""Up to this many items every pair is compared."""
NEIGHBOURS: Final = 2
"""Above that each item is compared with this many successors in a circle."""

_PRIOR: Final = 0.5
"""Prior wins and losses of every item against an average opponent. Without them an item that won everything would be
infinitely strong."""
_ROUNDS: Final = 200
_TOLERANCE: Final = 1e-4
"""The fit ends when no logarithm of a strength changes by more, or after so many rounds."""

_TIE_DECIMALS: Final = 3
"""Decimal places to which two values must be equal for a tie."""


def list_pairings(count: int) -> tuple[tuple[int, int], ...]:
    """The pairs of `count` items to compare, the lower index first."""
    if count <= ROUND_ROBIN:
        return tuple(combinations(range(count), 2))
    met = {
        tuple(sorted((index, (index + step) % count))) for index in range(count) for step in range(1, NEIGHBOURS + 1)
    }
    return tuple(sorted((low, high) for low, high in met))


def suffice_for_order(planned: Pairings, made: Pairings) -> bool:
    """Whether the comparisons made connect all items, and each item has at least half of those planned for it: who was
    compared with whom must hardly depend on whose text a judge fails at."""
    planned_counts, made_counts = (Counter(item for pair in pairs for item in pair) for pairs in (planned, made))
    return all(2 * made_counts[item] >= planned_counts[item] for item in planned_counts) and _are_connected(
        planned_counts, made
    )


def _are_connected(items: Collection[int], pairs: Pairings) -> bool:
    neighbours: defaultdict[int, set[int]] = defaultdict(set)
    for low, high in pairs:
        neighbours[low].add(high)
        neighbours[high].add(low)
    reached: set[int] = set()
    left = [min(items)]
    while left:
        item = left.pop()
        if item not in reached:
            reached.add(item)
            left += neighbours[item]
    return len(reached) == len(items)


def compute_preference(one: float, other: float) -> float:
    """1 when `one` is greater, 0 when `other` is, 0.5 when they are equal."""
    return 0.5 if abs(one - other) <= 1e-9 else float(one > other)


def compute_win_rates(count: int, shares: Shares) -> tuple[float, ...]:
    """Each item's mean share over all others. Pairs that were not compared are estimated with the Bradley-Terry
    model."""
    if count == 1:
        return (0.5,)
    own: list[list[float]] = [[] for _ in range(count)]
    for (low, high), share in shares.items():
        own[low].append(share)
        own[high].append(1.0 - share)
    if len(shares) < count * (count - 1) // 2:
        strengths = _fit_bradley_terry(count, shares)
        for low, high in combinations(range(count), 2):
            if (low, high) not in shares:
                both = strengths[low] + strengths[high]
                own[low].append(strengths[low] / both)
                own[high].append(strengths[high] / both)
    return tuple(map(mean, own))


def _fit_bradley_terry(count: int, shares: Shares) -> Sequence[float]:
    """Hunter's MM algorithm (Annals of Statistics 32, 2004, 384-406). A tie counts as half a win for each."""
    opponents: defaultdict[int, list[int]] = defaultdict(list)
    wins = [_PRIOR] * count
    for (low, high), share in shares.items():
        opponents[low].append(high)
        opponents[high].append(low)
        wins[low] += share
        wins[high] += 1.0 - share
    strengths = [1.0] * count  # that of the average opponent too
    for _ in range(_ROUNDS):
        before = strengths
        strengths = [
            wins[index]
            / math.fsum(
                [*(1.0 / (own + before[other]) for other in opponents[index]), 2.0 * _PRIOR / (own + 1.0)],
            )
            for index, own in enumerate(before)
        ]
        if all(abs(math.log(now / then)) < _TOLERANCE for now, then in zip(strengths, before, strict=True)):
            break
    return strengths


_NORMAL: Final = NormalDist()


def normalise_ranks(tiers: Sequence[Sequence[str]]) -> dict[str, float]:
    """1 for the best, 0 for the last; ties share the mean of their places; 0.5 for a single item."""
    count = sum(map(len, tiers))
    standings: dict[str, float] = {}
    above = 0
    for tier in tiers:
        place = above + (len(tier) - 1) / 2
        standings.update(dict.fromkeys(tier, NEUTRAL if count == 1 else 1.0 - place / (count - 1)))
        above += len(tier)
    return standings


def space_as_normal(standings: Sequence[float]) -> tuple[float, ...]:
    """Means of normalised ranks, or win rates, as the normal distribution has its quantiles: places in the middle move
    together, and the best and the last stand out. Ranks alone say that neighbours are equally far apart everywhere. 0,
    0.5 and 1 stay what they are."""
    count = len(standings)
    if count < 3:
        return tuple(standings)
    widest = 2.0 * _find_distance(NEUTRAL, count)
    return tuple(
        NEUTRAL + math.copysign(_find_distance(abs(standing - NEUTRAL), count) / widest, standing - NEUTRAL)
        for standing in standings
    )


def _find_distance(from_middle: float, count: int) -> float:
    """In standard deviations. Half a place is kept free at either end, where the distribution has none."""
    return -_NORMAL.inv_cdf(((NEUTRAL - from_middle) * (count - 1) + 0.5) / count)


def kendall_tau(one: Sequence[float], other: Sequence[float]) -> float:
    """Kendall's tau of two lists of ranks of the same items: 1 when all pairs are in the same order, -1 when all are
    reversed. A pair tied in both lists agrees; tied in one it counts 0."""
    return _compare_signs(_list_signs(one), _list_signs(other))


def mean_kendall_tau(readings: Sequence[Sequence[float]]) -> float:
    """The mean over all pairs of lists."""
    return mean(_compare_signs(one, other) for one, other in combinations(map(_list_signs, readings), 2))


def mean(values: Iterable[float]) -> float:
    """Exact, so that the order of readings never changes a reward."""
    listed = values if type(values) is list or type(values) is tuple else list(values)
    return math.fsum(listed) / len(listed)


def _list_signs(values: Sequence[float]) -> list[int]:
    """Of all pairs."""
    return [_get_sign(one - other) for one, other in combinations(values, 2)]


def _compare_signs(ones: Sequence[int], others: Sequence[int]) -> float:
    if not ones:
        return 1.0
    return sum([1 if one == other else one * other for one, other in zip(ones, others, strict=True)]) / len(ones)


def _get_sign(difference: float) -> int:
    return 0 if abs(difference) < 1e-9 else (1 if difference > 0 else -1)


def rank_by_value(values: Sequence[float]) -> tuple[float, ...]:
    """Normalised ranks; values that are equal share the mean of their places."""
    tiers: dict[float, list[str]] = {}
    for index, value in enumerate(values):
        tiers.setdefault(round(value, 9), []).append(str(index))
    standings = normalise_ranks([tiers[value] for value in sorted(tiers, reverse=True)])
    return tuple(standings[str(index)] for index in range(len(values)))


def rank_candidates(standings: Mapping[str, float]) -> tuple[tuple[str, ...], ...]:
    """Best first. Values that are equal after rounding are tied."""
    rounded = sorted((-round(value, _TIE_DECIMALS), candidate) for candidate, value in standings.items())
    return tuple(tuple(candidate for _, candidate in tier) for _, tier in groupby(rounded, key=lambda pair: pair[0]))


def rank_verdicts(rubric: Rubric, verdicts: Sequence[Verdict]) -> tuple[tuple[str, ...], ...]:
    """Best first, by what each would earn without comparison."""
    values = compute_absolute_scores(rubric, [apply_bounds(rubric, verdict) for verdict in verdicts])
    caps = [find_cap(rubric, verdict.defects) for verdict in verdicts]
    return rank_candidates(
        {each.candidate: min(value, cap) for each, value, cap in zip(verdicts, values, caps, strict=True)}
    )


# Reliability: how far standings are more than noise, by what changes when the group is read again.

_NOTHING: Final = 1e-12
_USUAL_NOISE_OF_ABSOLUTE: Final = 0.1
_USUAL_NOISE_OF_STANDING: Final = 0.16
"""Standard deviations of what one reading gives a text, before there is anything to measure them by: those of a judge
whose noise in one call is half as large as the differences in quality."""
_LEAST_SIGNAL: Final = 1e-4
_USUAL_WEIGHT: Final = 1.0
"""How many measured degrees of freedom that counts as."""


@dataclass(frozen=True)
class GroupSample:
    """One look at a whole group: one reading of it, or what readings of its parts say together. Lists follow its
    texts."""

    standings: tuple[float, ...]
    absolutes: tuple[float, ...]
    places: tuple[float, ...]
    """Where each text was shown, on average: -1 for the first place, 1 for the last, 0 where it had no neighbours."""
    judge: str = ""
    """Whose look it is; empty where parts were read by several."""

    def mix(self, relative_weight: float) -> tuple[float, ...]:
        """What the texts would be paid by this look alone."""
        return tuple(
            (1.0 - relative_weight) * absolute + relative_weight * standing
            for absolute, standing in zip(self.absolutes, self.standings, strict=True)
        )


def _measure_reliability(samples: Sequence[GroupSample]) -> float:
    """The spread of standings as a share of spread and noise, from 0 to 1. 1 where repeating was not tried or cannot
    tell. 0 where every difference is between places."""
    values = [sample.standings for sample in samples]
    spread = _measure_spread(values)
    if spread <= _NOTHING:
        return 0.0 if any(max(each) - min(each) > _NOTHING for each in values) else 1.0
    return spread / (spread + (_measure_noise(samples, values) or 0.0))


def stands_out(samples: Sequence[GroupSample], relative_weight: float) -> bool:
    """Whether what is paid differs between the texts by more than by noise alone."""
    values = [sample.mix(relative_weight) for sample in samples]
    spread = _measure_spread(values)
    return spread > _NOTHING and spread > (_measure_noise(samples, values) or 0.0)


def estimate_gain(samples: Sequence[GroupSample], relative_weight: float, more: int = 2) -> float:
    """How much `more` samples are expected to raise the correlation of what is paid with the truth, taking the spread
    beyond the noise for truth. 0 where every sample finds all texts equal."""
    values = [sample.mix(relative_weight) for sample in samples]
    if all(max(each) - min(each) <= _NOTHING for each in values):
        return 0.0
    count, freedom = len(values), _look_at_places(samples).freedom
    measured = (_measure_noise(samples, values) or 0.0) * count
    usual = (1.0 - relative_weight) * _USUAL_NOISE_OF_ABSOLUTE + relative_weight * _USUAL_NOISE_OF_STANDING
    noise = (freedom * measured + _USUAL_WEIGHT * usual**2) / (freedom + _USUAL_WEIGHT)
    signal = max(_measure_spread(values) - noise / count, _LEAST_SIGNAL)
    now, then = (math.sqrt(signal / (signal + noise / looks)) for looks in (count, count + more))
    return then - now


def _measure_spread(values: Sequence[Sequence[float]]) -> float:
    """The variance of the texts' means."""
    means = [mean(column) for column in zip(*values, strict=True)]
    middle = mean(means)
    return math.fsum([(value - middle) ** 2 for value in means]) / max(1, len(means) - 1)


def _measure_noise(samples: Sequence[GroupSample], values: Sequence[Sequence[float]]) -> float | None:
    """The variance of a text's mean that is left by repeating. What a slope over places explains is no noise: mirrored
    orders cancel it. None where too few samples leave nothing to measure it by."""
    looked = _look_at_places(samples)
    if looked.freedom < 1:
        return None
    pairs = [pair for row in zip(_centre(values), looked.places, strict=True) for pair in zip(*row, strict=True)]
    base = looked.slope_base
    slope = math.fsum([value * place for value, place in pairs]) / base if base > _NOTHING else 0.0
    return math.fsum([(value - slope * place) ** 2 for value, place in pairs]) / looked.freedom / len(values)


@dataclass(frozen=True)
class _PlacesShown:
    places: Sequence[Sequence[float]]
    """Without the means of texts and of samples."""
    slope_base: float
    freedom: int
    """Degrees of freedom of the noise between samples, one being spent on the slope over places."""


def _look_at_places(samples: Sequence[GroupSample]) -> _PlacesShown:
    return _centre_places(tuple([sample.places for sample in samples]))


@remember(MEBIBYTE)
def _centre_places(shown: tuple[tuple[float, ...], ...]) -> _PlacesShown:
    """Kept, since the samples of a group are asked for their noise several times."""
    places = _centre(shown)
    sloped = any(abs(place) > _NOTHING for row in places for place in row)
    base = math.fsum([place * place for row in places for place in row])
    return _PlacesShown(places, base, max(0, (len(shown) - 1) * (len(shown[0]) - 1) - sloped))


def _centre(values: Sequence[Sequence[float]]) -> list[list[float]]:
    """Without the means of texts and of samples."""
    columns = [mean(column) for column in zip(*values, strict=True)]
    rows = [mean(row) for row in values]
    middle = mean(rows)
    return [
        [value - row - column + middle for value, column in zip(listed, columns, strict=True)]
        for listed, row in zip(values, rows, strict=True)
    ]


# Groups, and what was read of them.

BY_POSITION: Final = 0.5
"""From this Kendall's tau by slot a judge counts as following position, if it also exceeds the tau by candidate."""

Values = Mapping[str, float | None]
JudgedGroup = tuple["CandidateGroup", Judgement]
"""A group, or part of one, with a judgement of it."""
_PartReadings = tuple["CandidateGroup", Sequence["UsableJudgement"]]
"""A group, or part of one, with its usable judgements."""


@dataclass(frozen=True)
class CandidateGroup:
    """Distinct texts that are judged together, in an order that is independent of the request's."""

    case: Case
    texts: tuple[str, ...]
    ids: Mapping[str, str]
    own: Mapping[str, str]
    """The models' own words, where texts are transcripts of episodes."""
    hints: Mapping[str, tuple[str, ...]]
    """Findings of word checks in single texts, which judges are given."""
    episodes: Mapping[str, tuple[Message, ...]] = field(default_factory=dict)
    """Where texts are transcripts: the episodes themselves."""

    @classmethod
    def from_texts(
        cls,
        case: Case,
        texts: Iterable[str],
        own: Mapping[str, str] | None = None,
        hints: Mapping[str, tuple[str, ...]] | None = None,
        episodes: Mapping[str, tuple[Message, ...]] | None = None,
    ) -> "CandidateGroup":
        distinct = tuple(sorted(set(texts)))
        return cls(case, distinct, derive_opaque_ids(case.key, distinct), own or {}, hints or {}, episodes or {})

    @cached_property
    def _candidates(self) -> Mapping[str, Candidate]:
        return {
            text: Candidate.build_trusted(
                id=self.ids[text],
                text=text,
                own=self.own.get(text, ""),
                hints=self.hints.get(text, ()),
                messages=self.episodes.get(text, ()),
            )
            for text in self.texts
        }

    def select_texts(self, texts: Iterable[str]) -> "CandidateGroup":
        """A part of the group with some of its texts, under the same ids."""
        chosen = tuple(sorted(texts))
        return replace(self, texts=chosen, ids={text: self.ids[text] for text in chosen})

    def locate_texts(self, part: "CandidateGroup") -> tuple[int, ...]:
        """The positions of the texts of `part` in this group."""
        positions = {text: position for position, text in enumerate(self.texts)}
        return tuple(positions[text] for text in part.texts)

    def build_request(self, order: Sequence[str], mode: Mode, vote: int = 0, *, mirrored: bool = True) -> JudgeRequest:
        return JudgeRequest.build_trusted(
            rubric=self.case.rubric,
            document=self.case.document,
            probes=self.case.probes,
            candidates=tuple(map(self._candidates.__getitem__, order)),
            sources=self.case.sources,
            language=self.case.language or ("" if self.case.gates is None else self.case.gates.language),
            mode=mode,
            mirrored=mirrored,
            vote=vote,
            conversation=self.case.conversation,
            wanted=(),
            brief="",
            fresh=False,
        )

    def compute_absolutes(self, values: Sequence[Values]) -> tuple[float, ...]:
        return compute_absolute_scores(self.case.rubric, values)


@dataclass(frozen=True)
class UsableJudgement:
    """A usable judgement of a group or part. Lists follow its texts."""

    verdicts: tuple[Verdict, ...]
    standings: tuple[float, ...]
    slots: tuple[int, ...]
    """Each text's position in the presentation."""
    judgement: Judgement = field(compare=False, repr=False)
    """What it was read from."""
    _samples: "list[tuple[CandidateGroup, GroupSample]]" = field(default_factory=list, compare=False, repr=False)

    @property
    def judge(self) -> str:
        return self.judgement.judge

    def build_sample(self, group: CandidateGroup) -> GroupSample:
        """What this reading of a whole group of several texts says of it. Made once, though it is asked whenever the
        group is looked at."""
        if not self._samples or self._samples[0][0] is not group:
            values = drop_uneven_criteria([apply_bounds(group.case.rubric, each) for each in self.verdicts])
            last = len(self.slots) - 1
            sample = GroupSample(
                standings=space_as_normal(self.standings),
                absolutes=group.compute_absolutes(values),
                places=tuple([2.0 * slot / last - 1.0 for slot in self.slots]),
                judge=self.judge,
            )
            self._samples[:] = [(group, sample)]
        return self._samples[0][1]

    def order_by_slot(self, values: Sequence[float]) -> tuple[float, ...]:
        return tuple(value for _, value in sorted(zip(self.slots, values, strict=True)))


@dataclass(frozen=True)
class JudgeView:
    """The aggregated result of readings of a group that share its orders. Lists follow the group's texts; `standings`
    are null for a single text. They count less by `reliability`."""

    verdicts: tuple[tuple[Verdict, ...], ...]
    """Per text, one verdict from each judgement that included it."""
    sources: tuple[tuple[Judgement, ...], ...]
    """The judgement of each of these verdicts."""
    values: tuple[Values, ...]
    absolutes: tuple[float, ...]
    standings: tuple[float, ...] | None
    follows_position: bool = False
    reliability: float = 1.0
    """How far its standings are more than noise, from 0 to 1."""
    samples: tuple[GroupSample, ...] = ()
    """What it says of the whole group, each time that it looks at it."""
    is_complete: bool = False
    """The group may not be read again."""
    lacks_readings: bool = False
    """Some of its readings failed for good. The others are enough for an order."""
    deciding_verdicts: Mapping[int, tuple[Judgement, Verdict]] = field(default_factory=dict)
    """By text, a further verdict where exactly half of the others report a capping defect. It counts for defects
    alone."""
    follows_rubric: bool = True
    """False for a reward model: its values have the one criterion REWARD_CRITERION."""

    def list_defect_reports(self, index: int) -> tuple[tuple[Judgement, tuple[Defect, ...]], ...]:
        """The defects that each judgement of a text reports."""
        reported = zip(self.sources[index], self.verdicts[index], strict=True)
        further = self.deciding_verdicts.get(index)
        return tuple((source, verdict.defects) for source, verdict in (*reported, *([further] if further else [])))


def contradicts_itself(view: JudgeView, rubric: Rubric) -> bool:
    """Whether the rankings of a judge go against its own scores, or have nothing to do with them, both as it gave them
    and as its defects bound them. A judge that follows position is reported as such."""
    if view.follows_position or not view.follows_rubric or not view.samples:
        return False
    standings = [mean(listed) for listed in zip(*(sample.standings for sample in view.samples), strict=True)]
    given = [average_values([verdict.scores for verdict in verdicts]) for verdicts in view.verdicts]
    own = compute_absolute_scores(rubric, drop_uneven_criteria(given))
    return all(_go_apart(standings, values) for values in (own, view.absolutes))


def _go_apart(standings: Sequence[float], values: Sequence[float]) -> bool:
    """Of two replies one may be ranked first at equal scores."""
    agreement = kendall_tau(standings, values)
    return agreement < 0.0 or (agreement == 0.0 and len(values) > 2)


@dataclass(frozen=True)
class GroupResult:
    """`view` is null when the judge failed; `error` then says why. Where several judges share the orders, `judge` is
    the one that read first."""

    judge: str
    judgements: tuple[Judgement, ...]
    view: JudgeView | None
    error: str = ""


def build_view(
    group: CandidateGroup,
    parts: Sequence[_PartReadings],
    standings: Sequence[float] | None,
    *,
    follows_position: bool = False,
    is_complete: bool = False,
    lacks_readings: bool = False,
) -> JudgeView | None:
    """`parts` include every text at least once. Means over mirrored orders stand, whatever the judge prefers in a
    single one. None when no criterion has a value for every text."""
    verdicts: list[list[Verdict]] = [[] for _ in group.texts]
    sources: list[list[Judgement]] = [[] for _ in group.texts]
    for part, readings in parts:
        positions = group.locate_texts(part)
        for reading in readings:
            for position, verdict in zip(positions, reading.verdicts, strict=True):
                verdicts[position].append(verdict)
                sources[position].append(reading.judgement)
    values = _average_verdicts(group.case.rubric, verdicts)
    if not any(value is not None for each in values for value in each.values()):
        return None
    samples = () if standings is None else build_samples(group, parts)
    reliability = _measure_reliability(samples) if samples else 1.0
    return JudgeView(
        verdicts=tuple(map(tuple, verdicts)),
        sources=tuple(map(tuple, sources)),
        values=values,
        absolutes=group.compute_absolutes(values),
        standings=None if standings is None else space_as_normal(standings),
        follows_position=follows_position,
        is_complete=is_complete,
        reliability=reliability,
        samples=samples,
        lacks_readings=lacks_readings,
    )


def build_samples(group: CandidateGroup, parts: Sequence[_PartReadings]) -> tuple[GroupSample, ...]:
    """As many as every part has readings: the first of each together, then the second, and so on. Where parts are
    single texts, standings follow from the absolute values."""
    rounds = min(len(readings) for _, readings in parts)
    if len(parts) == 1 and parts[0][0] is group and len(group.texts) > 1:
        return tuple(reading.build_sample(group) for reading in parts[0][1])
    return tuple(
        _build_sample(group, [(part, readings[number]) for part, readings in parts]) for number in range(rounds)
    )


def _build_sample(group: CandidateGroup, parts: Sequence[tuple[CandidateGroup, UsableJudgement]]) -> GroupSample:
    verdicts: list[list[Verdict]] = [[] for _ in group.texts]
    standings, places = ([list[float]() for _ in group.texts] for _ in range(2))
    for part, reading in parts:
        last = len(part.texts) - 1
        for number, index in enumerate(group.locate_texts(part)):
            verdicts[index].append(reading.verdicts[number])
            standings[index].append(reading.standings[number])
            places[index].append(2.0 * reading.slots[number] / last - 1.0 if last else 0.0)
    absolutes = group.compute_absolutes(_average_verdicts(group.case.rubric, verdicts))
    judges = {reading.judge for _, reading in parts}
    alone = all(len(part.texts) == 1 for part, _ in parts)
    return GroupSample(
        standings=space_as_normal(rank_by_value(absolutes) if alone else tuple(map(mean, standings))),
        absolutes=absolutes,
        places=tuple(map(mean, places)),
        judge=judges.pop() if len(judges) == 1 else "",
    )


def _average_verdicts(rubric: Rubric, verdicts: Sequence[Sequence[Verdict]]) -> tuple[Values, ...]:
    """Per text the mean of its bounded scores, by the criteria that have a value for every text."""
    return drop_uneven_criteria(
        [average_values([apply_bounds(rubric, verdict) for verdict in each]) for each in verdicts]
    )


def to_usable(group: CandidateGroup, judgement: Judgement) -> UsableJudgement | None:
    """Converts a judgement of `group`; None when it is invalid."""
    if find_fault(group, judgement):
        return None
    texts = {group.ids[text]: group.own.get(text) or text for text in group.texts}
    verdicts = {
        verdict.candidate: drop_unproven_defects(verdict, texts[verdict.candidate], group.case.rubric)
        for verdict in judgement.verdicts
    }
    standings = normalise_ranks(judgement.ranking)
    ids = [group.ids[text] for text in group.texts]
    return UsableJudgement(
        verdicts=tuple(verdicts[name] for name in ids),
        standings=tuple(standings[name] for name in ids),
        slots=tuple(judgement.order.index(name) for name in ids),
        judgement=judgement,
    )


def build_result(judge: Judge, judgements: Sequence[Judgement], view: JudgeView | None) -> GroupResult:
    """The result of judgements that are all usable."""
    error = "" if view is not None else "no criterion has a score for every reply"
    return GroupResult(judge.name, tuple(judgements), view, error)


def build_failed_result(judge: Judge, asked: Sequence[JudgedGroup]) -> GroupResult:
    """A result without a view. Each error is listed once."""
    errors = dict.fromkeys(filter(None, (find_fault(group, judgement) for group, judgement in asked)))
    return GroupResult(judge.name, tuple(judgement for _, judgement in asked), None, "; ".join(errors))


def find_fault(group: CandidateGroup, judgement: Judgement) -> str:
    """Why a judgement is invalid; empty when it is valid. Judges of plug-ins may not check their own answers."""
    if judgement.error is not None:
        return judgement.error or "failed without an error message"
    expected = sorted(group.ids.values())
    if sorted(verdict.candidate for verdict in judgement.verdicts) != expected:
        return "did not judge every candidate exactly once"
    if sorted(chain.from_iterable(judgement.ranking)) != expected:
        return "did not rank every candidate exactly once"
    if sorted(judgement.order) != expected:
        return "did not report its presentation order"
    gives_rewards = all(verdict.reward is not None for verdict in judgement.verdicts)
    criteria = {REWARD_CRITERION} if gives_rewards else {criterion.name for criterion in group.case.rubric.criteria}
    missing: list[set[str]] = []
    for scores in (verdict.scores for verdict in judgement.verdicts):
        missing.append({name for name, value in scores.items() if value is None})
        if scores.keys() != criteria or missing[-1] == criteria:
            return "did not score every candidate by the criteria of the rubric"
        if missing[-1] != missing[0]:
            return "scored a criterion for some candidates only"
    return ""


def drop_uneven_criteria(values: Sequence[Values]) -> tuple[Values, ...]:
    """Keeps only criteria that have a value for every text. Whether a criterion applies depends on the situation, which
    all texts share; with different criteria per text rewards would not be comparable."""
    if all(values[0].keys() == each.keys() and None not in each.values() for each in values):
        return tuple(values)
    names = set(chain.from_iterable(values))
    uneven = {name for name in names if any(each.get(name) is None for each in values)}
    return tuple({name: None if name in uneven else value for name, value in each.items()} for each in values)


def average_values(values: Sequence[Values]) -> Values:
    """Per criterion the mean of the known values; null when there are none."""
    if len(values) == 1:
        return values[0]
    names = dict.fromkeys(chain.from_iterable(values))
    by_name = {name: [value for each in values if (value := each.get(name)) is not None] for name in names}
    return {name: mean(listed) if listed else None for name, listed in by_name.items()}
