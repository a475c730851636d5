"""Derivatives, definite integrals, limits."""

from fractions import Fraction

from app.envs.math.problems.algebra import whole
from app.envs.math.problems.writing import (
    Asked,
    Level,
    asked,
    fraction,
    joined,
    multiplied,
    over,
    polynomial,
    size,
    times,
)
from app.toolkit.seeded import Draws


def _coefficients(draws: Draws, degree: int, most: int) -> list[int]:
    found = [draws.below(2 * most + 1) - most for _ in range(degree)]
    return [*found, whole(draws, most)]


def _derived(coefficients: list[int]) -> list[int]:
    return [power * value for power, value in enumerate(coefficients)][1:]


def derivative(draws: Draws, level: Level) -> Asked:
    """Of a polynomial (easy), of a composed function (medium), or of a polynomial times an exponential (hard)."""
    name = draws.one("xt")
    if level == "easy":
        found = _coefficients(draws, 2 + draws.below(3), 9)
        return asked(polynomial(_derived(found), name), variable=name, function=polynomial(found, name))
    inner = 2 + draws.below(6)
    if level == "medium":
        outer, constant = whole(draws, 9), whole(draws, 9)
        kind = draws.one(("\\sin", "\\cos", "e", "\\ln"))
        angle = f"({polynomial([constant, inner], name)})"
        if kind == "e":
            power = f"e^{{{polynomial([constant, inner], name)}}}"
            return asked(times(outer * inner, power), variable=name, function=times(outer, power))
        if kind == "\\ln":
            answer = f"\\frac{{{outer * inner}}}{{{polynomial([constant, inner], name)}}}"
            return asked(answer, variable=name, function=times(outer, kind + angle))
        turned, sign = ("\\cos", 1) if kind == "\\sin" else ("\\sin", -1)
        return asked(times(sign * outer * inner, turned + angle), variable=name, function=times(outer, kind + angle))
    found = _coefficients(draws, 1 + draws.below(2), 7)
    power = f"e^{{{times(inner, name)}}}"
    factor = [inner * one + two for one, two in zip(found, [*_derived(found), 0], strict=True)]
    return asked(f"({polynomial(factor, name)}){power}", variable=name, function=f"({polynomial(found, name)}){power}")


def slope(draws: Draws, level: Level) -> Asked:
    """The slope of a curve at a point."""
    found, at = (
        _coefficients(draws, size(level) + 2, 6),
        Fraction(whole(draws, 5), 1 + (level == "hard") * draws.below(3)),
    )
    value = sum((factor * at**power for power, factor in enumerate(_derived(found))), Fraction(0))
    return asked(fraction(value), function=polynomial(found), at=fraction(at))


def polynomial_integral(draws: Draws, level: Level) -> Asked:
    found = _coefficients(draws, size(level) + 1, 9)
    lower = draws.below(6) - 3
    upper = lower + 1 + draws.below(4)
    value = sum(
        (
            Fraction(factor * (upper ** (power + 1) - lower ** (power + 1)), power + 1)
            for power, factor in enumerate(found)
        ),
        Fraction(0),
    )
    return asked(fraction(value), lower=lower, upper=upper, function=polynomial(found))


def exact_integral(draws: Draws, level: Level) -> Asked:
    """An integral whose value contains a logarithm, an exponential or pi."""
    factor = 1 + draws.below((9, 15, 25)[size(level)])
    if level == "easy":
        lower = 1 + draws.below(9)
        upper = lower + 1 + draws.below(12)
        answer = times(factor, f"\\ln {fraction(Fraction(upper, lower))}")
        return asked(answer, lower=lower, upper=upper, function=f"\\frac{{{factor}}}{{x}}")
    if level == "medium":
        inner, upper = 1 + draws.below(6), 1 + draws.below(4)
        value = Fraction(factor, inner)
        power = "e" if inner * upper == 1 else f"e^{{{inner * upper}}}"
        above = joined([times(value.numerator, power), f"-{value.numerator}"])
        answer = over(above, value.denominator)
        return asked(answer, lower=0, upper=upper, function=times(factor, f"e^{{{times(inner, 'x')}}}"))
    side = 1 + draws.below(12)
    angle = draws.one((Fraction(1, 4), Fraction(1, 3), Fraction(1, 6)))
    root = {Fraction(1, 4): "", Fraction(1, 3): "\\sqrt{3}", Fraction(1, 6): "\\frac{\\sqrt{3}}{3}"}[angle]
    upper_end = {"": str(side), "\\sqrt{3}": times(side, root)}.get(root, over(times(side, "\\sqrt{3}"), 3))
    answer = over(times((factor * angle / side).numerator, "\\pi"), (factor * angle / side).denominator)
    return asked(answer, lower=0, upper=upper_end, function=f"\\frac{{{factor}}}{{x^{{2}} + {side * side}}}")


def limit(draws: Draws, level: Level) -> Asked:
    """A limit where numerator and denominator are both zero; hard: with a root."""
    at = whole(draws, 9)
    if level == "hard":
        root, factor = 1 + draws.below(9), 1 + draws.below(9)
        above = f"\\sqrt{{{polynomial([root * root, factor])}}} - {root}"
        below = 1 + draws.below(9)
        return asked(fraction(Fraction(factor, 2 * root * below)), at=0, above=above, below=times(below, "x"))
    while True:
        first, second = [whole(draws, 9), 1 + draws.below(4)], [whole(draws, 9), 1]
        bottom = second[0] + at if level == "medium" else 1
        if bottom:
            break
    top = multiplied([-at, 1], first)
    low = multiplied([-at, 1], second) if level == "medium" else [-at, 1]
    value = Fraction(first[0] + first[1] * at, bottom)
    return asked(fraction(value), at=at, above=polynomial(top), below=polynomial(low))
