"""Lengths, areas and volumes with roots and pi, and trigonometric values."""

from fractions import Fraction
from math import gcd
from typing import Final

from app.envs.math.problems.algebra import SQUARE_FREE, draw_nonzero
from app.envs.math.problems.latex import (
    Level,
    MathProblem,
    build_problem,
    extract_square,
    rank_level,
    write_fraction,
    write_pi_multiple,
    write_product,
    write_quotient,
    write_sum,
    write_surd,
)
from app.toolkit.seeded import SeededRandom

Surd = tuple[int, int, int]
"""Numerator, number under the root, denominator."""

SINES: Final[dict[int, Surd]] = {0: (0, 1, 1), 30: (1, 1, 2), 45: (1, 2, 2), 60: (1, 3, 2), 90: (1, 1, 1)}
TANGENTS: Final[dict[int, Surd]] = {0: (0, 1, 1), 30: (1, 3, 3), 45: (1, 1, 1), 60: (1, 3, 1)}


def make_distance(draws: SeededRandom, level: Level) -> MathProblem:
    most = (6, 9, 12)[rank_level(level)]
    while True:
        count = 3 if level == "hard" else 2
        one, two = ([draws.below(2 * most + 1) - most for _ in range(count)] for _ in range(2))
        squared = sum((first - second) ** 2 for first, second in zip(one, two, strict=True))
        if squared and extract_square(squared)[1] > 1:
            points = [f"({', '.join(map(str, point))})" for point in (one, two)]
            return build_problem(write_surd(1, squared), "simplified", one=points[0], two=points[1])


def make_circle(draws: SeededRandom, level: Level) -> MathProblem:
    """Area from circumference or the reverse; hard: the area of a sector."""
    radius = Fraction(2 + draws.below((90, 40, 60)[rank_level(level)]), 1 if level == "easy" else 1 + draws.below(3))
    if level == "hard":
        angle = draws.one((20, 30, 36, 40, 45, 60, 72, 80, 108, 120, 135, 150, 240, 300))
        figure = f"a sector with radius ${write_fraction(radius)}$ and a central angle of ${angle}^\\circ$"
        return build_problem(write_pi_multiple(radius**2 * Fraction(angle, 360)), what="area", figure=figure)
    if draws.chance(50):
        figure = f"a circle whose circumference is ${write_pi_multiple(2 * radius)}$"
        return build_problem(write_pi_multiple(radius**2), what="area", figure=figure)
    figure = f"a circle whose area is ${write_pi_multiple(radius**2)}$"
    return build_problem(write_pi_multiple(2 * radius), what="circumference", figure=figure)


def make_solid(draws: SeededRandom, level: Level) -> MathProblem:
    radius, height = 1 + draws.below((9, 15, 25)[rank_level(level)]), 1 + draws.below((12, 20, 30)[rank_level(level)])
    if level == "hard":
        cone = write_pi_multiple(Fraction(radius**2 * height, 3) + Fraction(2 * radius**3, 3))
        what = f"a cone with height ${height}$ standing on a half-ball; both have radius ${radius}$"
        return build_problem(cone, what=what)
    kind = draws.one(("cylinder", "cone", "sphere"))
    sizes = f"radius ${radius}$" if kind == "sphere" else f"radius ${radius}$ and height ${height}$"
    volume = {"cylinder": Fraction(3), "cone": Fraction(1), "sphere": Fraction(4 * radius, height)}[kind] / 3
    return build_problem(write_pi_multiple(volume * radius**2 * height), what=f"a {kind} with {sizes}")


def make_triangle_area(draws: SeededRandom, level: Level) -> MathProblem:
    """The area of a triangle from two sides and the angle between them."""
    one, two = 2 + draws.below((12, 25, 40)[rank_level(level)]), 2 + draws.below((12, 25, 40)[rank_level(level)])
    angle = draws.one((45, 60, 120, 135) if level != "easy" else (45, 60))
    above, root, below = SINES[min(angle, 180 - angle)]
    return build_problem(write_surd(Fraction(one * two * above, 2 * below), root), one=one, two=two, angle=angle)


def make_trigonometric_sum(draws: SeededRandom, level: Level) -> MathProblem:
    """A sum of values of which at least one is irrational, so the answer has a root."""
    while True:
        terms, value = list[str](), dict[int, Fraction]()
        for _ in range(rank_level(level) + 1):
            name = draws.one(("sin", "cos", "tan"))
            angle, factor = draws.one(range(0, 360, 15)), 1 + draws.below(9)
            known = find_exact_value(name, angle)
            if known is None:
                continue
            above, root, below = known
            value[root] = value.get(root, Fraction(0)) + Fraction(factor * above, below)
            said = f"{angle}^\\circ" if draws.chance(50) else write_pi_multiple(Fraction(angle, 180))
            terms.append(write_product(factor, f"\\{name} {said}"))
        parts = [(root, factor) for root, factor in sorted(value.items()) if factor]
        if len(terms) == rank_level(level) + 1 and any(root > 1 for root, _ in parts):
            return build_problem(
                write_sum([write_surd(factor, root) for root, factor in parts]), expression=write_sum(terms)
            )


def find_exact_value(name: str, angle: int) -> Surd | None:
    """The exact value for degrees in [0, 360); None for angles without a known one."""
    if name == "cos":
        name, angle = "sin", (angle + 90) % 360
    if name == "sin":
        half = angle % 180
        table, sign = SINES.get(min(half, 180 - half)), 1 if angle < 180 else -1
    else:
        half = angle % 180
        table, sign = TANGENTS.get(min(half, 180 - half)), 1 if half < 90 else -1
    return None if table is None else (sign * table[0], table[1], table[2])


def make_other_function(draws: SeededRandom, level: Level) -> MathProblem:
    """The sine of an angle, or of its double, from its cosine; the answer has a root."""
    while True:
        above, below = (
            1 + draws.below((12, 16, 20)[rank_level(level)]),
            2 + draws.below((14, 20, 25)[rank_level(level)]),
        )
        if above < below and gcd(above, below) == 1 and extract_square(below**2 - above**2)[1] > 1:
            break
    obtuse = level != "easy" and draws.chance(50)
    where = "obtuse" if obtuse else "acute"
    given = write_fraction(Fraction(-above if obtuse else above, below))
    if level == "hard":
        factor = Fraction(2 * above * (-1 if obtuse else 1), below**2)
        return build_problem(write_surd(factor, below**2 - above**2), given=given, where=where, wanted="\\sin 2\\theta")
    return build_problem(
        write_surd(Fraction(1, below), below**2 - above**2), given=given, where=where, wanted="\\sin\\theta"
    )


def make_cosine_rule(draws: SeededRandom, level: Level) -> MathProblem:
    while True:
        one, two = 2 + draws.below((9, 15, 25)[rank_level(level)]), 2 + draws.below((9, 15, 25)[rank_level(level)])
        angle = draws.one((60, 120))
        squared = one**2 + two**2 + (one * two if angle == 120 else -one * two)
        if extract_square(squared)[1] > 1:
            return build_problem(write_surd(1, squared), one=one, two=two, angle=angle)


def make_absolute_value(draws: SeededRandom, level: Level) -> MathProblem:
    """The absolute value of a complex number."""
    most = (9, 15, 30)[rank_level(level)]
    while True:
        real, imaginary = draw_nonzero(draws, most), draw_nonzero(draws, most)
        if extract_square(real**2 + imaginary**2)[1] > 1:
            said = write_sum([str(real), write_product(imaginary, "i")])
            return build_problem(write_surd(1, real**2 + imaginary**2), "simplified", number=said)


def make_polygon(draws: SeededRandom, level: Level) -> MathProblem:
    """The area of an equilateral triangle or a regular hexagon, or a side from the area of the triangle."""
    side = Fraction(2 + draws.below((60, 30, 50)[rank_level(level)]), 1 if level == "easy" else 1 + draws.below(3))
    if level == "hard":
        under = draws.one(SQUARE_FREE)
        said = write_quotient(write_product(side.numerator, f"\\sqrt{{{under}}}"), side.denominator)
        return build_problem(write_surd(side**2 * under * Fraction(3, 2), 3), what="a regular hexagon", side=said)
    factor, what = draws.one(((Fraction(1, 4), "an equilateral triangle"), (Fraction(3, 2), "a regular hexagon")))
    return build_problem(write_surd(side**2 * factor, 3), what=what, side=write_fraction(side))
