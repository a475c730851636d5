"""Numeric evaluation of expressions at a few points: enough to reject most wrong answers without algebra.

Floating point only, so that no text makes a number grow; complex, so that every root and logarithm has a value.
"""

import cmath
import math
from collections.abc import Callable
from typing import Final

from app.toolkit.math_answers.expressions import ExpressionNode, parse_expression

PLACES = 3
NEAR = 1e-9
"""Relative. Closer ones may be the same and are looked at exactly; others are not."""

_CONSTANTS: Final = {"e": complex(cmath.e), "i": 1j, "pi": complex(cmath.pi)}
_FUNCTIONS: Final[dict[str, Callable[[complex], complex]]] = {
    **{name: getattr(cmath, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{f"arc{name}": getattr(cmath, f"a{name}") for name in ("sin", "cos", "tan")},
    "cot": lambda at: 1 / cmath.tan(at),
    "sec": lambda at: 1 / cmath.cos(at),
    "csc": lambda at: 1 / cmath.sin(at),
    "ln": cmath.log,
    "exp": cmath.exp,
}


def may_be_equal(one: ExpressionNode, other: ExpressionNode) -> bool:
    """False where they differ at a place at which both have a value, or have none together."""
    pairs = [(_evaluate_at(one, place), _evaluate_at(other, place)) for place in range(PLACES)]
    known = [(first, second) for first, second in pairs if first is not None and second is not None]
    return bool(known) and all(
        abs(first - second) <= NEAR * max(1.0, abs(first), abs(second)) for first, second in known
    )


def estimate_value(text: str) -> float:
    """Of a real number, to put several in order; minus infinity where it is none."""
    node = parse_expression(text)
    value = None if node is None else _evaluate_at(node, 0)
    return -math.inf if value is None else value.real


def _evaluate_at(node: ExpressionNode, place: int) -> complex | None:
    try:
        value = _evaluate(node, place)
    except (ArithmeticError, ValueError):
        return None
    return value if cmath.isfinite(value) else None


def _evaluate(node: ExpressionNode, place: int) -> complex:
    inner = [_evaluate(part, place) for part in node.parts]
    if node.kind == "number":
        return complex(float(node.value))
    if node.kind == "symbol":
        return _CONSTANTS.get(node.name) or _choose_place(node.name, place)
    if node.kind == "call":
        value = _FUNCTIONS["ln" if node.name == "log" else node.name](inner[0])
        return value if len(inner) == 1 else value / cmath.log(inner[1])
    if node.kind == "root":
        return _compute_root(inner[1], round(inner[0].real))
    return _combine_values(node, inner)


def _combine_values(node: ExpressionNode, inner: list[complex]) -> complex:
    if node.kind == "sum":
        return sum(inner)
    if node.kind == "quotient":
        return inner[0] / inner[1]
    if node.kind == "power":
        return complex(inner[0] ** inner[1])
    value = complex(1)
    for part in inner:
        value *= part
    return value


def _compute_root(under: complex, index: int) -> complex:
    if index % 2 and under.imag == 0 and under.real < 0:
        return complex(-((-under.real) ** (1 / index)))
    return cmath.sqrt(under) if index == 2 else complex(under ** (1 / index))


def _choose_place(name: str, place: int) -> complex:
    """Of a variable: between a half and three, nowhere special, and different for each."""
    spread = sum(ord(character) * (31 * at + 17) for at, character in enumerate(name)) % 997
    return complex(0.5 + ((spread * 0.618033988 + place * 0.7548776662) % 1.0) * 2.2 + 0.013 * place)
