"""Letter counting: count how often each of several letters occurs in a text.

    prompt   How often does each of these letters occur in the text below: e, r, p? … Upper and lower case count …
             Every apprentice repainted the attic ladder in broad daylight.
    reply    <think>Every: e, e, r …</think> <answer>8, 5, 3</answer>
    reward   1.0   every count is right

Each task asks for several letters, at least half of them frequent: the best constant answer is right in one of 30 easy
tasks and in one of 150 of medium ones. A text is half in capitals, so counting small letters alone, or capitals alone,
is hardly ever right. Texts are nonsense sentences, in which each word is written in capitals or not, or random letters.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, TypeAdapter

from app.domain.values import Frozen, WholeNumber, digest
from app.toolkit.answers import parse_number
from app.toolkit.procedural import LEVELS, Level, LevelParams, ProceduralEnvironment
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings, read_packaged_data

_FOLDER = Path(__file__).parent
_PARTS = read_packaged_data(_FOLDER / "words.yaml", TypeAdapter(tuple[tuple[str, ...], ...]))
_COUNTS = re.compile(r"([0-9]{1,4}(?:\s*,\s*[0-9]{1,4})*)\.?")
_MEASURES: Final[Mapping[Level, tuple[int, int]]] = {
    "first": (1, 1),
    "easy": (2, 1),
    "medium": (3, 1),
    "hard": (5, 2),
}
"""Pairs: letters asked for, and sentences."""
_MOST_ALIKE: Final = 5
"""Most times that the letter of a `first` task occurs."""

Kind = Literal["sentence", "letters", "both"]


class LetterCountingParams(LevelParams):
    letters: Annotated[WholeNumber, Field(ge=2, le=6)] | None = None
    """How many letters are asked for. Default by level: 2 (easy), 3 (medium), 5 (hard). `first`: always 1."""
    length: Annotated[WholeNumber, Field(ge=1, le=6)] | None = None
    """Sentences, or lines of about forty letters, in a text. Default: 1, or 2 for hard tasks. `first`: one word."""
    kind: Kind = "both"
    """`sentence`: nonsense sentences. `letters`: random letters. `both`: either."""


class LetterQuestion(Frozen):
    text: str
    letters: tuple[str, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(self.text.casefold().count(letter) for letter in self.letters)


class LetterCounting(ProceduralEnvironment[LetterQuestion, LetterCountingParams]):
    name: ClassVar[str] = "letter_counting"
    version: ClassVar[str] = "5"
    ignores_markup: ClassVar[bool] = True
    levels: ClassVar[tuple[Level, ...]] = LEVELS
    phrasings: ClassVar[Phrasings] = Phrasings.read(_FOLDER / "prompts.yaml")
    data: ClassVar[Mapping[str, str]] = {"words": digest(_PARTS)}
    chance: ClassVar[float] = 0.002

    def make(self, draws: SeededRandom, level: Level, params: LetterCountingParams) -> LetterQuestion:
        if level == "first":
            return _draw_word(draws)
        usual_letters, usual_length = _MEASURES[level]
        letters, length = params.letters or usual_letters, params.length or usual_length
        kind = draws.one(("sentence", "letters")) if params.kind == "both" else params.kind
        return (_draw_lines if kind == "letters" else _draw_sentences)(draws, letters, length)

    def key(self, made: LetterQuestion) -> str:
        return made.text

    def slots(self, made: LetterQuestion) -> Mapping[str, str | int]:
        return {"text": made.text, "letters": ", ".join(made.letters)}

    def fault(self, answer: str, made: LetterQuestion) -> str:
        listed = _COUNTS.fullmatch(answer)
        numbers = [int(number) for number in listed[1].split(",")] if listed else [parse_number(answer)]
        if None in numbers:
            return "it is no list of whole numbers"
        if len(numbers) != len(made.counts):
            return f"it has {len(numbers)} numbers for {len(made.counts)} letters"
        wrong = sum(one != other for one, other in zip(numbers, made.counts, strict=True))
        return f"{wrong} of {len(made.counts)} counts are wrong" if wrong else ""

    def solution(self, made: LetterQuestion) -> str:
        return ", ".join(map(str, made.counts))


def _draw_word(draws: SeededRandom) -> LetterQuestion:
    """A made-up word with one letter once to several times, each count equally often, so that no count pays more."""
    letter, *others = draws.some(ascii_lowercase, 4)
    text = "".join(draws.shuffled([letter] * (1 + draws.below(_MOST_ALIKE)) + others))
    return LetterQuestion(text=text, letters=(letter,))


def _draw_lines(draws: SeededRandom, count: int, length: int) -> LetterQuestion:
    letters = draws.some(ascii_lowercase, 7 + draws.below(6))
    text = " ".join(_draw_line(draws, letters) for _ in range(length))
    return LetterQuestion(text=text, letters=_draw_asked_letters(draws, text, letters, count))


def _draw_line(draws: SeededRandom, letters: Sequence[str]) -> str:
    return "".join(_change_case(draws, draws.one(letters)) for _ in range(30 + draws.below(20)))


def _draw_sentences(draws: SeededRandom, count: int, length: int) -> LetterQuestion:
    text = " ".join(_draw_sentence(draws) for _ in range(length))
    return LetterQuestion(text=text, letters=_draw_asked_letters(draws, text, ascii_lowercase, count))


def _draw_sentence(draws: SeededRandom) -> str:
    words = " ".join(draws.one(part) for part in _PARTS).split()
    text = " ".join(_change_case(draws, word) for word in words)
    return f"{text[0].upper()}{text[1:]}."


def _change_case(draws: SeededRandom, text: str) -> str:
    return text.upper() if draws.chance(50) else text


def _draw_asked_letters(draws: SeededRandom, text: str, letters: Sequence[str], count: int) -> tuple[str, ...]:
    """At least half of them occur three times or more, in both cases."""
    folded = text.casefold()
    common = [
        letter for letter in letters if folded.count(letter) >= 3 and 0 < text.count(letter) < folded.count(letter)
    ]
    frequent = draws.some(common, (count + 1) // 2)
    others = [letter for letter in letters if letter not in frequent]
    return tuple(draws.shuffled(frequent + draws.some(others, count - len(frequent))))
