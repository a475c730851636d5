"""A year of made-up events of a town, and the questions that people ask about it."""

import itertools
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from app.domain.worlds import Event, extract_terms

BEGIN: Final = datetime(1300, 1, 1, tzinfo=UTC)
DAYS: Final = 365
WORDS: Final = 8_000
PEOPLE: Final = tuple(f"person-{number}" for number in range(200))
CIRCLES: Final = tuple(f"circle-{number}" for number in range(20))
KANJI: Final = tuple(chr(first) for first in range(0x4E00, 0x4E00 + 600))


@dataclass(frozen=True)
class Asked:
    at: datetime
    names: frozenset[str]
    terms: tuple[str, ...]


class Chronicle:
    """Events whose words are as common as words are: the nth occurs about 1/n as often as the first."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        spelling = random.Random(7)
        syllables = [a + b for a in "bdfghklmnprstvw" for b in ("a", "e", "i", "o", "u", "an", "er", "in", "or")]
        self._words = ["".join(spelling.choices(syllables, k=2 + n % 2)) + str(n % 7) for n in range(WORDS)]
        self._weights = list(itertools.accumulate(1 / (n + 3) for n in range(WORDS)))
        self._numbers = itertools.count()

    def words(self, count: int) -> list[str]:
        return self._random.choices(self._words, cum_weights=self._weights, k=count)

    def event(self) -> Event:
        number = next(self._numbers)
        text = " ".join(self.words(self._random.randint(8, 30)))
        if number % 20 == 0:
            text = "".join(self._random.choices(KANJI, k=25))
        return Event(
            id=f"e{number}-{self._random.getrandbits(32)}",
            time=self.moment(),
            text=text,
            kind=self._random.choice(("quest", "rumour", "trade", "fight")),
            location=self._random.choice(CIRCLES),
            actors=tuple(self._random.sample(PEOPLE, 2)),
            visibility="public" if self._random.random() < 0.7 else self._names(),
            importance=min(10, int(self._random.expovariate(0.4))),
        )

    def moment(self, after_days: int = 0) -> datetime:
        return BEGIN + timedelta(seconds=self._random.randrange(after_days * 86_400, DAYS * 86_400))

    def asked(self) -> Asked:
        """A line of 20 words, as players and characters say them, and one in Japanese now and then."""
        said = " ".join(self.words(20))
        if self._random.random() < 0.1:
            said = "".join(self._random.choices(KANJI, k=12))
        names = {self._random.choice(PEOPLE), *self._random.sample(CIRCLES, 3)}
        return Asked(self.moment(after_days=5), frozenset(names), tuple(dict.fromkeys(extract_terms(said))))

    def _names(self) -> tuple[str, ...]:
        people = self._random.sample(PEOPLE, self._random.randint(0, 3))
        return (*people, *self._random.sample(CIRCLES, self._random.randint(0 if people else 1, 2)))
