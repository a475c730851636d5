"""Rows of MBPP, full or sanitized: a question, the right code, and asserts that each compare one call with a result.

    text              (or `prompt`) the question
    code              the right answer
    test_list         the asserts; the first one is shown
    test_setup_code   (or `test_imports`) runs after the answer

The asserts are read, not run: the program gets the arguments alone, and results are compared outside of it.
"""

import ast
import json
from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, model_validator

from app.domain.sources import leave_out
from app.domain.values import FiniteJson, Frozen


class RowCase(Frozen):
    arguments: tuple[FiniteJson, ...]
    expected: FiniteJson


class RowTests(Frozen):
    """The reference of a row's task. `setup` runs after the answer."""

    function: str
    setup: str
    cases: tuple[RowCase, ...]


def _read_list(value: object) -> object:
    """CSV holds lists as JSON text; a missing list is None."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        return json.loads(value)
    return () if value is None else value


def _as_text(value: object) -> object:
    return "" if value is None else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_read_list)]
Text = Annotated[str, BeforeValidator(_as_text)]


class MbppRow(BaseModel):
    model_config = ConfigDict(frozen=True)

    code: str
    test_list: Texts
    text: Text = ""
    prompt: Text = ""
    test_setup_code: Text = ""
    test_imports: Texts = ()
    test: Text = ""

    @model_validator(mode="after")
    def _require_complete(self) -> Self:
        if not self.question:
            raise ValueError("there is neither a text nor a prompt")
        if self.test.strip():
            raise leave_out("it is tested by a program, not by its asserts")
        _check_cases(self.tests.cases)
        return self

    @property
    def question(self) -> str:
        return (self.text or self.prompt).strip()

    @property
    def tests(self) -> RowTests:
        read = [_read_assert(text) for text in self.test_list]
        if len({name for name, _ in read}) != 1:
            raise leave_out("its tests do not call one and the same function")
        setup = "\n".join((self.test_setup_code, *self.test_imports)).replace("\r\n", "\n").strip()
        return RowTests(function=read[0][0], setup=setup, cases=tuple(case for _, case in read))

    @property
    def gold(self) -> str:
        return self.code.replace("\r\n", "\n").strip()


def is_equal(one: JsonValue, other: JsonValue) -> bool:
    """Python's equality, which the published asserts use."""
    return one == other


def _read_assert(text: str) -> tuple[str, RowCase]:
    """`assert name(literals) == literal`. A list is no tuple to a program, so tuples may only be results."""
    try:
        match ast.parse(text.strip()).body:
            case [
                ast.Assert(
                    test=ast.Compare(
                        left=ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]),
                        ops=[ast.Eq()],
                        comparators=[expected],
                    )
                )
            ]:
                values = [_read_literal(one, tuples=False) for one in arguments]
                return name, RowCase(arguments=tuple(values), expected=_read_literal(expected, tuples=True))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        pass
    raise leave_out("a test is not a call with JSON arguments that is compared with a JSON result")


def _read_literal(node: ast.expr, *, tuples: bool) -> JsonValue:
    return _as_json(ast.literal_eval(node), tuples)


def _as_json(value: object, tuples: bool) -> JsonValue:
    """ValueError for what JSON does not hold."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list) or (tuples and isinstance(value, tuple)):
        return [_as_json(one, tuples) for one in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _as_json(one, tuples) for key, one in value.items()}
    raise ValueError("no JSON")


def _check_cases(cases: Sequence[RowCase]) -> None:
    """Rows whose tests pay a constant or an argument make no task."""
    if len(cases) < 2:
        raise leave_out("it has fewer than two tests, so none is hidden")
    if all(case.expected == cases[0].expected for case in cases):
        raise leave_out("all its tests expect the same result")
    if any(
        all(case.arguments[place : place + 1] == (case.expected,) for case in cases)
        for place in range(len(cases[0].arguments))
    ):
        raise leave_out("all its tests expect one of the arguments")
