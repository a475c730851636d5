"""Rows of any data set with questions and answers that code can check. `docs/qa.md` has the table.

A row without `kind` is of the kind that `params.kind` names, or `exact`. No error quotes a row.
"""

import re
from fractions import Fraction
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from app.domain.sources import leave_out
from app.envs.qa.answer_keys import (
    MOST_MATCHED,
    SEPARATORS,
    AnyAnswerKey,
    ChoiceAnswerKey,
    ExactAnswerKey,
    JsonAnswerKey,
    MathAnswerKey,
    NumberAnswerKey,
    PatternAnswerKey,
    Separator,
    SetAnswerKey,
    fold_text,
)
from app.toolkit.answers.choices import ListedOptions, read_json_cell
from app.toolkit.answers.number_extraction import read_number
from app.toolkit.answers.numerals import parse_number
from app.toolkit.json_answers import is_valid, parse_answer, require_schema
from app.toolkit.math_answers import boxed_answers
from app.toolkit.math_answers.math_rows import MathRow
from app.toolkit.safe_regex import MOST_STEPS, compile_pattern

Kind = Literal["exact", "number", "math", "choice", "set", "regex", "json"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

_OPTIONAL: Final = ("kind", "system", "topic", "level", "options", "tolerance", "aliases", "schema", "example")
_PERCENT: Final = re.compile(r"\s*([0-9.]+)\s*%\s*")


def _wrap_text(value: object) -> object:
    read = read_json_cell(value)
    return [read] if isinstance(read, str) else read


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
        return ExactAnswerKey(accepted=tuple(text.strip() for text in texts if fold_text(text)))

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
        if len({fold_text(item) for item in items}) < len(items):
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
        return boxed_answers.extract_committed_box(key.gold).text is not None
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
    read = read_json_cell(answer)
    if isinstance(read, str):
        separator = next((one for one in ("\n", ";") if one in read.strip()), ",")
        return list(read.strip().split(separator))
    if not isinstance(read, list):
        raise ValueError("a set is a list, or a text with separators")
    return read


def _choose_separator(items: tuple[str, ...]) -> Separator:
    """The first that no item has."""
    for separator in SEPARATORS:
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
    if re2_pattern is None or re2_pattern.steps("\U0010ffff" * MOST_MATCHED) > MOST_STEPS:
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
