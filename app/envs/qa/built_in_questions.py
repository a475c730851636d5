"""Questions of each kind that are made where there is no data set, so that everything works offline."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final

from pydantic import JsonValue, TypeAdapter

from app.domain.values import Frozen
from app.envs.qa.answer_keys import (
    AnyAnswerKey,
    ChoiceAnswerKey,
    ExactAnswerKey,
    JsonAnswerKey,
    MathAnswerKey,
    NumberAnswerKey,
    PatternAnswerKey,
    SetAnswerKey,
)
from app.envs.qa.qa_rows import Kind
from app.toolkit.answers.choices import ChoiceOptions
from app.toolkit.math_answers.grading import GoldAnswer
from app.toolkit.package_data import read_packaged_data
from app.toolkit.procedural import Level
from app.toolkit.seeded import SeededRandom

WORDS: Final = read_packaged_data(Path(__file__).with_name("words.yaml"), TypeAdapter(tuple[str, ...]))
OPTIONS: Final = 10
_ORDINALS: Final = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
_SIZES: Final[Mapping[Level, int]] = {"easy": 1, "medium": 2, "hard": 3}


class QaExercise(Frozen):
    question: str
    right: AnyAnswerKey


def draw_exercise(draws: SeededRandom, kind: Kind, level: Level) -> QaExercise:
    return _QUESTIONS[kind](draws, _SIZES[level])


def _ask_for_word(draws: SeededRandom, size: int) -> QaExercise:
    words = draws.some(WORDS, 3 + 2 * size)
    place = draws.below(len(words))
    return QaExercise(
        question=f"Which word comes {_ORDINALS[place]} when these are put into alphabetical order?\n{', '.join(words)}",
        right=ExactAnswerKey(accepted=(sorted(words)[place],)),
    )


def _ask_for_number(draws: SeededRandom, size: int) -> QaExercise:
    value = 10 + draws.below(90 * size)
    said = [f"Start with {value}."]
    for _ in range(size + 1):
        factor, term = 2 + draws.below(7), 11 + draws.below(200 * size)
        value = value * factor + term
        said.append(f"Multiply by {factor} and add {term}.")
    return QaExercise(question=f"{' '.join(said)} What comes out?", right=NumberAnswerKey(value=str(value)))


def _ask_for_fraction(draws: SeededRandom, size: int) -> QaExercise:
    parts = [Fraction(1 + draws.below(20), 2 + draws.below(8 * size)) for _ in range(1 + size)]
    total = sum(parts, Fraction(0))
    if total.denominator == 1 or any(part.denominator == 1 for part in parts):
        return _ask_for_fraction(draws, size)
    written = " + ".join(map(_write_fraction, parts))
    return QaExercise(
        question=f"Work out ${written}$ as one fraction in lowest terms.",
        right=MathAnswerKey(right=GoldAnswer(latex=_write_fraction(total), form="lowest")),
    )


def _write_fraction(value: Fraction) -> str:
    return f"\\frac{{{value.numerator}}}{{{value.denominator}}}"


def _ask_for_option(draws: SeededRandom, size: int) -> QaExercise:
    divisor, numbers = _draw_numbers(draws, size, OPTIONS - 1, 1)
    texts = draws.shuffled(tuple(map(str, numbers)))
    right = texts.index(str(numbers[0]))
    return QaExercise(
        question=f"Which of these numbers can be divided by {divisor} without a remainder?",
        right=ChoiceAnswerKey(options=ChoiceOptions(texts=tuple(texts), right=right)),
    )


def _ask_for_set(draws: SeededRandom, size: int) -> QaExercise:
    count = 2 + draws.below(1 + size)
    divisor, numbers = _draw_numbers(draws, size, 4 + 2 * size, count)
    listed = ", ".join(map(str, draws.shuffled(numbers)))
    return QaExercise(
        question=f"Which of these numbers can be divided by {divisor} without a remainder?\n{listed}",
        right=SetAnswerKey(items=tuple(map(str, numbers[:count]))),
    )


def _draw_numbers(draws: SeededRandom, size: int, others: int, count: int) -> tuple[int, Sequence[int]]:
    """A divisor, and different numbers: first `count` that it divides, then those that it does not."""
    divisor = draws.one((3, 4, 6, 7, 8, 9)) if size == 1 else 7 + draws.below(12 * size)
    most = 4_000 * size  # so many that no number is remembered as right
    found = [divisor * factor for factor in draws.some(range(3, most), count)]
    while len(found) < count + others:
        number = divisor * (3 + draws.below(most - 3)) + 1 + draws.below(divisor - 1)
        if number not in found:
            found.append(number)
    return divisor, found


def _ask_for_form(draws: SeededRandom, size: int) -> QaExercise:
    """Two numbers of a part differ in both digits, so that no slip in one makes the other."""
    words = draws.some(WORDS, 4 * size)
    parts: list[tuple[str, str]] = []
    for place in range(size):
        tens, ones = draws.some(range(1, 10), 2), draws.some(range(10), 2)
        parts.append((words[4 * place], words[4 * place + 1]))
        parts.append((f"{tens[0]}{ones[0]}", f"{tens[1]}{ones[1]}"))
    said = "; ".join(f"{one} or {other}" for one, other in parts)
    return QaExercise(
        question=f"A code has {len(parts)} parts, with a hyphen between one and the next. They are, in this order: "
        f"{said}. Write a code of this form; any will do.",
        right=PatternAnswerKey(
            pattern="-".join(f"(?:{one}|{other})" for one, other in parts),
            example="-".join(draws.one(part) for part in parts),
        ),
    )


def _ask_for_record(draws: SeededRandom, size: int) -> QaExercise:
    words = draws.some(WORDS, 2 + 2 * size)
    count, fragile = 2 + draws.below(400), draws.chance(50)
    record: dict[str, JsonValue] = {
        "item": words[0],
        "count": count,
        "fragile": fragile,
        "tags": [*words[1 : 1 + 2 * size]],
    }
    properties: dict[str, JsonValue] = {
        "item": {"type": "string"},
        "count": {"type": "integer"},
        "fragile": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
    }
    form: dict[str, JsonValue] = {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }
    breaks = "They break easily." if fragile else "They do not break easily, so they are not fragile."
    return QaExercise(
        question=f"Write a record. On the shelf are {count} of one item, the {words[0]}. {breaks} "
        f"The tags are, in this order: {', '.join(words[1 : 1 + 2 * size])}.",
        right=JsonAnswerKey(form=form, right=(record,)),
    )


_QUESTIONS: Final[Mapping[Kind, Callable[[SeededRandom, int], QaExercise]]] = {
    "exact": _ask_for_word,
    "number": _ask_for_number,
    "math": _ask_for_fraction,
    "choice": _ask_for_option,
    "set": _ask_for_set,
    "regex": _ask_for_form,
    "json": _ask_for_record,
}
