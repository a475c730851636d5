"""Rows of APPS and TACO: a problem of a competition, and tests as pairs of input and output.

question        the problem
input_output    JSON with `inputs`, `outputs` and, where a function is asked for, `fn_name`
solutions       JSON list of right programs; the first that is Python 3 is the gold
starter_code    how the function begins; in a `class Solution` it is a method
difficulty      a label; of TACO also `time_limit` and `memory_limit`
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    JsonValue,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from app.domain.programs import ProgramLimits
from app.domain.sources import CHECKED, leave_out
from app.domain.values import FiniteJson
from app.envs.code_exec.tasks.mbpp_rows import Text
from app.envs.code_exec.tasks.row_cases import SEVERAL_ANSWERS, RowCase, RowTests, mark, require_task
from app.envs.code_exec.tasks.row_programs import TABLE_SECONDS, build_call_limits, build_run_limits

SECONDS: Final = 4.0
"""Of one test, where the row says nothing."""
LEAST_SECONDS, MOST_SECONDS = 2.0, 10.0
MEMORY_MB: Final = 256
LEAST_MB, MOST_MB = 128, 512
MOST_CHARACTERS: Final = 1_000_000
"""Of the input and the output of a test; longer ones are not used."""
IMPORTS: Final = (
    "import bisect, collections, functools, heapq, itertools, math, random, re, string\n"
    "from typing import *\nfrom collections import *\nfrom functools import *\nfrom itertools import *\n"
    "from heapq import *\nfrom bisect import *\nfrom math import *\n"
)
"""Stand before functions, as where the problems come from."""

_JSON: Final[TypeAdapter[FiniteJson]] = TypeAdapter(FiniteJson)
_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?) *(second|mega|giga)", re.IGNORECASE)
_CANNOT_RUN: Final = re.compile(r"^\s*(?:import|from) +(?:threading|numpy|subprocess|multiprocessing)\b", re.MULTILINE)


class CompetitionRow(BaseModel):
    model_config = ConfigDict(frozen=True)

    question: str
    input_output: Text
    solutions: Text = ""
    starter_code: Text = ""
    difficulty: Text = ""
    time_limit: Text = ""
    memory_limit: Text = ""

    @field_validator("input_output", "solutions", mode="before")
    @classmethod
    def _write_as_text(cls, value: object) -> object:
        """Columns of Parquet may hold what is JSON text elsewhere."""
        return json.dumps(value) if isinstance(value, Mapping | list) else value

    @model_validator(mode="after")
    def _require_complete(self, info: ValidationInfo) -> Self:
        if not self.question.strip():
            raise ValueError("the question is empty")
        if info.context == CHECKED:
            return self
        cases = self.build_tests().cases
        require_task(cases)
        require_hidden(cases, self.question)
        return self

    @cached_property
    def function(self) -> str:
        return str(self._read_pairs().get("fn_name") or "")

    @property
    def metadata(self) -> dict[str, JsonValue]:
        return {"difficulty": self.difficulty} if self.difficulty else {}

    @property
    def slots(self) -> tuple[str, dict[str, str]]:
        """The name of its prompt, and what stands in it."""
        return choose_prompt(self.question, self.starter_code, self.function)

    @property
    def defines(self) -> str:
        """What the answer is to define."""
        return name_definition(self.starter_code, self.function)

    @property
    def limits(self) -> ProgramLimits:
        memory_mb = int(_read_quantity(self.memory_limit, MEMORY_MB, LEAST_MB, MOST_MB))
        if self.function:
            return build_call_limits(TABLE_SECONDS, memory_mb)
        seconds = _read_quantity(self.time_limit, SECONDS, LEAST_SECONDS, MOST_SECONDS)
        return build_run_limits(seconds, memory_mb)

    @property
    def gold(self) -> str | None:
        try:
            solutions = json.loads(self.solutions or "[]")
        except (ValueError, RecursionError):
            return None
        return next((one for one in solutions if isinstance(one, str) and _can_run(one)), None)

    def build_tests(self) -> RowTests:
        pairs, name = self._read_pairs(), self.function
        inputs, outputs = pairs.get("inputs"), pairs.get("outputs")
        if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
            raise leave_out("it has no tests")
        if name and not name.isidentifier():
            raise leave_out("it asks for a function without a name")
        if not name and SEVERAL_ANSWERS.search(self.question):
            raise leave_out("it accepts several answers, and its tests only one")
        cases = _build_calls(name, inputs, outputs) if name else map(build_run, inputs, outputs)
        return RowTests(
            function=name,
            cases=[case for case in cases if count_characters(case) <= MOST_CHARACTERS],
            before=IMPORTS if name else "",
        )

    def _read_pairs(self) -> Mapping[str, Any]:
        """Numbers of more digits than Python reads are a fault of JSON here."""
        if not self.input_output.strip():
            raise leave_out("it has no tests")
        try:
            pairs = json.loads(self.input_output)
        except (ValueError, RecursionError):
            raise leave_out("its tests are no JSON that can be read") from None
        if not isinstance(pairs, dict):
            raise leave_out("it has no tests")
        return pairs


def _build_calls(name: str, inputs: Sequence[object], outputs: Sequence[object]) -> Iterator[RowCase]:
    """Where every output is a list of one, what stands in it is as right."""
    wrapped = all(isinstance(one, list) and len(one) == 1 for one in outputs)
    for given, expected in zip(inputs, outputs, strict=True):
        if not isinstance(given, list):
            raise leave_out("the arguments of a test are no list")
        yield build_call(name, given, expected, unwrap=wrapped)


def build_call(name: str, given: Sequence[object], expected: object, *, unwrap: bool = False) -> RowCase:
    """JSON made texts of keys that are numbers: in arguments they are numbers again."""
    try:
        arguments = _JSON.validate_python(list(given))
        right, also = mark(expected), mark(expected[0]) if unwrap and isinstance(expected, list) else None
        marked = tuple(mark(one) for one in given)
    except (ValueError, TypeError, ValidationError, RecursionError):
        raise leave_out("a test holds what is no JSON") from None
    numbered = [place for place, one in enumerate(given) if isinstance(one, dict) and _has_numbers_as_keys(one)]
    written = "*arguments"
    if numbered:
        written = ", ".join(
            f"{{int(key): value for key, value in arguments[{place}].items()}}"
            if place in numbered
            else f"arguments[{place}]"
            for place in range(len(given))
        )
    return RowCase((f"candidate({written})", name, arguments), right, rule="json", given=marked, also=also)


def _has_numbers_as_keys(value: Mapping[str, object]) -> bool:
    return bool(value) and all(re.fullmatch(r"-?[0-9]{1,18}", key) for key in value)


def build_run(given: object, expected: object) -> RowCase:
    """Of a program that reads standard input."""
    text, output = _join_lines(given), _join_lines(expected)
    try:
        _JSON.validate_python([text, output])
    except ValidationError:
        raise leave_out("a test holds what is no text") from None
    return RowCase((text,), output, rule="output")


def _join_lines(value: object) -> str:
    if isinstance(value, list):
        return "\n".join(map(str, value))
    if not isinstance(value, str):
        raise leave_out("a test holds what is no text")
    return value


def count_characters(case: RowCase) -> int:
    return len(str(case.arguments)) + len(str(case.expected))


def require_hidden(cases: Sequence[RowCase], question: str) -> None:
    """Leaves out rows of which the question shows every test, or whose output is their input."""
    runs = [case for case in cases if case.rule == "output"]
    plain = " ".join(question.split())
    if runs and all(" ".join(str(case.arguments[0]).split()) in plain for case in runs):
        raise leave_out("its question shows every test")
    if runs and all(case.is_right(case.arguments[0]) for case in runs):
        raise leave_out("all its tests expect their input")


def choose_prompt(question: str, starter: str, function: str) -> tuple[str, dict[str, str]]:
    begins = f" It begins:\n\n```python\n{starter.strip()}\n```" if starter.strip() else ""
    what = "method" if "class Solution" in starter else "function"
    slots = {"question": question.strip(), "starter": begins, "what": what}
    return ("function" if function else "input"), slots


def name_definition(starter: str, function: str) -> str:
    """What an answer is to define: it is looked for where there are several blocks of code."""
    return "Solution" if function and "class Solution" in starter else function or "main"


def _read_quantity(text: str, usual: float, least: float, most: float) -> float:
    found = _QUANTITY.search(text)
    if not found:
        return usual
    return min(max(float(found[1]) * (1024 if found[2].lower() == "giga" else 1), least), most)


def _can_run(source: str) -> bool:
    """Whether it is Python 3, and needs nothing that programs have not."""
    try:
        ast.parse(source)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    return not _CANNOT_RUN.search(source)
