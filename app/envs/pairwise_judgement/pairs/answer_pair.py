"""Pairs: a context, a question about two answers, and which of the two is better."""

from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter

from app.domain.digests import digest_of_model
from app.domain.values import Frozen
from app.toolkit.package_data import read_packaged_data
from app.toolkit.seeded import SeededRandom

Level = Literal["easy", "medium", "hard"]

# fmt: off
Kind = Literal[
    "grounded", "character", "attribution", "certainty", "tool_call",
    "evasion", "arithmetic", "code", "policy", "instructions",
]
# fmt: on


class AnswerPair(Frozen):
    """Right and wrong are interchangeable: for another equally likely `context` of the same words, the other answer
    would be better. So nothing in the answers alone, such as length or style, tells which one is right."""

    kind: Kind
    context: str
    asks: str
    right: str
    wrong: str


class _Pools(Frozen):
    lists: dict[str, tuple[str, ...]]
    ranges: dict[str, tuple[int, int]]


_FOLDER: Final = Path(__file__).parent
_POOLS: Final = read_packaged_data(_FOLDER / "pools.yaml", TypeAdapter(_Pools))
POOLS_DIGEST: Final = digest_of_model(_POOLS)


def draw_two(draws: SeededRandom, pool: str) -> tuple[str, str]:
    """Two different values in random order."""
    if pool in _POOLS.ranges:
        low, high = _POOLS.ranges[pool]
        first = draws.below(high - low)
        second = draws.below(high - low - 1)
        return str(low + first), str(low + second + (second >= first))
    first_text, second_text = draws.some(_POOLS.lists[pool], 2)
    return first_text, second_text


def get_words(pool: str) -> tuple[str, ...]:
    return _POOLS.lists[pool]
