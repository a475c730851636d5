"""Equations, systems, polynomials, fractions with a variable, roots."""

from fractions import Fraction
from math import gcd

from app.envs.math.problems.latex import (
    Level,
    MathProblem,
    build_problem,
    extract_square,
    multiply_polynomials,
    rank_level,
    write_fraction,
    write_polynomial,
    write_product,
    write_quotient,
    write_sum,
    write_surd,
)
from app.toolkit.seeded import SeededRandom

SQUARE_FREE = (2, 3, 5, 6, 7, 10, 11, 13, 14, 15, 17, 19, 21)
"""Square-free numbers."""


def draw_nonzero(draws: SeededRandom, most: int) -> int:
    """From -most to most, without zero."""
    return (1 + draws.below(most)) * draws.one((1, -1))


def write_bracket(constant: int, factor: int = 1) -> str:
    return f"({write_polynomial([constant, factor])})"


def make_fractions(draws: SeededRandom, level: Level) -> MathProblem:
    """A sum of fractions; hard: a sum and a product."""
    most = (9, 15, 20)[rank_level(level)]
    first, second, third = (Fraction(1 + draws.below(most), 2 + draws.below(most)) for _ in range(3))
    sign = draws.one((1, -1))
    said = f"{write_fraction(first)} {'+' if sign > 0 else '-'} {write_fraction(second)}"
    if level != "hard":
        return build_problem(write_fraction(first + sign * second), "lowest", expression=said)
    return build_problem(
        write_fraction(first + sign * second * third), "lowest", expression=f"{said} \\cdot {write_fraction(third)}"
    )


def make_linear_equation(draws: SeededRandom, level: Level) -> MathProblem:
    most = (9, 12, 20)[rank_level(level)]
    while True:
        one, two, three, four = (
            draw_nonzero(draws, most),
            draw_nonzero(draws, most),
            draw_nonzero(draws, most),
            draw_nonzero(draws, most),
        )
        left, right, shift = [two, one], ([four] if level == "easy" else [four, three]), draw_nonzero(draws, 9)
        slope = one - (0 if level == "easy" else three)
        if level == "hard":
            factor = 2 + draws.below(5)
            equation = f"{factor}{write_bracket(two, one)} + {write_polynomial([shift, 1])} = {write_polynomial(right)}"
            slope, offset = factor * one + 1 - three, factor * two + shift - four
        else:
            equation, offset = f"{write_polynomial(left)} = {write_polynomial(right)}", two - four
        if slope:
            return build_problem(write_fraction(Fraction(-offset, slope)), equation=equation)


def make_quadratic_equation(draws: SeededRandom, level: Level) -> MathProblem:
    """Always two solutions: integers (easy), fractions (medium) or irrational numbers (hard)."""
    most = (9, 9, 8)[rank_level(level)]
    while True:
        if level == "hard":
            middle, outside, under = draw_nonzero(draws, most), 1 + draws.below(3), draws.one(SQUARE_FREE)
            below = 1 + draws.below(3)
            # (below x - middle)^2 = outside^2 under
            equation = [middle**2 - outside**2 * under, -2 * below * middle, below**2]
            shared = gcd(gcd(equation[0], equation[1]), equation[2])
            common = gcd(gcd(middle, outside), below)
            middle, outside, below = middle // common, outside // common, below // common
            root = write_product(outside, f"\\sqrt{{{under}}}")
            answers = [write_quotient(write_sum([str(middle), sign + root]), below) for sign in ("", "-")]
            return build_problem(
                ", ".join(answers), shape="set", equation=write_polynomial([one // shared for one in equation])
            )
        first, second = draw_nonzero(draws, most), draw_nonzero(draws, most)
        lead = 1 if level == "easy" else 1 + draws.below(4)
        if Fraction(first, lead) != second:
            equation = multiply_polynomials([-first, lead], [-second, 1])
            answers = [write_fraction(Fraction(first, lead)), write_fraction(second)]
            return build_problem(", ".join(answers), shape="set", equation=write_polynomial(equation))


def make_linear_system(draws: SeededRandom, level: Level) -> MathProblem:
    most = (4, 7, 9)[rank_level(level)]
    while True:
        one, two, three, four = (draw_nonzero(draws, most) for _ in range(4))
        x, y = Fraction(draw_nonzero(draws, 9)), Fraction(draw_nonzero(draws, 9))
        if level == "hard":
            x, y = x / (1 + draws.below(4)), y / (1 + draws.below(4))
        right = one * x + two * y, three * x + four * y
        if one * four != two * three and all(side.denominator == 1 for side in right):
            first = f"{write_sum([write_product(one, 'x'), write_product(two, 'y')])} = {right[0]}"
            second = f"{write_sum([write_product(three, 'x'), write_product(four, 'y')])} = {right[1]}"
            return build_problem(
                f"({write_fraction(x)}, {write_fraction(y)})", shape="tuple", first=first, second=second
            )


def make_expansion(draws: SeededRandom, level: Level) -> MathProblem:
    name = draws.one("xyzt")
    most = (9, 9, 6)[rank_level(level)]
    factors = [[draw_nonzero(draws, most), 1 if level == "easy" else draw_nonzero(draws, 5)] for _ in range(2)]
    if level == "hard":
        factors.append([draw_nonzero(draws, 5), draw_nonzero(draws, 4), 1])
    found = [1]
    for factor in factors:
        found = multiply_polynomials(found, factor)
    said = "".join(f"({write_polynomial(factor, name)})" for factor in factors)
    return build_problem(write_polynomial(found, name), "expanded", expression=said)


def make_factorisation(draws: SeededRandom, level: Level) -> MathProblem:
    name = draws.one("xyzt")
    most = (9, 9, 7)[rank_level(level)]
    while True:
        factors = [[draw_nonzero(draws, most), 1] for _ in range(3 if level == "hard" else 2)]
        if level != "easy":
            factors[0][1] = 2 + draws.below(4)
        if all(gcd(*one) == 1 for one in factors) and len({tuple(one) for one in factors}) == len(factors):
            break
    found = [1]
    for one in factors:
        found = multiply_polynomials(found, one)
    said = "".join(f"({write_polynomial(one, name)})" for one in factors)
    return build_problem(said, "factored", expression=write_polynomial(found, name))


def make_rational_expression(draws: SeededRandom, level: Level) -> MathProblem:
    """A common factor in numerator and denominator; hard: with a coefficient before the variable."""
    name = draws.one("xyzt")
    while True:
        shared, above, below = draw_nonzero(draws, 9), draw_nonzero(draws, 9), draw_nonzero(draws, 9)
        lead = 1 + draws.below(4) if level == "hard" else 1
        first, second, common = [above, lead], [below, 1], [shared, 1]
        if level == "easy":
            top = multiply_polynomials(first, common)
            return build_problem(
                write_polynomial(first, name),
                "reduced",
                above=write_polynomial(top, name),
                below=write_polynomial(common, name),
            )
        if above != below * lead and gcd(above, lead) == 1 and shared not in (above, below):
            answer = f"\\frac{{{write_polynomial(first, name)}}}{{{write_polynomial(second, name)}}}"
            top, bottom = multiply_polynomials(first, common), multiply_polynomials(second, common)
            return build_problem(
                answer, "reduced", above=write_polynomial(top, name), below=write_polynomial(bottom, name)
            )


def make_surds(draws: SeededRandom, level: Level) -> MathProblem:
    """A sum of like roots that contain square factors."""
    under = draws.one(SQUARE_FREE)
    while True:
        count = 1 if level == "easy" else rank_level(level) + 1
        outside = [2 + draws.below(11) for _ in range(count)]
        factors = [draw_nonzero(draws, 6) if place or level != "easy" else 1 + draws.below(9) for place in range(count)]
        total = sum(one * two for one, two in zip(outside, factors, strict=True))
        if total and (count == 1 or len(set(outside)) > 1):
            terms = [
                write_product(two, f"\\sqrt{{{one * one * under}}}") for one, two in zip(outside, factors, strict=True)
            ]
            return build_problem(write_surd(total, under), "simplified", expression=write_sum(terms))


def make_rationalization(draws: SeededRandom, level: Level) -> MathProblem:
    under = draws.one(SQUARE_FREE)
    above = 1 + draws.below(60)
    if level == "easy":
        return build_problem(
            write_surd(Fraction(above, under), under), "simplified", above=above, below=f"\\sqrt{{{under}}}"
        )
    while True:
        number, factor = draw_nonzero(draws, 9), 1 + draws.below(3 if level == "hard" else 1)
        norm = number**2 - factor**2 * under
        if norm:
            break
    one, two = Fraction(above * number, norm), Fraction(-above * factor, norm)
    shared = one.denominator * two.denominator // gcd(one.denominator, two.denominator)
    root = f"\\sqrt{{{under}}}"
    answer = write_quotient(write_sum([str(int(one * shared)), write_product(int(two * shared), root)]), shared)
    return build_problem(answer, "simplified", above=above, below=write_sum([str(number), write_product(factor, root)]))


def make_radical_equation(draws: SeededRandom, level: Level) -> MathProblem:
    """The root of a linear expression equals a number."""
    factor, constant, root = 1 + draws.below((3, 7, 12)[rank_level(level)]), draw_nonzero(draws, 20), 1 + draws.below(9)
    value = Fraction(root**2 - constant, factor)
    return build_problem(write_fraction(value), left=f"\\sqrt{{{write_polynomial([constant, factor])}}}", right=root)


def make_hypotenuse(draws: SeededRandom, level: Level) -> MathProblem:
    most = (9, 15, 30)[rank_level(level)]
    while True:
        one, two = 1 + draws.below(most), 1 + draws.below(most)
        if extract_square(one**2 + two**2)[1] > 1:
            return build_problem(write_surd(1, one**2 + two**2), one=one, two=two)
