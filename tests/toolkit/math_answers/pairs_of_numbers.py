"""Pairs of numbers: fractions, decimals, bases, powers, roots, logarithms, angles, complex ones. `pairs` says what a
kind is."""

from fractions import Fraction
from math import comb, factorial, gcd
from random import Random
from typing import Final

from tests.toolkit.math_answers.pairs import PRIMES, Question, ask, draw_nonzero, draw_other, write_fraction


def _draw_fraction(draws: Random, most: int = 30) -> tuple[int, int]:
    """In lowest terms, neither whole nor the inverse of a whole number."""
    while True:
        top, bottom = draw_nonzero(draws, most), draws.randint(2, most)
        if gcd(top, bottom) == 1 and abs(top) > 1:
            return top, bottom


# Rational numbers


def whole_numbers(draws: Random) -> Question:
    number = draw_nonzero(draws, 9_999)
    return ask(
        lambda one: [
            *(f"{one}", f"{one}.0", f"{one}.00", f"x = {one}", f" {one} ", f"{{{one}}}", f"\\left({one}\\right)"),
        ],
        (number,),
        (-number,),
        (number + 1,),
        (number * 10,),
        problem="Find the value of $x$.",
    )


def fractions(draws: Random) -> Question:
    top, bottom = _draw_fraction(draws)
    times = draws.randint(2, 9)

    def write(one: int, other: int) -> list[str]:
        return [
            *(write_fraction(Fraction(one, other)), f"{one}/{other}", f"\\frac{{{one}}}{{{other}}}"),
            *(f"\\frac{{{times * one}}}{{{times * other}}}", f"-\\frac{{{-one}}}{{{other}}}"),
            *(f"\\frac{{{-one}}}{{{-other}}}", f"\\left(\\frac{{{one}}}{{{other}}}\\right)"),
        ]

    return ask(write, (top, bottom), (bottom, top), (-top, bottom), (top, bottom + 1), (top + bottom, bottom))


def fraction_commands(draws: Random) -> Question:
    top, bottom, digit = draws.sample(range(1, 10), 3)

    def write(one: int, other: int) -> list[str]:
        return [
            *(f"\\frac{{{one}}}{{{other}}}", f"\\dfrac{{{one}}}{{{other}}}", f"\\tfrac{{{one}}}{{{other}}}"),
            *(f"\\cfrac{{{one}}}{{{other}}}", f"\\frac{one}{other}", f"\\frac {one} {other}", f"\\dfrac{one}{other}"),
            *(f"{{{one} \\over {other}}}", f"\\displaystyle\\frac{{{one}}}{{{other}}}"),
        ]

    return ask(write, (top, bottom), (bottom, top), (top, digit), (digit, bottom))


def decimals(draws: Random) -> Question:
    places = draws.randint(1, 4)
    digits = draw_nonzero(draws, 10**places * 3)
    value = Fraction(digits, 10**places)

    def write(one: Fraction) -> list[str]:
        text = f"{float(one):.4f}".rstrip("0").rstrip(".")
        return [
            *(text, write_fraction(one), f"{float(one):.5f}"),
            text.replace("0.", ".", 1) if abs(one) < 1 else text + "0" * ("." in text),
            f"{one.numerator}/{one.denominator}",
        ]

    return ask(write, (value,), (-value,), (value * 10,), (value + Fraction(1, 10**places),))


def fractions_as_decimals(draws: Random) -> Question:
    """The right answer is the fraction. Wrong is what is only near."""
    bottom = draws.choice([8, 16, 40, 80, 125])
    top = draws.choice([number for number in range(1, 3 * bottom) if gcd(number, bottom) == 1])
    exact = f"{top / bottom}"
    near = f"{top / bottom:.2f}"
    return Question(
        f"\\frac{{{top}}}{{{bottom}}}",
        (exact, exact + "0", f"x = {exact}", f"\\text{{{exact}}}"),
        (near, exact + "1", f"-{exact}", exact[:-1]),
    )


def percentages(draws: Random) -> Question:
    value = Fraction(draws.randint(1, 399), draws.choice([1, 1, 2, 4]))

    def write(one: Fraction) -> list[str]:
        text = f"{float(one):g}"
        return [f"{text}\\%", f"{text}%", f"{text} \\%", text, f"{text}\\text{{ percent}}", f"{text} percent"]

    return ask(write, (value,), (value + 1,), (value * 10,), (-value,), problem="What percent of the beads is red?")


def shares_as_percentages(draws: Random) -> Question:
    hundredths = draws.choice([number for number in range(1, 100) if number % 10])

    def write(one: int) -> list[str]:
        value = Fraction(one, 100)
        return [write_fraction(value), f"{one}\\%", f"{one}%", f"{one / 100}", f"{one}\\text{{ percent}}"]

    return ask(write, (hundredths,), (100 - hundredths,), (hundredths + 1,), problem="What part of it is red?")


def scientific_notation(draws: Random) -> Question:
    digits, power = draws.randint(101, 999), draw_nonzero(draws, 12)

    def write(mantissa: int, exponent: int) -> list[str]:
        text = f"{mantissa / 100:g}"
        return [
            *(f"{text} \\times 10^{{{exponent}}}", f"{text}\\cdot 10^{{{exponent}}}", f"{text}e{exponent}"),
            *(f"{text}E{exponent}", f"{mantissa} \\times 10^{{{exponent - 2}}}", f"{text} * 10^{{{exponent}}}"),
        ]

    return ask(write, (digits, power), (digits, -power), (digits, power + 1), (digits + 1, power))


def small_decimals(draws: Random) -> Question:
    digits, power = draws.choice([1, 1, 2, 3, 5, 7, 12, 985]), draws.randint(2, 6)

    def write(number: int, exponent: int) -> list[str]:
        text = f"{Fraction(number, 10**exponent).__float__():.12f}".rstrip("0")
        lead = "" if number == 1 else f"{number} \\times "
        return [
            *(text, f"{lead}10^{{-{exponent}}}", f"{number}e-{exponent}", text[1:] if text.startswith("0.") else text),
            f"\\frac{{{number}}}{{{10**exponent}}}",
            f"\\frac{{{number}}}{{10^{{{exponent}}}}}" if number > 1 else f"\\frac{{1}}{{10^{exponent}}}",
        ]

    return ask(write, (digits, power), (digits, power + 1), (digits, power - 1), (digits + 1, power))


def mixed_numbers(draws: Random) -> Question:
    whole, bottom = draws.randint(1, 20), draws.choice([2, 4, 5, 8])
    top = draws.choice([number for number in range(1, bottom) if gcd(number, bottom) == 1])

    def write(units: int, part: int, parts: int) -> list[str]:
        return [
            *(f"{units}\\frac{{{part}}}{{{parts}}}", f"\\frac{{{units * parts + part}}}{{{parts}}}"),
            *(f"{units} \\frac{{{part}}}{{{parts}}}", f"{units + part / parts:g}", f"{units}\\frac{part}{parts}"),
            *(f"{units}\\tfrac{{{part}}}{{{parts}}}", f"{units * parts + part}/{parts}"),
        ]

    asked = ask(write, (whole, top, bottom), (whole + 1, top, bottom), (whole, top, bottom + 1))
    product = write_fraction(Fraction(whole * top, bottom))
    return Question(asked.gold, asked.equal, (*asked.unequal, product, f"-{asked.gold}"))


def repeating_decimals(draws: Random) -> Question:
    lead, period = draws.choice(["", "", "1", "0", "08"]), draws.choice(["3", "6", "27", "142857", "45", "09", "12"])

    def write(before: str, repeated: str, whole: int) -> list[str]:
        nines = 10 ** len(repeated) - 1
        value = whole + (Fraction(int(before or "0")) + Fraction(int(repeated), nines)) / 10 ** len(before)
        return [
            *(f"{whole}.{before}\\overline{{{repeated}}}", write_fraction(value)),
            *(f"{value.numerator}/{value.denominator}", f"{whole}.{before}{repeated}\\overline{{{repeated}}}"),
            f"{whole}.{before}\\overline{{{repeated * 2}}}",
        ]

    whole = draws.randint(0, 3)
    asked = ask(write, (lead, period, whole), (lead + "0", period, whole), (lead, period, whole + 1))
    cut = f"{whole}.{lead}{period}"
    return Question(asked.gold, asked.equal, (*asked.unequal, cut, cut + period[0]))


def thousands_separators(draws: Random) -> Question:
    number = draws.randint(1_000, 9_999_999)

    def write(one: int) -> list[str]:
        text = f"{one:,}"
        return [
            *(f"{one}", text, text.replace(",", "{,}"), text.replace(",", ",\\!"), text.replace(",", "\\,")),
            *(text.replace(",", "{\\,}"), text.replace(",", "\\;")),
        ]

    asked = ask(
        write, (number,), (number + 1,), (number * 10,), (number - 1_000 if number > 2_000 else number + 1_000,)
    )
    return Question(asked.gold, asked.equal, (*asked.unequal, f"{number / 1_000}", f"{number // 1_000}"))


def thousands_separators_of_the_right_answer(draws: Random) -> Question:
    asked = thousands_separators(draws)
    gold = f"{int(asked.gold):,}".replace(",", draws.choice([",", "{,}", ",\\!"]))
    return Question(gold, (asked.gold, *asked.equal), asked.unequal)


def other_bases(draws: Random) -> Question:
    base = draws.choice([2, 3, 5, 6, 8])
    number = draws.randint(base**2, base**4)
    words = {2: "two", 3: "three", 5: "five", 6: "six", 8: "eight", 4: "four", 7: "seven", 9: "nine"}

    def write(one: int, written_base: int) -> list[str]:
        digits, left = "", one
        while left:
            digits, left = f"{left % base}{digits}", left // base
        return [
            *(f"{digits}_{written_base}", f"{digits}_{{{written_base}}}"),
            *(f"{digits}_{{\\text{{{words[written_base]}}}}}", f"({digits})_{{{written_base}}}"),
            f"\\text{{{digits}}}_{{{written_base}}}",
        ]

    return ask(write, (number, base), (number + 1, base), (number, base + 1), problem=f"Write it in base ${base}$.")


def big_powers(draws: Random) -> Question:
    """The largest have more than 4,300 digits, which Python reads no integer of by itself."""
    base, power = draws.choice([2, 3, 5, 6, 7, 10]), draws.choice([draws.randint(20, 400), draws.randint(4_000, 6_000)])

    def write(one: int, exponent: int) -> list[str]:
        return [
            *(f"{one}^{{{2 * exponent}}}", f"{one * one}^{{{exponent}}}", f"({one}^{{2}})^{{{exponent}}}"),
            *(f"{one} \\cdot {one}^{{{2 * exponent - 1}}}", f"\\left({one}^{{{exponent}}}\\right)^2"),
        ]

    return ask(write, (base, power), (base + 1, power), (base, power + 1), (base, -power))


def inverses_of_big_powers(draws: Random) -> Question:
    base, power, top = draws.choice([2, 3, 5, 7]), draws.randint(20, 200), draws.choice([1, 1, 11, 13])

    def write(number: int, one: int, exponent: int) -> list[str]:
        lead = "" if number == 1 else f"{number} \\cdot "
        return [
            *(f"\\frac{{{number}}}{{{one}^{{{exponent}}}}}", f"{lead}{one}^{{-{exponent}}}"),
            *(f"{lead}\\left(\\frac{{1}}{{{one}}}\\right)^{{{exponent}}}", f"{number}/{one}^{{{exponent}}}"),
            f"\\dfrac{{{number}}}{{{one}^{{{exponent}}}}}",
        ]

    return ask(write, (top, base, power), (top, base + 1, power), (top, base, power + 1), (top + 1, base, power))


def factorials(draws: Random) -> Question:
    number, less = draws.randint(9, 60), draws.randint(2, 5)

    def write(one: int, other: int) -> list[str]:
        return [
            *(f"\\frac{{{one}!}}{{{other}!}}", f"{one}!/{other}!", f"\\dfrac{{{one}!}}{{{factorial(other)}}}"),
            *(f"\\frac{{{one} \\cdot {one - 1}!}}{{{other}!}}", f"\\frac{{1}}{{{other}!}} \\cdot {one}!"),
        ]

    return ask(write, (number, less), (number + 1, less), (number, less + 1), (number - 1, less))


def binomials(draws: Random) -> Question:
    of = draws.randint(6, 30)
    chosen = draws.randint(2, (of - 1) // 2)

    def write(one: int, other: int) -> list[str]:
        return [
            *(f"\\binom{{{one}}}{{{other}}}", f"\\dbinom{{{one}}}{{{other}}}", f"\\binom{{{one}}}{{{one - other}}}"),
            *(f"{{{one} \\choose {other}}}", f"{comb(one, other)}"),
            f"\\frac{{{one}!}}{{{other}! \\cdot {one - other}!}}",
        ]

    return ask(write, (of, chosen), (of, chosen - 1), (of + 1, chosen))


# Numbers with roots, logarithms and constants


def square_roots(draws: Random) -> Question:
    times, root = draws.randint(2, 15), draws.choice([*PRIMES, 6, 10, 15, 21])

    def write(one: int, other: int) -> list[str]:
        return [
            *(f"{one}\\sqrt{{{other}}}", f"\\sqrt{{{one * one * other}}}", f"\\sqrt{{{other}}} \\cdot {one}"),
            *(f"{one} \\cdot {other}^{{1/2}}", f"{one} \\cdot {other}^{{\\frac{{1}}{{2}}}}"),
            f"{one} \\sqrt {{{other}}}",
        ]

    return ask(write, (times, root), (times + 1, root), (times, root + 1))


def short_roots(draws: Random) -> Question:
    """A root of one digit needs no braces; some write brackets."""
    times, root = draws.randint(2, 9), draws.choice([2, 3, 5, 7])

    def write(one: int, other: int) -> list[str]:
        return [
            *(f"{one}\\sqrt{{{other}}}", f"{one}\\sqrt{other}", f"{one}\\sqrt {other}", f"{one}\\sqrt({other})"),
            *(f"{one}√{other}", f"{one} \\times \\sqrt{{{other}}}"),
        ]

    return ask(write, (times, root), (times + 1, root), (times, root + 1))


def rationalized_fractions(draws: Random) -> Question:
    top, root = draws.randint(1, 20), draws.choice(PRIMES)

    def write(one: int, other: int) -> list[str]:
        return [
            *(f"\\frac{{{one}\\sqrt{{{other}}}}}{{{other}}}", f"\\frac{{{one}}}{{\\sqrt{{{other}}}}}"),
            *(f"{one}/\\sqrt{{{other}}}", f"\\frac{{\\sqrt{{{one * one * other}}}}}{{{other}}}"),
            *(f"\\sqrt{{\\frac{{{one * one}}}{{{other}}}}}", f"\\frac{{{one}}}{{{other}}}\\sqrt{{{other}}}"),
        ]

    return ask(write, (top, root), (top + 1, root), (top, root + 1))


def higher_roots(draws: Random) -> Question:
    index, times, inside = draws.choice([3, 4, 5]), draws.randint(2, 6), draws.choice(PRIMES)

    def write(degree: int, one: int, other: int) -> list[str]:
        return [
            *(f"{one}\\sqrt[{degree}]{{{other}}}", f"\\sqrt[{degree}]{{{one**degree * other}}}"),
            *(f"{one} \\cdot {other}^{{1/{degree}}}", f"{one} \\cdot {other}^{{\\frac{{1}}{{{degree}}}}}"),
        ]

    return ask(
        write, (index, times, inside), (index + 1, times, inside), (index, times + 1, inside), (2, times, inside)
    )


def sums_with_roots(draws: Random) -> Question:
    whole, times, root = draw_nonzero(draws, 20), draw_nonzero(draws, 9), draws.choice(PRIMES)

    def write(one: int, other: int, inside: int) -> list[str]:
        sign, size = "-" if other < 0 else "+", "" if abs(other) == 1 else f"{abs(other)}"
        lead = "-" if other < 0 else ""
        return [
            f"{one} {sign} {size}\\sqrt{{{inside}}}",
            f"{lead}{size}\\sqrt{{{inside}}} {'-' if one < 0 else '+'} {abs(one)}",
            f"{one}{sign}\\sqrt{{{other * other * inside}}}",
            f"\\frac{{{2 * one} {sign} {2 * abs(other)}\\sqrt{{{inside}}}}}{{2}}",
            f"{one} {sign} {size} \\cdot \\sqrt{{{inside}}}" if size else f"({one} {sign} \\sqrt{{{inside}}})",
        ]

    return ask(
        write,
        (whole, times, root),
        (-whole, times, root),
        (whole, -times, root),
        (whole, times, draw_other(draws, PRIMES, root)),
    )


def logarithms(draws: Random) -> Question:
    one, other = draws.sample(PRIMES, 2)

    def write(first: int, second: int) -> list[str]:
        return [
            *(f"\\ln {first} - \\ln {second}", f"\\ln \\frac{{{first}}}{{{second}}}"),
            *(f"\\ln\\left(\\frac{{{first}}}{{{second}}}\\right)", f"-\\ln {second} + \\ln {first}"),
            *(f"\\ln({first}) - \\ln({second})", f"\\ln({first}/{second})"),
        ]

    return ask(write, (one, other), (other, one), (one, draw_other(draws, PRIMES, other)), (one * other, 1 + other))


def multiples_of_logarithms(draws: Random) -> Question:
    times, of = draws.randint(2, 6), draws.choice(PRIMES)

    def write(one: int, other: int) -> list[str]:
        return [
            *(f"{one}\\ln {other}", f"\\ln {other**one}", f"{one} \\ln({other})", f"\\ln({other}^{{{one}}})"),
            f"{one} \\log_e {other}",
        ]

    return ask(write, (times, of), (times + 1, of), (times, draw_other(draws, PRIMES, of)))


def logarithms_in_a_base(draws: Random) -> Question:
    base, of = draws.sample(PRIMES, 2)

    def write(one: int, other: int) -> list[str]:
        return [
            *(f"\\log_{{{one}}} {other}", f"\\log_{{{one}}}({other})", f"\\frac{{\\ln {other}}}{{\\ln {one}}}"),
            *(f"\\frac{{\\ln({other})}}{{\\ln({one})}}", f"\\log_{{{one}}}{{{other}}}"),
            f"\\frac{{1}}{{\\log_{{{other}}} {one}}}",
        ]

    return ask(write, (base, of), (of, base), (base, draw_other(draws, PRIMES, of)))


def powers_of_e(draws: Random) -> Question:
    times, power = draws.randint(2, 9), draw_nonzero(draws, 9)

    def write(one: int, exponent: int) -> list[str]:
        return [
            *(f"{one}e^{{{exponent}}}", f"{one} \\cdot e^{{{exponent}}}", f"{one}\\mathrm{{e}}^{{{exponent}}}"),
            *(f"\\frac{{{one}}}{{e^{{{-exponent}}}}}", f"{one}\\exp({exponent})", f"e^{{{exponent}}} \\cdot {one}"),
        ]

    return ask(write, (times, power), (times, -power), (times + 1, power), (times, power + 1 or 7))


def multiples_of_pi(draws: Random) -> Question:
    top, bottom = draws.choice([3, 5, 7, 9, 11, 13]), draws.choice([2, 4, 8])

    def write(one: int, other: int) -> list[str]:
        return [
            *(f"\\frac{{{one}\\pi}}{{{other}}}", f"\\frac{{{one}}}{{{other}}}\\pi", f"{one}\\pi/{other}"),
            *(f"{one / other:g}\\pi", f"\\frac{{{one} \\pi}}{{{other}}}", f"\\pi \\cdot \\frac{{{one}}}{{{other}}}"),
            f"\\frac{{\\pi}}{{{other}}} \\cdot {one}",
        ]

    return ask(write, (top, bottom), (top + 2, bottom), (top, bottom * 2), (-top, bottom))


def inverse_functions(draws: Random) -> Question:
    name, other = draws.sample(["sin", "cos", "tan"], 2)
    top, bottom = draws.choice([(1, 3), (2, 5), (1, 4), (3, 7), (3, 5), (5, 13), (2, 7), (4, 9)])

    def write(function: str, one: int, two: int) -> list[str]:
        return [
            *(f"\\arc{function} \\frac{{{one}}}{{{two}}}", f"\\arc{function}\\left(\\frac{{{one}}}{{{two}}}\\right)"),
            f"\\{function}^{{-1}} \\frac{{{one}}}{{{two}}}",
            *(f"\\{function}^{{-1}}\\left(\\frac{{{one}}}{{{two}}}\\right)", f"\\arc{function}({one}/{two})"),
        ]

    return ask(write, (name, top, bottom), (other, top, bottom), (name, top, bottom + 1))


def degrees(draws: Random) -> Question:
    angle = draws.randint(1, 359)
    return ask(
        lambda one: [
            *(f"{one}^\\circ", f"{one}^{{\\circ}}", f"{one}°", f"{one}\\text{{ degrees}}", f"{one}", f"{one} \\degree"),
            f"{one} degrees",
        ],
        (angle,),
        (angle + 1,),
        (360 - angle if angle != 180 else 90,),
        (-angle,),
        problem="How many degrees has the angle?",
    )


def complex_numbers(draws: Random) -> Question:
    real, imaginary = draw_nonzero(draws, 15), draws.choice([-1, 1]) * draws.randint(2, 15)

    def write(one: int, two: int) -> list[str]:
        sign, size = "-" if two < 0 else "+", abs(two)
        back, much = "-" if one < 0 else "+", abs(one)
        return [
            *(f"{one} {sign} {size}i", f"{two}i {back} {much}", f"{one}{sign}{size} i"),
            *(f"{one} {sign} {size}\\mathrm{{i}}", f"{one} {sign} i{size}", f"{one} {sign} {size} \\cdot i"),
            f"z = {one} {sign} {size}i",
        ]

    return ask(
        write, (real, imaginary), (real, -imaginary), (-real, imaginary), (real + 1, imaginary), problem="Find $z$."
    )


def complex_fractions(draws: Random) -> Question:
    real, root, bottom = draw_nonzero(draws, 7), draws.choice(PRIMES), draws.choice([2, 3, 4, 5])

    def write(one: int, inside: int, other: int) -> list[str]:
        part = write_fraction(Fraction(one, other))
        return [
            f"\\frac{{{one} + i\\sqrt{{{inside}}}}}{{{other}}}",
            f"\\frac{{{one} + \\sqrt{{{inside}}} i}}{{{other}}}",
            f"{part} + \\frac{{\\sqrt{{{inside}}}}}{{{other}}} i",
            f"{part} + \\frac{{i\\sqrt{{{inside}}}}}{{{other}}}",
            f"\\frac{{i\\sqrt{{{inside}}} + {one}}}{{{other}}}"
            if one > 0
            else f"\\frac{{i\\sqrt{{{inside}}} - {-one}}}{{{other}}}",
        ]

    return ask(
        write,
        (real, root, bottom),
        (-real, root, bottom),
        (real, draw_other(draws, PRIMES, root), bottom),
        (real, root, bottom + 1),
    )


def infinities(draws: Random) -> Question:
    """There are few different ones, and any number is a wrong answer to them."""
    number = draw_nonzero(draws, 99)
    plus = ("+\\infty", "\\infty", "{\\infty}", "+ \\infty", "∞")
    minus = ("-\\infty", "- \\infty", "{-\\infty}", "−∞")
    right, wrong = draws.sample([plus, minus], 2)
    return Question(right[0], right[1:], (*wrong, f"{number}", "0"), "What is the limit?")


KINDS: Final = (
    *(whole_numbers, fractions, fraction_commands, decimals, fractions_as_decimals, percentages),
    *(shares_as_percentages, scientific_notation, small_decimals, mixed_numbers, repeating_decimals),
    *(thousands_separators, thousands_separators_of_the_right_answer, other_bases, big_powers),
    *(inverses_of_big_powers, factorials, binomials, square_roots, short_roots, rationalized_fractions, higher_roots),
    *(sums_with_roots, logarithms, multiples_of_logarithms, logarithms_in_a_base, powers_of_e, multiples_of_pi),
    *(inverse_functions, degrees, complex_numbers, complex_fractions, infinities),
)
