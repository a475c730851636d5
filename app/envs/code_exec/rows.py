"""Rows of published data sets as tasks with tests: MBPP, HumanEval, APPS, TACO and LiveCodeBench.

Every form says the same of its row: the name and the slots of its prompt, what an answer is to define, the limits of a
program, a right answer where the row has one, and the tests. A row is left out, with the reason, where its tests cannot
be read without running them, would pay for a constant or for an argument, or are all shown in the question.
"""

import ast
import base64
import json
import pickletools
import re
import zlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from app.domain.tasks import CHECKED, ProgramLimits, leave_out
from app.domain.values import FiniteJson
from app.envs.code_exec.row_programs import (
    ASSERT_SECONDS,
    FRACTION_TOLERANCE,
    SEVERAL_ANSWERS,
    TABLE_SECONDS,
    RowCase,
    RowTests,
    build_call_limits,
    build_run_limits,
    calls,
    can_be_recorded,
    compares_plainly,
    mark,
    parse,
    read_assert,
    read_table,
    require_task,
    write_recorded,
)
from app.toolkit.templates import read_packaged_data


def _read_list(value: object) -> object:
    """CSV holds lists as JSON text; a missing list is None."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        return json.loads(value)
    return () if value is None else value


def _as_text(value: object) -> object:
    return "" if value is None else value


_Texts = Annotated[tuple[str, ...], BeforeValidator(_read_list)]
_Text = Annotated[str, BeforeValidator(_as_text)]


class _TestedRow(BaseModel):
    """What every form says of its row. Its columns, in their order, are the row's digest."""

    model_config = ConfigDict(frozen=True)

    labels: ClassVar[tuple[str, ...]] = ()
    """Columns that stand in the metadata of a task."""

    @model_validator(mode="after")
    def _require_complete(self, info: ValidationInfo) -> Self:
        self.require_columns()
        if info.context != CHECKED:
            tests = self.build_tests()
            if not tests.check:
                require_task(tests.cases)
            _require_hidden(tests.cases, self.problem)
        return self

    @abstractmethod
    def require_columns(self) -> None:
        """ValueError for a row that is not as its form has it."""

    @property
    def problem(self) -> str:
        """The text in which tests may be shown."""
        return ""

    @property
    @abstractmethod
    def function(self) -> str:
        """Empty for a program that reads standard input."""

    @property
    @abstractmethod
    def slots(self) -> tuple[str, dict[str, str]]:
        """The name of its prompt, and what stands in it."""

    @property
    def defines(self) -> str:
        """What the answer is to define: it is looked for where there are several blocks of code."""
        return self.function

    @property
    def metadata(self) -> dict[str, JsonValue]:
        return {name: value for name in self.labels if (value := getattr(self, name))}

    @property
    def limits(self) -> ProgramLimits:
        return build_call_limits(TABLE_SECONDS)

    @property
    def gold(self) -> str | None:
        """A right answer, where the row has one."""
        return None

    @abstractmethod
    def build_tests(self) -> RowTests:
        """Leaves the row out where they cannot be read."""


class _ProblemRow(_TestedRow):
    """A problem of a competition: a program that reads standard input, or a function."""

    @property
    @abstractmethod
    def starter(self) -> str:
        """How a function begins; in a `class Solution` it is a method."""

    @property
    def slots(self) -> tuple[str, dict[str, str]]:
        begins = f" It begins:\n\n```python\n{self.starter.strip()}\n```" if self.starter.strip() else ""
        what = "method" if "class Solution" in self.starter else "function"
        slots = {"question": self.problem.strip(), "starter": begins, "what": what}
        return ("function" if self.function else "input"), slots

    @property
    def defines(self) -> str:
        return "Solution" if self.function and "class Solution" in self.starter else self.function or "main"

    def require_one_answer(self) -> None:
        if not self.function and SEVERAL_ANSWERS.search(self.problem):
            raise leave_out("it accepts several answers, and its tests only one")

    def build_short_tests(self, cases: Iterable[RowCase]) -> RowTests:
        """Without those that are too long."""
        return RowTests(
            function=self.function,
            cases=[case for case in cases if len(str(case.arguments)) + len(str(case.expected)) <= _MOST_CHARACTERS],
            before=_IMPORTS if self.function else "",
        )


# MBPP, full or sanitized, and MBPP+.
#
#     text              (or `prompt`) the question
#     code              the right answer
#     test_list         asserts; the first one is shown
#     test_setup_code   (or `test_imports`) runs after the answer
#     test              of MBPP+: the tests as a table, which then count instead of the asserts


class MbppRow(_TestedRow):
    code: str
    test_list: _Texts
    text: _Text = ""
    prompt: _Text = ""
    test_setup_code: _Text = ""
    test_imports: _Texts = ()
    test: _Text = ""

    def require_columns(self) -> None:
        if not self.question:
            raise ValueError("there is neither a text nor a prompt")

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
    def slots(self) -> tuple[str, dict[str, str]]:
        return "shown_test", {"question": self.question, "shown": self.test_list[0].strip()}

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


# APPS and TACO: a problem of a competition, and tests as pairs of input and output.
#
#     question        the problem
#     input_output    JSON with `inputs`, `outputs` and, where a function is asked for, `fn_name`
#     solutions       JSON list of right programs; the first that is Python 3 is the gold
#     starter_code    how the function begins; in a `class Solution` it is a method
#     difficulty      a label; of TACO also `time_limit` and `memory_limit`

_COMPETITION_SECONDS: Final = 4.0
"""Of one test, where the row says nothing."""
_LEAST_SECONDS, _MOST_SECONDS = 2.0, 10.0
"""Limits of a row are kept within these: some are of a faster language, some would hold up a batch."""
_MEMORY_MB: Final = 256
_LEAST_MB, _MOST_MB = 128, 512
_MOST_CHARACTERS: Final = 1_000_000
"""Of the input and the output of a test; longer ones are not used."""
_IMPORTS: Final = (
    "import bisect, collections, functools, heapq, itertools, math, random, re, string\n"
    "from typing import *\nfrom collections import *\nfrom functools import *\nfrom itertools import *\n"
    "from heapq import *\nfrom bisect import *\nfrom math import *\n"
)
"""Stand before functions, as where the problems come from."""

_JSON: Final[TypeAdapter[FiniteJson]] = TypeAdapter(FiniteJson)
_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?) *(second|mega|giga)", re.IGNORECASE)
_CANNOT_RUN: Final = re.compile(r"^\s*(?:import|from) +(?:threading|numpy|subprocess|multiprocessing)\b", re.MULTILINE)


class CompetitionRow(_ProblemRow):
    labels: ClassVar[tuple[str, ...]] = ("difficulty",)

    question: str
    input_output: _Text
    solutions: _Text = ""
    starter_code: _Text = ""
    difficulty: _Text = ""
    time_limit: _Text = ""
    memory_limit: _Text = ""

    @field_validator("input_output", "solutions", mode="before")
    @classmethod
    def _write_as_text(cls, value: object) -> object:
        """Columns of Parquet may hold what is JSON text elsewhere."""
        return json.dumps(value) if isinstance(value, Mapping | list) else value

    def require_columns(self) -> None:
        if not self.question.strip():
            raise ValueError("the question is empty")

    @property
    def problem(self) -> str:
        return self.question

    @property
    def starter(self) -> str:
        return self.starter_code

    @cached_property
    def function(self) -> str:
        return str(self._read_pairs().get("fn_name") or "")

    @property
    def limits(self) -> ProgramLimits:
        memory_mb = int(_read_quantity(self.memory_limit, _MEMORY_MB, _LEAST_MB, _MOST_MB))
        if self.function:
            return build_call_limits(TABLE_SECONDS, memory_mb)
        seconds = _read_quantity(self.time_limit, _COMPETITION_SECONDS, _LEAST_SECONDS, _MOST_SECONDS)
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
        self.require_one_answer()
        return self.build_short_tests(
            _build_calls(name, inputs, outputs)
            if name
            else (
                # no checker comes with these rows, so the last digits of a fraction are anybody's
                replace(_build_run(text, output), relative=FRACTION_TOLERANCE)
                for text, output in zip(inputs, outputs, strict=True)
            )
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
    for arguments, expected in zip(inputs, outputs, strict=True):
        if not isinstance(arguments, list):
            raise leave_out("the arguments of a test are no list")
        yield _build_call(name, arguments, expected, unwrap=wrapped)


def _build_call(name: str, values: Sequence[object], expected: object, *, unwrap: bool = False) -> RowCase:
    """JSON made texts of keys that are numbers: in arguments they are numbers again."""
    try:
        arguments = _JSON.validate_python(list(values))
        right, also = mark(expected), mark(expected[0]) if unwrap and isinstance(expected, list) else None
        marked = tuple(mark(one) for one in values)
    except (ValueError, TypeError, ValidationError, RecursionError):
        raise leave_out("a test holds what is no JSON") from None
    numbered = [index for index, one in enumerate(values) if isinstance(one, dict) and _has_numbers_as_keys(one)]
    written = "*arguments"
    if numbered:
        written = ", ".join(
            f"{{int(key): value for key, value in arguments[{index}].items()}}"
            if index in numbered
            else f"arguments[{index}]"
            for index in range(len(values))
        )
    return RowCase((f"candidate({written})", name, arguments), right, rule="json", function_arguments=marked, also=also)


def _has_numbers_as_keys(value: Mapping[str, object]) -> bool:
    return bool(value) and all(re.fullmatch(r"-?[0-9]{1,18}", key) for key in value)


def _build_run(text_or_lines: object, expected: object) -> RowCase:
    """Of a program that reads standard input."""
    text, output = _join_lines(text_or_lines), _join_lines(expected)
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


def _require_hidden(cases: Sequence[RowCase], question: str) -> None:
    """Leaves out rows of which the question shows every test, or whose output is their input."""
    runs = [case for case in cases if case.rule == "output"]
    plain = " ".join(question.split())
    if runs and all(" ".join(str(case.arguments[0]).split()) in plain for case in runs):
        raise leave_out("its question shows every test")
    if runs and all(case.is_right(case.arguments[0]) for case in runs):
        raise leave_out("all its tests expect their input")


def _read_quantity(text: str, usual: float, least: float, most: float) -> float:
    quantity = _QUANTITY.search(text)
    if not quantity:
        return usual
    return min(max(float(quantity[1]) * (1024 if quantity[2].lower() == "giga" else 1), least), most)


def _can_run(source: str) -> bool:
    """Whether it is Python 3, and needs nothing that programs have not."""
    try:
        ast.parse(source)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    return not _CANNOT_RUN.search(source)


# HumanEval and HumanEval+: the beginning of a program, to which the answer is added.
#
#     prompt               imports, helpers, and the function with its docstring; stays in front of the answer
#     entry_point          the function
#     canonical_solution   its right body
#     test                 defines `check(candidate)`, whose asserts are read, not run

_CANDIDATE: Final = "candidate"
"""What every `check` calls the function."""


class HumanEvalRow(_TestedRow):
    labels: ClassVar[tuple[str, ...]] = ("task_id",)

    prompt: str
    entry_point: str
    test: str
    canonical_solution: _Text = ""
    task_id: _Text = ""

    def require_columns(self) -> None:
        if not self.entry_point.isidentifier():
            raise ValueError("entry_point is no name of a function")

    @property
    def function(self) -> str:
        return self.entry_point

    @property
    def slots(self) -> tuple[str, dict[str, str]]:
        return "beginning", {"beginning": self.prompt.strip("\n")}

    @property
    def gold(self) -> str | None:
        return f"{self.prompt}{self.canonical_solution}".strip("\n") if self.canonical_solution else None

    def build_tests(self) -> RowTests:
        module = parse(self.test)
        check = _find_check(module)
        try:
            return self._read_tests(module, check)
        except PydanticCustomError:  # what `leave_out` raises: the asserts cannot be read
            if not self.gold or not can_be_recorded(module, check, _CANDIDATE):
                raise
        return RowTests(
            function=self.entry_point, cases=(), before=f"{self.prompt}\n", gold=self.gold, check=write_recorded(module)
        )

    def _read_tests(self, module: ast.Module, check: ast.FunctionDef) -> RowTests:
        imports = [ast.unparse(one) for one in module.body if isinstance(one, ast.Import | ast.ImportFrom)]
        table = read_table(check.body, _CANDIDATE, self.entry_point)
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
                    yield read_assert(test, _CANDIDATE, self.entry_point)
                case _:
                    raise leave_out("its check computes what is right")


def _find_check(module: ast.Module) -> ast.FunctionDef:
    for statement in module.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "check":
            return statement
    raise leave_out("its test defines no `check`")


# LiveCodeBench (code generation): a problem with its date, public and private tests.
#
#     question_content, question_title    the problem
#     starter_code, metadata              where a function is asked for: how it begins, and its name (`func_name`)
#     public_test_cases                   JSON list of `input`, `output` and `testtype`
#     private_test_cases                  the same, or that text pickled, compressed and encoded

_LIVECODEBENCH_SECONDS: Final = 6.0
"""Of one test, as published."""
_MOST_BYTES: Final = 64 * 1024 * 1024
"""Of private tests once they are decompressed."""
_ERRATA: Final = read_packaged_data(Path(__file__).with_name("livecodebench_errata.yaml"), TypeAdapter(frozenset[str]))
_NAME: Final = re.compile(r"[A-Za-z_]\w*")


class LiveCodeBenchRow(_ProblemRow):
    labels: ClassVar[tuple[str, ...]] = ("question_id", "platform", "contest_date", "difficulty")

    question_content: str
    public_test_cases: str
    private_test_cases: _Text = ""
    question_title: _Text = ""
    question_id: _Text = ""
    platform: _Text = ""
    contest_date: _Text = ""
    difficulty: _Text = ""
    starter_code: _Text = ""
    details: Annotated[_Text, Field(validation_alias="metadata")] = ""

    def require_columns(self) -> None:
        if not self.question_content.strip():
            raise ValueError("question_content is empty")
        if {self.question_id, "-".join(self.question_title.lower().split())} & _ERRATA:
            raise leave_out("it is one of the problems that are known to be graded wrongly")

    @property
    def problem(self) -> str:
        return self.question_content

    @property
    def starter(self) -> str:
        return self.starter_code

    @property
    def function(self) -> str:
        try:
            name = json.loads(self.details or "{}").get("func_name") or ""
        except (ValueError, AttributeError):
            raise leave_out("its metadata is no JSON") from None
        if name and not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise leave_out("it asks for a function without a name")
        return str(name)

    @property
    def metadata(self) -> dict[str, JsonValue]:
        return {name: str(value)[:10] if name == "contest_date" else value for name, value in super().metadata.items()}

    @property
    def slots(self) -> tuple[str, dict[str, str]]:
        prompt, slots = super().slots
        return prompt, {**slots, "question": f"{self.question_title}\n\n{self.question_content}".strip()}

    @property
    def limits(self) -> ProgramLimits:
        if self.function:
            return build_call_limits(TABLE_SECONDS, _MEMORY_MB)
        return build_run_limits(_LIVECODEBENCH_SECONDS, _MEMORY_MB)

    def build_tests(self) -> RowTests:
        self.require_one_answer()
        tests = [*_read_tests(self.public_test_cases), *_read_tests(_unpack(self.private_test_cases))]
        return self.build_short_tests(_build_case(self.function, one) for one in tests)


def _read_tests(text: str) -> list[Any]:
    try:
        tests = json.loads(text)
    except (ValueError, RecursionError):
        raise leave_out("its tests are no JSON that can be read") from None
    if not isinstance(tests, list):
        raise leave_out("its tests are no list")
    return tests


def _build_case(name: str, test: Any) -> RowCase:
    try:
        text, expected = str(test["input"]), str(test["output"])
        lines = [json.loads(line) for line in text.split("\n") if name and line.strip()]
        result = json.loads(expected) if name else expected
    except (KeyError, TypeError, ValueError, RecursionError):
        raise leave_out("a test cannot be read") from None
    return _build_call(name, lines, result) if name else _build_run(text, expected)


def _unpack(text: str) -> str:
    """The JSON text of private tests. Leaves the row out where it is packed otherwise."""
    if not text.strip():
        raise leave_out("its private tests are missing")
    if text.lstrip().startswith("["):
        return text
    try:
        unpacker = zlib.decompressobj()
        # no more than so many bytes are unpacked, whatever a small text claims to hold
        content = unpacker.decompress(base64.b64decode(text, validate=True), _MOST_BYTES)
        is_whole = unpacker.eof or bool(unpacker.unconsumed_tail)
        unpacked = _read_pickled_text(content) if unpacker.eof else ""
    except (ValueError, zlib.error, IndexError, MemoryError):
        is_whole, unpacked = False, ""
    if not is_whole:
        raise leave_out("its private tests cannot be unpacked")
    if not unpacked:
        raise leave_out(f"its private tests are more than {_MOST_BYTES // 1024 // 1024} MB")
    return unpacked


def _read_pickled_text(content: bytes) -> str:
    """ValueError for a pickle of anything else than one text. No pickle is loaded, since one can run anything: of its
    instructions only those are read that hold a text."""
    texts: list[str] = []
    for instruction, argument, _ in pickletools.genops(content):
        if instruction.name in ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"):
            texts.append(str(argument))
        elif instruction.name not in ("PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "STOP"):
            raise ValueError("not one text")
    (text,) = texts
    return text
