"""Text transform: apply a few exact steps to a line of words.

    prompt   Take this line: copper maple otter maple
             1. Drop every word that has stood further to the left already.  2. Write each word backwards.
    reply    <think>copper maple otter; backwards …</think> <answer>reppoc elpam retto</answer>
    reward   1.0   exactly that

Any white space counts as one space; everything else must match. Later steps work on the result of earlier ones.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from string import ascii_lowercase
from typing import Annotated, ClassVar, Final

from pydantic import Field, TypeAdapter

from app.domain.values import Frozen, WholeNumber, digest
from app.ports.environment import RefusedSpelling
from app.toolkit.procedural import LEVELS, Level, LevelParams, ProceduralEnvironment
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings, read_packaged_data

_FOLDER = Path(__file__).parent
_WORDS = read_packaged_data(_FOLDER / "words.yaml", TypeAdapter(tuple[str, ...]))
_MEASURES: Final[Mapping[Level, tuple[int, int]]] = {"first": (1, 2), "easy": (1, 5), "medium": (2, 6), "hard": (4, 10)}
"""Pairs: steps and words."""
_TRIES = 40
"""Tries to add a step to a line: after some steps it may be too short for others."""

_Words = tuple[str, ...]
_Change = Callable[[_Words, int], _Words]


class TextTransformParams(LevelParams):
    steps: Annotated[WholeNumber, Field(ge=1, le=5)] | None = None
    """Number of steps. Default by level: 1 (easy), 2 (medium), 4 (hard). `first`: always 1."""
    words: Annotated[WholeNumber, Field(ge=3, le=20)] | None = None
    """Words in the line. Default by level: 2 (first), 5 (easy), 6 (medium), 10 (hard)."""


class TransformExercise(Frozen):
    words: _Words
    steps: tuple[str, ...]
    result: str


def _shift_letter(letter: str, places: int) -> str:
    return ascii_lowercase[(ascii_lowercase.index(letter) + places) % 26] if letter in ascii_lowercase else letter


_ANYWHERE: Final[Mapping[str, _Change]] = {
    "write each word backwards": lambda words, _: tuple(word[::-1] for word in words),
    "put the words in reverse order": lambda words, _: words[::-1],
    "sort the words alphabetically": lambda words, _: tuple(sorted(words)),
    "sort the words from short to long, and leave those of the same length in the order in which they are": (
        lambda words, _: tuple(sorted(words, key=len))
    ),
    "drop every word that has stood further to the left already": lambda words, _: tuple(dict.fromkeys(words)),
    "replace each letter by the one {number} places later in the alphabet, where a comes after z": (
        lambda words, number: tuple("".join(_shift_letter(letter, number) for letter in word) for word in words)
    ),
    "move the first {number} words to the end": lambda words, number: words[number:] + words[:number],
    "drop every word whose position, counted from 1, is a multiple of {number}": (
        lambda words, number: tuple(word for position, word in enumerate(words, start=1) if position % number)
    ),
    "remove the letters a, e, i, o and u": (
        lambda words, _: tuple("".join(letter for letter in word if letter not in "aeiou") for word in words)
    ),
    "write each word twice in a row": lambda words, _: tuple(word for word in words for _ in range(2)),
}
_LAST: Final[Mapping[str, _Change]] = {
    "write every second word, beginning with the second, in capitals": (
        lambda words, _: tuple(word.upper() if position % 2 else word for position, word in enumerate(words))
    ),
    "write after each word the number of its letters, in digits, as a word of its own": (
        lambda words, _: tuple(part for word in words for part in (word, str(len(word))))
    ),
}
"""Only used as the last step: sorting or shifting after them would be ambiguous."""
_FIRST: Final = ("put the words in reverse order", "write each word twice in a row")
"""Steps of `first` tasks."""
CHANGES: Final[Mapping[str, _Change]] = {**_ANYWHERE, **_LAST}


class TextTransform(ProceduralEnvironment[TransformExercise, TextTransformParams]):
    name: ClassVar[str] = "text_transform"
    version: ClassVar[str] = "4"
    ignores_markup: ClassVar[bool] = True
    refused_spellings: ClassVar[tuple[RefusedSpelling, ...]] = (
        RefusedSpelling(
            kinds=("text: first letter's case",),
            because="The letters are the task, and so is their case.",
        ),
    )
    levels: ClassVar[tuple[Level, ...]] = LEVELS
    phrasings: ClassVar[Phrasings] = Phrasings.read(_FOLDER / "prompts.yaml")
    data: ClassVar[Mapping[str, str]] = {"words": digest(_WORDS)}

    def make(self, draws: SeededRandom, level: Level, params: TextTransformParams) -> TransformExercise:
        steps, words = _MEASURES[level]
        if level == "first":
            return _draw_first_exercise(draws, params.words or words)
        return _draw_exercise(draws, params.steps or steps, params.words or words)

    def key(self, made: TransformExercise) -> str:
        return " ".join(made.words)

    def slots(self, made: TransformExercise) -> Mapping[str, str | int]:
        steps = "\n".join(
            f"{position}. {step[0].upper()}{step[1:]}." for position, step in enumerate(made.steps, start=1)
        )
        return {"text": " ".join(made.words), "steps": steps}

    def kind(self, made: TransformExercise) -> object:
        return made.steps

    def fault(self, answer: str, made: TransformExercise) -> str:
        return "" if answer.split() == made.result.split() else "it is another line"

    def solution(self, made: TransformExercise) -> str:
        return made.result


def _draw_first_exercise(draws: SeededRandom, length: int) -> TransformExercise:
    """Different words, and one plain step."""
    words, step = tuple(draws.some(_WORDS, length)), draws.one(_FIRST)
    return TransformExercise(words=words, steps=(step,), result=" ".join(CHANGES[step](words, 0)))


def _draw_exercise(draws: SeededRandom, count: int, length: int) -> TransformExercise:
    """Some words occur twice, and every step changes the line."""
    while True:
        different = draws.some(_WORDS, length - length // 4)
        words = tuple(draws.shuffled(different + draws.some(different, length // 4)))
        steps, now = list[str](), words
        for _ in range(_TRIES):
            if len(steps) == count:
                return TransformExercise(words=words, steps=tuple(steps), result=" ".join(now))
            step = draws.one([*_ANYWHERE, *(_LAST if len(steps) == count - 1 else ())])
            number = 2 + draws.below(3)
            written = step.format(number=number)
            changed = CHANGES[step](now, number) if len(now) > number else now
            if changed != now and written not in steps:
                steps.append(written)
                now = changed
