"""Generated problems with exact answers, by family and level, and the LaTeX that they are written in.

Every family draws its numbers first and makes the problem of them, so that the answer is known and has the required
form: an integer, a fraction in lowest terms, a root with no square under it. Draws that would miss that are repeated.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb, factorial, gcd, isqrt, lcm, perm
from typing import Final, Literal, NamedTuple

from app.toolkit.math_answers.grading import Form, GoldAnswer
from app.toolkit.math_answers.parts import Shape
from app.toolkit.procedural import MIXED, Level
from app.toolkit.seeded import SeededRandom

# Problems, and LaTeX for exact values: fractions, polynomials, surds.


@dataclass(frozen=True)
class MathProblem:
    """`values` fill the slots of the family's phrasings."""

    values: Mapping[str, str]
    gold: GoldAnswer


def _build_problem(answer: str, form: Form = "value", shape: Shape = "single", **values: str | int) -> MathProblem:
    return MathProblem(
        {name: str(value) for name, value in values.items()}, GoldAnswer(latex=answer, shape=shape, form=form)
    )


def write_fraction(value: Fraction | int) -> str:
    sign = "-" if value < 0 else ""
    above, below = abs(value.numerator), value.denominator
    return f"{sign}{above}" if below == 1 else f"{sign}\\frac{{{above}}}{{{below}}}"


def _write_product(value: Fraction | int, name: str) -> str:
    """`value` times what is called `name`: `3x`, `-x`, `\\frac{x}{2}` as `\\frac{1}{2}x`."""
    if value in (1, -1):
        return name if value == 1 else f"-{name}"
    return f"{write_fraction(value)}{name}"


def _write_sum(terms: Sequence[str]) -> str:
    """A sum of terms, which may begin with a minus sign; 0 for no terms."""
    text = ""
    for term in terms:
        text += f" - {term[1:]}" if text and term.startswith("-") else f" + {term}" if text else term
    return text or "0"


def _write_polynomial(coefficients: Sequence[Fraction | int], name: str = "x") -> str:
    """`coefficients` begin with the constant, the text ends with it."""
    terms = []
    for power in range(len(coefficients) - 1, -1, -1):
        value = coefficients[power]
        if value:
            what = name if power == 1 else f"{name}^{{{power}}}"
            terms.append(write_fraction(value) if power == 0 else _write_product(value, what))
    return _write_sum(terms)


def _multiply_polynomials(one: Sequence[int], other: Sequence[int]) -> list[int]:
    product = [0] * (len(one) + len(other) - 1)
    for first, left in enumerate(one):
        for second, right in enumerate(other):
            product[first + second] += left * right
    return product


def _extract_square(whole: int) -> tuple[int, int]:
    """The factors before and under the root: (2, 3) for 12."""
    for outside in range(isqrt(whole), 1, -1):
        if whole % outside**2 == 0:
            return outside, whole // outside**2
    return 1, whole


def _write_surd(factor: Fraction | int, under: int) -> str:
    """`factor` times the root of `under`, with squares taken out."""
    outside, inside = _extract_square(under)
    value = Fraction(factor) * outside
    if inside == 1 or not value:
        return write_fraction(value)
    above, root = value.numerator, f"\\sqrt{{{inside}}}"
    return (
        _write_product(above, root)
        if value.denominator == 1
        else _write_quotient(_write_product(above, root), value.denominator)
    )


def _write_quotient(above: str, below: int) -> str:
    """A fraction with the minus sign in front."""
    if below == 1:
        return above
    sign, bare = ("-", above[1:]) if above.startswith("-") and " " not in above else ("", above)
    return f"{sign}\\frac{{{bare}}}{{{below}}}"


def _write_pi_multiple(value: Fraction | int) -> str:
    """`value` times pi."""
    return (
        write_fraction(0) if not value else _write_quotient(_write_product(value.numerator, "\\pi"), value.denominator)
    )


def _rank_level(level: Level) -> int:
    """0, 1 or 2 from easy to hard."""
    return MIXED.index(level)


# Algebra: equations, systems, polynomials, fractions with a variable, roots.

_SQUARE_FREE = (2, 3, 5, 6, 7, 10, 11, 13, 14, 15, 17, 19, 21)
"""Numbers under a root, from which no square can be taken out."""


def _draw_nonzero(draws: SeededRandom, most: int) -> int:
    """From -most to most, without zero."""
    return (1 + draws.below(most)) * draws.one((1, -1))


def _write_bracket(constant: int, factor: int = 1) -> str:
    return f"({_write_polynomial([constant, factor])})"


def _make_fractions(draws: SeededRandom, level: Level) -> MathProblem:
    """A sum of fractions; hard: a sum and a product."""
    most = (9, 15, 20)[_rank_level(level)]
    first, second, third = (Fraction(1 + draws.below(most), 2 + draws.below(most)) for _ in range(3))
    sign = draws.one((1, -1))
    expression = f"{write_fraction(first)} {'+' if sign > 0 else '-'} {write_fraction(second)}"
    if level != "hard":
        return _build_problem(write_fraction(first + sign * second), "lowest", expression=expression)
    return _build_problem(
        write_fraction(first + sign * second * third),
        "lowest",
        expression=f"{expression} \\cdot {write_fraction(third)}",
    )


def make_first_sum(draws: SeededRandom) -> MathProblem:
    """Asked as a sum of fractions is, of small whole numbers."""
    one, other = 1 + draws.below(9), 1 + draws.below(9)
    return _build_problem(str(one + other), "lowest", expression=f"{one} + {other}")


def _make_linear_equation(draws: SeededRandom, level: Level) -> MathProblem:
    most = (9, 12, 20)[_rank_level(level)]
    while True:
        one, two, three, four = (
            _draw_nonzero(draws, most),
            _draw_nonzero(draws, most),
            _draw_nonzero(draws, most),
            _draw_nonzero(draws, most),
        )
        left, right, shift = [two, one], ([four] if level == "easy" else [four, three]), _draw_nonzero(draws, 9)
        slope = one - (0 if level == "easy" else three)
        if level == "hard":
            factor = 2 + draws.below(5)
            equation = (
                f"{factor}{_write_bracket(two, one)} + {_write_polynomial([shift, 1])} = {_write_polynomial(right)}"
            )
            slope, offset = factor * one + 1 - three, factor * two + shift - four
        else:
            equation, offset = f"{_write_polynomial(left)} = {_write_polynomial(right)}", two - four
        if slope:  # without one there is no solution, or every number is one
            return _build_problem(write_fraction(Fraction(-offset, slope)), equation=equation)


def _make_quadratic_equation(draws: SeededRandom, level: Level) -> MathProblem:
    """Always two solutions: integers (easy), fractions (medium) or irrational numbers (hard)."""
    most = (9, 9, 8)[_rank_level(level)]
    while True:
        if level == "hard":
            middle, outside, under = _draw_nonzero(draws, most), 1 + draws.below(3), draws.one(_SQUARE_FREE)
            below = 1 + draws.below(3)
            # (below x - middle)^2 = outside^2 under
            equation = [middle**2 - outside**2 * under, -2 * below * middle, below**2]
            shared = gcd(gcd(equation[0], equation[1]), equation[2])
            common = gcd(gcd(middle, outside), below)
            middle, outside, below = middle // common, outside // common, below // common
            root = _write_product(outside, f"\\sqrt{{{under}}}")
            answers = [_write_quotient(_write_sum([str(middle), sign + root]), below) for sign in ("", "-")]
            return _build_problem(
                ", ".join(answers), shape="set", equation=_write_polynomial([one // shared for one in equation])
            )
        first, second = _draw_nonzero(draws, most), _draw_nonzero(draws, most)
        lead = 1 if level == "easy" else 1 + draws.below(4)
        if Fraction(first, lead) != second:
            equation = _multiply_polynomials([-first, lead], [-second, 1])
            answers = [write_fraction(Fraction(first, lead)), write_fraction(second)]
            return _build_problem(", ".join(answers), shape="set", equation=_write_polynomial(equation))


def _make_linear_system(draws: SeededRandom, level: Level) -> MathProblem:
    most = (4, 7, 9)[_rank_level(level)]
    while True:
        one, two, three, four = (_draw_nonzero(draws, most) for _ in range(4))
        x, y = Fraction(_draw_nonzero(draws, 9)), Fraction(_draw_nonzero(draws, 9))
        if level == "hard":
            x, y = x / (1 + draws.below(4)), y / (1 + draws.below(4))
        right = one * x + two * y, three * x + four * y
        # one solution only, and no fractions in the system
        if one * four != two * three and all(side.denominator == 1 for side in right):
            first = f"{_write_sum([_write_product(one, 'x'), _write_product(two, 'y')])} = {right[0]}"
            second = f"{_write_sum([_write_product(three, 'x'), _write_product(four, 'y')])} = {right[1]}"
            return _build_problem(
                f"({write_fraction(x)}, {write_fraction(y)})", shape="tuple", first=first, second=second
            )


def _make_expansion(draws: SeededRandom, level: Level) -> MathProblem:
    name = draws.one("xyzt")
    most = (9, 9, 6)[_rank_level(level)]
    factors = [[_draw_nonzero(draws, most), 1 if level == "easy" else _draw_nonzero(draws, 5)] for _ in range(2)]
    if level == "hard":
        factors.append([_draw_nonzero(draws, 5), _draw_nonzero(draws, 4), 1])
    product = [1]
    for factor in factors:
        product = _multiply_polynomials(product, factor)
    expression = "".join(f"({_write_polynomial(factor, name)})" for factor in factors)
    return _build_problem(_write_polynomial(product, name), "expanded", expression=expression)


def _make_factorisation(draws: SeededRandom, level: Level) -> MathProblem:
    name = draws.one("xyzt")
    most = (9, 9, 7)[_rank_level(level)]
    while True:
        factors = [[_draw_nonzero(draws, most), 1] for _ in range(3 if level == "hard" else 2)]
        if level != "easy":
            factors[0][1] = 2 + draws.below(4)
        if all(gcd(*one) == 1 for one in factors) and len({tuple(one) for one in factors}) == len(factors):
            break
    product = [1]
    for one in factors:
        product = _multiply_polynomials(product, one)
    answer = "".join(f"({_write_polynomial(one, name)})" for one in factors)
    return _build_problem(answer, "factored", expression=_write_polynomial(product, name))


def _make_rational_expression(draws: SeededRandom, level: Level) -> MathProblem:
    """A common factor in numerator and denominator; hard: with a coefficient before the variable."""
    name = draws.one("xyzt")
    while True:
        shared, above, below = _draw_nonzero(draws, 9), _draw_nonzero(draws, 9), _draw_nonzero(draws, 9)
        lead = 1 + draws.below(4) if level == "hard" else 1
        first, second, common = [above, lead], [below, 1], [shared, 1]
        if level == "easy":
            top = _multiply_polynomials(first, common)
            return _build_problem(
                _write_polynomial(first, name),
                "reduced",
                above=_write_polynomial(top, name),
                below=_write_polynomial(common, name),
            )
        if above != below * lead and gcd(above, lead) == 1 and shared not in (above, below):
            answer = f"\\frac{{{_write_polynomial(first, name)}}}{{{_write_polynomial(second, name)}}}"
            top, bottom = _multiply_polynomials(first, common), _multiply_polynomials(second, common)
            return _build_problem(
                answer, "reduced", above=_write_polynomial(top, name), below=_write_polynomial(bottom, name)
            )


def _make_surds(draws: SeededRandom, level: Level) -> MathProblem:
    """A sum of like roots that contain square factors."""
    under = draws.one(_SQUARE_FREE)
    while True:
        count = 1 if level == "easy" else _rank_level(level) + 1
        outside = [2 + draws.below(11) for _ in range(count)]
        factors = [
            _draw_nonzero(draws, 6) if index or level != "easy" else 1 + draws.below(9) for index in range(count)
        ]
        total = sum(one * two for one, two in zip(outside, factors, strict=True))
        # different roots to simplify, that do not cancel
        if total and (count == 1 or len(set(outside)) > 1):
            terms = [
                _write_product(two, f"\\sqrt{{{one * one * under}}}") for one, two in zip(outside, factors, strict=True)
            ]
            return _build_problem(_write_surd(total, under), "simplified", expression=_write_sum(terms))


def _make_rationalization(draws: SeededRandom, level: Level) -> MathProblem:
    under = draws.one(_SQUARE_FREE)
    above = 1 + draws.below(60)
    if level == "easy":
        return _build_problem(
            _write_surd(Fraction(above, under), under), "simplified", above=above, below=f"\\sqrt{{{under}}}"
        )
    while True:
        number, factor = _draw_nonzero(draws, 9), 1 + draws.below(3 if level == "hard" else 1)
        norm = number**2 - factor**2 * under
        if norm:
            break
    one, two = Fraction(above * number, norm), Fraction(-above * factor, norm)
    shared = one.denominator * two.denominator // gcd(one.denominator, two.denominator)
    root = f"\\sqrt{{{under}}}"
    answer = _write_quotient(_write_sum([str(int(one * shared)), _write_product(int(two * shared), root)]), shared)
    return _build_problem(
        answer, "simplified", above=above, below=_write_sum([str(number), _write_product(factor, root)])
    )


def _make_radical_equation(draws: SeededRandom, level: Level) -> MathProblem:
    """The root of a linear expression equals a number."""
    factor, constant, root = (
        1 + draws.below((3, 7, 12)[_rank_level(level)]),
        _draw_nonzero(draws, 20),
        1 + draws.below(9),
    )
    value = Fraction(root**2 - constant, factor)
    return _build_problem(write_fraction(value), left=f"\\sqrt{{{_write_polynomial([constant, factor])}}}", right=root)


def _make_hypotenuse(draws: SeededRandom, level: Level) -> MathProblem:
    most = (9, 15, 30)[_rank_level(level)]
    while True:
        one, two = 1 + draws.below(most), 1 + draws.below(most)
        if _extract_square(one**2 + two**2)[1] > 1:
            return _build_problem(_write_surd(1, one**2 + two**2), one=one, two=two)


# Calculus: derivatives, definite integrals, limits.


def _draw_coefficients(draws: SeededRandom, degree: int, most: int) -> list[int]:
    lower = [draws.below(2 * most + 1) - most for _ in range(degree)]
    return [*lower, _draw_nonzero(draws, most)]


def _differentiate(coefficients: list[int]) -> list[int]:
    return [power * value for power, value in enumerate(coefficients)][1:]


def _make_derivative(draws: SeededRandom, level: Level) -> MathProblem:
    """Of a polynomial (easy), of a composed function (medium), or of a polynomial times an exponential (hard)."""
    name = draws.one("xt")
    if level == "easy":
        coefficients = _draw_coefficients(draws, 2 + draws.below(3), 9)
        return _build_problem(
            _write_polynomial(_differentiate(coefficients), name),
            variable=name,
            function=_write_polynomial(coefficients, name),
        )
    inner = 2 + draws.below(6)
    if level == "medium":
        outer, constant = _draw_nonzero(draws, 9), _draw_nonzero(draws, 9)
        kind = draws.one(("\\sin", "\\cos", "e", "\\ln"))
        angle = f"({_write_polynomial([constant, inner], name)})"
        if kind == "e":
            power = f"e^{{{_write_polynomial([constant, inner], name)}}}"
            return _build_problem(
                _write_product(outer * inner, power), variable=name, function=_write_product(outer, power)
            )
        if kind == "\\ln":
            answer = f"\\frac{{{outer * inner}}}{{{_write_polynomial([constant, inner], name)}}}"
            return _build_problem(answer, variable=name, function=_write_product(outer, kind + angle))
        turned, sign = ("\\cos", 1) if kind == "\\sin" else ("\\sin", -1)
        return _build_problem(
            _write_product(sign * outer * inner, turned + angle),
            variable=name,
            function=_write_product(outer, kind + angle),
        )
    coefficients = _draw_coefficients(draws, 1 + draws.below(2), 7)
    power = f"e^{{{_write_product(inner, name)}}}"
    factor = [inner * one + two for one, two in zip(coefficients, [*_differentiate(coefficients), 0], strict=True)]
    return _build_problem(
        f"({_write_polynomial(factor, name)}){power}",
        variable=name,
        function=f"({_write_polynomial(coefficients, name)}){power}",
    )


def _make_slope(draws: SeededRandom, level: Level) -> MathProblem:
    """The slope of a curve at a point."""
    coefficients, at = (
        _draw_coefficients(draws, _rank_level(level) + 2, 6),
        Fraction(_draw_nonzero(draws, 5), 1 + (level == "hard") * draws.below(3)),
    )
    value = sum((factor * at**power for power, factor in enumerate(_differentiate(coefficients))), Fraction(0))
    return _build_problem(write_fraction(value), function=_write_polynomial(coefficients), at=write_fraction(at))


def _make_polynomial_integral(draws: SeededRandom, level: Level) -> MathProblem:
    coefficients = _draw_coefficients(draws, _rank_level(level) + 1, 9)
    lower = draws.below(6) - 3
    upper = lower + 1 + draws.below(4)
    value = sum(
        (
            Fraction(factor * (upper ** (power + 1) - lower ** (power + 1)), power + 1)
            for power, factor in enumerate(coefficients)
        ),
        Fraction(0),
    )
    return _build_problem(write_fraction(value), lower=lower, upper=upper, function=_write_polynomial(coefficients))


def _make_exact_integral(draws: SeededRandom, level: Level) -> MathProblem:
    """An integral whose value contains a logarithm, an exponential or pi."""
    factor = 1 + draws.below((9, 15, 25)[_rank_level(level)])
    if level == "easy":
        lower = 1 + draws.below(9)
        upper = lower + 1 + draws.below(12)
        answer = _write_product(factor, f"\\ln {write_fraction(Fraction(upper, lower))}")
        return _build_problem(answer, lower=lower, upper=upper, function=f"\\frac{{{factor}}}{{x}}")
    if level == "medium":
        inner, upper = 1 + draws.below(6), 1 + draws.below(4)
        value = Fraction(factor, inner)
        power = "e" if inner * upper == 1 else f"e^{{{inner * upper}}}"
        above = _write_sum([_write_product(value.numerator, power), f"-{value.numerator}"])
        answer = _write_quotient(above, value.denominator)
        return _build_problem(
            answer, lower=0, upper=upper, function=_write_product(factor, f"e^{{{_write_product(inner, 'x')}}}")
        )
    side = 1 + draws.below(12)
    angle = draws.one((Fraction(1, 4), Fraction(1, 3), Fraction(1, 6)))
    root = {Fraction(1, 4): "", Fraction(1, 3): "\\sqrt{3}", Fraction(1, 6): "\\frac{\\sqrt{3}}{3}"}[angle]
    upper_end = {"": str(side), "\\sqrt{3}": _write_product(side, root)}.get(
        root, _write_quotient(_write_product(side, "\\sqrt{3}"), 3)
    )
    answer = _write_quotient(
        _write_product((factor * angle / side).numerator, "\\pi"), (factor * angle / side).denominator
    )
    return _build_problem(answer, lower=0, upper=upper_end, function=f"\\frac{{{factor}}}{{x^{{2}} + {side * side}}}")


def _make_limit(draws: SeededRandom, level: Level) -> MathProblem:
    """A limit where numerator and denominator are both zero; hard: with a root."""
    at = _draw_nonzero(draws, 9)
    if level == "hard":
        root, factor = 1 + draws.below(9), 1 + draws.below(9)
        above = f"\\sqrt{{{_write_polynomial([root * root, factor])}}} - {root}"
        below = 1 + draws.below(9)
        return _build_problem(
            write_fraction(Fraction(factor, 2 * root * below)), at=0, above=above, below=_write_product(below, "x")
        )
    while True:
        first, second = [_draw_nonzero(draws, 9), 1 + draws.below(4)], [_draw_nonzero(draws, 9), 1]
        bottom = second[0] + at if level == "medium" else 1
        if bottom:
            break
    top = _multiply_polynomials([-at, 1], first)
    low = _multiply_polynomials([-at, 1], second) if level == "medium" else [-at, 1]
    value = Fraction(first[0] + first[1] * at, bottom)
    return _build_problem(write_fraction(value), at=at, above=_write_polynomial(top), below=_write_polynomial(low))


# Number theory, counting, probability and sequences.


def _make_common_divisor(draws: SeededRandom, level: Level) -> MathProblem:
    shared = 2 + draws.below((12, 40, 90)[_rank_level(level)])
    numbers = [shared * (2 + draws.below((9, 20, 60)[_rank_level(level)])) for _ in range(3 if level == "hard" else 2)]
    return _build_problem(str(gcd(*numbers)), numbers=", ".join(map(str, numbers)))


def _make_common_multiple(draws: SeededRandom, level: Level) -> MathProblem:
    numbers = [2 + draws.below((19, 50, 40)[_rank_level(level)]) for _ in range(3 if level == "hard" else 2)]
    return _build_problem(str(lcm(*numbers)), numbers=", ".join(map(str, numbers)))


def _make_remainder_of_power(draws: SeededRandom, level: Level) -> MathProblem:
    base, modulus = (
        2 + draws.below((18, 30, 90)[_rank_level(level)]),
        5 + draws.below((15, 40, 120)[_rank_level(level)]),
    )
    exponent = 5 + draws.below((20, 200, 2000)[_rank_level(level)])
    return _build_problem(str(pow(base, exponent, modulus)), power=f"{base}^{{{exponent}}}", modulus=modulus)


def _make_inverse(draws: SeededRandom, level: Level) -> MathProblem:
    modulus = (7, 20, 90)[_rank_level(level)] + draws.below((20, 70, 300)[_rank_level(level)])
    while True:
        number = 2 + draws.below(modulus - 2)
        if gcd(number, modulus) == 1:
            return _build_problem(str(pow(number, -1, modulus)), number=number, modulus=modulus)


def _make_divisors(draws: SeededRandom, level: Level) -> MathProblem:
    primes = draws.some((2, 3, 5, 7, 11, 13, 17, 19), _rank_level(level) + 2)
    powers = [1 + draws.below(3) for _ in primes]
    number, count, total = 1, 1, 1
    for prime, power in zip(primes, powers, strict=True):
        number, count = number * prime**power, count * (power + 1)
        total *= (prime ** (power + 1) - 1) // (prime - 1)
    summed = draws.chance(40)
    what = "sum of all positive divisors" if summed else "number of positive divisors"
    return _build_problem(str(total if summed else count), what=what, number=number)


def _make_common_remainders(draws: SeededRandom, level: Level) -> MathProblem:
    moduli = draws.some(
        ((3, 4, 5, 7), (5, 7, 8, 9, 11), (7, 8, 9, 11, 13))[_rank_level(level)], 3 if level == "hard" else 2
    )
    number = 1 + draws.below(lcm(*moduli) - 1)
    facts = ", ".join(f"{number % modulus} when it is divided by {modulus}" for modulus in moduli)
    return _build_problem(str(number), facts=facts)


def _make_committee(draws: SeededRandom, level: Level) -> MathProblem:
    """Ways to choose people from two groups; hard: with a minimum from the first group."""
    one, two = 4 + draws.below((5, 8, 12)[_rank_level(level)]), 4 + draws.below((5, 8, 12)[_rank_level(level)])
    first, second = 1 + draws.below(3), 1 + draws.below(3)
    ways = comb(one, first) * comb(two, second)
    rule = f"{first} of the first group and {second} of the second"
    if level == "hard":
        chosen = first + second
        ways = sum(comb(one, some) * comb(two, chosen - some) for some in range(first, chosen + 1))
        rule = f"{chosen} people, at least {first} of them from the first group"
    return _build_problem(str(ways), one=one, two=two, rule=rule)


def _make_arrangements(draws: SeededRandom, level: Level) -> MathProblem:
    letters = draws.some("ABCDEFGH", 3 + _rank_level(level))
    repeated = [1 + draws.below(3) for _ in letters]
    word = "".join(sorted(letter * often for letter, often in zip(letters, repeated, strict=True)))
    ways = factorial(len(word))
    for often in repeated:
        ways //= factorial(often)
    return _build_problem(str(ways), word=word)


def _make_ranking(draws: SeededRandom, level: Level) -> MathProblem:
    people, places = 5 + draws.below((30, 60, 90)[_rank_level(level)]), 2 + draws.below(_rank_level(level) + 2)
    return _build_problem(str(perm(people, places)), people=people, places=places)


def _make_drawn_balls(draws: SeededRandom, level: Level) -> MathProblem:
    """The probability of given colours when drawing without replacement."""
    red, blue = 2 + draws.below((9, 12, 15)[_rank_level(level)]), 2 + draws.below((9, 12, 15)[_rank_level(level)])
    count = _rank_level(level) + 2
    some = draws.below(min(count, red) + 1)
    some = max(some, count - blue)
    chance = Fraction(comb(red, some) * comb(blue, count - some), comb(red + blue, count))
    return _build_problem(write_fraction(chance), red=red, blue=blue, count=count, some=some)


def _make_dice(draws: SeededRandom, level: Level) -> MathProblem:
    sides, count = 4 + draws.below((12, 20, 12)[_rank_level(level)]), 2 + (level == "hard")
    ways = [1]
    for _ in range(count):
        ways = [sum(ways[max(0, at - sides + 1) : at + 1]) for at in range(len(ways) + sides - 1)]
    totals = [offset + count for offset in range(len(ways))]
    total = draws.one(totals)
    above = level != "easy" and draws.chance(50) and total < totals[-1]
    good = sum(ways[total - count :]) if above else ways[total - count]
    event = f"at least {total}" if above else f"exactly {total}"
    return _build_problem(write_fraction(Fraction(good, sides**count)), sides=sides, count=count, said=event)


def _make_arithmetic_series(draws: SeededRandom, level: Level) -> MathProblem:
    first, step = draws.below(40) - 15, (1 + draws.below(12)) * draws.one((1, -1))
    count = (8, 20, 60)[_rank_level(level)] + draws.below(30)
    shown = ", ".join(str(first + step * index) for index in range(3))
    return _build_problem(str(count * (2 * first + (count - 1) * step) // 2), shown=shown, count=count)


def _make_geometric_series(draws: SeededRandom, level: Level) -> MathProblem:
    """The sum of the first terms (easy) or of an infinite series."""
    first = 1 + draws.below(30)
    if level == "easy":
        ratio, count = draws.one((2, 3, -2, 4)), 4 + draws.below(4)
        total = Fraction(first * (ratio**count - 1), ratio - 1)
        shown = ", ".join(str(first * ratio**index) for index in range(3))
        return _build_problem(write_fraction(total), shown=shown, count=f"first {count} terms")
    below = 2 + draws.below(6 + 3 * _rank_level(level))
    above = (1 + draws.below(below - 1)) * (1 if level == "medium" else draws.one((1, -1)))
    terms = [Fraction(first) * Fraction(above, below) ** index for index in range(3)]
    shown = ", ".join(write_fraction(term) for term in terms)
    return _build_problem(
        write_fraction(first / (1 - Fraction(above, below))), shown=shown, count="infinitely many terms"
    )


def _make_general_term(draws: SeededRandom, level: Level) -> MathProblem:
    """A formula in n, linear (easy) or quadratic."""
    first, step = draws.below(30) - 10, (1 + draws.below(9)) * draws.one((1, -1))
    bend = 0 if level == "easy" else 1 + draws.below(2 * _rank_level(level))
    terms = [bend * n * n + step * n + first for n in range(1, 6)]
    square = "" if not bend else "n^{2}" if bend == 1 else f"{bend}n^{{2}}"
    parts = [square, f"{step}n" if abs(step) > 1 else ("n" if step > 0 else "-n"), str(first) if first else ""]
    answer = " + ".join(part for part in parts if part).replace("+ -", "- ")
    return _build_problem(answer, shown=", ".join(map(str, terms)))


# Geometry and trigonometry: lengths, areas and volumes with roots and pi, exact values of functions.

_Surd = tuple[int, int, int]
"""Numerator, number under the root, denominator."""

_SINES: Final[dict[int, _Surd]] = {0: (0, 1, 1), 30: (1, 1, 2), 45: (1, 2, 2), 60: (1, 3, 2), 90: (1, 1, 1)}
_TANGENTS: Final[dict[int, _Surd]] = {0: (0, 1, 1), 30: (1, 3, 3), 45: (1, 1, 1), 60: (1, 3, 1)}


def _make_distance(draws: SeededRandom, level: Level) -> MathProblem:
    most = (6, 9, 12)[_rank_level(level)]
    while True:
        count = 3 if level == "hard" else 2
        one, two = ([draws.below(2 * most + 1) - most for _ in range(count)] for _ in range(2))
        squared = sum((first - second) ** 2 for first, second in zip(one, two, strict=True))
        if squared and _extract_square(squared)[1] > 1:
            points = [f"({', '.join(map(str, point))})" for point in (one, two)]
            return _build_problem(_write_surd(1, squared), "simplified", one=points[0], two=points[1])


def _make_circle(draws: SeededRandom, level: Level) -> MathProblem:
    """Area from circumference or the reverse; hard: the area of a sector."""
    radius = Fraction(2 + draws.below((90, 40, 60)[_rank_level(level)]), 1 if level == "easy" else 1 + draws.below(3))
    if level == "hard":
        angle = draws.one((20, 30, 36, 40, 45, 60, 72, 80, 108, 120, 135, 150, 240, 300))
        figure = f"a sector with radius ${write_fraction(radius)}$ and a central angle of ${angle}^\\circ$"
        return _build_problem(_write_pi_multiple(radius**2 * Fraction(angle, 360)), what="area", figure=figure)
    if draws.chance(50):
        figure = f"a circle whose circumference is ${_write_pi_multiple(2 * radius)}$"
        return _build_problem(_write_pi_multiple(radius**2), what="area", figure=figure)
    figure = f"a circle whose area is ${_write_pi_multiple(radius**2)}$"
    return _build_problem(_write_pi_multiple(2 * radius), what="circumference", figure=figure)


def _make_solid(draws: SeededRandom, level: Level) -> MathProblem:
    radius, height = 1 + draws.below((9, 15, 25)[_rank_level(level)]), 1 + draws.below((12, 20, 30)[_rank_level(level)])
    if level == "hard":
        cone = _write_pi_multiple(Fraction(radius**2 * height, 3) + Fraction(2 * radius**3, 3))
        what = f"a cone with height ${height}$ standing on a half-ball; both have radius ${radius}$"
        return _build_problem(cone, what=what)
    kind = draws.one(("cylinder", "cone", "sphere"))
    sizes = f"radius ${radius}$" if kind == "sphere" else f"radius ${radius}$ and height ${height}$"
    volume = {"cylinder": Fraction(3), "cone": Fraction(1), "sphere": Fraction(4 * radius, height)}[kind] / 3
    return _build_problem(_write_pi_multiple(volume * radius**2 * height), what=f"a {kind} with {sizes}")


def _make_triangle_area(draws: SeededRandom, level: Level) -> MathProblem:
    """The area of a triangle from two sides and the angle between them."""
    one, two = 2 + draws.below((12, 25, 40)[_rank_level(level)]), 2 + draws.below((12, 25, 40)[_rank_level(level)])
    angle = draws.one((45, 60, 120, 135) if level != "easy" else (45, 60))
    above, root, below = _SINES[min(angle, 180 - angle)]
    return _build_problem(_write_surd(Fraction(one * two * above, 2 * below), root), one=one, two=two, angle=angle)


def _make_trigonometric_sum(draws: SeededRandom, level: Level) -> MathProblem:
    """A sum of values of which at least one is irrational, so the answer has a root."""
    while True:
        terms, value = list[str](), dict[int, Fraction]()
        for _ in range(_rank_level(level) + 1):
            name = draws.one(("sin", "cos", "tan"))
            angle, factor = draws.one(range(0, 360, 15)), 1 + draws.below(9)
            exact = _find_exact_value(name, angle)
            if exact is None:
                continue
            above, root, below = exact
            value[root] = value.get(root, Fraction(0)) + Fraction(factor * above, below)
            angle_text = f"{angle}^\\circ" if draws.chance(50) else _write_pi_multiple(Fraction(angle, 180))
            terms.append(_write_product(factor, f"\\{name} {angle_text}"))
        parts = [(root, factor) for root, factor in sorted(value.items()) if factor]
        if len(terms) == _rank_level(level) + 1 and any(root > 1 for root, _ in parts):
            return _build_problem(
                _write_sum([_write_surd(factor, root) for root, factor in parts]), expression=_write_sum(terms)
            )


def _find_exact_value(name: str, angle: int) -> _Surd | None:
    """The exact value for degrees in [0, 360); None for angles without a known one."""
    if name == "cos":
        name, angle = "sin", (angle + 90) % 360
    if name == "sin":
        half = angle % 180
        table, sign = _SINES.get(min(half, 180 - half)), 1 if angle < 180 else -1
    else:
        half = angle % 180
        table, sign = _TANGENTS.get(min(half, 180 - half)), 1 if half < 90 else -1
    return None if table is None else (sign * table[0], table[1], table[2])


def _make_other_function(draws: SeededRandom, level: Level) -> MathProblem:
    """The sine of an angle, or of its double, from its cosine; the answer has a root."""
    while True:
        above, below = (
            1 + draws.below((12, 16, 20)[_rank_level(level)]),
            2 + draws.below((14, 20, 25)[_rank_level(level)]),
        )
        if above < below and gcd(above, below) == 1 and _extract_square(below**2 - above**2)[1] > 1:
            break
    obtuse = level != "easy" and draws.chance(50)
    where = "obtuse" if obtuse else "acute"
    cosine = write_fraction(Fraction(-above if obtuse else above, below))
    if level == "hard":
        factor = Fraction(2 * above * (-1 if obtuse else 1), below**2)
        return _build_problem(
            _write_surd(factor, below**2 - above**2), given=cosine, where=where, wanted="\\sin 2\\theta"
        )
    return _build_problem(
        _write_surd(Fraction(1, below), below**2 - above**2), given=cosine, where=where, wanted="\\sin\\theta"
    )


def _make_cosine_rule(draws: SeededRandom, level: Level) -> MathProblem:
    while True:
        one, two = 2 + draws.below((9, 15, 25)[_rank_level(level)]), 2 + draws.below((9, 15, 25)[_rank_level(level)])
        angle = draws.one((60, 120))
        squared = one**2 + two**2 + (one * two if angle == 120 else -one * two)
        if _extract_square(squared)[1] > 1:
            return _build_problem(_write_surd(1, squared), one=one, two=two, angle=angle)


def _make_absolute_value(draws: SeededRandom, level: Level) -> MathProblem:
    """The absolute value of a complex number."""
    most = (9, 15, 30)[_rank_level(level)]
    while True:
        real, imaginary = _draw_nonzero(draws, most), _draw_nonzero(draws, most)
        if _extract_square(real**2 + imaginary**2)[1] > 1:
            number = _write_sum([str(real), _write_product(imaginary, "i")])
            return _build_problem(_write_surd(1, real**2 + imaginary**2), "simplified", number=number)


def _make_polygon(draws: SeededRandom, level: Level) -> MathProblem:
    """The area of an equilateral triangle or a regular hexagon, or a side from the area of the triangle."""
    side = Fraction(2 + draws.below((60, 30, 50)[_rank_level(level)]), 1 if level == "easy" else 1 + draws.below(3))
    if level == "hard":
        under = draws.one(_SQUARE_FREE)
        side_text = _write_quotient(_write_product(side.numerator, f"\\sqrt{{{under}}}"), side.denominator)
        return _build_problem(
            _write_surd(side**2 * under * Fraction(3, 2), 3), what="a regular hexagon", side=side_text
        )
    factor, what = draws.one(((Fraction(1, 4), "an equilateral triangle"), (Fraction(3, 2), "a regular hexagon")))
    return _build_problem(_write_surd(side**2 * factor, 3), what=what, side=write_fraction(side))


# Complex numbers, matrices, inequalities, sets.

_Matrix = Sequence[Sequence[int]]


def _write_complex(real: Fraction | int, imaginary: Fraction | int) -> str:
    parts = [write_fraction(real)] if real else []
    return _write_sum([*parts, _write_product(imaginary, "i")] if imaginary else parts)


def _make_complex_product(draws: SeededRandom, level: Level) -> MathProblem:
    most = (5, 9, 9)[_rank_level(level)]
    factors = [(_draw_nonzero(draws, most), _draw_nonzero(draws, most)) for _ in range(3 if level == "hard" else 2)]
    real, imaginary = 1, 0
    for one, two in factors:
        real, imaginary = real * one - imaginary * two, real * two + imaginary * one
    expression = "".join(f"({_write_complex(one, two)})" for one, two in factors)
    return _build_problem(_write_complex(real, imaginary), "expanded", expression=expression)


def _make_complex_quotient(draws: SeededRandom, level: Level) -> MathProblem:
    most = (4, 7, 12)[_rank_level(level)]
    one, two, three, four = (_draw_nonzero(draws, most) for _ in range(4))
    norm = three**2 + four**2
    answer = _write_complex(Fraction(one * three + two * four, norm), Fraction(two * three - one * four, norm))
    return _build_problem(answer, "expanded", above=_write_complex(one, two), below=_write_complex(three, four))


def _draw_matrix(draws: SeededRandom, rows: int, columns: int, most: int) -> list[list[int]]:
    return [[draws.below(2 * most + 1) - most for _ in range(columns)] for _ in range(rows)]


def _write_matrix(matrix: _Matrix) -> str:
    rows = " \\\\ ".join(" & ".join(map(str, row)) for row in matrix)
    return f"\\begin{{pmatrix}} {rows} \\end{{pmatrix}}"


def _make_determinant(draws: SeededRandom, level: Level) -> MathProblem:
    matrix = _draw_matrix(draws, *((2, 2, 12), (3, 3, 5), (3, 3, 12))[_rank_level(level)])
    return _build_problem(str(_compute_determinant(matrix)), matrix=_write_matrix(matrix))


def _compute_determinant(matrix: _Matrix) -> int:
    if len(matrix) == 1:
        return matrix[0][0]
    minors = ([row[:column] + row[column + 1 :] for row in map(list, matrix[1:])] for column in range(len(matrix)))
    return sum((-1) ** column * matrix[0][column] * _compute_determinant(minor) for column, minor in enumerate(minors))


def _make_matrix_product(draws: SeededRandom, level: Level) -> MathProblem:
    rows, inner, columns, most = ((2, 2, 2, 5), (2, 3, 2, 6), (3, 3, 2, 7))[_rank_level(level)]
    one, two = _draw_matrix(draws, rows, inner, most), _draw_matrix(draws, inner, columns, most)
    product = [
        [sum(a * b for a, b in zip(row, column, strict=True)) for column in zip(*two, strict=True)] for row in one
    ]
    return _build_problem(_write_matrix(product), shape="matrix", one=_write_matrix(one), two=_write_matrix(two))


def _make_linear_inequality(draws: SeededRandom, level: Level) -> MathProblem:
    most = (9, 12, 20)[_rank_level(level)]
    factor, constant, right = _draw_nonzero(draws, most), _draw_nonzero(draws, most), _draw_nonzero(draws, 2 * most)
    sign = draws.one(("<", ">", "\\le", "\\ge"))
    bound = Fraction(right - constant, factor)
    below = (sign in ("<", "\\le")) == (factor > 0)
    closed = sign in ("\\le", "\\ge")
    if level == "hard":
        second = factor + _draw_nonzero(draws, 5)
        left, other = _write_polynomial([constant, second]), _write_polynomial([right, second - factor])
    else:
        left, other = _write_polynomial([constant, factor]), str(right)
    end = write_fraction(bound)
    answer = f"(-\\infty, {end}{']' if closed else ')'}" if below else f"{'[' if closed else '('}{end}, \\infty)"
    return _build_problem(answer, shape="intervals", inequality=f"{left} {sign} {other}")


def _make_quadratic_inequality(draws: SeededRandom, level: Level) -> MathProblem:
    lead = 1 if level == "easy" else 1 + draws.below(2 * _rank_level(level) + 1)
    while True:
        first, second = Fraction(_draw_nonzero(draws, 9), lead), Fraction(_draw_nonzero(draws, 9))
        if first != second:
            break
    lower, upper = sorted((first, second))
    polynomial = _write_polynomial(
        _multiply_polynomials([-first.numerator * (lead // first.denominator), lead], [-second.numerator, 1])
    )
    sign = draws.one(("<", ">", "\\le", "\\ge"))
    one, two = write_fraction(lower), write_fraction(upper)
    answer = {
        "<": f"({one}, {two})",
        "\\le": f"[{one}, {two}]",
        ">": f"(-\\infty, {one}) \\cup ({two}, \\infty)",
        "\\ge": f"(-\\infty, {one}] \\cup [{two}, \\infty)",
    }[sign]
    return _build_problem(answer, shape="intervals", inequality=f"{polynomial} {sign} 0")


def _make_absolute_inequality(draws: SeededRandom, level: Level) -> MathProblem:
    factor = 1 + draws.below((1, 4, 9)[_rank_level(level)])
    constant, right = _draw_nonzero(draws, 15), 1 + draws.below(20)
    lower, upper = (
        write_fraction(Fraction(-right - constant, factor)),
        write_fraction(Fraction(right - constant, factor)),
    )
    sign = draws.one(("<", ">", "\\le", "\\ge"))
    answer = {
        "<": f"({lower}, {upper})",
        "\\le": f"[{lower}, {upper}]",
        ">": f"(-\\infty, {lower}) \\cup ({upper}, \\infty)",
        "\\ge": f"(-\\infty, {lower}] \\cup [{upper}, \\infty)",
    }[sign]
    return _build_problem(
        answer, shape="intervals", inequality=f"\\left|{_write_polynomial([constant, factor])}\\right| {sign} {right}"
    )


def _make_set_operation(draws: SeededRandom, level: Level) -> MathProblem:
    count = 4 + 2 * _rank_level(level)
    sign = draws.one(("\\cup", "\\cap", "\\setminus"))
    while True:
        one, two = (set(draws.some(range(1, 3 * count), count + draws.below(3))) for _ in range(2))
        result = {"\\cup": one | two, "\\cap": one & two, "\\setminus": one - two}[sign]
        if len(result) > 1 and result not in (one, two):
            sets = [f"\\{{{', '.join(map(str, sorted(numbers)))}\\}}" for numbers in (result, one, two)]
            return _build_problem(sets[0], shape="set", one=sets[1], two=sets[2], operation=f"A {sign} B")


# All families by name.

Topic = Literal[
    "algebra",
    "number_theory",
    "counting",
    "sequences",
    "geometry",
    "trigonometry",
    "calculus",
    "complex_numbers",
    "matrices",
    "inequalities",
    "sets",
]


class ProblemFamily(NamedTuple):
    topic: Topic
    make: Callable[[SeededRandom, Level], MathProblem]


FAMILIES: Final[Mapping[str, ProblemFamily]] = {
    "fractions": ProblemFamily("algebra", _make_fractions),
    "linear_equation": ProblemFamily("algebra", _make_linear_equation),
    "quadratic_equation": ProblemFamily("algebra", _make_quadratic_equation),
    "linear_system": ProblemFamily("algebra", _make_linear_system),
    "expand": ProblemFamily("algebra", _make_expansion),
    "factor": ProblemFamily("algebra", _make_factorisation),
    "rational_expression": ProblemFamily("algebra", _make_rational_expression),
    "surds": ProblemFamily("algebra", _make_surds),
    "rationalized": ProblemFamily("algebra", _make_rationalization),
    "radical_equation": ProblemFamily("algebra", _make_radical_equation),
    "common_divisor": ProblemFamily("number_theory", _make_common_divisor),
    "common_multiple": ProblemFamily("number_theory", _make_common_multiple),
    "remainder_of_power": ProblemFamily("number_theory", _make_remainder_of_power),
    "inverse": ProblemFamily("number_theory", _make_inverse),
    "divisors": ProblemFamily("number_theory", _make_divisors),
    "common_remainders": ProblemFamily("number_theory", _make_common_remainders),
    "committee": ProblemFamily("counting", _make_committee),
    "arrangements": ProblemFamily("counting", _make_arrangements),
    "ranked": ProblemFamily("counting", _make_ranking),
    "drawn_balls": ProblemFamily("counting", _make_drawn_balls),
    "dice": ProblemFamily("counting", _make_dice),
    "arithmetic_series": ProblemFamily("sequences", _make_arithmetic_series),
    "geometric_series": ProblemFamily("sequences", _make_geometric_series),
    "general_term": ProblemFamily("sequences", _make_general_term),
    "distance": ProblemFamily("geometry", _make_distance),
    "circle": ProblemFamily("geometry", _make_circle),
    "solid": ProblemFamily("geometry", _make_solid),
    "hypotenuse": ProblemFamily("geometry", _make_hypotenuse),
    "polygon": ProblemFamily("geometry", _make_polygon),
    "triangle_area": ProblemFamily("trigonometry", _make_triangle_area),
    "cosine_rule": ProblemFamily("trigonometry", _make_cosine_rule),
    "trigonometric_sum": ProblemFamily("trigonometry", _make_trigonometric_sum),
    "other_function": ProblemFamily("trigonometry", _make_other_function),
    "derivative": ProblemFamily("calculus", _make_derivative),
    "slope": ProblemFamily("calculus", _make_slope),
    "polynomial_integral": ProblemFamily("calculus", _make_polynomial_integral),
    "exact_integral": ProblemFamily("calculus", _make_exact_integral),
    "limit": ProblemFamily("calculus", _make_limit),
    "complex_product": ProblemFamily("complex_numbers", _make_complex_product),
    "complex_quotient": ProblemFamily("complex_numbers", _make_complex_quotient),
    "absolute_value": ProblemFamily("complex_numbers", _make_absolute_value),
    "determinant": ProblemFamily("matrices", _make_determinant),
    "matrix_product": ProblemFamily("matrices", _make_matrix_product),
    "linear_inequality": ProblemFamily("inequalities", _make_linear_inequality),
    "quadratic_inequality": ProblemFamily("inequalities", _make_quadratic_inequality),
    "absolute_inequality": ProblemFamily("inequalities", _make_absolute_inequality),
    "set_operation": ProblemFamily("sets", _make_set_operation),
}
