"""Lengths, areas and volumes with roots and pi, and trigonometric values."""

from fractions import Fraction
from math import gcd
from typing import Final

from app.envs.math.problems.algebra import FREE, whole
from app.envs.math.problems.writing import (
    Asked,
    Level,
    asked,
    fraction,
    joined,
    of_pi,
    over,
    size,
    square_apart,
    surd,
    times,
)
from app.toolkit.seeded import Draws

Surd = tuple[int, int, int]
"""Numerator, number under the root, denominator."""

SINES: Final[dict[int, Surd]] = {0: (0, 1, 1), 30: (1, 1, 2), 45: (1, 2, 2), 60: (1, 3, 2), 90: (1, 1, 1)}
TANGENTS: Final[dict[int, Surd]] = {0: (0, 1, 1), 30: (1, 3, 3), 45: (1, 1, 1), 60: (1, 3, 1)}


def distance(draws: Draws, level: Level) -> Asked:
    most = (6, 9, 12)[size(level)]
    while True:
        count = 3 if level == "hard" else 2
        one, two = ([draws.below(2 * most + 1) - most for _ in range(count)] for _ in range(2))
        squared = sum((first - second) ** 2 for first, second in zip(one, two, strict=True))
        if squared and square_apart(squared)[1] > 1:
            points = [f"({', '.join(map(str, point))})" for point in (one, two)]
            return asked(surd(1, squared), "simplified", one=points[0], two=points[1])


def circle(draws: Draws, level: Level) -> Asked:
    """Area from circumference or the reverse; hard: the area of a sector."""
    radius = Fraction(2 + draws.below((90, 40, 60)[size(level)]), 1 if level == "easy" else 1 + draws.below(3))
    if level == "hard":
        angle = draws.one((20, 30, 36, 40, 45, 60, 72, 80, 108, 120, 135, 150, 240, 300))
        figure = f"a sector with radius ${fraction(radius)}$ and a central angle of ${angle}^\\circ$"
        return asked(of_pi(radius**2 * Fraction(angle, 360)), what="area", figure=figure)
    if draws.chance(50):
        figure = f"a circle whose circumference is ${of_pi(2 * radius)}$"
        return asked(of_pi(radius**2), what="area", figure=figure)
    figure = f"a circle whose area is ${of_pi(radius**2)}$"
    return asked(of_pi(2 * radius), what="circumference", figure=figure)


def solid(draws: Draws, level: Level) -> Asked:
    radius, height = 1 + draws.below((9, 15, 25)[size(level)]), 1 + draws.below((12, 20, 30)[size(level)])
    if level == "hard":
        cone = of_pi(Fraction(radius**2 * height, 3) + Fraction(2 * radius**3, 3))
        what = f"a cone with height ${height}$ standing on a half-ball; both have radius ${radius}$"
        return asked(cone, what=what)
    kind = draws.one(("cylinder", "cone", "sphere"))
    sizes = f"radius ${radius}$" if kind == "sphere" else f"radius ${radius}$ and height ${height}$"
    volume = {"cylinder": Fraction(3), "cone": Fraction(1), "sphere": Fraction(4 * radius, height)}[kind] / 3
    return asked(of_pi(volume * radius**2 * height), what=f"a {kind} with {sizes}")


def triangle_area(draws: Draws, level: Level) -> Asked:
    """The area of a triangle from two sides and the angle between them."""
    one, two = 2 + draws.below((12, 25, 40)[size(level)]), 2 + draws.below((12, 25, 40)[size(level)])
    angle = draws.one((45, 60, 120, 135) if level != "easy" else (45, 60))
    above, root, below = SINES[min(angle, 180 - angle)]
    return asked(surd(Fraction(one * two * above, 2 * below), root), one=one, two=two, angle=angle)


def trigonometric_sum(draws: Draws, level: Level) -> Asked:
    """A sum of values of which at least one is irrational, so the answer has a root."""
    while True:
        terms, value = list[str](), dict[int, Fraction]()
        for _ in range(size(level) + 1):
            name = draws.one(("sin", "cos", "tan"))
            angle, factor = draws.one(range(0, 360, 15)), 1 + draws.below(9)
            known = trigonometric(name, angle)
            if known is None:
                continue
            above, root, below = known
            value[root] = value.get(root, Fraction(0)) + Fraction(factor * above, below)
            said = f"{angle}^\\circ" if draws.chance(50) else of_pi(Fraction(angle, 180))
            terms.append(times(factor, f"\\{name} {said}"))
        parts = [(root, factor) for root, factor in sorted(value.items()) if factor]
        if len(terms) == size(level) + 1 and any(root > 1 for root, _ in parts):
            return asked(joined([surd(factor, root) for root, factor in parts]), expression=joined(terms))


def trigonometric(name: str, angle: int) -> Surd | None:
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


def other_function(draws: Draws, level: Level) -> Asked:
    """The sine of an angle, or of its double, from its cosine; the answer has a root."""
    while True:
        above, below = 1 + draws.below((12, 16, 20)[size(level)]), 2 + draws.below((14, 20, 25)[size(level)])
        if above < below and gcd(above, below) == 1 and square_apart(below**2 - above**2)[1] > 1:
            break
    obtuse = level != "easy" and draws.chance(50)
    where = "obtuse" if obtuse else "acute"
    given = fraction(Fraction(-above if obtuse else above, below))
    if level == "hard":
        factor = Fraction(2 * above * (-1 if obtuse else 1), below**2)
        return asked(surd(factor, below**2 - above**2), given=given, where=where, wanted="\\sin 2\\theta")
    return asked(surd(Fraction(1, below), below**2 - above**2), given=given, where=where, wanted="\\sin\\theta")


def cosine_rule(draws: Draws, level: Level) -> Asked:
    while True:
        one, two = 2 + draws.below((9, 15, 25)[size(level)]), 2 + draws.below((9, 15, 25)[size(level)])
        angle = draws.one((60, 120))
        squared = one**2 + two**2 + (one * two if angle == 120 else -one * two)
        if square_apart(squared)[1] > 1:
            return asked(surd(1, squared), one=one, two=two, angle=angle)


def root_of_complex(draws: Draws, level: Level) -> Asked:
    """The absolute value of a complex number."""
    most = (9, 15, 30)[size(level)]
    while True:
        real, imaginary = whole(draws, most), whole(draws, most)
        if square_apart(real**2 + imaginary**2)[1] > 1:
            said = joined([str(real), times(imaginary, "i")])
            return asked(surd(1, real**2 + imaginary**2), "simplified", number=said)


def polygon(draws: Draws, level: Level) -> Asked:
    """The area of an equilateral triangle or a regular hexagon, or a side from the area of the triangle."""
    side = Fraction(2 + draws.below((60, 30, 50)[size(level)]), 1 if level == "easy" else 1 + draws.below(3))
    if level == "hard":
        under = draws.one(FREE)
        said = over(times(side.numerator, f"\\sqrt{{{under}}}"), side.denominator)
        return asked(surd(side**2 * under * Fraction(3, 2), 3), what="a regular hexagon", side=said)
    factor, what = draws.one(((Fraction(1, 4), "an equilateral triangle"), (Fraction(3, 2), "a regular hexagon")))
    return asked(surd(side**2 * factor, 3), what=what, side=fraction(side))
