"""How far one judge's standings of a group are more than noise, by what changes when the group is read again."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

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


def measure_reliability(samples: Sequence[GroupSample]) -> float:
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
    means = [_mean(column) for column in zip(*values, strict=True)]
    middle = _mean(means)
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


@lru_cache(maxsize=256)
def _centre_places(shown: tuple[tuple[float, ...], ...]) -> _PlacesShown:
    """Kept, since the samples of a group are asked for their noise several times."""
    places = _centre(shown)
    sloped = any(abs(place) > _NOTHING for row in places for place in row)
    base = math.fsum([place * place for row in places for place in row])
    return _PlacesShown(places, base, max(0, (len(shown) - 1) * (len(shown[0]) - 1) - sloped))


def _centre(values: Sequence[Sequence[float]]) -> list[list[float]]:
    """Without the means of texts and of samples."""
    columns = [_mean(column) for column in zip(*values, strict=True)]
    rows = [_mean(row) for row in values]
    middle = _mean(rows)
    return [
        [value - row - column + middle for value, column in zip(listed, columns, strict=True)]
        for listed, row in zip(values, rows, strict=True)
    ]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
