"""Equations, systems, polynomials, fractions with a variable, roots."""

from fractions import Fraction
from math import gcd

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
    square_apart,
    surd,
    times,
)
from app.toolkit.seeded import Draws

FREE = (2, 3, 5, 6, 7, 10, 11, 13, 14, 15, 17, 19, 21)
"""Square-free numbers."""


def whole(draws: Draws, most: int) -> int:
    """From -most to most, without zero."""
    return (1 + draws.below(most)) * draws.one((1, -1))


def bracket(constant: int, factor: int = 1) -> str:
    return f"({polynomial([constant, factor])})"


def fractions(draws: Draws, level: Level) -> Asked:
    """A sum of fractions; hard: a sum and a product."""
    most = (9, 15, 20)[size(level)]
    first, second, third = (Fraction(1 + draws.below(most), 2 + draws.below(most)) for _ in range(3))
    sign = draws.one((1, -1))
    said = f"{fraction(first)} {'+' if sign > 0 else '-'} {fraction(second)}"
    if level != "hard":
        return asked(fraction(first + sign * second), "lowest", expression=said)
    return asked(fraction(first + sign * second * third), "lowest", expression=f"{said} \\cdot {fraction(third)}")


def linear_equation(draws: Draws, level: Level) -> Asked:
    most = (9, 12, 20)[size(level)]
    while True:
        one, two, three, four = whole(draws, most), whole(draws, most), whole(draws, most), whole(draws, most)
        left, right, shift = [two, one], ([four] if level == "easy" else [four, three]), whole(draws, 9)
        slope = one - (0 if level == "easy" else three)
        if level == "hard":
            factor = 2 + draws.below(5)
            equation = f"{factor}{bracket(two, one)} + {polynomial([shift, 1])} = {polynomial(right)}"
            slope, offset = factor * one + 1 - three, factor * two + shift - four
        else:
            equation, offset = f"{polynomial(left)} = {polynomial(right)}", two - four
        if slope:
            return asked(fraction(Fraction(-offset, slope)), equation=equation)


def quadratic_equation(draws: Draws, level: Level) -> Asked:
    """Always two solutions: integers (easy), fractions (medium) or irrational numbers (hard)."""
    most = (9, 9, 8)[size(level)]
    while True:
        if level == "hard":
            middle, outside, under = whole(draws, most), 1 + draws.below(3), draws.one(FREE)
            below = 1 + draws.below(3)
            # (below x - middle)^2 = outside^2 under
            equation = [middle**2 - outside**2 * under, -2 * below * middle, below**2]
            shared = gcd(gcd(equation[0], equation[1]), equation[2])
            common = gcd(gcd(middle, outside), below)
            middle, outside, below = middle // common, outside // common, below // common
            root = times(outside, f"\\sqrt{{{under}}}")
            answers = [over(joined([str(middle), sign + root]), below) for sign in ("", "-")]
            return asked(", ".join(answers), shape="set", equation=polynomial([one // shared for one in equation]))
        first, second = whole(draws, most), whole(draws, most)
        lead = 1 if level == "easy" else 1 + draws.below(4)
        if Fraction(first, lead) != second:
            equation = multiplied([-first, lead], [-second, 1])
            answers = [fraction(Fraction(first, lead)), fraction(second)]
            return asked(", ".join(answers), shape="set", equation=polynomial(equation))


def linear_system(draws: Draws, level: Level) -> Asked:
    most = (4, 7, 9)[size(level)]
    while True:
        one, two, three, four = (whole(draws, most) for _ in range(4))
        x, y = Fraction(whole(draws, 9)), Fraction(whole(draws, 9))
        if level == "hard":
            x, y = x / (1 + draws.below(4)), y / (1 + draws.below(4))
        right = one * x + two * y, three * x + four * y
        if one * four != two * three and all(side.denominator == 1 for side in right):
            first = f"{joined([times(one, 'x'), times(two, 'y')])} = {right[0]}"
            second = f"{joined([times(three, 'x'), times(four, 'y')])} = {right[1]}"
            return asked(f"({fraction(x)}, {fraction(y)})", shape="tuple", first=first, second=second)


def expand(draws: Draws, level: Level) -> Asked:
    name = draws.one("xyzt")
    most = (9, 9, 6)[size(level)]
    factors = [[whole(draws, most), 1 if level == "easy" else whole(draws, 5)] for _ in range(2)]
    if level == "hard":
        factors.append([whole(draws, 5), whole(draws, 4), 1])
    found = [1]
    for factor in factors:
        found = multiplied(found, factor)
    said = "".join(f"({polynomial(factor, name)})" for factor in factors)
    return asked(polynomial(found, name), "expanded", expression=said)


def factor(draws: Draws, level: Level) -> Asked:
    name = draws.one("xyzt")
    most = (9, 9, 7)[size(level)]
    while True:
        factors = [[whole(draws, most), 1] for _ in range(3 if level == "hard" else 2)]
        if level != "easy":
            factors[0][1] = 2 + draws.below(4)
        if all(gcd(*one) == 1 for one in factors) and len({tuple(one) for one in factors}) == len(factors):
            break
    found = [1]
    for one in factors:
        found = multiplied(found, one)
    said = "".join(f"({polynomial(one, name)})" for one in factors)
    return asked(said, "factored", expression=polynomial(found, name))


def rational_expression(draws: Draws, level: Level) -> Asked:
    """A common factor in numerator and denominator; hard: with a coefficient before the variable."""
    name = draws.one("xyzt")
    while True:
        shared, above, below = whole(draws, 9), whole(draws, 9), whole(draws, 9)
        lead = 1 + draws.below(4) if level == "hard" else 1
        first, second, common = [above, lead], [below, 1], [shared, 1]
        if level == "easy":
            top = multiplied(first, common)
            return asked(
                polynomial(first, name), "reduced", above=polynomial(top, name), below=polynomial(common, name)
            )
        if above != below * lead and gcd(above, lead) == 1 and shared not in (above, below):
            answer = f"\\frac{{{polynomial(first, name)}}}{{{polynomial(second, name)}}}"
            top, bottom = multiplied(first, common), multiplied(second, common)
            return asked(answer, "reduced", above=polynomial(top, name), below=polynomial(bottom, name))


def surds(draws: Draws, level: Level) -> Asked:
    """A sum of like roots that contain square factors."""
    under = draws.one(FREE)
    while True:
        count = 1 if level == "easy" else size(level) + 1
        outside = [2 + draws.below(11) for _ in range(count)]
        factors = [whole(draws, 6) if place or level != "easy" else 1 + draws.below(9) for place in range(count)]
        total = sum(one * two for one, two in zip(outside, factors, strict=True))
        if total and (count == 1 or len(set(outside)) > 1):
            terms = [times(two, f"\\sqrt{{{one * one * under}}}") for one, two in zip(outside, factors, strict=True)]
            return asked(surd(total, under), "simplified", expression=joined(terms))


def rationalized(draws: Draws, level: Level) -> Asked:
    under = draws.one(FREE)
    above = 1 + draws.below(60)
    if level == "easy":
        return asked(surd(Fraction(above, under), under), "simplified", above=above, below=f"\\sqrt{{{under}}}")
    while True:
        number, factor = whole(draws, 9), 1 + draws.below(3 if level == "hard" else 1)
        norm = number**2 - factor**2 * under
        if norm:
            break
    one, two = Fraction(above * number, norm), Fraction(-above * factor, norm)
    shared = one.denominator * two.denominator // gcd(one.denominator, two.denominator)
    root = f"\\sqrt{{{under}}}"
    answer = over(joined([str(int(one * shared)), times(int(two * shared), root)]), shared)
    return asked(answer, "simplified", above=above, below=joined([str(number), times(factor, root)]))


def radical_equation(draws: Draws, level: Level) -> Asked:
    """The root of a linear expression equals a number."""
    factor, constant, root = 1 + draws.below((3, 7, 12)[size(level)]), whole(draws, 20), 1 + draws.below(9)
    value = Fraction(root**2 - constant, factor)
    return asked(fraction(value), left=f"\\sqrt{{{polynomial([constant, factor])}}}", right=root)


def hypotenuse(draws: Draws, level: Level) -> Asked:
    most = (9, 15, 30)[size(level)]
    while True:
        one, two = 1 + draws.below(most), 1 + draws.below(most)
        if square_apart(one**2 + two**2)[1] > 1:
            return asked(surd(1, one**2 + two**2), one=one, two=two)
