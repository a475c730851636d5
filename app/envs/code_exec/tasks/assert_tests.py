"""Tests that are written in Python: asserts, and tables of arguments and results. They are read, never run.

Of each assert, the side with the call is evaluated where the program runs, and what the other side says is compared
outside: literals, and what is made of them by `set`, `tuple`, `sorted` and the like, or by arithmetic of two numbers.
"""

import ast
import builtins
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from app.domain.sources import leave_out
from app.envs.code_exec.tasks.row_cases import RowCase, mark

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
            return _build_case(side, name, called, evaluate(other))
        case ast.Compare(left=ast.Call(func=ast.Name(id="abs"), args=[difference]), ops=[ast.Lt() | ast.LtE()]):
            if not isinstance(difference, ast.BinOp) or not isinstance(difference.op, ast.Sub):
                raise ValueError
            side, other = _choose_side(difference.left, difference.right, name)
            within = float(evaluate(test.comparators[0]))
            return replace(_build_case(side, name, called, evaluate(other)), rule="close", absolute=within)
        case ast.Call(func=ast.Attribute(attr="isclose") | ast.Name(id="isclose"), args=[left, right]):
            side, other = _choose_side(left, right, name)
            given = _CLOSE | {str(one.arg): float(evaluate(one.value)) for one in test.keywords}
            case = _build_case(side, name, called, evaluate(other))
            return replace(case, rule="close", relative=given["rel_tol"], absolute=given["abs_tol"])
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
    given: list[object] = []
    if isinstance(side, ast.Call) and not side.keywords:
        try:
            given = [mark(evaluate(argument)) for argument in side.args]
        except UNREAD:
            given = []
    return RowCase(
        arguments=(ast.unparse(side), called, []),
        expected=mark(expected),
        given=tuple(given),  # type: ignore[arg-type]
    )


def evaluate(node: ast.expr, names: Mapping[str, object] | None = None) -> Any:
    """The value of a literal, or of what is made of literals. Raises one of UNREAD for anything else."""
    known = names or {"inf": math.inf, "nan": math.nan}
    match node:
        case ast.Constant(value=None | bool() | int() | float() | complex() | str()):
            return node.value
        case ast.List(elts=items):
            return [evaluate(one, known) for one in items]
        case ast.Tuple(elts=items):
            return tuple(evaluate(one, known) for one in items)
        case ast.Set(elts=items):
            return {evaluate(one, known) for one in items}
        case ast.Dict(keys=keys, values=values) if None not in keys:
            pairs = zip(keys, values, strict=True)
            return {evaluate(key, known): evaluate(value, known) for key, value in pairs if key}
        case ast.Name(id=name):
            return known[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -evaluate(operand, known)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not evaluate(operand, known)
    return _compute(node, known)


def _compute(node: ast.expr, names: Mapping[str, object]) -> object:
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            first, second = evaluate(left, names), evaluate(right, names)
            if not all(isinstance(one, int | float | complex) for one in (first, second)):
                raise ValueError
            return _OPERATORS[type(op)](first, second)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _MAKERS[name](*(evaluate(one, names) for one in arguments))
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
        inputs, results = evaluate(tables["inputs"]), evaluate(tables["results"])
        return [_build_row_of_table(list(given), result, called) for given, result in zip(inputs, results, strict=True)]
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


def _build_row_of_table(given: list[object], result: object, called: str) -> RowCase:
    marked = tuple(mark(one) for one in given)
    case = RowCase(arguments=(f"candidate(*{given!r})", called, []), expected=mark(result), given=marked)
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
    kept = [one for one in module.body if not (isinstance(one, ast.Import) and one.names[0].name == "numpy")]
    return "\n".join(map(ast.unparse, kept))


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
