"""LaTeX for exact values: fractions, polynomials, surds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import Literal

from app.toolkit.math_answers.forms import Form
from app.toolkit.math_answers.grading import GoldAnswer
from app.toolkit.math_answers.structures import Shape

Level = Literal["easy", "medium", "hard"]


@dataclass(frozen=True)
class MathProblem:
    """`values` fill the slots of the family's phrasings."""

    values: Mapping[str, str]
    gold: GoldAnswer


def build_problem(answer: str, form: Form = "value", shape: Shape = "single", **values: str | int) -> MathProblem:
    return MathProblem(
        {name: str(value) for name, value in values.items()}, GoldAnswer(latex=answer, shape=shape, form=form)
    )


def write_fraction(value: Fraction | int) -> str:
    sign = "-" if value < 0 else ""
    above, below = abs(value.numerator), value.denominator
    return f"{sign}{above}" if below == 1 else f"{sign}\\frac{{{above}}}{{{below}}}"


def write_product(value: Fraction | int, name: str) -> str:
    """`value` times what is called `name`: `3x`, `-x`, `\\frac{x}{2}` as `\\frac{1}{2}x`."""
    if value in (1, -1):
        return name if value == 1 else f"-{name}"
    return f"{write_fraction(value)}{name}"


def write_sum(terms: Sequence[str]) -> str:
    """A sum of terms, which may begin with a minus sign; 0 for no terms."""
    said = ""
    for term in terms:
        said += f" - {term[1:]}" if said and term.startswith("-") else f" + {term}" if said else term
    return said or "0"


def write_polynomial(coefficients: Sequence[Fraction | int], name: str = "x") -> str:
    """`coefficients` begin with the constant, the text ends with it."""
    terms = []
    for power in range(len(coefficients) - 1, -1, -1):
        value = coefficients[power]
        if value:
            what = name if power == 1 else f"{name}^{{{power}}}"
            terms.append(write_fraction(value) if power == 0 else write_product(value, what))
    return write_sum(terms)


def multiply_polynomials(one: Sequence[int], other: Sequence[int]) -> list[int]:
    found = [0] * (len(one) + len(other) - 1)
    for first, left in enumerate(one):
        for second, right in enumerate(other):
            found[first + second] += left * right
    return found


def extract_square(whole: int) -> tuple[int, int]:
    """The factors before and under the root: (2, 3) for 12."""
    for outside in range(isqrt(whole), 1, -1):
        if whole % outside**2 == 0:
            return outside, whole // outside**2
    return 1, whole


def write_surd(factor: Fraction | int, under: int) -> str:
    """`factor` times the root of `under`, with squares taken out."""
    outside, inside = extract_square(under)
    value = Fraction(factor) * outside
    if inside == 1 or not value:
        return write_fraction(value)
    above, root = value.numerator, f"\\sqrt{{{inside}}}"
    return (
        write_product(above, root)
        if value.denominator == 1
        else write_quotient(write_product(above, root), value.denominator)
    )


def write_quotient(above: str, below: int) -> str:
    """A fraction with the minus sign in front."""
    if below == 1:
        return above
    sign, bare = ("-", above[1:]) if above.startswith("-") and " " not in above else ("", above)
    return f"{sign}\\frac{{{bare}}}{{{below}}}"


def write_pi_multiple(value: Fraction | int) -> str:
    """`value` times pi."""
    return write_fraction(0) if not value else write_quotient(write_product(value.numerator, "\\pi"), value.denominator)


def rank_level(level: Level) -> int:
    """0, 1 or 2 from easy to hard."""
    return ("easy", "medium", "hard").index(level)
