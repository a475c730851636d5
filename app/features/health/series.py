"""The figures that are followed over a run's groups, and the changes that are found in them.

It is an audit: it says that something changed, never what a reward should have been.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.domain.rollups import GROUPS_PER_BUCKET
from app.domain.runs import SeriesName, TrendName
from app.domain.values import Z_95, FiniteNumber, Frozen
from app.toolkit.texts import format_number, format_signed


@dataclass(frozen=True, slots=True)
class Cell:
    """`count` groups of one stratum in one bucket of a run's groups, with the sum of their values."""

    bucket: int
    stratum: str
    count: int
    total: float


SeriesCells = Mapping[TrendName, Sequence[Cell]]


class HealthFigure(Frozen):
    """A series now. `statistic` is its largest departure; an alarm needs `limit` and a shift of `least_effect`."""

    series: SeriesName
    subject: str = ""
    meaning: str
    value: FiniteNumber | None
    """Mean of the last hundred groups, or of an anchor's readings. Null without data."""
    interval: tuple[FiniteNumber, FiniteNumber] | None
    groups: int
    statistic: FiniteNumber | None
    """Null where there is too little before the change to compare with."""
    limit: FiniteNumber
    effect: FiniteNumber | None
    least_effect: FiniteNumber
    alarmed: bool


@dataclass(frozen=True)
class Noticed:
    """A change that is worth an alarm, before it is stored."""

    series: SeriesName
    since_group: int
    noticed_group: int
    effect: float
    statistic: float
    limit: float
    evidence: str

    def at(self, since_group: int, noticed_group: int) -> "Noticed":
        return replace(self, since_group=since_group, noticed_group=noticed_group)


@dataclass(frozen=True)
class _Change:
    """A departure from level and trend. `z` is in standard errors, `effect` the mean shift since `bucket`. From there
    on the series is followed after an alarm."""

    bucket: int
    z: float
    effect: float
    error: float


_LIMIT: Final = 5.2
"""Standard errors from which a departure from level and trend is an alarm: set by simulation (`docs/results.md`)
so that twenty quiet runs of 5,000 groups give at most one over all series."""
_LENGTH_LIMIT: Final = 6.5
"""Of the length. Its values lie close to a normal distribution, so that 4.8 would do for quiet runs; but a
policy that learned from one step to the next to write more reached 5.9."""
LOGARITHMIC: Final[frozenset[SeriesName]] = frozenset(("length", "escalated"))
"""Series whose cells are logarithms of means, so that a change is a ratio."""
_MANY: Final = 10
"""From which nobody wants decimals of a count."""


@dataclass(frozen=True)
class SeriesWords:
    """What people read in place of a series' name in JSON. Curves of a run have the same names."""

    name: str
    meaning: str


SAID: Final[Mapping[SeriesName, SeriesWords]] = {
    "beginning": SeriesWords("Beginning", "whether the first groups leave a trainer anything to learn"),
    "players": SeriesWords("Players", "share of the answers of models that play players that could not be used"),
    "leniency": SeriesWords(
        "Kindness of judges",
        "how much higher judges score the same replies than at the start, in standard deviations of their scores",
    ),
    "length": SeriesWords("Length in characters", "characters of a reply"),
    "absolute": SeriesWords("Absolute reward", "what the rubric alone gives a reply, without a ranking in its group"),
    "flagged": SeriesWords("Flags of a reply", "remarks that something is wrong with a reply, counted per reply"),
    "gated": SeriesWords("Set to 0 by a gate", "share of replies that earn 0, such as empty or copied ones"),
    "capped": SeriesWords("Capped by a defect", "share of replies whose reward a serious fault limits"),
    "duplicates": SeriesWords("Repeats within a group", "share of replies that repeat another reply of their group"),
    "escalated": SeriesWords(
        "Readings of a group", "how often judges read a group: again where their readings contradict one another"
    ),
    "low_signal": SeriesWords(
        "Groups of low signal", "share of groups whose replies earn nearly the same, so that there is little to learn"
    ),
    "saturated": SeriesWords("Rewards above .95", "share of replies that can hardly earn more"),
    "calibration": SeriesWords(
        "Absolute minus calibrated", "absolute reward minus the score beside replies of known quality"
    ),
    "shadow_distance": SeriesWords(
        "Training minus shadow judge", "how much higher the run's judges score than one that only watches"
    ),
}


def describe_series(name: SeriesName) -> str:
    """Of what stands in JSON."""
    meaning = SAID[name].meaning
    return f"natural logarithm of: {meaning}" if name in LOGARITHMIC else meaning


def format_level(series: SeriesName, value: float | None) -> str:
    if value is None or series not in LOGARITHMIC:
        return format_number(value)
    mean = math.exp(value)
    return f"{mean:,.0f}" if mean >= _MANY else f"{mean:.2f}"


def format_change(series: SeriesName, value: float | None) -> str:
    if value is None:
        return format_number(None)
    return f"{format_signed(100 * math.expm1(value), 0)} %" if series in LOGARITHMIC else format_signed(value, 3)


@dataclass(frozen=True)
class _TrendRule:
    """`direction` is that of an alarm, 0 for both; `least` is the smallest shift that is worth one. `floor` is the
    least variance of one group, so that the first movement of a series that never moved is no alarm."""

    name: TrendName
    direction: int
    least: float
    floor: float
    of_judge: bool
    """It begins anew when the judge changes."""
    replies: int = 0
    """How many independent replies a group is worth in a share, since replies to one task are alike; 0 for other
    figures."""

    @property
    def limit(self) -> float:
        return _LENGTH_LIMIT if self.name == "length" else _LIMIT


TRENDS: Final = (
    _TrendRule("length", 0, 0.05, 1e-3, False),
    _TrendRule("absolute", -1, 0.05, 2e-4, True),
    _TrendRule("flagged", 1, 0.08, 2e-3, True),
    _TrendRule("gated", 1, 0.05, 2e-3, False, 4),
    _TrendRule("capped", 1, 0.06, 2e-3, True, 4),
    _TrendRule("duplicates", 1, 0.08, 2e-3, False, 4),
    _TrendRule("escalated", 1, 0.12, 1e-2, True),
    _TrendRule("low_signal", 1, 0.2, 2e-2, True, 1),
    _TrendRule("saturated", 1, 0.1, 2e-3, True, 4),
    _TrendRule("calibration", 0, 0.05, 2e-4, True),
    _TrendRule("shadow_distance", 0, 0.06, 2e-4, True),
)
_DIFFERENCES: Final[frozenset[TrendName]] = frozenset(("calibration", "shadow_distance"))
CAN_SEE: Final = (
    "whether the run's judges read the same frozen texts higher or lower than before, from anchors",
    "that a judge's server names another model or fingerprint",
    "whether the first 64 groups leave a trainer anything to learn, and what keeps replies from a reward",
    "shifts of the run's figures beside their own trend, within environment and label",
    "whether the training judges and the shadow judge drift apart, where there is one",
)
CANNOT_SEE: Final = (
    "whether a judge was right to begin with: compare it with people",
    "a change of a judge that leaves the mean of the anchors' scores as it was",
    "a drift as slow and steady as learning: it counts as the series' trend",
    "rises of the reward that a policy earns by deceiving the judge, unless another figure moves with them",
    "changes before the first 140 groups of a series",
)


def find_trend_changes(
    cells: SeriesCells, since: Mapping[TrendName, int], judge_since: int
) -> tuple[tuple[_TrendRule, _Change | None], ...]:
    """The likeliest change of each trend. What came before bucket `since` of a series belongs to an earlier alarm, and
    before `judge_since` to another judge."""
    return tuple((rule, _find_trend_change(rule, cells.get(rule.name, ()), since, judge_since)) for rule in TRENDS)


def _find_trend_change(
    rule: _TrendRule, cells: Sequence[Cell], since: Mapping[TrendName, int], judge_since: int
) -> _Change | None:
    begin = max(since.get(rule.name, 0), judge_since if rule.of_judge else 0)
    since_then = [cell for cell in cells if cell.bucket >= begin]
    return find_change(since_then, floor=rule.floor, direction=rule.direction, replies=rule.replies)


def is_alarm(rule: _TrendRule, change: _Change | None) -> bool:
    return change is not None and abs(change.z) >= rule.limit and abs(change.effect) >= rule.least


def describe_trend_change(rule: _TrendRule, change: _Change, newest: int) -> Noticed:
    reach = Z_95 * change.error
    effect, least, most = (format_change(rule.name, change.effect + one) for one in (0.0, -reach, reach))
    return Noticed(
        series=rule.name,
        since_group=change.bucket * GROUPS_PER_BUCKET,
        noticed_group=(newest + 1) * GROUPS_PER_BUCKET,
        effect=change.effect,
        statistic=abs(change.z),
        limit=rule.limit,
        evidence=f"{SAID[rule.name].name}: {effect} (95 % {least} to {most}) beside its trend, "
        f"{abs(change.z):.1f} standard errors",
    )


_RECENT_BUCKETS: Final = 10
"""What a figure of now is the mean of."""


def summarise_trend(
    rule: _TrendRule, cells: Sequence[Cell], change: _Change | None, alarmed: bool, newest: int
) -> HealthFigure:
    recent = [cell for cell in cells if cell.bucket > newest - _RECENT_BUCKETS]
    groups = sum(cell.count for cell in recent)
    return HealthFigure(
        series=rule.name,
        meaning=describe_series(rule.name),
        value=math.fsum(cell.total for cell in recent) / groups if groups else None,
        interval=_clip(rule, _compute_interval(recent, rule.floor)),
        groups=groups,
        statistic=None if change is None else abs(change.z),
        limit=rule.limit,
        effect=None if change is None else change.effect,
        least_effect=rule.least,
        alarmed=alarmed,
    )


def _clip(rule: _TrendRule, interval: tuple[float, float] | None) -> tuple[float, float] | None:
    """To what the figure can be: only differences are below 0, and no share is above 1."""
    if interval is None or rule.name in _DIFFERENCES:
        return interval
    low, high = interval
    return max(0.0, low), min(1.0, high) if rule.replies or rule.name == "absolute" else high


def _compute_interval(cells: Sequence[Cell], floor: float) -> tuple[float, float] | None:
    """95 % of a ratio of sums over buckets, which differ by their mixture too; None below three buckets."""
    buckets: dict[int, tuple[int, float]] = {}
    for cell in cells:
        count, total = buckets.get(cell.bucket, (0, 0.0))
        buckets[cell.bucket] = count + cell.count, total + cell.total
    if len(buckets) < 3:
        return None
    groups = sum(count for count, _ in buckets.values())
    mean = math.fsum(total for _, total in buckets.values()) / groups
    spread = math.fsum((total - count * mean) ** 2 for count, total in buckets.values()) / (len(buckets) - 1)
    error = math.sqrt(max(floor / groups, len(buckets) * spread / groups**2))
    return mean - Z_95 * error, mean + Z_95 * error


# The test: a step of the level, beside a trend.

WINDOW_BUCKETS: Final = 60
"""How far back a change is looked for and compared with what was before."""
_BUCKETS_BEFORE: Final = 12
"""Fewer buckets before a change say too little about level and trend."""
_AFTER_LENGTHS: Final = (2, 3, 4, 5, 7, 10, 14)
"""How many buckets ago a change may have begun."""
_LEAST_PLAIN: Final = 2.5
"""How far the level itself must have moved, in standard errors, beside the departure from the trend."""


@dataclass(slots=True)
class _Sums:
    """Weighted sums of one stratum: of 1, time, value, and their products."""

    n: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    yy: float = 0.0
    cells: int = 0


@dataclass(frozen=True)
class _Products:
    """Products of deviations from the means of the strata."""

    xx: float
    xy: float
    yy: float
    freedom: int


def find_change(cells: Sequence[Cell], *, floor: float, direction: int = 0, replies: int = 0) -> _Change | None:
    """The likeliest change in the last buckets: the window-limited generalised likelihood ratio test of Willsky and
    Jones (IEEE Trans. Autom. Control 21, 1976) and Lai (J. R. Stat. Soc. B 57, 1995) over steps, as a t test beside a
    linear trend and a level per stratum. A steady drift, another mixture of strata and a new stratum are none of these.
    Cells are in the order of their buckets. `floor` is the least variance of one group; at least that of a share of so
    many independent `replies`. `direction` is 1, -1, or 0 for both."""
    if not cells:
        return None
    newest = cells[-1].bucket
    used = [cell for cell in cells if cell.bucket > newest - WINDOW_BUCKETS and cell.count]
    first = used[0].bucket
    whole = _sum_up(used, newest)
    products = _centre(whole.values())
    if replies:
        late = [cell for cell in used if cell.bucket > newest - max(_AFTER_LENGTHS)]
        floor = max(floor, _compute_share_variance(late) / replies)
    if products.freedom < 1 or products.xx <= 0:
        return None
    lengths = [length for length in _AFTER_LENGTHS if newest - length - first + 1 >= _BUCKETS_BEFORE]
    steps = [
        _test_step(after, newest - length + 1, whole, products, floor)
        for length, after in _sum_up_last(used, newest, lengths)
    ]
    changes = [step for step in steps if step is not None and (direction == 0 or step.z * direction > 0)]
    return max(changes, key=lambda change: abs(change.z), default=None)


def _compute_share_variance(cells: Sequence[Cell]) -> float:
    groups = sum(cell.count for cell in cells)
    mean = min(1.0, max(0.0, math.fsum(cell.total for cell in cells) / groups))
    return mean * (1 - mean)


def _sum_up(cells: Sequence[Cell], newest: int) -> Mapping[str, _Sums]:
    ((_, sums),) = _sum_up_last(cells, newest, [WINDOW_BUCKETS])
    return sums


def _sum_up_last(
    cells: Sequence[Cell], newest: int, lengths: Iterable[int]
) -> Iterator[tuple[int, Mapping[str, _Sums]]]:
    """Each length with the sums of as many of the last buckets. Lengths rise, and the sums grow with them."""
    sums: defaultdict[str, _Sums] = defaultdict(_Sums)
    remaining = len(cells)
    for length in lengths:
        while remaining and cells[remaining - 1].bucket > newest - length:
            remaining -= 1
            cell = cells[remaining]
            count, total, x = cell.count, cell.total, cell.bucket - newest
            its = sums[cell.stratum]
            its.n += count
            its.x += count * x
            its.y += total
            its.xx += count * x * x
            its.xy += x * total
            its.yy += total * total / count
            its.cells += 1
        yield length, sums


def _centre(sums: Iterable[_Sums]) -> _Products:
    xx = xy = yy = 0.0
    freedom = -2
    for each in sums:
        xx += each.xx - each.x**2 / each.n
        xy += each.xy - each.x * each.y / each.n
        yy += each.yy - each.y**2 / each.n
        freedom += each.cells - 1
    return _Products(xx, xy, yy, freedom)


def _test_step(
    after: Mapping[str, _Sums], begin: int, whole: Mapping[str, _Sums], products: _Products, floor: float
) -> _Change | None:
    """A step at `begin`, after which the sums are `after`."""
    # Products of the step with itself, with time and with the values, as deviations from the means of the strata.
    ff = fx = fy = 0.0
    for stratum, late in after.items():
        every = whole[stratum]
        ff += late.n - late.n * late.n / every.n
        fx += late.x - late.n * every.x / every.n
        fy += late.y - late.n * every.y / every.n
    free = ff - fx**2 / products.xx
    # A step that the trend itself can make, but for rounding, says nothing.
    if free <= 1e-9 * max(1.0, ff):
        return None
    slope = (fy - fx * products.xy / products.xx) / free
    rest = products.yy - products.xy**2 / products.xx - slope**2 * free
    variance = max(floor, rest / max(1, products.freedom - 1))
    error = math.sqrt(variance / free)
    z = math.copysign(_normalise(slope / error, max(1, products.freedom - 1)), slope)
    plain = fy / math.sqrt(ff * variance)
    if plain * z <= 0 or abs(plain) < _LEAST_PLAIN:
        return None
    return _Change(begin, z, slope, error)


def _normalise(t: float, freedom: int) -> float:
    """The standard normal value as improbable as Student's t, by Wallace (Ann. Math. Stat. 30, 1959)."""
    return math.sqrt(freedom * math.log1p(t * t / freedom)) * (8 * freedom + 1) / (8 * freedom + 3)
