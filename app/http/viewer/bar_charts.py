"""Small charts of rewards."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.toolkit.display import format_number, scale_heat

MAX_BARS = 64
_BAR_WIDTH, _GAP, _HEIGHT = 7, 2, 26


@dataclass(frozen=True)
class Bar:
    """A bar in SVG units. `heat` is None without a reward: the bar is a hollow stub."""

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


def build_bar_chart(rewards: Sequence[float | None]) -> BarChart:
    shown = rewards[:MAX_BARS]
    bars = tuple(_build_bar(place, reward) for place, reward in enumerate(shown))
    width = max(1, len(bars) * (_BAR_WIDTH + _GAP) - _GAP)
    return BarChart(width, _HEIGHT, _BAR_WIDTH, bars, len(rewards) - len(shown))


def _build_bar(place: int, reward: float | None) -> Bar:
    height = 7.0 if reward is None else round(max(1.5, min(1.0, reward) * _HEIGHT), 2)
    label = "no score" if reward is None else format_number(reward)
    return Bar(
        x=place * (_BAR_WIDTH + _GAP),
        y=round(_HEIGHT - height, 2),
        height=height,
        heat=None if reward is None else scale_heat(reward),
        label=label,
    )
