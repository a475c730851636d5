"""Rows of HumanEval and HumanEval+: the beginning of a program, to which the answer is added.

prompt               imports, helpers, and the function with its docstring; stays in front of the answer
entry_point          the function
canonical_solution   its right body
test                 defines `check(candidate)`, whose asserts are read, not run
"""

import ast
from collections.abc import Iterator
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from app.domain.programs import ProgramLimits
from app.domain.sources import CHECKED, leave_out
from app.envs.code_exec.tasks.assert_tests import (
    calls,
    can_be_recorded,
    compares_plainly,
    parse,
    read_assert,
    read_table,
    write_recorded,
)
from app.envs.code_exec.tasks.mbpp_rows import Text
from app.envs.code_exec.tasks.row_cases import RowCase, RowTests, require_task
from app.envs.code_exec.tasks.row_programs import TABLE_SECONDS, build_call_limits

CANDIDATE: Final = "candidate"
"""What every `check` calls the function."""


class HumanEvalRow(BaseModel):
    model_config = ConfigDict(frozen=True)

    prompt: str
    entry_point: str
    test: str
    canonical_solution: Text = ""
    task_id: Text = ""

    @model_validator(mode="after")
    def _require_complete(self, info: ValidationInfo) -> Self:
        if not self.entry_point.isidentifier():
            raise ValueError("entry_point is no name of a function")
        if info.context == CHECKED:
            return self
        tests = self.build_tests()
        if not tests.check:
            require_task(tests.cases)
        return self

    @property
    def function(self) -> str:
        return self.entry_point

    @property
    def defines(self) -> str:
        """What the answer is to define."""
        return self.entry_point

    @property
    def limits(self) -> ProgramLimits:
        return build_call_limits(TABLE_SECONDS)

    @property
    def metadata(self) -> dict[str, JsonValue]:
        return {"task_id": self.task_id} if self.task_id else {}

    @property
    def slots(self) -> tuple[str, dict[str, str]]:
        """The name of its prompt, and what stands in it."""
        return "beginning", {"beginning": self.prompt.strip("\n")}

    @property
    def gold(self) -> str | None:
        return f"{self.prompt}{self.canonical_solution}".strip("\n") if self.canonical_solution else None

    def build_tests(self) -> RowTests:
        module = parse(self.test)
        check = _find_check(module)
        try:
            return self._read_tests(module, check)
        except PydanticCustomError:
            if not self.gold or not can_be_recorded(module, check, CANDIDATE):
                raise
        return RowTests(
            function=self.entry_point, cases=(), before=f"{self.prompt}\n", gold=self.gold, check=write_recorded(module)
        )

    def _read_tests(self, module: ast.Module, check: ast.FunctionDef) -> RowTests:
        imports = [ast.unparse(one) for one in module.body if isinstance(one, ast.Import | ast.ImportFrom)]
        table = read_table(check.body, CANDIDATE, self.entry_point)
        if table is not None and not compares_plainly(module):
            raise leave_out("its tests compare in a way of their own")
        cases = list(self._read_asserts(check)) if table is None else table
        after = "\n".join(imports) if table is None else ""
        return RowTests(function=self.entry_point, cases=cases, before=f"{self.prompt}\n", after=after)

    def _read_asserts(self, check: ast.FunctionDef) -> Iterator[RowCase]:
        for statement in check.body:
            match statement:
                case ast.Assert(test=ast.Constant()) | ast.Pass() | ast.Expr(value=ast.Constant()):
                    continue  # which say nothing of the answer
                case ast.Assert(test=test) if calls(test, self.entry_point):
                    continue  # which compare the answer with itself
                case ast.Expr(value=ast.Call(func=ast.Name(id="print"))):
                    continue
                case ast.Assert(test=test):
                    yield read_assert(test, CANDIDATE, self.entry_point)
                case _:
                    raise leave_out("its check computes what is right")


def _find_check(module: ast.Module) -> ast.FunctionDef:
    for statement in module.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "check":
            return statement
    raise leave_out("its test defines no `check`")
