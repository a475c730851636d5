"""Pairs of expressions, quantities with units, words, and other spellings of all of them. `pairs` says what a kind
is."""

from math import gcd
from random import Random
from typing import Final

from tests.toolkit.math_answers.pairs import PRIMES, Question, ask, draw_nonzero, draw_other, write_polynomial

_VARIABLES: Final = ("x", "t", "y", "z")


def powers_of_letters(draws: Random) -> Question:
    one, two = draws.sample(range(2, 9), 2)

    def write(first: int, second: int) -> list[str]:
        return [
            *(f"\\frac{{x^{{{first}}}}}{{y^{{{second}}}}}", f"x^{{{first}}}y^{{-{second}}}", f"x^{first}/y^{second}"),
            *(f"y^{{-{second}}} x^{{{first}}}", f"\\frac{{x^{first}}}{{y^{second}}}"),
            f"x^{{{first}}} \\cdot \\frac{{1}}{{y^{{{second}}}}}",
        ]

    return ask(write, (one, two), (two, one), (one + 1, two), (one, two + 1))


def expanded_polynomials(draws: Random) -> Question:
    """The terms in another order, spaced in another way."""
    letter = draws.choice(_VARIABLES)
    first, middle, last = (draw_nonzero(draws, 9) for _ in range(3))

    def write(one: int, two: int, three: int) -> list[str]:
        terms = [(one, f"{letter}^2"), (two, letter), (three, "")]
        whole = write_polynomial(terms)
        return [
            *(whole, write_polynomial([terms[2], terms[0], terms[1]])),
            *(write_polynomial([terms[1], terms[2], terms[0]]), whole.replace(" ", ""), whole.replace("^2", "^{2}")),
        ]

    return ask(
        write, (first, middle, last), (first, -middle, last), (first, middle, last + 1 or 5), (first, last, -middle)
    )


def factored_polynomials(draws: Random) -> Question:
    letter = draws.choice(_VARIABLES)
    one, two = draw_nonzero(draws, 9), draw_nonzero(draws, 9)
    times = draws.choice([1, 2, 3])

    def write(number: int, first: int, second: int) -> list[str]:
        lead = "" if number == 1 else f"{number}"
        factors = [f"({write_polynomial([(1, letter), (root, '')])})" for root in (first, second)]
        spread = [(number, f"{letter}^2"), (number * (first + second), letter), (number * first * second, "")]
        return [
            *(f"{lead}{factors[0]}{factors[1]}", f"{lead}{factors[1]}{factors[0]}", write_polynomial(spread)),
            f"{lead}{factors[0]} \\cdot {factors[1]}" if not lead else f"{lead} \\cdot {factors[0]}{factors[1]}",
        ]

    other = two + 1 or 4
    return ask(write, (times, one, two), (times, one, -two), (times + 1, one, two), (times, one, other))


def spread_polynomials(draws: Random) -> Question:
    """The right answer is spread, what is sent may be factored."""
    asked = factored_polynomials(draws)
    spread = asked.equal[1]
    return Question(spread, (asked.gold, asked.equal[0], asked.equal[2]), asked.unequal)


def rational_functions(draws: Random) -> Question:
    one, two = draws.sample([number for number in range(-9, 10) if number], 2)

    def write(first: int, second: int) -> list[str]:
        left, right = (write_polynomial([(1, "x"), (number, "")]) for number in (first, second))
        return [
            *(f"\\frac{{{left}}}{{{right}}}", f"({left})/({right})", f"\\frac{{-({left})}}{{-({right})}}"),
            f"1 + \\frac{{{first - second}}}{{{right}}}",
            f"\\frac{{{write_polynomial([(first, ''), (1, 'x')])}}}{{{write_polynomial([(second, ''), (1, 'x')])}}}",
        ]

    return ask(write, (one, two), (two, one), (one, two + 1 or 10), (-one, two))


def expressions_in_two_letters(draws: Random) -> Question:
    one, two = draws.sample(range(2, 12), 2)

    def write(first: int, second: int) -> list[str]:
        return [
            *(f"{first}xy + {second}x", f"{second}x + {first}xy", f"x({first}y + {second})", f"{first}yx + {second}x"),
            *(f"{first} x y + {second} x", f"{first}x \\cdot y + {second}x"),
        ]

    return ask(write, (one, two), (two, one), (one + 1, two), (one, -two), problem="Write it in terms of $x$ and $y$.")


def trigonometric_identities(draws: Random) -> Question:
    times, angle = draws.randint(2, 12), draws.choice(_VARIABLES)
    written = draws.choice(
        [
            (f"\\sin 2{angle}", f"2\\sin {angle} \\cos {angle}", f"\\cos 2{angle}"),
            (f"\\cos^2 {angle}", f"(1 - \\sin^2 {angle})", f"\\sin^2 {angle}"),
            (f"\\tan {angle}", f"\\frac{{\\sin {angle}}}{{\\cos {angle}}}", f"\\cot {angle}"),
            (f"\\sec^2 {angle}", f"(\\tan^2 {angle} + 1)", f"\\tan^2 {angle}"),
            (f"\\csc {angle}", f"\\frac{{1}}{{\\sin {angle}}}", f"\\sec {angle}"),
        ]
    )

    def write(one: int, name: str, same: str) -> list[str]:
        product = f"{one} \\cdot {same}" if same[0].isdigit() else f"{one}{same}"
        return [f"{one}{name}", product, f"{one} {name}", f"{one} \\cdot {name}"]

    return ask(
        write, (times, *written[:2]), (times + 1, *written[:2]), (-times, *written[:2]), (times, written[2], written[2])
    )


def absolute_values(draws: Random) -> Question:
    number, letter = draws.randint(1, 40), draws.choice(_VARIABLES)

    def write(one: int) -> list[str]:
        inside = write_polynomial([(1, letter), (-one, "")])
        turned = write_polynomial([(one, ""), (-1, letter)])
        return [
            *(f"|{inside}|", f"\\left|{inside}\\right|", f"\\lvert {inside} \\rvert", f"|{turned}|"),
            f"\\vert {inside} \\vert",
        ]

    return ask(write, (number,), (-number,), (number + 1,))


def positive_letters_under_roots(draws: Random) -> Question:
    """A letter under the root of the right answer is positive wherever that has a value."""
    one, two = draws.sample(PRIMES, 2)

    def write(first: int, second: int) -> list[str]:
        return [
            *(f"\\sqrt{{\\frac{{{first}}}{{{second}m}}}}", f"\\frac{{\\sqrt{{{first}}}}}{{\\sqrt{{{second}m}}}}"),
            *(f"\\frac{{\\sqrt{{{first * second}m}}}}{{{second}m}}", f"\\sqrt{{{first}/({second}m)}}"),
            f"\\left(\\frac{{{first}}}{{{second}m}}\\right)^{{1/2}}",
        ]

    return ask(write, (one, two), (two, one), (one, draw_other(draws, PRIMES, two)))


def antiderivatives(draws: Random) -> Question:
    one, power = draws.randint(2, 9), draws.randint(2, 7)

    def write(times: int, exponent: int) -> list[str]:
        return [
            *(f"{times}x^{exponent} + C", f"C + {times}x^{exponent}", f"{times}x^{{{exponent}}}+C"),
            *(f"{times} \\cdot x^{exponent} + C", f"{times}x^{exponent} + \\text{{C}}"),
        ]

    return ask(write, (one, power), (one + 1, power), (one, power + 1), (-one, power))


def functions_with_names(draws: Random) -> Question:
    slope, shift = draws.randint(2, 12), draw_nonzero(draws, 12)

    def write(times: int, more: int) -> list[str]:
        line = write_polynomial([(times, "x"), (more, "")])
        return [
            *(f"f(x) = {line}", line, f"f(x)={line.replace(' ', '')}"),
            f"f(x) = {write_polynomial([(more, ''), (times, 'x')])}",
            f"{write_polynomial([(more, ''), (times, 'x')])}",
        ]

    return ask(write, (slope, shift), (slope + 1, shift), (slope, -shift), (-slope, shift), problem="Find $f(x)$.")


# Quantities


def units_of_length(draws: Random) -> Question:
    number = draws.randint(2, 900)
    unit, other = draws.sample([("cm", "centimeters"), ("m", "meters"), ("km", "kilometers"), ("ft", "feet")], 2)
    kilograms = ("kg", "kilograms")

    def write(one: int, named: tuple[str, str]) -> list[str]:
        short, long = named
        return [
            *(f"{one}\\text{{ {short}}}", f"{one} \\text{{ {short}}}", f"{one}\\,\\mathrm{{{short}}}"),
            *(f"{one} {short}", f"{one}\\ \\text{{{short}}}", f"{one}\\text{{ {long}}}", f"{one} {long}"),
            f"{one}~\\text{{{short}}}",
        ]

    asked = ask(write, (number, unit), (number + 1, unit), (number, other), (number, kilograms))
    return Question(asked.gold, (*asked.equal, f"{number}"), (*asked.unequal, f"{number + 1}"))


def units_of_area(draws: Random) -> Question:
    number = draws.randint(2, 900)
    short, long = draws.choice([("cm", "centimeters"), ("m", "meters"), ("in", "inches"), ("ft", "feet")])

    def write(one: int, power: int) -> list[str]:
        word = {2: "square", 3: "cubic"}[power]
        return [
            *(f"{one}\\text{{ {short}}}^{power}", f"{one} \\text{{ {short}}}^{{{power}}}"),
            *(f"{one}\\,\\mathrm{{{short}}}^{power}", f"{one}\\text{{ {word} {long}}}", f"{one} {word} {long}"),
            f"{one} \\text{{{short}}}^{power}",
        ]

    asked = ask(write, (number, 2), (number + 1, 2), (number, 3))
    return Question(asked.gold, (*asked.equal, f"{number}"), (*asked.unequal, f"{number}\\text{{ {short}}}"))


def plain_units(draws: Random) -> Question:
    number = draws.randint(2, 999)
    unit, other = draws.sample(["apples", "hours", "days", "students", "liters", "marbles", "years", "minutes"], 2)

    def write(one: int, noun: str) -> list[str]:
        return [
            *(f"{one} {noun}", f"{one}\\text{{ {noun}}}", f"{one} \\text{{{noun}}}", f"{one}~{noun}"),
            f"{one} \\mathrm{{~{noun}}}",
        ]

    asked = ask(write, (number, unit), (number + 1, unit), (number * 10, unit), (number, other))
    return Question(asked.gold, (*asked.equal, f"{number}"), (*asked.unequal, f"{number - 1}"))


def speeds(draws: Random) -> Question:
    number = draws.randint(2, 300)
    unit, other = draws.sample(
        [("km/h", "kilometers per hour"), ("m/s", "meters per second"), ("mi/h", "miles per hour")], 2
    )

    def write(one: int, named: tuple[str, str]) -> list[str]:
        short, long = named
        above, below = short.split("/")
        return [
            *(f"{one}\\text{{ {short}}}", f"{one} {short}", f"{one}\\ \\mathrm{{{short}}}", f"{one}\\text{{ {long}}}"),
            f"{one} \\frac{{\\text{{{above}}}}}{{\\text{{{below}}}}}",
        ]

    asked = ask(write, (number, unit), (number + 1, unit), (number, other))
    return Question(asked.gold, (*asked.equal, f"{number}"), (*asked.unequal, f"{number + 2}"))


def money(draws: Random) -> Question:
    cents = draws.randint(100, 99_999)

    def write(one: int) -> list[str]:
        text = f"{one // 100}.{one % 100:02d}"
        return [
            *(f"\\${text}", text, f"\\$ {text}", f"{text}\\text{{ dollars}}", f"{text} dollars"),
            f"\\text{{\\${text}}}",
        ]

    asked = ask(write, (cents,), (cents + 1,), (cents + 100,), (cents * 10,))
    short = f"{cents / 100:g}"
    return Question(asked.gold, (*asked.equal, f"\\${short}"), asked.unequal, "How many dollars does it cost?")


def times_of_day(draws: Random) -> Question:
    hour, minute = draws.randint(1, 12), draws.choice([0, *range(60)])

    def write(hours: int, minutes: int) -> list[str]:
        text = f"{hours}:{minutes:02d}"
        return [
            *(text, f"{hours}{{:}}{minutes:02d}", f"\\text{{{text}}}", f"{hours} : {minutes:02d}"),
            f"\\mathrm{{{text}}}",
        ]

    return ask(
        write,
        (hour, minute),
        (hour % 12 + 1, minute),
        (hour, (minute + 1) % 60),
        (hour, (minute + 30) % 60),
        problem="What does the clock show?",
    )


def times_with_halves_of_the_day(draws: Random) -> Question:
    hour, minute = draws.randint(1, 12), draws.randint(0, 59)
    half, other = draws.sample([("a.m.", "AM"), ("p.m.", "PM")], 2)

    def write(hours: int, minutes: int, of: tuple[str, str]) -> list[str]:
        text = f"{hours}:{minutes:02d}"
        return [
            *(f"{text}\\text{{ {of[0]}}}", f"{text} \\text{{ {of[0]}}}", f"\\text{{{text} {of[0]}}}"),
            *(f"{text}\\text{{ {of[1]}}}", f"{text} {of[1]}", f"{text}\\ \\text{{{of[0]}}}"),
        ]

    return ask(
        write,
        (hour, minute, half),
        (hour, minute, other),
        (hour % 12 + 1, minute, half),
        (hour, (minute + 7) % 60, half),
    )


def ratios(draws: Random) -> Question:
    one, two = draws.choice(
        [(one, two) for one in range(1, 20) for two in range(1, 20) if one != two and gcd(one, two) == 1]
    )

    def write(first: int, second: int) -> list[str]:
        return [
            *(f"{first}:{second}", f"{first} : {second}", f"{first}{{:}}{second}", f"{first}\\text{{ to }}{second}"),
            *(f"\\text{{{first}:{second}}}", f"{first} \\colon {second}"),
        ]

    return ask(write, (one, two), (two, one), (one, two + 1), (one + 1, two), problem="What is the ratio?")


def remainders(draws: Random) -> Question:
    modulus = draws.randint(3, 60)
    number = draws.randrange(modulus)

    def write(one: int, of: int) -> list[str]:
        return [
            *(f"x \\equiv {one} \\pmod{{{of}}}", f"x \\equiv {one} \\mod {of}", f"x\\equiv {one} \\pmod {{{of}}}"),
            *(f"x \\equiv {one} (\\bmod {of})", f"x \\equiv {one} \\; (\\text{{mod }} {of})"),
        ]

    return ask(
        write,
        (number, modulus),
        ((number + 1) % modulus, modulus),
        (number, modulus + 1),
        problem="Find all integers $x$.",
    )


# Words and letters


def words(draws: Random) -> Question:
    word, other = draws.sample(
        [
            *("even", "odd", "convergent", "divergent", "true", "false", "yes", "no", "rational", "ellipse", "circle"),
            *("Tuesday", "Alice", "positive", "isosceles", "Monday"),
        ],
        2,
    )

    def write(one: str) -> list[str]:
        return [
            *(f"\\text{{{one}}}", one, f"\\text{{{one.capitalize()}}}", f"\\textbf{{{one}}}", f"\\mathrm{{{one}}}"),
            *(f"\\text{{{one}.}}", f"\\text{{ {one} }}", f"\\textit{{{one}}}"),
        ]

    return ask(write, (word,), (other,), (f"not {word}",))


def phrases(draws: Random) -> Question:
    first = draws.choice(["right", "left", "upper", "lower", "acute", "obtuse"])
    second, other = draws.sample(["triangle", "half plane", "branch", "corner"], 2)

    def write(one: str, two: str) -> list[str]:
        return [
            *(f"\\text{{{one} {two}}}", f"\\text{{{one.capitalize()} {two}}}", f"\\text{{{one} {two}.}}"),
            *(f"\\textbf{{{one} {two}}}", f"\\text{{{one}}} \\text{{ {two}}}", f"\\text{{{one}}}\\ \\text{{{two}}}"),
        ]

    return ask(write, (first, second), (first, other), ("wrong", second), (f"not {first}", second))


def choices(draws: Random) -> Question:
    letter, other = draws.sample("ABCDEFGH", 2)
    number = draws.randint(2, 99)

    def write(one: str) -> list[str]:
        return [
            *(one, f"\\text{{({one})}}", f"({one})", f"\\textbf{{{one}}}", f"\\mathrm{{{one}}}", f"{one}."),
            *(f"\\text{{{one}}}", f"\\textbf{{({one})}}", f"\\mathbf{{({one})}}"),
        ]

    return ask(write, (letter,), (other,), problem=f"Which of the options is {number}?")


def letters_in_order(draws: Random) -> Question:
    """Roman numerals, directions, names of sides: letters in another order are something else."""
    word, other = draws.choice(
        [
            *(("IV", "VI"), ("IX", "XI"), ("XL", "LX"), ("NE", "EN"), ("CM", "MC"), ("XC", "CX"), ("VIX", "XIV")),
            *(("BAC", "ABC"), ("PQ", "QR"), ("LIV", "LVI")),
        ]
    )

    def write(one: str) -> list[str]:
        return [
            *(f"\\text{{{one}}}", one, f"\\mathrm{{{one}}}", f"\\textbf{{{one}}}", f"\\text{{ {one}}}"),
            f"\\mathbf{{{one}}}",
        ]

    right, wrong = draws.sample([word, other], 2)
    return ask(write, (right,), (wrong,), (right + right[-1],))


# Spellings


def numbers_in_text_commands(draws: Random) -> Question:
    number = draws.randint(2, 9_999)

    def write(one: int) -> list[str]:
        return [
            *(f"{one}", f"\\text{{{one}}}", f"\\mathrm{{{one}}}", f"\\mathbf{{{one}}}", f"\\textbf{{{one}}}"),
            *(f"\\boldsymbol{{{one}}}", f"\\mbox{{{one}}}"),
        ]

    asked = ask(write, (number,), (number + 1,), (number * 10 + 1,))
    if draws.random() < 0.3:
        return Question(f"\\text{{{number}}}", (f"{number}", *asked.equal[1:]), asked.unequal)
    return asked


def spacing_commands(draws: Random) -> Question:
    one, two, three = (draws.randint(2, 30) for _ in range(3))

    def write(first: int, second: int, third: int) -> list[str]:
        return [
            *(f"{first}x^2 + {second}x + {third}", f"{first}\\,x^2 + {second}\\,x + {third}"),
            *(f"{first}x^2 \\;+\\; {second}x \\;+\\; {third}", f"\\displaystyle {first}x^2 + {second}x + {third}"),
            *(f"{first}x^2 + {second}x + {third} \\quad", f"{first}x^2\\!+{second}x\\!+{third}"),
            *(f"{first}x^2~+~{second}x~+~{third}", f"{{{first}x^2}} + {{{second}x}} + {{{third}}}"),
        ]

    return ask(write, (one, two, three), (one + 1, two, three), (one, two, -three), (one, two + 1, three))


def unicode_marks(draws: Random) -> Question:
    number, root = draws.randint(2, 9), draws.choice([2, 3, 5, 7])
    forms = draws.choice(
        [
            *(lambda one, two: [f"-{one}", f"−{one}"], lambda one, two: [f"x^2 + {one}", f"x² + {one}"]),
            *(lambda one, two: [f"x^3 - {one}", f"x³ − {one}"], lambda one, two: [f"{one}\\pi", f"{one}π"]),
            lambda one, two: [f"{one}\\sqrt{{{two}}}", f"{one}√{two}"],
            *(lambda one, two: [f"{one}\\frac{{1}}{{2}}", f"{one}½"], lambda one, two: [f"{one}^\\circ", f"{one}°"]),
            lambda one, two: [f"x \\le {one}", f"x ≤ {one}"],
            lambda one, two: [f"{one} \\times 10^{{{two}}}", f"{one} × 10^{{{two}}}"],
            lambda one, two: [f"(-\\infty, {one})", f"(−∞, {one})"],
        ]
    )
    return ask(forms, (number, root), (number + 1, root))


KINDS: Final = (
    *(powers_of_letters, expanded_polynomials, factored_polynomials, spread_polynomials, rational_functions),
    *(expressions_in_two_letters, trigonometric_identities, absolute_values, positive_letters_under_roots),
    *(antiderivatives, functions_with_names, units_of_length, units_of_area, plain_units, speeds, money),
    *(times_of_day, times_with_halves_of_the_day, ratios, remainders, words, phrases, choices, letters_in_order),
    *(numbers_in_text_commands, spacing_commands, unicode_marks),
)
