"""Sums of values that come out the same in whatever order they are added and taken away."""

import math
from collections.abc import Sequence
from typing import Final

UNIT: Final = 2**60
Sums = list[int]
"""A number of values, and their sum in units of 2^-60: whole numbers add up to the same in any order, and what is taken
away again leaves no trace. Stored ones may have a third number, which nothing reads and the next change drops."""
NO_VALUES: Final[Sums] = [0, 0]


def build_sums(count: int, total: float) -> Sums:
    return [count, int(total * UNIT)]


def add_up(values: Sequence[float]) -> Sums:
    return build_sums(len(values), math.fsum(values))


def add_up_whole(values: Sequence[int]) -> Sums:
    """Exact, however large the values are."""
    return [len(values), sum(values) * UNIT]


def compute_mean(sums: Sequence[int]) -> float | None:
    return sums[1] / (sums[0] * UNIT) if sums[0] else None
