"""What an answer leaves undone. Equal is not enough: the question itself, put into a box, has the right value too.

Every answer has its arithmetic done: no `2 + 3`, `2 \\cdot 3`, `2^{10}`, `(6\\pi)^2`, `\\sqrt{16}`, `i^2`,
`0 \\cdot x`, and no function of a number that a right answer does not need (`\\cos 15` where roots are asked for;
`\\ln 3` stays). A task may ask for more:

    expanded      no product or power of a sum, nothing but a number below a fraction bar, like terms joined
    factored      a product of factors of the right degrees
    reduced       below fraction bars no higher degree than needed, and one fraction where one is enough
    simplified    no more terms and no more roots than needed, nothing square under a root, no root below a fraction bar
    lowest        of a number: a whole number, a decimal, or a fraction that cannot be reduced
"""

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from math import isqrt, log
from typing import Final, Literal

from app.toolkit.math_answers.expressions import ExpressionNode

Form = Literal["value", "expanded", "factored", "reduced", "simplified", "lowest"]

_HALF: Final = Fraction(1, 2)
_LOGARITHMS: Final = frozenset({"ln", "log"})
UNFINISHED = "its arithmetic is not finished"


def describe_undone(answer: ExpressionNode, gold: ExpressionNode, form: Form) -> str:
    """What is left to be done, in words of ours; empty when it is in the form."""
    known = {node.name for node in _iter_nodes(gold) if node.kind == "call"}
    known |= _LOGARITHMS if known & _LOGARITHMS else set()
    if any(_is_unfinished(node) or _is_rational_logarithm(node) for node in _iter_nodes(answer)):
        return UNFINISHED
    if any(node.kind == "call" and not node.symbols and node.name not in known for node in _iter_nodes(answer)):
        return UNFINISHED
    if not answer.symbols <= gold.symbols:
        return "it has other variables than the answer needs"
    return _FORMS[form](answer, gold) if form in _FORMS else ""


def _is_rational_logarithm(node: ExpressionNode) -> bool:
    """`\\log_2 8` and `\\frac{\\ln 8}{\\ln 2}`: numbers that can be worked out."""
    both = node.parts
    if node.kind == "quotient" and all(part.kind == "call" and part.name == "ln" for part in both):
        both = tuple(part.parts[0] for part in both)
    elif node.kind != "call" or node.name != "log" or len(both) != 2:
        return False
    above, below = map(_to_fraction, both)
    if above is None or below is None or min(above, below) <= 0 or below == 1:
        return False
    ratio = log(above) / log(below)
    return any(abs(ratio * whole - round(ratio * whole)) < 1e-9 for whole in range(1, 13))


def is_heavy(answer: ExpressionNode, gold: ExpressionNode) -> bool:
    """Whether algebra might not get done with it: far more in it than a right answer needs."""
    return any(measure(answer) > measure(gold) + spare for measure, spare in _MEASURES)


def _count_raised_sums(node: ExpressionNode) -> int:
    """What sums are raised to, all of it; a root within counts as its order."""
    powers = [inner for inner in _iter_nodes(node) if inner.kind == "power" and inner.parts[0].kind != "symbol"]
    return sum(round(abs(_to_fraction(power.parts[1]) or Fraction(2))) for power in powers)


def _count_calls(node: ExpressionNode) -> int:
    return sum(
        inner.kind == "call" or (inner.kind == "power" and inner.parts[0].name == "e") for inner in _iter_nodes(node)
    )


def _iter_nodes(node: ExpressionNode) -> Iterator[ExpressionNode]:
    yield node
    for part in node.parts:
        yield from _iter_nodes(part)


def _is_rational(node: ExpressionNode) -> bool:
    """Whether it is a number by its look: no symbol, root or function in it."""
    return not any(
        inner.kind in ("symbol", "root", "call") or _is_fractional_power(inner) for inner in _iter_nodes(node)
    )


def _is_fractional_power(node: ExpressionNode) -> bool:
    """A root that is written as a power."""
    return node.kind == "power" and (_to_fraction(node.parts[1]) or Fraction(1)).denominator > 1


def _is_bare_number(node: ExpressionNode) -> bool:
    return node.kind == "number" or (node.kind == "quotient" and all(part.kind == "number" for part in node.parts))


def _is_unfinished(node: ExpressionNode) -> bool:
    rational = sum(1 for part in node.parts if _is_rational(part) and part.value != -1)
    if node.kind in ("sum", "product"):
        return rational > 1 or any(part.kind == "number" and not part.value for part in node.parts)
    if node.kind == "power":
        base, exponent = node.parts
        if _to_fraction(exponent) == 0 or (_can_be_raised(base) and (_to_fraction(exponent) or _HALF).denominator == 1):
            return True
        return _is_rational(base) and not _is_true_root(base, exponent)
    if node.kind == "root":
        index, inner = node.parts
        return _is_rational(inner) and (not _is_bare_number(inner) or _is_perfect_power(inner, int(index.value)))
    return node.kind == "quotient" and _is_rational(node) and not _is_bare_number(node)


def _can_be_raised(base: ExpressionNode) -> bool:
    """Whether a whole power of it has a shorter form: of `6\\pi` or `i`, but not of `\\pi`, `\\ln 2` or `x + 1`."""
    return base.name == "i" or (not base.symbols and base.kind not in ("symbol", "call"))


def _is_true_root(base: ExpressionNode, exponent: ExpressionNode) -> bool:
    """Whether a power of a number cannot be worked out: `2^{1/3}`, `2^x`."""
    if not _is_rational(exponent):
        return True
    value = _to_fraction(exponent)
    return value is not None and value.denominator > 1 and not _is_perfect_power(base, value.denominator)


def _to_fraction(node: ExpressionNode) -> Fraction | None:
    if node.kind == "number":
        return node.value
    if _is_bare_number(node) and node.parts[1].value:
        return node.parts[0].value / node.parts[1].value
    return None


def _is_perfect_power(node: ExpressionNode, index: int) -> bool:
    """Whether the root of that order comes out even."""
    value = _to_fraction(node)
    return value is None or value < 0 or all(_is_power(part, index) for part in (value.numerator, value.denominator))


def _is_power(whole: int, index: int) -> bool:
    if index == 2:
        return isqrt(whole) ** 2 == whole
    near = round(whole ** (1 / index)) if whole < 10**15 else 0
    return any(guess**index == whole for guess in (near - 1, near, near + 1))


def compute_degree(node: ExpressionNode) -> int:
    """As a polynomial is written, without joining like terms; 1 for functions and roots of variables."""
    if not node.symbols:
        return 0
    if node.kind == "sum":
        return max(compute_degree(part) for part in node.parts)
    if node.kind == "product":
        return sum(compute_degree(part) for part in node.parts)
    if node.kind == "quotient":
        return compute_degree(node.parts[0])
    if node.kind == "power":
        power = _to_fraction(node.parts[1])
        return compute_degree(node.parts[0]) * (max(1, round(abs(power))) if power is not None else 1)
    return 1


def _count_terms(node: ExpressionNode) -> int:
    """Of all sums in it, beyond the first of each."""
    return sum(len(inner.parts) - 1 for inner in _iter_nodes(node) if inner.kind == "sum")


def _count_roots(node: ExpressionNode) -> int:
    return sum(
        inner.kind == "root" or (not inner.symbols and _is_fractional_power(inner)) for inner in _iter_nodes(node)
    )


def _list_denominators(node: ExpressionNode) -> list[ExpressionNode]:
    """What stands below fraction bars, or under a negative power."""
    bars = [inner.parts[1] for inner in _iter_nodes(node) if inner.kind == "quotient"]
    powers = [inner for inner in _iter_nodes(node) if inner.kind == "power"]
    return bars + [power for power in powers if (exponent := _to_fraction(power.parts[1])) is not None and exponent < 0]


def _check_expanded(answer: ExpressionNode, gold: ExpressionNode) -> str:
    for node in _iter_nodes(answer):
        spread = node.kind == "product" or (node.kind == "power" and _is_rational(node.parts[1]))
        if spread and any(part.kind == "sum" for part in node.parts):
            return "it is not multiplied out"
    if any(not _is_rational(below) for below in _list_denominators(answer)):
        return "it is not worked out: there is more than a number below a fraction bar"
    return "" if _count_terms(answer) <= _count_terms(gold) else "like terms are not joined"


def _list_factor_degrees(node: ExpressionNode) -> list[int] | None:
    """Degrees of the factors that are no numbers; None where something is no polynomial."""
    if not node.symbols:
        return []
    if node.kind == "product":
        parts = [_list_factor_degrees(part) for part in node.parts]
        return None if None in parts else sorted(one for part in parts if part is not None for one in part)
    if node.kind == "power":
        power = _to_fraction(node.parts[1])
        inner = _list_factor_degrees(node.parts[0])
        whole = power is not None and power.denominator == 1 and power > 0
        return inner * int(power) if inner is not None and power is not None and whole else None
    if node.kind == "quotient":
        return None if node.parts[1].symbols else _list_factor_degrees(node.parts[0])
    return [compute_degree(node)] if all(map(_has_whole_powers, _iter_nodes(node))) else None


def _has_whole_powers(node: ExpressionNode) -> bool:
    """Whether it can be part of a polynomial."""
    if node.kind == "power":
        power = _to_fraction(node.parts[1])
        return power is not None and power.denominator == 1 and power > 0
    return node.kind in ("number", "symbol", "sum", "product") or not node.symbols


def _check_factored(answer: ExpressionNode, gold: ExpressionNode) -> str:
    factors = _list_factor_degrees(answer)
    return "" if factors is not None and factors == _list_factor_degrees(gold) else "it is not factored completely"


def _check_reduced(answer: ExpressionNode, gold: ExpressionNode) -> str:
    needed = sum(compute_degree(below) for below in _list_denominators(gold))
    if sum(compute_degree(below) for below in _list_denominators(answer)) > needed:
        return "it can be reduced further"
    single = gold.kind == "quotient" or (gold.kind == "product" and any(part.kind == "quotient" for part in gold.parts))
    split = answer.kind == "sum" and sum(bool(_list_denominators(part)) for part in answer.parts) > 1
    return "it is not a single fraction" if single and split else ""


def _check_simplified(answer: ExpressionNode, gold: ExpressionNode) -> str:
    if any(not _is_rational(below) for below in _list_denominators(answer)):
        return "there is a root below a fraction bar"
    if _count_terms(answer) > _count_terms(gold) or _count_roots(answer) > _count_roots(gold):
        return "it can be simplified further"
    roots = [node for node in _iter_nodes(answer) if node.kind == "root" and _is_rational(node.parts[1])]
    return "it can be simplified further" if any(map(_has_square, roots)) else ""


def _has_square(root: ExpressionNode) -> bool:
    index, value = int(root.parts[0].value), _to_fraction(root.parts[1])
    if value is None or value.numerator > 10**6 or value.denominator > 10**6:
        return True
    return any(whole % prime**index == 0 for whole in (abs(value.numerator), value.denominator) for prime in _PRIMES)


_PRIMES: Final = tuple(one for one in range(2, 1000) if all(one % other for other in range(2, isqrt(one) + 1)))


_MEASURES: Final[tuple[tuple[Callable[[ExpressionNode], int], int], ...]] = (
    (lambda node: sum(1 for _ in _iter_nodes(node)), 80),
    (_count_roots, 4),
    (_count_raised_sums, 8),
    (_count_calls, 6),
)
"""What is counted, and how much more than in a right answer there may be."""

_FORMS: Final[Mapping[str, Callable[[ExpressionNode, ExpressionNode], str]]] = {
    "expanded": _check_expanded,
    "factored": _check_factored,
    "reduced": _check_reduced,
    "simplified": _check_simplified,
}
