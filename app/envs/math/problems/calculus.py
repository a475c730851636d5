"""Derivatives, definite integrals, limits."""

from fractions import Fraction

from app.envs.math.problems.algebra import draw_nonzero
from app.envs.math.problems.latex import (
    Level,
    MathProblem,
    build_problem,
    multiply_polynomials,
    rank_level,
    write_fraction,
    write_polynomial,
    write_product,
    write_quotient,
    write_sum,
)
from app.toolkit.seeded import SeededRandom


def _draw_coefficients(draws: SeededRandom, degree: int, most: int) -> list[int]:
    found = [draws.below(2 * most + 1) - most for _ in range(degree)]
    return [*found, draw_nonzero(draws, most)]


def _differentiate(coefficients: list[int]) -> list[int]:
    return [power * value for power, value in enumerate(coefficients)][1:]


def make_derivative(draws: SeededRandom, level: Level) -> MathProblem:
    """Of a polynomial (easy), of a composed function (medium), or of a polynomial times an exponential (hard)."""
    name = draws.one("xt")
    if level == "easy":
        found = _draw_coefficients(draws, 2 + draws.below(3), 9)
        return build_problem(
            write_polynomial(_differentiate(found), name), variable=name, function=write_polynomial(found, name)
        )
    inner = 2 + draws.below(6)
    if level == "medium":
        outer, constant = draw_nonzero(draws, 9), draw_nonzero(draws, 9)
        kind = draws.one(("\\sin", "\\cos", "e", "\\ln"))
        angle = f"({write_polynomial([constant, inner], name)})"
        if kind == "e":
            power = f"e^{{{write_polynomial([constant, inner], name)}}}"
            return build_problem(
                write_product(outer * inner, power), variable=name, function=write_product(outer, power)
            )
        if kind == "\\ln":
            answer = f"\\frac{{{outer * inner}}}{{{write_polynomial([constant, inner], name)}}}"
            return build_problem(answer, variable=name, function=write_product(outer, kind + angle))
        turned, sign = ("\\cos", 1) if kind == "\\sin" else ("\\sin", -1)
        return build_problem(
            write_product(sign * outer * inner, turned + angle),
            variable=name,
            function=write_product(outer, kind + angle),
        )
    found = _draw_coefficients(draws, 1 + draws.below(2), 7)
    power = f"e^{{{write_product(inner, name)}}}"
    factor = [inner * one + two for one, two in zip(found, [*_differentiate(found), 0], strict=True)]
    return build_problem(
        f"({write_polynomial(factor, name)}){power}",
        variable=name,
        function=f"({write_polynomial(found, name)}){power}",
    )


def make_slope(draws: SeededRandom, level: Level) -> MathProblem:
    """The slope of a curve at a point."""
    found, at = (
        _draw_coefficients(draws, rank_level(level) + 2, 6),
        Fraction(draw_nonzero(draws, 5), 1 + (level == "hard") * draws.below(3)),
    )
    value = sum((factor * at**power for power, factor in enumerate(_differentiate(found))), Fraction(0))
    return build_problem(write_fraction(value), function=write_polynomial(found), at=write_fraction(at))


def make_polynomial_integral(draws: SeededRandom, level: Level) -> MathProblem:
    found = _draw_coefficients(draws, rank_level(level) + 1, 9)
    lower = draws.below(6) - 3
    upper = lower + 1 + draws.below(4)
    value = sum(
        (
            Fraction(factor * (upper ** (power + 1) - lower ** (power + 1)), power + 1)
            for power, factor in enumerate(found)
        ),
        Fraction(0),
    )
    return build_problem(write_fraction(value), lower=lower, upper=upper, function=write_polynomial(found))


def make_exact_integral(draws: SeededRandom, level: Level) -> MathProblem:
    """An integral whose value contains a logarithm, an exponential or pi."""
    factor = 1 + draws.below((9, 15, 25)[rank_level(level)])
    if level == "easy":
        lower = 1 + draws.below(9)
        upper = lower + 1 + draws.below(12)
        answer = write_product(factor, f"\\ln {write_fraction(Fraction(upper, lower))}")
        return build_problem(answer, lower=lower, upper=upper, function=f"\\frac{{{factor}}}{{x}}")
    if level == "medium":
        inner, upper = 1 + draws.below(6), 1 + draws.below(4)
        value = Fraction(factor, inner)
        power = "e" if inner * upper == 1 else f"e^{{{inner * upper}}}"
        above = write_sum([write_product(value.numerator, power), f"-{value.numerator}"])
        answer = write_quotient(above, value.denominator)
        return build_problem(
            answer, lower=0, upper=upper, function=write_product(factor, f"e^{{{write_product(inner, 'x')}}}")
        )
    side = 1 + draws.below(12)
    angle = draws.one((Fraction(1, 4), Fraction(1, 3), Fraction(1, 6)))
    root = {Fraction(1, 4): "", Fraction(1, 3): "\\sqrt{3}", Fraction(1, 6): "\\frac{\\sqrt{3}}{3}"}[angle]
    upper_end = {"": str(side), "\\sqrt{3}": write_product(side, root)}.get(
        root, write_quotient(write_product(side, "\\sqrt{3}"), 3)
    )
    answer = write_quotient(
        write_product((factor * angle / side).numerator, "\\pi"), (factor * angle / side).denominator
    )
    return build_problem(answer, lower=0, upper=upper_end, function=f"\\frac{{{factor}}}{{x^{{2}} + {side * side}}}")


def make_limit(draws: SeededRandom, level: Level) -> MathProblem:
    """A limit where numerator and denominator are both zero; hard: with a root."""
    at = draw_nonzero(draws, 9)
    if level == "hard":
        root, factor = 1 + draws.below(9), 1 + draws.below(9)
        above = f"\\sqrt{{{write_polynomial([root * root, factor])}}} - {root}"
        below = 1 + draws.below(9)
        return build_problem(
            write_fraction(Fraction(factor, 2 * root * below)), at=0, above=above, below=write_product(below, "x")
        )
    while True:
        first, second = [draw_nonzero(draws, 9), 1 + draws.below(4)], [draw_nonzero(draws, 9), 1]
        bottom = second[0] + at if level == "medium" else 1
        if bottom:
            break
    top = multiply_polynomials([-at, 1], first)
    low = multiply_polynomials([-at, 1], second) if level == "medium" else [-at, 1]
    value = Fraction(first[0] + first[1] * at, bottom)
    return build_problem(write_fraction(value), at=at, above=write_polynomial(top), below=write_polynomial(low))
