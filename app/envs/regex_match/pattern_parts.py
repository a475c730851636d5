"""Parts of a form: what each says, its expression, texts that fit it, and texts that narrowly do not.

These texts are all that tells one expression from another, so they are systematic: a run of small letters fits with
every letter in every place and in every length, and misses with wrong lengths and every sign of ASCII that is no small
letter.
"""

import string
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter

from app.domain.values import Frozen
from app.toolkit.package_data import read_packaged_data
from app.toolkit.seeded import SeededRandom

WORDS: Final = read_packaged_data(Path(__file__).with_name("words.yaml"), TypeAdapter(tuple[str, ...]))
Mark = Literal["hyphen", "underscore", "full stop", "colon", "plus sign"]
Characters = Literal["digits", "small letters", "capitals"]
MARKS: Final[Mapping[Mark, str]] = {"hyphen": "-", "underscore": "_", "full stop": ".", "colon": ":", "plus sign": "+"}
CLASSES: Final[Mapping[Characters, tuple[str, str]]] = {
    "digits": ("[0-9]", string.digits),
    "small letters": ("[a-z]", string.ascii_lowercase),
    "capitals": ("[A-Z]", string.ascii_uppercase),
}
_STRANGERS: Final = (*map(chr, range(32, 127)), "\t", "\n", "é", "É", "ß", "٣", "²")
_SEPARATORS: Final = (*MARKS.values(), *" ,;/~'aZ0\n", "é")
_STRIDE: Final = 7
"""Coprime to the size of every class."""


class PatternPart(Frozen, ABC):
    @property
    @abstractmethod
    def says(self) -> str:
        """In words, for the prompt."""

    @property
    @abstractmethod
    def pattern(self) -> str: ...

    @abstractmethod
    def fits(self) -> Iterator[str]: ...

    @abstractmethod
    def miss_by_length(self) -> Iterator[str]:
        """Few texts with too much or too little of what fits."""

    @abstractmethod
    def miss_by_signs(self) -> Iterator[str]:
        """Many texts with something else in one place."""


class RunPart(PatternPart):
    kind: Literal["run"] = "run"
    characters: Characters
    least: int
    most: int

    @property
    def says(self) -> str:
        count = f"exactly {self.least}" if self.least == self.most else f"from {self.least} to {self.most}"
        return f"{count} {self.characters}"

    @property
    def pattern(self) -> str:
        count = f"{self.least}" if self.least == self.most else f"{self.least},{self.most}"
        return f"{CLASSES[self.characters][0]}{{{count}}}"

    def fits(self) -> Iterator[str]:
        for length in range(self.least, self.most + 1):
            for first in range(len(CLASSES[self.characters][1])):
                yield self._write(first, length)

    def miss_by_length(self) -> Iterator[str]:
        for length in sorted({0, self.least - 1, self.most + 1, self.most + 2, 2 * self.most + 3}):
            yield self._write(length, length)

    def miss_by_signs(self) -> Iterator[str]:
        lengths = range(self.least, self.most + 1)
        for number, stranger in enumerate(one for one in _STRANGERS if one not in CLASSES[self.characters][1]):
            length = lengths[number % len(lengths)]
            place = number // len(lengths) % length
            text = self._write(number, length)
            yield f"{text[:place]}{stranger}{text[place + 1 :]}"
        for _, others in CLASSES.values():
            if others != CLASSES[self.characters][1]:
                yield from (others[:length] for length in lengths)

    def _write(self, first: int, length: int) -> str:
        signs = CLASSES[self.characters][1]
        return "".join(signs[(first + _STRIDE * place) % len(signs)] for place in range(length))


class WordsPart(PatternPart):
    kind: Literal["words"] = "words"
    words: tuple[str, ...]

    @property
    def says(self) -> str:
        return "either " + " or ".join(f"the word {word}" for word in self.words)

    @property
    def pattern(self) -> str:
        return f"({'|'.join(self.words)})"

    def fits(self) -> Iterator[str]:
        yield from self.words

    def miss_by_length(self) -> Iterator[str]:
        yield ""
        yield from (one + other for one in self.words for other in self.words)

    def miss_by_signs(self) -> Iterator[str]:
        yield from (word for word in WORDS if word not in self.words)
        for word in self.words:
            yield from _misspell(word)


class OptionalPart(PatternPart):
    kind: Literal["optional"] = "optional"
    mark: Mark

    @property
    def says(self) -> str:
        return f"at most one {self.mark} ({MARKS[self.mark]})"

    @property
    def pattern(self) -> str:
        return f"[{MARKS[self.mark]}]?"

    def fits(self) -> Iterator[str]:
        yield from ("", MARKS[self.mark])

    def miss_by_length(self) -> Iterator[str]:
        yield from (MARKS[self.mark] * 2, MARKS[self.mark] * 3)

    def miss_by_signs(self) -> Iterator[str]:
        mark = MARKS[self.mark]
        yield from (one for one in _SEPARATORS if one != mark)


class ListPart(PatternPart):
    kind: Literal["list"] = "list"
    word: str
    mark: Mark
    most: int

    @property
    def says(self) -> str:
        return (
            f"the word {self.word}, from 1 to {self.most} times, with a {self.mark} ({MARKS[self.mark]}) between one "
            "and the next"
        )

    @property
    def pattern(self) -> str:
        return f"{self.word}([{MARKS[self.mark]}]{self.word}){{0,{self.most - 1}}}"

    def fits(self) -> Iterator[str]:
        yield from (self._write(count) for count in range(1, self.most + 1))

    def miss_by_length(self) -> Iterator[str]:
        mark = MARKS[self.mark]
        yield from (self._write(count) for count in (0, self.most + 1, self.most + 2))
        yield from (self.word + between + self.word for between in ("", mark * 2))
        for count in (1, self.most):
            yield from (self._write(count) + mark, mark + self._write(count))

    def miss_by_signs(self) -> Iterator[str]:
        mark, word = MARKS[self.mark], self.word
        yield from (word + between + word for between in _SEPARATORS if between != mark)
        yield from (other for other in WORDS if other != word)
        for wrong in _misspell(word):
            yield from (wrong, word + mark + wrong)

    def _write(self, count: int) -> str:
        return MARKS[self.mark].join([self.word] * count)


FormPart = Annotated[RunPart | WordsPart | OptionalPart | ListPart, Field(discriminator="kind")]


def draw_part(draws: SeededRandom) -> FormPart:
    kind = draws.below(4)
    if kind == 0:
        least = 1 + draws.below(3)
        return RunPart(characters=draws.one(tuple(CLASSES)), least=least, most=least + draws.below(3))
    if kind == 1:
        return WordsPart(words=tuple(draws.some(WORDS, 2 + draws.below(2))))
    mark = draws.one(tuple(MARKS))
    if kind == 2:
        return OptionalPart(mark=mark)
    return ListPart(word=draws.one(WORDS), mark=mark, most=2 + draws.below(3))


def _misspell(word: str) -> Iterator[str]:
    """The word with one thing wrong: case, a letter too few or too many, another letter, a sign beside it."""
    yield from (
        word.upper(),
        word.title(),
        word[1:],
        word[:-1],
        word[0] + word,
        word + word[-1],
        f"{word} ",
        word[::-1],
    )
    for place, letter in enumerate(word):
        yield f"{word[:place]}{'a' if letter != 'a' else 'b'}{word[place + 1 :]}"
        yield f"{word[:place]}{letter.upper()}{word[place + 1 :]}"
