"""Numbers as people read them, and the small charts made of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

MAX_BARS = 64
_BAR_WIDTH, _GAP, _HEIGHT = 7, 2, 26


@dataclass(frozen=True)
class Bar:
    """In SVG units. `heat` is None where there is no reward: such a bar is a hollow stub."""

    x: int
    y: float
    height: float
    heat: int | None
    label: str


@dataclass(frozen=True)
class BarChart:
    width: int
    height: int
    bar_width: int
    bars: tuple[Bar, ...]
    left_out: int


def number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def day_and_time(time: datetime | None) -> str:
    """To the second, with four digits of the year, in the zone that it has; empty for none."""
    return "" if time is None else time.replace(tzinfo=None).isoformat(" ", "seconds")


def signed(value: float) -> str:
    """With a real minus sign; `0.00` has none."""
    rounded = f"{abs(value):.2f}"
    sign = "" if float(rounded) == 0 else "+" if value > 0 else "−"
    return sign + rounded


def heat(value: float) -> int:
    """0 to 10: the class of the colour scale that `value` in [0, 1] falls in."""
    return max(0, min(10, round(value * 10)))


def bar_chart(rewards: Sequence[float | None]) -> BarChart:
    shown = rewards[:MAX_BARS]
    bars = tuple(_bar(place, reward) for place, reward in enumerate(shown))
    width = max(1, len(bars) * (_BAR_WIDTH + _GAP) - _GAP)
    return BarChart(width, _HEIGHT, _BAR_WIDTH, bars, len(rewards) - len(shown))


def _bar(place: int, reward: float | None) -> Bar:
    height = 7.0 if reward is None else round(max(1.5, min(1.0, reward) * _HEIGHT), 2)
    label = "no score" if reward is None else number(reward)
    return Bar(
        x=place * (_BAR_WIDTH + _GAP),
        y=round(_HEIGHT - height, 2),
        height=height,
        heat=None if reward is None else heat(reward),
        label=label,
    )
