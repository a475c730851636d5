"""Tests of a row: what is run, what it is to give, and by which rule the two are compared, outside of the program.

Tests that are written in Python (asserts, and tables of arguments and results) are read, never run. Of each assert, the
side with the call is evaluated where the program runs, and what the other side says is compared outside: literals, and
what is made of them by `set`, `tuple`, `sorted` and the like, or by arithmetic of two numbers.

The program knows no expected result, so it gains nothing by changing what it can reach. A function is loaded in one
process for all calls; a program that reads standard input runs in a new one for each input.
"""

import ast
import builtins
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import JsonValue

from app.domain.tasks import Program, ProgramLimits, leave_out
from app.domain.values import canonical_json
from app.envs.code_exec import call_harness, input_harness
from app.envs.code_exec.call_harness import harness_mark
from app.toolkit.seeded import SeededRandom

_Rule = Literal["equal", "json", "close", "true", "false", "output"]
"""`equal`: by Python's equality, fractions but for their last digits. `json`: the same, where tuples count as lists and
keys as texts. `close`: numbers within a tolerance. `true`, `false`: what Python takes it for. `output`: line by line,
numbers by their value, fractions within `relative`, but to the last place of what is printed of large numbers."""

FRACTION_TOLERANCE: Final = 1e-9
"""Relative; where what is expected is a fraction."""
_ROUNDING: Final = 1e-13
"""Relative; what some thousands of additions of floats may differ by."""
_FRACTIONLESS: Final = 2.0**53
"""From here on every float is whole."""
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
# Questions that accept several answers: their tests hold one of them, and would call the others wrong.
SEVERAL_ANSWERS: Final = re.compile(
    r"\b(?:print|output|return|find|give) any\b|\bany (?:one )?of them\b|\b(?:multiple|several|many|more than one) "
    r"(?:possible |valid |correct |optimal )?(?:answers?|solutions?)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class RowCase:
    """`expected`, and what comes back, have the marks of `call_harness`. `also` is as right."""

    arguments: tuple[JsonValue, ...]
    """What the program is called with: for tests that are expressions `(expression, name, arguments)`."""
    expected: JsonValue
    rule: _Rule = "equal"
    absolute: float = 0.0
    relative: float = 0.0
    function_arguments: tuple[JsonValue, ...] = ()
    """The arguments of the function, where they are known."""
    also: JsonValue = None

    def is_right(self, value: JsonValue) -> bool:
        """Never raises, whatever a program gave."""
        try:
            if self.rule == "output":
                return _is_same_output(str(value), str(self.expected), self.relative)
            if self.rule in ("true", "false"):
                return _is_true(value) == (self.rule == "true")
            as_json = self.rule == "json"
            if _is_equal(value, self.expected, as_json=as_json) or _is_near(value, self.expected, as_json=as_json):
                return True
            if self.also is not None and _is_near(value, self.also, as_json=True):
                return True
            return self.rule == "close" and self._is_close(value, self.expected)
        except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
            return False

    def _is_close(self, one: Any, other: Any) -> bool:
        if isinstance(one, int | float) and isinstance(other, int | float):
            return abs(one - other) <= max(self.absolute, self.relative * max(abs(one), abs(other)))
        first, second = _get_items(one), _get_items(other)
        if first is None or second is None or len(first) != len(second):
            return _is_equal(one, other, as_json=False)
        return all(map(self._is_close, first, second))


@dataclass(frozen=True, slots=True)
class RowTests:
    """`before` and `after` stand around the answer. `function` is empty for a program that reads standard input."""

    function: str
    cases: Sequence[RowCase]
    before: str = ""
    after: str = ""
    gold: str = ""
    """Where what is right is computed: the program that is run for it, with the `check` that calls it."""
    check: str = ""


def mark(value: object) -> JsonValue:
    """Marked as what programs give. ValueError for what JSON cannot hold with these marks."""
    marked: Any = harness_mark(value)
    canonical_json(_normalize(marked, as_json=False))
    return marked  # type: ignore[no-any-return]


def _is_equal(one: JsonValue, other: JsonValue, *, as_json: bool) -> bool:
    return canonical_json(_normalize(one, as_json)) == canonical_json(_normalize(other, as_json))


def _is_near(one: Any, other: Any, *, as_json: bool) -> bool:
    """As `_is_equal`, but that fractions may differ in their last digits, as those of another order of additions do."""
    if isinstance(other, float) and isinstance(one, int | float) and not isinstance(one, bool):
        return _is_near_number(one, other)
    first, second = _get_items(one), _get_items(other)
    if first is not None and second is not None and (as_json or type(one) is type(other)):
        return len(first) == len(second) and all(
            _is_near(*pair, as_json=as_json) for pair in zip(first, second, strict=True)
        )
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys() == {"dict"}:
        pairs, others = (
            {
                _name_key(name) if as_json else canonical_json(_normalize(name, as_json)): item
                for name, item in each["dict"]
            }
            for each in (one, other)
        )
        return pairs.keys() == others.keys() and all(
            _is_near(pairs[name], others[name], as_json=as_json) for name in others
        )
    return _is_equal(one, other, as_json=as_json)


def _is_near_number(one: int | float, right: float) -> bool:
    """Whole numbers count exactly: one that is a billionth beside the right one is another."""
    is_whole = float(one).is_integer() and abs(right) < _FRACTIONLESS
    if isinstance(one, int) or (is_whole and right.is_integer()):
        return float(one) == right
    return math.isclose(one, right, rel_tol=_ROUNDING if is_whole else FRACTION_TOLERANCE)


def _normalize(value: Any, as_json: bool) -> Any:
    """The same for values that are equal in Python. ValueError or TypeError for what the harness never writes."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [_normalize(one, as_json) for one in value]
    if isinstance(value, dict):
        ((kind, content),) = value.items()
        return _normalize_marked(kind, content, as_json)
    return value


def _normalize_marked(kind: str, content: Any, as_json: bool) -> Any:
    if kind == "float":
        if content not in ("inf", "-inf"):
            raise ValueError("equal to nothing")  # as NaN is in Python
        return {kind: content}
    if kind == "int":
        return {kind: str(content)}
    items = [_normalize(one, as_json) for one in content]
    if kind == "tuple":
        return items if as_json else {kind: items}
    if kind == "set":
        return {kind: sorted({canonical_json(one) for one in items})}
    if kind == "dict":
        pairs = [[_name_key(name) if as_json else name, one] for name, one in items]
        return {kind: sorted(pairs, key=canonical_json)}
    real, imaginary = items
    return real if imaginary == 0 else {kind: items}


def _name_key(name: object) -> str:
    return name if isinstance(name, str) else canonical_json(name)


def _is_true(value: JsonValue) -> bool:
    if isinstance(value, dict):
        ((kind, content),) = value.items()
        return content != [0, 0] if kind == "complex" else bool(content)
    return bool(value)


def _get_items(value: object) -> list[Any] | None:
    if isinstance(value, dict) and isinstance(value.get("tuple"), list):
        value = value["tuple"]
    return value if isinstance(value, list) else None


def _is_same_output(one: str, other: str, relative: float) -> bool:
    """As many lines, each the same or with words that are the same numbers."""
    first, second = one.strip().split("\n"), other.strip().split("\n")
    return len(first) == len(second) and all(
        _is_same_line(said, right, relative) for said, right in zip(first, second, strict=True)
    )


def _is_same_line(one: str, other: str, relative: float) -> bool:
    if one.strip() == other.strip():
        return True
    first, second = one.split(), other.split()
    return len(first) == len(second) and all(
        _is_same_word(said, right, relative) for said, right in zip(first, second, strict=True)
    )


def _is_same_word(one: str, other: str, relative: float) -> bool:
    if one == other:
        return True
    if not _NUMBER.fullmatch(one) or not _NUMBER.fullmatch(other):
        return False
    said, right = Decimal(one), Decimal(other)
    if said == right:
        return True
    if "." not in other or not relative:
        return False
    last_place = Decimal((0, (1,), int(right.as_tuple().exponent)))
    most = max(last_place, Decimal(relative), Decimal(_ROUNDING) * abs(right))  # a billionth of a large number is much
    return abs(said - right) <= min(most, Decimal(relative) * abs(right))


def require_task(cases: Sequence[RowCase]) -> None:
    """Leaves out rows whose tests pay for a constant or for an argument."""
    if len(cases) < 2:
        raise leave_out("it has fewer than two tests, so none is hidden")
    if all(case.is_right(cases[0].expected) for case in cases):
        raise leave_out("all its tests expect the same result")
    if any(
        all(len(case.function_arguments) > index and case.is_right(case.function_arguments[index]) for case in cases)
        for index in range(len(cases[0].function_arguments))
    ):
        raise leave_out("all its tests expect one of the arguments")


# Tests that are written in Python.

UNREAD: Final = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, ArithmeticError, KeyError)
"""What reading raises for tests of another kind."""
_MAKERS: Final[Mapping[str, Callable[..., object]]] = {
    "set": set,
    "frozenset": frozenset,
    "tuple": tuple,
    "list": list,
    "sorted": sorted,
    "float": float,
}
_BUILT_IN: Final = frozenset(dir(builtins))
_OPERATORS: Final[Mapping[type[ast.operator], Callable[[Any, Any], object]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_CLOSE: Final = {"rel_tol": 1e-9, "abs_tol": 0.0}
"""The defaults of `math.isclose`."""
_TABLE_TOLERANCE: Final = (1e-7, 1e-6)
"""Relative and absolute; of EvalPlus, for fractions."""


def parse(text: str) -> ast.Module:
    """Leaves the row out where it cannot be read."""
    try:
        return ast.parse(text.replace("\r\n", "\n").strip())
    except UNREAD:
        raise leave_out("its tests are no Python") from None


def read_assert(test: ast.expr, name: str, called: str) -> RowCase:
    """`name` is what the test calls the function `called`. Leaves the row out where the assert is of another form."""
    try:
        return _read_condition(test, name, called)
    except UNREAD:
        raise leave_out("a test is not a call that is compared with a known value") from None


def _read_condition(test: ast.expr, name: str, called: str) -> RowCase:
    match test:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
            side, other = _choose_side(left, right, name)
            return _build_case(side, name, called, _evaluate(other))
        case ast.Compare(left=ast.Call(func=ast.Name(id="abs"), args=[difference]), ops=[ast.Lt() | ast.LtE()]):
            if not isinstance(difference, ast.BinOp) or not isinstance(difference.op, ast.Sub):
                raise ValueError
            side, other = _choose_side(difference.left, difference.right, name)
            within = float(_evaluate(test.comparators[0]))
            return replace(_build_case(side, name, called, _evaluate(other)), rule="close", absolute=within)
        case ast.Call(func=ast.Attribute(attr="isclose") | ast.Name(id="isclose"), args=[left, right]):
            side, other = _choose_side(left, right, name)
            tolerances = _CLOSE | {str(one.arg): float(_evaluate(one.value)) for one in test.keywords}
            case = _build_case(side, name, called, _evaluate(other))
            return replace(case, rule="close", relative=tolerances["rel_tol"], absolute=tolerances["abs_tol"])
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call() as call) if calls(call, name):
            return replace(_build_case(call, name, called, False), rule="false")
        case ast.Call() if calls(test, name):
            return replace(_build_case(test, name, called, True), rule="true")
    raise ValueError


def _choose_side(left: ast.expr, right: ast.expr, name: str) -> tuple[ast.expr, ast.expr]:
    """That with the call first."""
    if calls(left, name) == calls(right, name):
        raise ValueError
    return (left, right) if calls(left, name) else (right, left)


def calls(node: ast.AST, name: str) -> bool:
    return any(isinstance(one, ast.Call) and _is_name(one.func, name) for one in ast.walk(node))


def _build_case(side: ast.expr, name: str, called: str, expected: object) -> RowCase:
    """ValueError for a side with a call of another function of the program: a reply that has its own would choose what
    it is asked."""
    for node in ast.walk(side):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in (name, *_BUILT_IN):
            raise ValueError("it calls another function")
    function_arguments: list[object] = []
    if isinstance(side, ast.Call) and not side.keywords:
        try:
            function_arguments = [mark(_evaluate(argument)) for argument in side.args]
        except UNREAD:
            function_arguments = []
    return RowCase(
        arguments=(ast.unparse(side), called, []),
        expected=mark(expected),
        function_arguments=tuple(function_arguments),  # type: ignore[arg-type]
    )


def _evaluate(node: ast.expr, names: Mapping[str, object] | None = None) -> Any:
    """The value of a literal, or of what is made of literals. Raises one of UNREAD for anything else."""
    values = names or {"inf": math.inf, "nan": math.nan}
    match node:
        case ast.Constant(value=None | bool() | int() | float() | complex() | str()):
            return node.value
        case ast.List(elts=items):
            return [_evaluate(one, values) for one in items]
        case ast.Tuple(elts=items):
            return tuple(_evaluate(one, values) for one in items)
        case ast.Set(elts=items):
            return {_evaluate(one, values) for one in items}
        case ast.Dict(keys=keys, values=value_nodes) if None not in keys:
            pairs = zip(keys, value_nodes, strict=True)
            return {_evaluate(key, values): _evaluate(value, values) for key, value in pairs if key}
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _evaluate(operand, values)
    return _compute(node, values)


def _compute(node: ast.expr, names: Mapping[str, object]) -> object:
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            first, second = _evaluate(left, names), _evaluate(right, names)
            if not all(isinstance(one, int | float | complex) for one in (first, second)):
                raise ValueError
            return _OPERATORS[type(op)](first, second)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _MAKERS[name](*(_evaluate(one, names) for one in arguments))
    raise ValueError


def read_table(body: list[ast.stmt], name: str, called: str) -> list[RowCase] | None:
    """The cases of `inputs`, `results` and a loop that asserts each, as EvalPlus has them. None where there are none;
    leaves the row out where results are computed, or are compared in a way of their own."""
    tables = {
        statement.targets[0].id: statement.value
        for statement in body
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
    }
    loop = next((statement for statement in body if isinstance(statement, ast.For)), None)
    if loop is None or "inputs" not in tables:
        return None
    if not _is_plain_loop(loop, name) or "results" not in tables:
        raise leave_out("what its tests expect is computed")
    try:
        inputs, results = _evaluate(tables["inputs"]), _evaluate(tables["results"])
        return [
            _build_row_of_table(list(arguments), result, called)
            for arguments, result in zip(inputs, results, strict=True)
        ]
    except UNREAD:
        raise leave_out("a test is not a call that is compared with a known value") from None


def _is_plain_loop(loop: ast.For, name: str) -> bool:
    match loop.body:
        case [
            ast.Expr(
                value=ast.Call(
                    func=ast.Name(id="assertion"),
                    args=[
                        ast.Call(func=function, args=[ast.Starred(value=ast.Name(id="inp"))], keywords=[]),
                        ast.Name(id="exp"),
                        ast.Constant(value=0),
                    ],
                )
            )
        ]:
            return _is_name(function, name)
    return False


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def compares_plainly(module: ast.Module) -> bool:
    """Whether its `assertion` asks for equality, of fractions within a tolerance, and for nothing else."""
    for function in module.body:
        if isinstance(function, ast.FunctionDef) and function.name == "assertion":
            return all(map(_is_plain, ast.walk(function)))
    return True


def _is_plain(node: ast.AST) -> bool:
    """Whether results are compared as they are, neither as sets nor with anything but what is expected."""
    match node:
        case ast.Compare():
            names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
            return not names & {"out", "exp"} or ast.unparse(node) in ("out == exp", "out != exp")
        case ast.Name(id="set") | ast.Name(id="out" | "exp", ctx=ast.Store()):
            return False
    return True


def _build_row_of_table(arguments: list[object], result: object, called: str) -> RowCase:
    marked = tuple(mark(one) for one in arguments)
    case = RowCase(
        arguments=(f"candidate(*{arguments!r})", called, []), expected=mark(result), function_arguments=marked
    )
    relative, absolute = _TABLE_TOLERANCE
    return replace(case, rule="close", relative=relative, absolute=absolute) if _is_of_fractions(result) else case


def _is_of_fractions(value: object) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(one, float) for one in value)
    return isinstance(value, float)


def can_be_recorded(module: ast.Module, check: ast.FunctionDef, name: str) -> bool:
    """Whether all that is asked of the function is that it gives what another one gives: then the calls that `check`
    makes of the right one are tests."""
    asked = [node for node in ast.walk(check) if isinstance(node, ast.Call) and _is_name(node.func, name)]
    compared = [_find_compared(node, name) for node in ast.walk(check)]
    return bool(asked) and len(asked) == sum(compared) and compares_plainly(module)


def _find_compared(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Assert(test=ast.Compare(left=ast.Call(func=function), ops=[ast.Eq()])):
            return _is_name(function, name)
        case ast.Assert(test=ast.Compare(ops=[ast.Eq()], comparators=[ast.Call(func=function)])):
            return _is_name(function, name)
        case ast.Call(func=ast.Name(id="assertion"), args=[ast.Call(func=function), _, ast.Constant(value=0)]):
            return _is_name(function, name)
    return False


def write_recorded(module: ast.Module) -> str:
    """The test without what is not there where it runs, and without a comparison."""
    for statement in module.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "assertion":
            statement.body = [ast.Pass()]
    statements = [one for one in module.body if not (isinstance(one, ast.Import) and one.names[0].name == "numpy")]
    return "\n".join(map(ast.unparse, statements))


def read_recorded(made: object, called: str) -> list[RowCase]:
    """From what `harness_record` gave. One of UNREAD for anything else."""
    if not isinstance(made, list) or len(made) < 2:
        raise ValueError("no calls")
    relative, absolute = _TABLE_TOLERANCE
    return [
        RowCase((f"candidate(*{written})", called, []), result, rule="close", relative=relative, absolute=absolute)
        if _is_of_fractions(result["tuple"] if isinstance(result, dict) and "tuple" in result else result)
        else RowCase((f"candidate(*{written})", called, []), result)
        for written, result in made
    ]


# What is run.

ASSERT_SECONDS: Final = 5.0
"""Of processor time for all calls of a few asserts."""
TABLE_SECONDS: Final = 10.0
"""The same for up to a thousand calls, or some with large arguments."""
_MOST_CALLS: Final = 1_000
_MOST_RUNS: Final = 32
_MOST_CHARACTERS: Final = 4_000_000
"""Of all chosen tests."""
_OUTPUT_BYTES: Final = 4 * 1024 * 1024
_FILE_BYTES: Final = 16 * 1024 * 1024
"""Of files. The harness of scripts makes standard input and output files, where it may."""
_WAITING: Final = 3
"""Seconds by the clock for one of processor time, on a busy machine."""
_RUN: Final = "harness_run"
_FUTURE: Final = re.compile(r"^from __future__ import .*$", re.MULTILINE)


def build_call_limits(cpu_seconds: float, memory_mb: int = 128) -> ProgramLimits:
    return ProgramLimits(
        seconds=max(10.0, _WAITING * cpu_seconds),
        cpu_seconds=cpu_seconds,
        memory_mb=memory_mb,
        output_bytes=_OUTPUT_BYTES,
    )


def build_run_limits(cpu_seconds: float, memory_mb: int) -> ProgramLimits:
    return build_call_limits(cpu_seconds, memory_mb).model_copy(update={"file_bytes": _FILE_BYTES})


def choose_cases(tests: RowTests, most: int | None, seed: str) -> list[RowCase]:
    """Those that are run: the same for every answer. The first of them is always run."""
    count = most or (_MOST_CALLS if tests.function else _MOST_RUNS)
    indexes = range(1, len(tests.cases))
    chosen = [0, *sorted(SeededRandom(f"tests {seed}").some(indexes, count - 1))]
    cases, left = list[RowCase](), _MOST_CHARACTERS
    for index in chosen:
        case = tests.cases[index]
        left -= len(str(case.arguments)) + len(str(case.expected))
        if left >= 0 or len(cases) < 2:
            cases.append(case)
    if _differ(cases):
        return cases
    # a constant would pass all that are chosen: the last one gives way to a test that it fails
    others = (one for one in tests.cases if _differ([cases[0], one]))
    return [*cases[:-1], next(others, cases[-1])]


def _differ(cases: Sequence[RowCase]) -> bool:
    """Whether no constant passes them all."""
    return not all(case.is_right(cases[0].expected) for case in cases)


def write_programs(
    source: str, tests: RowTests, cases: Sequence[RowCase], limits: ProgramLimits
) -> Iterator[tuple[Program, Sequence[RowCase]]]:
    """Programs, each with the tests that its calls are."""
    if not tests.function:
        for case in cases:
            calls = ((source, *case.arguments),)
            yield Program(source=_read_text(input_harness.__file__), function=_RUN, calls=calls, limits=limits), [case]
        return
    parts = (
        *_FUTURE.findall(source),  # which have to stand first
        tests.before + _FUTURE.sub("", source),
        tests.after,
    )
    program = "\n".join(parts)
    whole = f"{_read_text(call_harness.__file__)}\nharness_load({program!r}, {tests.function!r})\n"
    yield Program(source=whole, function=_RUN, calls=tuple(case.arguments for case in cases), limits=limits), cases


def write_recording(tests: RowTests, limits: ProgramLimits) -> Program:
    """Runs a program of the data set, no answer: what it gives is what is expected."""
    harness = _read_text(call_harness.__file__)
    return Program(
        source=f"{harness}\nharness_load({tests.gold!r}, {tests.function!r})\n",
        function="harness_record",
        calls=((tests.check, tests.function),),
        limits=limits,
    )


@cache
def _read_text(file: str) -> str:
    return Path(file).read_text(encoding="utf-8")
