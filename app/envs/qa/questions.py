"""Questions with answers that code can check, by kind: what is right, rows of any data set, and generated questions.

An answer key says how a reply is graded, what the prompt says of it, and a right reply:

exact     one of several texts; case and white space aside
number    a number, within a margin
math      an expression in a box, as the environment `math` grades it
choice    the letter of one option
set       the same texts in any order, none of them twice; case and white space aside
regex     a text that a pattern matches as a whole
json      a JSON value that is valid by a schema, or the one value that is right
"""

import json
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, TypeAdapter, model_validator

from app.domain.scores import Score
from app.domain.tasks import leave_out
from app.domain.values import MEBIBYTE, Frozen, remember
from app.toolkit.answers import (
    ChoiceOptions,
    ListedOptions,
    find_choice_fault,
    forgive_markup,
    grade_committed,
    grade_number,
    parse_number,
    read_json_cell,
    read_number,
)
from app.toolkit.json_answers import find_fault, find_validity_fault, is_valid, parse_answer, require_schema
from app.toolkit.math_answers import expressions
from app.toolkit.math_answers.grading import GoldAnswer, MathRow
from app.toolkit.procedural import Level
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import read_packaged_data
from app.toolkit.texts import MOST_STEPS, compile_pattern

# Answer keys.

_Separator = Literal[",", ";", "\n"]
_SEPARATORS: Final[Mapping[_Separator, str]] = {
    ",": "commas",
    ";": "semicolons",
    "\n": "line breaks, with one to a line",
}
_MOST_MATCHED: Final = 1_000
"""Characters of an answer that a pattern is tried on."""
_OTHER: Final = "it is another answer"
_NUMERAL: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,30})")
"""An item that is a number: `007` is a code, whose zeros count."""
_SPELLED_NUMERAL: Final = re.compile(r"[+-]?[0-9]{1,40}(?:\.0{0,9})?")


def _fold_text(text: str) -> str:
    """In one case, without white space around it, with single blanks within."""
    # twice: changing the case can leave letters apart that have a form as one
    return " ".join(unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold()).split())


def _fold_item(text: str, items: Sequence[str], numerals: Mapping[Fraction, str]) -> str:
    """As `_fold_text`; a number in another spelling than any item as the item that is the same number. Of several items
    only without words: `7 a` may be another one."""
    folded = _fold_text(text)
    is_number = bool(numerals) and (len(items) == 1 or _SPELLED_NUMERAL.fullmatch(folded) is not None)
    value = parse_number(text) if is_number and folded not in items else None
    return folded if value is None else numerals.get(value, folded)


class AnswerKey(Frozen, ABC):
    @property
    def slots(self) -> Mapping[str, str]:
        """Values for the words that say in the prompt how to commit."""
        return {}

    @property
    @abstractmethod
    def gold(self) -> str | None:
        """A right reply, if one is known."""

    def grade(self, reply: str) -> Score:
        return grade_committed(reply, forgive_markup(self.find_fault))

    def find_fault(self, answer: str) -> str:
        """What is wrong with a committed answer, in words that do not reveal the right one; empty for a right one."""
        raise NotImplementedError


class ExactAnswerKey(AnswerKey):
    kind: Literal["exact"] = "exact"
    accepted: Annotated[tuple[str, ...], Field(min_length=1)]

    @property
    def gold(self) -> str:
        return _tag(self.accepted[0])

    def find_fault(self, answer: str) -> str:
        return "" if _fold_text(answer) in map(_fold_text, self.accepted) else _OTHER


class NumberAnswerKey(AnswerKey):
    kind: Literal["number"] = "number"
    value: str
    """A fraction, like `margin`."""
    margin: str = "0"

    @property
    def gold(self) -> str:
        return f"#### {self.value}"

    def grade(self, reply: str) -> Score:
        return grade_number(reply, Fraction(self.value), Fraction(self.margin))


class MathAnswerKey(AnswerKey):
    """`app.toolkit.math_answers.grading` grades it, since algebra takes a worker."""

    kind: Literal["math"] = "math"
    right: GoldAnswer

    @property
    def gold(self) -> str:
        return f"\\boxed{{{self.right.latex}}}"


class ChoiceAnswerKey(AnswerKey):
    kind: Literal["choice"] = "choice"
    options: ChoiceOptions

    @property
    def slots(self) -> Mapping[str, str]:
        return {"options": self.options.listed}

    @property
    def gold(self) -> str:
        return _tag(self.options.letter)

    def find_fault(self, answer: str) -> str:
        return find_choice_fault(answer, self.options)


class SetAnswerKey(AnswerKey):
    kind: Literal["set"] = "set"
    items: Annotated[tuple[str, ...], Field(min_length=1)]
    separator: _Separator = ","

    @property
    def slots(self) -> Mapping[str, str]:
        return {"separator": _SEPARATORS[self.separator]}

    @property
    def gold(self) -> str:
        between = self.separator if self.separator == "\n" else f"{self.separator} "
        return _tag(between.join(self.items))

    def find_fault(self, answer: str) -> str:
        parts = answer.split(self.separator)
        if not all(map(_fold_text, parts)):
            return "a part of it is empty"
        if len(parts) != len(self.items):
            return _OTHER
        items = sorted(map(_fold_text, self.items))
        numerals = {Fraction(item): item for item in items if _NUMERAL.fullmatch(item)}
        return "" if sorted(_fold_item(part, items, numerals) for part in parts) == items else _OTHER


class PatternAnswerKey(AnswerKey):
    kind: Literal["regex"] = "regex"
    pattern: str
    example: str | None = None

    @property
    def gold(self) -> str | None:
        return None if self.example is None else _tag(self.example)

    def find_fault(self, answer: str) -> str:
        if len(answer) > _MOST_MATCHED:
            return f"it has more than {_MOST_MATCHED:,} characters"
        try:
            return "" if _compile_once(self.pattern).matches(answer) else "it does not have the form that is asked for"
        except UnicodeEncodeError:
            return "it holds what is no text"


class JsonAnswerKey(AnswerKey):
    kind: Literal["json"] = "json"
    form: dict[str, JsonValue]
    """The schema."""
    right: tuple[JsonValue, ...] = ()
    """The only right value; without it every valid one is right."""
    example: tuple[JsonValue, ...] = ()
    """A valid value, where one is known."""

    @property
    def slots(self) -> Mapping[str, str]:
        return {"schema": json.dumps(self.form, ensure_ascii=False)}

    @property
    def gold(self) -> str | None:
        examples = self.right or self.example
        return _tag(json.dumps(examples[0], ensure_ascii=False)) if examples else None

    def find_fault(self, answer: str) -> str:
        if self.right:
            return find_fault(answer, self.form, self.right[0])
        return find_validity_fault(answer, self.form)


AnyAnswerKey = Annotated[
    ExactAnswerKey
    | NumberAnswerKey
    | MathAnswerKey
    | ChoiceAnswerKey
    | SetAnswerKey
    | PatternAnswerKey
    | JsonAnswerKey,
    Field(discriminator="kind"),
]


_compile_once = remember(8 * MEBIBYTE)(compile_pattern)


def _tag(answer: str) -> str:
    return f"<answer>{answer}</answer>"


# Rows of any data set; `docs/qa.md` has the table. A row without `kind` is of the kind that `params.kind` names, or
# `exact`. No error quotes a row.

Kind = Literal["exact", "number", "math", "choice", "set", "regex", "json"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

_OPTIONAL: Final = ("kind", "system", "topic", "level", "options", "tolerance", "aliases", "schema", "example")
_PERCENT: Final = re.compile(r"\s*([0-9.]+)\s*%\s*")


def _wrap_text(value: object) -> object:
    parsed = read_json_cell(value)
    return [parsed] if isinstance(parsed, str) else parsed


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class QaRow(BaseModel):
    model_config = ConfigDict(frozen=True)

    question: Annotated[str, Field(min_length=1)]
    answer: JsonValue = None
    kind: Kind | None = None
    system: str = ""
    topic: Annotated[str, BeforeValidator(_as_text)] = ""
    level: Annotated[str, BeforeValidator(_as_text)] = ""
    options: ListedOptions | None = None
    tolerance: Annotated[str, BeforeValidator(_as_text)] = "0"
    aliases: Annotated[tuple[Annotated[str, BeforeValidator(_as_text)], ...], BeforeValidator(_wrap_text)] = ()
    form: Annotated[JsonValue, Field(validation_alias="schema")] = None
    example: JsonValue = None

    @model_validator(mode="before")
    @classmethod
    def _drop_empty_cells(cls, row: Any) -> Any:
        if not isinstance(row, dict):
            return row
        return {name: value for name, value in row.items() if value != "" or name not in _OPTIONAL}

    @model_validator(mode="after")
    def _require_answer(self) -> Self:
        self.build_key("exact")
        return self

    def build_key(self, kind: Kind) -> AnyAnswerKey:
        """What is right. `kind` counts where the row has none. A ValueError says what is wrong, a custom error of
        `leave_out` why the row makes no task."""
        if self.answer in (None, "", []) and (self.kind or kind) != "json":
            raise leave_out("there is no answer")
        key: AnyAnswerKey = getattr(self, f"_build_{self.kind or kind}_key")()
        if not _can_be_said(key):
            raise leave_out("no reply could commit to the answer: it is too long, or has tags or dots alone in it")
        return key

    def _build_exact_key(self) -> ExactAnswerKey:
        texts = (_require_text(self.answer), *self.aliases)
        return ExactAnswerKey(accepted=tuple(text.strip() for text in texts if _fold_text(text)))

    def _build_number_key(self) -> NumberAnswerKey:
        value = _read_gold_number(_require_text(self.answer))
        return NumberAnswerKey(value=str(value), margin=str(_read_margin(self.tolerance, value)))

    def _build_math_key(self) -> MathAnswerKey:
        row = MathRow.model_construct(problem=self.question, answer=_require_text(self.answer))
        return MathAnswerKey(right=row.gold)

    def _build_choice_key(self) -> ChoiceAnswerKey:
        if self.options is None:
            raise ValueError("a choice needs `options`")
        return ChoiceAnswerKey(options=self.options.choose(self.answer))

    def _build_set_key(self) -> SetAnswerKey:
        listed = _list_items(self.answer)
        if any(isinstance(item, str) and not item.strip() for item in listed):
            raise ValueError("a part of the answer is empty")
        items = tuple(_require_text(item).strip() for item in listed)
        if len({_fold_text(item) for item in items}) < len(items):
            raise leave_out("a part of the answer occurs twice")
        return SetAnswerKey(items=items, separator=_choose_separator(items))

    def _build_regex_key(self) -> PatternAnswerKey:
        if not isinstance(self.answer, str):
            raise ValueError("a pattern is a text")
        _require_pattern(self.answer)
        key = PatternAnswerKey(
            pattern=self.answer, example=None if self.example is None else _require_text(self.example).strip()
        )
        if key.example is not None and key.find_fault(key.example):
            raise ValueError("the pattern does not match `example`")
        return key

    def _build_json_key(self) -> JsonAnswerKey:
        form = _read_form(self.answer if self.form is None else self.form)
        right = () if self.form is None or self.answer is None else (_read_value(self.answer),)
        example = () if self.example is None else (_read_value(self.example),)
        if not all(is_valid(value, form) for value in (*right, *example)):
            raise ValueError("the right value is not valid by the schema")
        return JsonAnswerKey(form=form, right=right, example=example)


def _can_be_said(key: AnyAnswerKey) -> bool:
    if key.gold is None:
        return True
    if isinstance(key, MathAnswerKey):
        return len(expressions.extract_boxes(key.gold).texts) == 1
    return key.grade(key.gold).reward == 1.0


def _require_text(value: JsonValue) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise ValueError("the answer is to be a text or a number")
    if not str(value).strip():
        raise leave_out("there is no answer")
    return str(value)


def _read_gold_number(text: str) -> Fraction:
    value = parse_number(text)
    value = read_number(text).value if value is None else value
    if value is None:
        raise ValueError("the answer is not one number")
    return value


def _read_margin(tolerance: str, value: Fraction) -> Fraction:
    """`0.5` is absolute, `1%` is relative to the right number."""
    share = _PERCENT.fullmatch(tolerance)
    margin = parse_number(share[1] if share else tolerance)
    if margin is None or margin < 0:
        raise ValueError("`tolerance` is to be a number from 0, or a percentage")
    return abs(value) * margin / 100 if share else margin


def _list_items(answer: JsonValue) -> list[JsonValue]:
    parsed = read_json_cell(answer)
    if isinstance(parsed, str):
        separator = next((one for one in ("\n", ";") if one in parsed.strip()), ",")
        return list(parsed.strip().split(separator))
    if not isinstance(parsed, list):
        raise ValueError("a set is a list, or a text with separators")
    return parsed


def _choose_separator(items: tuple[str, ...]) -> _Separator:
    """The first that no item has."""
    for separator in _SEPARATORS:
        if not any(separator in item for item in items):
            return separator
    raise leave_out("its parts hold commas, semicolons and line breaks")


def _require_pattern(pattern: str) -> None:
    """A pattern of another dialect makes no task; what is a pattern nowhere is broken."""
    try:
        re2_pattern = compile_pattern(pattern)
    except ValueError:
        re2_pattern = None
    if re2_pattern is None and not _is_python_pattern(pattern):
        raise ValueError("the pattern is no regular expression")
    if re2_pattern is None or re2_pattern.steps("\U0010ffff" * _MOST_MATCHED) > MOST_STEPS:
        raise leave_out("RE2 cannot use the pattern: it has look-around or back-references, or is too large")


def _is_python_pattern(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _read_form(value: JsonValue) -> dict[str, JsonValue]:
    """An object is read without nulls, with which Parquet fills up; a text is the schema word for word."""
    if value in (None, ""):
        raise leave_out("there is neither a schema nor an answer")
    form = _read_value(value) if isinstance(value, str) else _drop_nulls(value)
    if not isinstance(form, dict):
        raise ValueError("the schema is not a JSON object")
    require_schema(form)
    return form


def _drop_nulls(value: JsonValue) -> JsonValue:
    if isinstance(value, list):
        return [_drop_nulls(one) for one in value]
    if not isinstance(value, dict):
        return value
    if "const" in value and value["const"] is None:
        raise ValueError("a schema with the constant null is to be given as JSON text")
    return {name: _drop_nulls(one) for name, one in value.items() if one is not None}


def _read_value(value: JsonValue) -> JsonValue:
    """A text is JSON."""
    if not isinstance(value, str):
        return value
    try:
        return parse_answer(value)
    except ValueError:
        raise ValueError("a text is to be strict JSON") from None


# Generated questions of each kind, for where there is no data set.

WORDS: Final = read_packaged_data(Path(__file__).with_name("words.yaml"), TypeAdapter(tuple[str, ...]))
_OPTIONS: Final = 10
_FIRST_OPTIONS: Final = 3
_ORDINALS: Final = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
_SIZES: Final[Mapping[Level, int]] = {"first": 0, "easy": 1, "medium": 2, "hard": 3}


class QaExercise(Frozen):
    question: str
    right: AnyAnswerKey


def draw_exercise(draws: SeededRandom, kind: Kind, level: Level) -> QaExercise:
    return _QUESTIONS[kind](draws, _SIZES[level])


def _ask_for_word(draws: SeededRandom, size: int) -> QaExercise:
    words = draws.some(WORDS, 3 + 2 * size)
    index = draws.below(len(words))
    return QaExercise(
        question=f"Which word comes {_ORDINALS[index]} when these are put into alphabetical order?\n{', '.join(words)}",
        right=ExactAnswerKey(accepted=(sorted(words)[index],)),
    )


def _ask_for_number(draws: SeededRandom, size: int) -> QaExercise:
    if not size:
        one, other = (1 + draws.below(9) for _ in range(2))
        return QaExercise(question=f"What is {one} + {other}?", right=NumberAnswerKey(value=str(one + other)))
    value = 10 + draws.below(90 * size)
    steps = [f"Start with {value}."]
    for _ in range(size + 1):
        factor, term = 2 + draws.below(7), 11 + draws.below(200 * size)
        value = value * factor + term
        steps.append(f"Multiply by {factor} and add {term}.")
    return QaExercise(question=f"{' '.join(steps)} What comes out?", right=NumberAnswerKey(value=str(value)))


def _ask_for_fraction(draws: SeededRandom, size: int) -> QaExercise:
    if size:
        parts = [Fraction(1 + draws.below(20), 2 + draws.below(8 * size)) for _ in range(1 + size)]
    else:
        below = 5 + draws.below(10)
        parts = [Fraction(1 + draws.below(4), below) for _ in range(2)]
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
    divisor, numbers = _draw_numbers(draws, size, (_OPTIONS if size else _FIRST_OPTIONS) - 1, 1)
    texts = draws.shuffled(tuple(map(str, numbers)))
    right = texts.index(str(numbers[0]))
    return QaExercise(
        question=f"Which of these numbers can be divided by {divisor} without a remainder?",
        right=ChoiceAnswerKey(options=ChoiceOptions(texts=tuple(texts), right=right)),
    )


def _ask_for_set(draws: SeededRandom, size: int) -> QaExercise:
    count = 1 + min(size, 1) + draws.below(1 + size)
    divisor, numbers = _draw_numbers(draws, size, 2 + 2 * min(size, 1) + 2 * size, count)
    listed = ", ".join(map(str, draws.shuffled(numbers)))
    return QaExercise(
        question=f"Which of these numbers can be divided by {divisor} without a remainder?\n{listed}",
        right=SetAnswerKey(items=tuple(map(str, numbers[:count]))),
    )


def _draw_numbers(draws: SeededRandom, size: int, others: int, count: int) -> tuple[int, Sequence[int]]:
    """A divisor, and different numbers: first `count` that it divides, then those that it does not."""
    if not size:
        divisor, most = 10, 40
    else:
        divisor = draws.one((3, 4, 6, 7, 8, 9)) if size == 1 else 7 + draws.below(12 * size)
        most = 4_000 * size  # so many that no number is remembered as right
    numbers = [divisor * factor for factor in draws.some(range(3, most), count)]
    while len(numbers) < count + others:
        number = divisor * (3 + draws.below(most - 3)) + 1 + draws.below(divisor - 1)
        if number not in numbers:
            numbers.append(number)
    return divisor, numbers


def _ask_for_form(draws: SeededRandom, size: int) -> QaExercise:
    """Two numbers of a part differ in both digits, so that no slip in one makes the other."""
    size = max(size, 1)
    words = draws.some(WORDS, 4 * size)
    parts: list[tuple[str, str]] = []
    for index in range(size):
        tens, ones = draws.some(range(1, 10), 2), draws.some(range(10), 2)
        parts.append((words[4 * index], words[4 * index + 1]))
        parts.append((f"{tens[0]}{ones[0]}", f"{tens[1]}{ones[1]}"))
    parts_text = "; ".join(f"{one} or {other}" for one, other in parts)
    return QaExercise(
        question=f"A code has {len(parts)} parts, with a hyphen between one and the next. They are, in this order: "
        f"{parts_text}. Write a code of this form; any will do.",
        right=PatternAnswerKey(
            pattern="-".join(f"(?:{one}|{other})" for one, other in parts),
            example="-".join(draws.one(part) for part in parts),
        ),
    )


def _ask_for_record(draws: SeededRandom, size: int) -> QaExercise:
    size = max(size, 1)
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
