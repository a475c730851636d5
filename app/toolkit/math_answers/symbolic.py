"""math-verify, for workers: whether two expressions are the same. Nothing else imports this module, which brings sympy.

Its own time limits are signals that do not work in threads and do not stop everything; they are off, and the worker's
limits hold instead. What it says is the same must also agree to thirty digits, since it rounds decimals.
"""

import logging
import warnings
from collections.abc import Sequence
from typing import Final

from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify
from sympy import Expr, N, Symbol, simplify

from app.toolkit.math_answers.expressions import agree_where_real, parse_expression

_DIGITS: Final = 30
_CLOSE: Final = 10.0**-25

logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # it says at every call that its limits are off
_AS_IT_IS = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=False, nits=False, boxed="none", equations=False
)
"""Units would take a `t` for tons."""
_LATEX = (LatexExtractionConfig(boxed_match_priority=-1, normalization_config=_AS_IT_IS),)


def all_equal(pairs: list[list[str]]) -> bool:
    """Of LaTeX expressions, without dollar signs: whether the two of every pair are equal. A third text in a pair says
    that there are letters under roots, which may count as positive numbers."""
    return all(_are_equal(pair[0], pair[1], rooted=len(pair) > 2) for pair in pairs)


def _are_equal(gold: str, answer: str, *, rooted: bool) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parsed = [_parse_latex(gold), _parse_latex(answer)]
        if not all(parsed):
            return False
        if bool(verify(*parsed, timeout_seconds=None)):
            return not _are_far_apart(parsed[0][0], parsed[1][0])
        return rooted and _agree_where_real(gold, answer) and _are_equal_if_positive(parsed[0][0], parsed[1][0])


def _agree_where_real(gold: str, answer: str) -> bool:
    one, other = parse_expression(gold), parse_expression(answer)
    return one is not None and other is not None and agree_where_real(one, other)


def _are_equal_if_positive(one: object, other: object) -> bool:
    if not isinstance(one, Expr) or not isinstance(other, Expr):
        return False
    difference = one - other
    letters = {letter: Symbol(letter.name, positive=True) for letter in difference.free_symbols}
    return bool(simplify(difference.xreplace(letters)) == 0)


def _parse_latex(text: str) -> Sequence[object]:
    expressions: Sequence[object] = parse(f"${text}$", _LATEX, fallback_mode="no_fallback", parsing_timeout=None)
    return expressions


def _are_far_apart(one: object, other: object) -> bool:
    """Whether both are numbers, and different ones."""
    if not isinstance(one, Expr) or not isinstance(other, Expr) or one.free_symbols or other.free_symbols:
        return False
    difference, size = N(one - other, _DIGITS), N(abs(one) + abs(other), _DIGITS)
    if difference.is_finite is not True:
        return True
    return bool(abs(difference) > _CLOSE * size)
