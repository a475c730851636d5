"""What groups of scenes add up to."""

from dataclasses import dataclass
from typing import Final

from app.domain.rollups import Rollup, Sums, add_up


@dataclass(frozen=True)
class SceneSums:
    """What training groups of a run add up to by policy step and scene, which is the label of each key. Of the scenes
    that are `sampled` not all groups were read."""

    rollups: tuple[Rollup, ...] = ()
    sampled: tuple[str, ...] = ()


_ONE: Final = add_up([1.0])[1]


def build_sums(count: int, total: float) -> Sums:
    return [count, add_up([total])[1]]


def compute_mean(sums: Sums) -> float | None:
    return sums[1] / (sums[0] * _ONE) if sums[0] else None
