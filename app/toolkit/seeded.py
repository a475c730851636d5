"""Seeded random numbers that are the same in every process and Python version."""

import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

ItemT = TypeVar("ItemT")

_MOST_ATTEMPTS = 2000
"""One in ten is held out, so ten attempts are needed on average."""

SPARE = 2**64
"""Minimum remaining value for an unbiased choice; bounds are far below."""


class SeededRandom:
    """A random generator: digits of SHA-512 of the seed, rehashed when they run out."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._refills = 0
        self.left = _hash_to_number(seed)
        """What is not drawn yet. Who draws thousands may divide it as `below` does, while at least `SPARE` remains."""

    def below(self, bound: int) -> int:
        """A whole number in [0, bound); `bound` is at most 2**40."""
        if self.left < SPARE:
            self._refill()
        self.left, choice = divmod(self.left, bound)
        return choice

    def _refill(self) -> None:
        self._refills += 1
        self.left = _hash_to_number(f"{self._seed}\n{self._refills}")

    def chance(self, percent: int) -> bool:
        return self.below(100) < percent

    def one(self, items: Sequence[ItemT]) -> ItemT:
        """A random item. ZeroDivisionError when there is none."""
        return items[self.below(len(items))]

    def some(self, items: Sequence[ItemT], count: int) -> list[ItemT]:
        """`count` items without replacement, in random order; all items if there are fewer."""
        left, drawn = list(items), list[ItemT]()
        for size in range(len(left), max(len(left) - count, 0), -1):  # as `below`, which would take twice the time
            if self.left < SPARE:
                self._refill()
            self.left, choice = divmod(self.left, size)
            drawn.append(left.pop(choice))
        return drawn

    def shuffled(self, items: Sequence[ItemT]) -> list[ItemT]:
        return self.some(items, len(items))


def is_held_out(text: str, one_in: int = 10) -> bool:
    """Whether a text belongs to the test split, decided by the text alone."""
    return SeededRandom(text).below(one_in) == 0


def draw_apart(seed: str, test: bool, make: Callable[[SeededRandom], ItemT], key: Callable[[ItemT], str]) -> ItemT:
    """The first item that `make` draws from `seed` whose `key` belongs to the test or training split. ValueError when
    none is found."""
    for attempt in range(_MOST_ATTEMPTS):
        made = make(SeededRandom(f"{seed} {'test' if test else 'train'} {attempt}"))
        if is_held_out(key(made)) == test:
            return made
    raise ValueError(f"nothing drawn from {seed!r} is for {'testing' if test else 'training'}")


def _hash_to_number(seed: str) -> int:
    return int.from_bytes(hashlib.sha512(seed.encode()).digest())
