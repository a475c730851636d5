"""Finds changes of a mean that may drift, over strata whose mixture may change."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

WINDOW_BUCKETS: Final = 60
"""How far back a change is looked for and compared with what was before."""
BUCKETS_BEFORE: Final = 12
"""Fewer buckets before a change say too little about level and trend."""
AFTER_LENGTHS: Final = (2, 3, 4, 5, 7, 10, 14)
"""How many buckets ago a change may have begun."""
PACE_LENGTHS: Final = (10, 14, 20, 30, 45)
"""Over how many of the last buckets a pace is measured."""
LEAST_PLAIN: Final = 2.5
"""How far the level itself must have moved, in standard errors, beside the departure from the trend."""


@dataclass(frozen=True, slots=True)
class Cell:
    """`count` groups of one stratum in one bucket of a run's groups, with the sum of their values."""

    bucket: int
    stratum: str
    count: int
    total: float


@dataclass(frozen=True)
class Change:
    """A departure from level and trend, or too fast a rise. `z` is in standard errors, `effect` the mean shift or the
    rise since `bucket`. After an alarm its series is followed from `followed_from` on."""

    bucket: int
    z: float
    effect: float
    error: float
    followed_from: int


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


def find_change(cells: Sequence[Cell], *, floor: float, direction: int = 0, replies: int = 0) -> Change | None:
    """The likeliest change in the last buckets: the window-limited generalised likelihood ratio test of Willsky and
    Jones (IEEE Trans. Autom. Control 21, 1976) and Lai (J. R. Stat. Soc. B 57, 1995) over steps and bends, as a t test
    beside a linear trend and a level per stratum. A steady drift, another mixture of strata and a new stratum are none
    of these. Cells are in the order of their buckets. `floor` is the least variance of one group; at least that of a
    share of so many independent `replies`. `direction` is 1, -1, or 0 for both."""
    if not cells:
        return None
    newest = cells[-1].bucket
    used = [cell for cell in cells if cell.bucket > newest - WINDOW_BUCKETS and cell.count]
    first = used[0].bucket
    whole = _sum_up(used, newest)
    products = _centre(whole.values())
    if replies:
        late = [cell for cell in used if cell.bucket > newest - max(AFTER_LENGTHS)]
        floor = max(floor, _compute_share_variance(late) / replies)
    if products.freedom < 1 or products.xx <= 0:
        return None
    lengths = [length for length in AFTER_LENGTHS if newest - length - first + 1 >= BUCKETS_BEFORE]
    found = [
        change
        for length, after in _sum_up_last(used, newest, lengths)
        for change in _test_after(after, newest - length + 1, newest, whole, products, floor)
        if direction == 0 or change.z * direction > 0
    ]
    return max(found, key=lambda change: abs(change.z), default=None)


def find_pace(cells: Sequence[Cell], *, floor: float, most: float) -> Change | None:
    """The likeliest rise by more than `most` a bucket over the last buckets: a t test of the slope of a regression on
    time with a level per stratum. It needs nothing to compare with, so that what rises from the beginning, or so
    steadily that it passes for a trend, is found too."""
    if not cells:
        return None
    newest = cells[-1].bucket
    lengths = [length for length in PACE_LENGTHS if newest - cells[0].bucket + 1 >= length]
    found = [
        change
        for length, sums in _sum_up_last([cell for cell in cells if cell.count], newest, lengths)
        if (change := _test_pace(sums, newest, length, floor, most))
    ]
    return max(found, key=lambda change: change.z, default=None)


def _test_pace(sums: Mapping[str, _Sums], newest: int, length: int, floor: float, most: float) -> Change | None:
    products = _centre(sums.values())
    if products.freedom < 1 or products.xx <= 0:
        return None
    slope = products.xy / products.xx
    variance = max(floor, (products.yy - products.xy**2 / products.xx) / (products.freedom + 1))
    error = math.sqrt(variance / products.xx)
    if slope <= most:
        return None
    z = _normalise((slope - most) / error, products.freedom + 1)
    return Change(newest - length + 1, z, slope * length, error * length, newest + 1)


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


def _test_after(
    after: Mapping[str, _Sums], begin: int, newest: int, whole: Mapping[str, _Sums], products: _Products, floor: float
) -> Iterable[Change]:
    """A step at `begin`, and a bend before it whose effect grows by the bucket."""
    bend = begin - newest - 1
    step, ramp = [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]  # products of the shape with itself, time and value
    for stratum, late in after.items():
        every = whole[stratum]
        rise, squares = late.x - bend * late.n, late.xx - 2 * bend * late.x + bend**2 * late.n
        _add(step, late.n, late.n, late.x, late.y, every)
        _add(ramp, rise, squares, late.xx - bend * late.x, late.xy - bend * late.y, every)
    for shape, scale in ((step, 1.0), (ramp, (1 - bend) / 2)):
        if change := _test_shape(shape, products, floor, begin, scale):
            yield change


def _add(shape: list[float], f: float, ff: float, fx: float, fy: float, every: _Sums) -> None:
    shape[0] += ff - f * f / every.n
    shape[1] += fx - f * every.x / every.n
    shape[2] += fy - f * every.y / every.n


def _test_shape(shape: list[float], products: _Products, floor: float, begin: int, scale: float) -> Change | None:
    ff, fx, fy = shape
    free = ff - fx**2 / products.xx
    if free <= 1e-9 * max(1.0, ff):
        return None
    slope = (fy - fx * products.xy / products.xx) / free
    rest = products.yy - products.xy**2 / products.xx - slope**2 * free
    variance = max(floor, rest / max(1, products.freedom - 1))
    error = math.sqrt(variance / free)
    z = math.copysign(_normalise(slope / error, max(1, products.freedom - 1)), slope)
    plain = fy / math.sqrt(ff * variance)
    if plain * z <= 0 or abs(plain) < LEAST_PLAIN:
        return None
    return Change(begin, z, slope * scale, error * scale, begin)


def _normalise(t: float, freedom: int) -> float:
    """The standard normal value as improbable as Student's t, by Wallace (Ann. Math. Stat. 30, 1959)."""
    return math.sqrt(freedom * math.log1p(t * t / freedom)) * (8 * freedom + 1) / (8 * freedom + 3)
