"""Even choices out of a seed: the same ones in every process and every Python."""

import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

ItemT = TypeVar("ItemT")

_MOST_ATTEMPTS = 2000
"""One in ten is held out, so it takes ten on average."""

_SPARE = 2**64
"""What must be left for a choice to be even enough: bounds are far below."""


class Draws:
    """Digits of SHA-512 of the seed, used up from the small end, with more made when they run out."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._refills = 0
        self._left = _number(seed)

    def below(self, bound: int) -> int:
        """A whole number in [0, bound); `bound` is at most 2**40."""
        if self._left < _SPARE:
            self._refills += 1
            self._left = _number(f"{self._seed}\n{self._refills}")
        self._left, choice = divmod(self._left, bound)
        return choice

    def chance(self, percent: int) -> bool:
        return self.below(100) < percent

    def one(self, items: Sequence[ItemT]) -> ItemT:
        """ZeroDivisionError when there is none."""
        return items[self.below(len(items))]

    def some(self, items: Sequence[ItemT], count: int) -> list[ItemT]:
        """Different places of `items`, in random order; all of them where there are fewer than `count`."""
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in range(min(count, len(left)))]

    def shuffled(self, items: Sequence[ItemT]) -> list[ItemT]:
        return self.some(items, len(items))


def held_out(text: str, one_in: int = 10) -> bool:
    """Whether a text is one of those kept for testing: decided by itself alone, so that none is in both splits."""
    return Draws(text).below(one_in) == 0


def drawn_apart(seed: str, test: bool, make: Callable[[Draws], ItemT], key: Callable[[ItemT], str]) -> ItemT:
    """The first of what `make` draws from `seed` that is for testing, or for training: its `key` decides which, so that
    none is in both. ValueError when nothing comes out that is."""
    for attempt in range(_MOST_ATTEMPTS):
        made = make(Draws(f"{seed} {'test' if test else 'train'} {attempt}"))
        if held_out(key(made)) == test:
            return made
    raise ValueError(f"nothing drawn from {seed!r} is for {'testing' if test else 'training'}")


def _number(seed: str) -> int:
    return int.from_bytes(hashlib.sha512(seed.encode()).digest())
