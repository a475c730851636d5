"""What a pair is: something to go by, a question about two answers, and which of the two is better."""

from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter

from app.domain.digests import digest_of_model
from app.domain.values import Frozen
from app.toolkit.package_data import packaged_data
from app.toolkit.seeded import Draws

Level = Literal["easy", "medium", "hard"]

# fmt: off
Kind = Literal[
    "grounded", "character", "attribution", "certainty", "tool_call",
    "evasion", "arithmetic", "code", "policy", "instructions",
]
# fmt: on


class Pair(Frozen):
    """However it was drawn, right and wrong could have changed places: for another `context`, as likely as this one
    and made of the same words, the other answer would be the better one. So nothing that can be seen in the answers
    alone, their length or their style, tells which it is."""

    kind: Kind
    context: str
    asks: str
    right: str
    wrong: str


class _Pools(Frozen):
    lists: dict[str, tuple[str, ...]]
    ranges: dict[str, tuple[int, int]]


_FOLDER: Final = Path(__file__).parent
_POOLS: Final = packaged_data(_FOLDER / "pools.yaml", TypeAdapter(_Pools))
POOLS_DIGEST: Final = digest_of_model(_POOLS)


def two_of(draws: Draws, pool: str) -> tuple[str, str]:
    """Different ones, in an order that says nothing."""
    if pool in _POOLS.ranges:
        low, high = _POOLS.ranges[pool]
        first = draws.below(high - low)
        second = draws.below(high - low - 1)
        return str(low + first), str(low + second + (second >= first))
    first_text, second_text = draws.some(_POOLS.lists[pool], 2)
    return first_text, second_text


def words_of(pool: str) -> tuple[str, ...]:
    return _POOLS.lists[pool]
