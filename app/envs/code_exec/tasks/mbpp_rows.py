"""Rows of MBPP, full or sanitized, and of MBPP+: a question, the right code, and tests.

text              (or `prompt`) the question
code              the right answer
test_list         asserts; the first one is shown
test_setup_code   (or `test_imports`) runs after the answer
test              of MBPP+: the tests as a table, which then count instead of the asserts
"""

import ast
import json
from functools import cached_property
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, ValidationInfo, model_validator

from app.domain.programs import ProgramLimits
from app.domain.sources import CHECKED, leave_out
from app.envs.code_exec.tasks.assert_tests import (
    calls,
    compares_plainly,
    parse,
    read_assert,
    read_table,
)
from app.envs.code_exec.tasks.row_cases import RowCase, RowTests, require_task
from app.envs.code_exec.tasks.row_programs import ASSERT_SECONDS, TABLE_SECONDS, build_call_limits


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
    def _require_complete(self, info: ValidationInfo) -> Self:
        if not self.question:
            raise ValueError("there is neither a text nor a prompt")
        if info.context != CHECKED:
            require_task(self.build_tests().cases)
        return self

    @property
    def question(self) -> str:
        return (self.text or self.prompt).strip()

    @cached_property
    def function(self) -> str:
        """The function of the right code that every test calls. Leaves the row out where there is none."""
        tests = [parse(text) for text in self.test_list]
        defined = [one.name for one in parse(self.code).body if isinstance(one, ast.FunctionDef)]
        for name in defined if tests else ():
            if all(calls(test, name) for test in tests):
                return name
        raise leave_out("its tests do not call one and the same function")

    @property
    def metadata(self) -> dict[str, JsonValue]:
        return {}

    @property
    def slots(self) -> tuple[str, dict[str, str]]:
        """The name of its prompt, and what stands in it."""
        return "shown_test", {"question": self.question, "shown": self.test_list[0].strip()}

    @property
    def defines(self) -> str:
        """What the answer is to define."""
        return self.function

    @property
    def limits(self) -> ProgramLimits:
        return build_call_limits(TABLE_SECONDS if self.test.strip() else ASSERT_SECONDS)

    @property
    def gold(self) -> str | None:
        return self.code.replace("\r\n", "\n").strip()

    def build_tests(self) -> RowTests:
        name = self.function
        setup = "\n".join((self.test_setup_code, *self.test_imports)).replace("\r\n", "\n").strip()
        cases = self._read_table(name) if self.test.strip() else [_read_line(text, name) for text in self.test_list]
        return RowTests(function=name, cases=cases, after=setup)

    def _read_table(self, name: str) -> list[RowCase]:
        module = parse(self.test)
        cases = read_table(module.body, name, name)
        if cases is None or not compares_plainly(module):
            raise leave_out("its tests compare in a way of their own")
        return cases


def _read_line(text: str, name: str) -> RowCase:
    match parse(text).body:
        case [ast.Assert(test=test)]:
            return read_assert(test, name, name)
    raise leave_out("a test is not a call that is compared with a known value")
