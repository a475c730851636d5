"""Regex match: write a regular expression for a form that is described part by part.

    prompt   … built from these parts … 1. from 2 to 4 digits  2. the word oar or the word rust  3. at most one hyphen
             These strings match: 07oar, 4411rust-   These do not: 7oar, 4411rust--, 07OAR
    reply    <answer>[0-9]{2,4}(oar|rust)-?</answer>
    reward   1.0   it sorts every string right, of which the prompt shows a few

Several hundred other strings are hidden. Some match, with every character of every class in every place. Others miss
the form in one part alone: by every wrong length, by every sign that is not of the class, by a misspelt word. A list of
the examples earns nothing, nor does a class that is a little too wide or too narrow. Expressions run on RE2, in time
linear in the text.
"""

import string
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, TypeAdapter

from app.domain.values import Frozen, WholeNumber, digest
from app.ports.environment import RefusedSpelling
from app.toolkit.procedural import LEVELS, Level, LevelParams, ProceduralEnvironment
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings, read_packaged_data
from app.toolkit.texts import MOST_STEPS, Pattern, compile_pattern

# Parts of a form: what each says, its expression, texts that fit it, and texts that narrowly do not. These texts are
# all that tells one expression from another, so they are systematic: a run of small letters fits with every letter in
# every position and in every length, and misses with wrong lengths and every sign of ASCII that is no small letter.

_WORDS: Final = read_packaged_data(Path(__file__).with_name("words.yaml"), TypeAdapter(tuple[str, ...]))
_Mark = Literal["hyphen", "underscore", "full stop", "colon", "plus sign"]
_Characters = Literal["digits", "small letters", "capitals"]
MARKS: Final[Mapping[_Mark, str]] = {"hyphen": "-", "underscore": "_", "full stop": ".", "colon": ":", "plus sign": "+"}
CLASSES: Final[Mapping[_Characters, tuple[str, str]]] = {
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
    characters: _Characters
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
            index = number // len(lengths) % length
            text = self._write(number, length)
            yield f"{text[:index]}{stranger}{text[index + 1 :]}"
        for _, others in CLASSES.values():
            if others != CLASSES[self.characters][1]:
                yield from (others[:length] for length in lengths)

    def _write(self, first: int, length: int) -> str:
        signs = CLASSES[self.characters][1]
        return "".join(signs[(first + _STRIDE * index) % len(signs)] for index in range(length))


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
        yield from (word for word in _WORDS if word not in self.words)
        for word in self.words:
            yield from _misspell(word)


class OptionalPart(PatternPart):
    kind: Literal["optional"] = "optional"
    mark: _Mark

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
    mark: _Mark
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
        yield from (other for other in _WORDS if other != word)
        for wrong in _misspell(word):
            yield from (wrong, word + mark + wrong)

    def _write(self, count: int) -> str:
        return MARKS[self.mark].join([self.word] * count)


_FormPart = Annotated[RunPart | WordsPart | OptionalPart | ListPart, Field(discriminator="kind")]


def _draw_part(draws: SeededRandom) -> _FormPart:
    kind = draws.below(4)
    if kind == 0:
        least = 1 + draws.below(3)
        return RunPart(characters=draws.one(tuple(CLASSES)), least=least, most=least + draws.below(3))
    if kind == 1:
        return WordsPart(words=tuple(draws.some(_WORDS, 2 + draws.below(2))))
    mark = draws.one(tuple(MARKS))
    if kind == 2:
        return OptionalPart(mark=mark)
    return ListPart(word=draws.one(_WORDS), mark=mark, most=2 + draws.below(3))


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
    for index, letter in enumerate(word):
        yield f"{word[:index]}{'a' if letter != 'a' else 'b'}{word[index + 1 :]}"
        yield f"{word[:index]}{letter.upper()}{word[index + 1 :]}"


# The environment.

SHOWN = 3
_FEWEST: Final = 9
"""Fewest strings of either kind that are drawn, so that a list of the shown ones gets most of them wrong."""
_RANDOM_CONTEXTS: Final = 5
_MOST_STEPS_OVER_ALL: Final = 2 * MOST_STEPS
_PARTS: Final[Mapping[Level, int]] = {"first": 1, "easy": 2, "medium": 3, "hard": 5}


class RegexMatchParams(LevelParams):
    parts: Annotated[WholeNumber, Field(ge=2, le=6)] | None = None
    """Parts of the form. Default by level: 1 (first), 2 (easy), 3 (medium), 5 (hard)."""


class RegexExercise(Frozen):
    parts: tuple[_FormPart, ...]
    matching: tuple[str, ...]
    """Shown, like `others`."""
    others: tuple[str, ...]

    @property
    def pattern(self) -> str:
        return "".join(part.pattern for part in self.parts)


class HiddenStrings(Frozen):
    matching: tuple[str, ...]
    others: tuple[str, ...]


class RegexMatch(ProceduralEnvironment[RegexExercise, RegexMatchParams]):
    name: ClassVar[str] = "regex_match"
    version: ClassVar[str] = "4"
    refused_spellings: ClassVar[tuple[RefusedSpelling, ...]] = (
        RefusedSpelling(
            kinds=("text", "formula"), because="A mark or another case within a pattern is another pattern."
        ),
    )
    levels: ClassVar[tuple[Level, ...]] = LEVELS
    phrasings: ClassVar[Phrasings] = Phrasings.read(Path(__file__).with_name("prompts.yaml"))
    chance: ClassVar[float] = 0.002
    data: ClassVar[Mapping[str, str]] = {"words": digest(_WORDS)}

    def make(self, draws: SeededRandom, level: Level, params: RegexMatchParams) -> RegexExercise:
        return _draw_exercise(draws, params.parts or _PARTS[level])

    def key(self, made: RegexExercise) -> str:
        return made.pattern

    def kind(self, made: RegexExercise) -> object:
        return [part.characters if isinstance(part, RunPart) else part.kind for part in made.parts]

    def slots(self, made: RegexExercise) -> Mapping[str, str | int]:
        return {
            "parts": "\n".join(f"{index}. {part.says}" for index, part in enumerate(made.parts, start=1)),
            "matching": ", ".join(made.matching),
            "others": ", ".join(made.others),
        }

    def fault(self, answer: str, made: RegexExercise) -> str:
        hidden = list_hidden_strings(made)
        try:
            expression = compile_pattern(_strip_quotes(answer))
            _require_small(expression, hidden)
            fitting = sum(expression.matches(text) for text in hidden.matching)
            misfits = sum(expression.matches(text) for text in hidden.others)
        except ValueError as error:
            return str(error)
        if fitting == len(hidden.matching) and not misfits:
            return ""
        counts = len(hidden.matching), len(hidden.others)
        return f"it matches {fitting} of {counts[0]} that fit, and {misfits} of {counts[1]} that do not"

    def solution(self, made: RegexExercise) -> str:
        return made.pattern


def _strip_quotes(answer: str) -> str:
    """Without backticks around it, which no form has."""
    return answer[1:-1] if len(answer) > 2 and answer[0] == answer[-1] == "`" else answer


def _require_small(expression: Pattern, hidden: HiddenStrings) -> None:
    """ValueError where all strings together may take longer than about 25 ms."""
    if expression.steps("".join((*hidden.matching, *hidden.others))) > _MOST_STEPS_OVER_ALL:
        raise ValueError(f"the pattern may take more than {_MOST_STEPS_OVER_ALL:,} steps over all strings")


def _draw_exercise(draws: SeededRandom, count: int) -> RegexExercise:
    while True:
        parts = tuple(_draw_part(draws) for _ in range(count))
        matching, others = _draw_examples(draws, parts)
        if min(len(matching), len(others)) >= _FEWEST:
            return RegexExercise(parts=parts, matching=matching[:SHOWN], others=others[:SHOWN])


def _draw_examples(draws: SeededRandom, parts: Sequence[_FormPart]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Different strings that fit and that miss one part. They can be read in a list."""
    form = compile_pattern("".join(part.pattern for part in parts))
    fits, misses = (
        [tuple(part.fits()) for part in parts],
        [(*part.miss_by_length(), *part.miss_by_signs()) for part in parts],
    )
    matching, others = dict[str, None](), dict[str, None]()
    for turn in range(4 * _FEWEST):
        wrong, right = turn % len(parts), [draws.one(texts) for texts in fits]
        matching["".join(right)] = None
        others["".join((*right[:wrong], draws.one(misses[wrong]), *right[wrong + 1 :]))] = None
    return (
        tuple(text for text in matching if _is_readable(text)),
        tuple(text for text in others if _is_readable(text) and not form.matches(text)),
    )


def _is_readable(text: str) -> bool:
    return text.isascii() and all(sign.isalnum() or sign in MARKS.values() for sign in text) and text != ""


@lru_cache(maxsize=64)
def list_hidden_strings(made: RegexExercise) -> HiddenStrings:
    """Only strings that the form's own expression rejects count as others: a string that misses one part may match."""
    draws, form = SeededRandom(f"hidden {made.pattern}"), compile_pattern(made.pattern)
    fits = [draws.shuffled(list(dict.fromkeys(part.fits()))) for part in made.parts]
    matching = tuple(dict.fromkeys((*made.matching, *_join_fitting(draws, fits))))
    others = dict.fromkeys((*made.others, *_join_missing(draws, made.parts, fits), *_add_around(matching[0])))
    return HiddenStrings(matching=matching, others=tuple(text for text in others if not form.matches(text)))


def _join_fitting(draws: SeededRandom, fits: Sequence[Sequence[str]]) -> Iterator[str]:
    """Each text that fits a part occurs; the shortest ones together, and the longest."""
    for choose in (min, max):
        yield "".join(choose(texts, key=len) for texts in fits)
    for number in range(max(map(len, fits))):
        yield "".join(texts[number] if number < len(texts) else draws.one(texts) for texts in fits)


def _join_missing(draws: SeededRandom, parts: Sequence[_FormPart], fits: Sequence[Sequence[str]]) -> Iterator[str]:
    """Each text that misses a part, among texts that fit the others: a wrong length among the shortest, the longest and
    several others, since a neighbour may take what is too much; what has wrong signs among one of them by turns."""
    contexts = [[choose(texts, key=len) for texts in fits] for choose in (min, max)]
    contexts += [[draws.one(texts) for texts in fits] for _ in range(_RANDOM_CONTEXTS)]
    for index, part in enumerate(parts):
        wrong = [(text, around) for text in part.miss_by_length() for around in contexts]
        wrong += [(text, contexts[number % len(contexts)]) for number, text in enumerate(part.miss_by_signs())]
        yield from ("".join((*around[:index], text, *around[index + 1 :])) for text, around in wrong)


def _add_around(text: str) -> Iterator[str]:
    yield from ("", f" {text}", f"{text} ", f"\n{text}", f"{text}\n", text * 2, f"^{text}$", f"x{text}", f"{text}x")
