"""Pairs of answers with parts: sets, lists, named values, equations, matrices, several boxes. `pairs` says what
a kind is."""

from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Final

from tests.toolkit.math_answers.pairs import (
    LETTERS,
    Question,
    ask,
    draw_nonzero,
    draw_numbers,
    write_fraction,
    write_polynomial,
)


def _permute(draws: Random, values: list[int]) -> list[int]:
    """Another order."""
    while True:
        permuted = draws.sample(values, len(values))
        if permuted != values:
            return permuted


# Sets and lists


def sets(draws: Random) -> Question:
    numbers = draw_numbers(draws, draws.randint(2, 5))
    permuted = _permute(draws, numbers)

    def write(first: list[int], second: list[int]) -> list[str]:
        one, two = (", ".join(map(str, of)) for of in (first, second))
        return [
            *(f"\\{{{one}\\}}", f"\\{{{two}\\}}", f"\\left\\{{{two}\\right\\}}", f"\\{{{one.replace(' ', '')}\\}}"),
            *(f"\\lbrace {two} \\rbrace", f"{two}"),
        ]

    changed = [-numbers[0] if -numbers[0] not in numbers else 31, *numbers[1:]]
    return ask(
        write, (numbers, permuted), (changed, changed), (numbers[1:], numbers[1:]), ([*numbers, 32], [*numbers, 32])
    )


def sets_of_fractions(draws: Random) -> Question:
    one, two, three = sorted({Fraction(draw_nonzero(draws, 40), 8) for _ in range(12)})[:3]

    def write(*values: Fraction) -> list[str]:
        texts = [write_fraction(value) for value in values]
        plain = [f"{float(value):g}" for value in values]
        return [
            *(f"\\left\\{{{', '.join(texts)}\\right\\}}", f"\\{{{', '.join(reversed(texts))}\\}}"),
            *(f"\\{{{', '.join(plain)}\\}}", ", ".join(texts).replace("\\frac", "\\dfrac")),
        ]

    return ask(write, (one, two, three), (one - 9, two, three), (one, two, three + 1), (one, two))


def lists_in_any_order(draws: Random) -> Question:
    numbers = draw_numbers(draws, draws.randint(2, 5))
    permuted = _permute(draws, numbers)

    def write(first: list[int], second: list[int]) -> list[str]:
        return [
            *(", ".join(map(str, first)), ",".join(map(str, second)), ", ".join(map(str, second))),
            *("; ".join(map(str, second)), f"\\{{{', '.join(map(str, second))}\\}}"),
        ]

    changed = [numbers[0] + 1 if numbers[0] + 1 not in numbers else 77, *numbers[1:]]
    return ask(
        write,
        (numbers, permuted),
        (changed, changed),
        (numbers[:-1], numbers[:-1]) if len(numbers) > 2 else ([5, *numbers, 55], [5, *numbers, 55]),
        problem="Find all solutions of the equation.",
    )


def lists_with_words_between(draws: Random) -> Question:
    numbers = draw_numbers(draws, draws.randint(2, 4))

    def write(*values: int) -> list[str]:
        *first, last = map(str, values)
        head = ", ".join(first)
        return [
            *(", ".join([*first, last]), f"{head} \\text{{ and }} {last}", f"{head}, \\text{{ and }} {last}"),
            *(f"{head} and {last}", f"{head}\\text{{ or }}{last}", "，".join([*first, last])),
            *(f"\\text{{{head} and {last}}}", f"{head} \\;\\text{{and}}\\; {last}"),
        ]

    changed = (*numbers[:-1], numbers[-1] + 100)
    asked = ask(write, tuple(numbers), changed, (numbers[0] + 200, *numbers[1:]), problem="Find all solutions.")
    return Question(asked.equal[draws.randrange(3)], (asked.gold, *asked.equal), asked.unequal, asked.problem)


def lists_in_the_order_asked_for(draws: Random) -> Question:
    numbers = sorted(draw_numbers(draws, draws.randint(3, 5)))
    order = draws.choice(
        [
            *("Order the numbers from least to greatest.", "List them in ascending order."),
            "Arrange the numbers in increasing order.",
        ]
    )
    permuted = _permute(draws, numbers)

    def write(*values: int) -> list[str]:
        texts = [str(value) for value in values]
        return [
            *(", ".join(texts), ",".join(texts), ",\\ ".join(texts)),
            *(f"{', '.join(texts[:-1])} \\text{{ and }} {texts[-1]}", ",\\, ".join(texts)),
        ]

    return ask(write, tuple(numbers), tuple(permuted), tuple(numbers[::-1]), (*numbers[:-1], 99), problem=order)


def answers_respectively(draws: Random) -> Question:
    numbers = draw_numbers(draws, draws.randint(2, 3))
    permuted = _permute(draws, numbers)

    def write(*values: int) -> list[str]:
        texts = [str(value) for value in values]
        return [
            *(", ".join(texts), ",".join(texts), f"({', '.join(texts)})"),
            f"{', '.join(texts[:-1])} \\text{{ and }} {texts[-1]}",
        ]

    problem = "Find the greatest area, the perimeter and the number of sides, respectively."
    return ask(write, tuple(numbers), tuple(permuted), (numbers[0] + 70, *numbers[1:]), problem=problem)


def tuples(draws: Random) -> Question:
    numbers = draw_numbers(draws, draws.randint(2, 4))
    permuted = _permute(draws, numbers)

    def write(*values: int) -> list[str]:
        texts = [str(value) for value in values]
        return [
            *(f"({', '.join(texts)})", f"({','.join(texts)})", f"\\left({', '.join(texts)}\\right)"),
            *(f"\\left( {' , '.join(texts)} \\right)", f"({', '.join(f'{text}.0' for text in texts)})"),
            f"\\bigl({', '.join(texts)}\\bigr)",
        ]

    return ask(write, tuple(numbers), tuple(permuted), (-numbers[0], *numbers[1:]), (*numbers, 40))


def points_with_fractions(draws: Random) -> Question:
    one, two = draws.sample(
        [Fraction(top, bottom) for bottom in (2, 4, 5, 8) for top in (-7, -3, -1, 1, 3, 7, 9, 11)], 2
    )

    def write(first: Fraction, second: Fraction) -> list[str]:
        texts = [write_fraction(first), write_fraction(second)]
        return [
            *(f"\\left({', '.join(texts)}\\right)", f"({', '.join(texts)})", f"({float(first):g}, {float(second):g})"),
            *(f"({first}, {second})", f"\\left({', '.join(texts)}\\right)".replace("\\frac", "\\dfrac")),
        ]

    return ask(write, (one, two), (two, one), (-one, two), (one, two + 1))


def points_with_roots(draws: Random) -> Question:
    radius, top, bottom = draws.randint(2, 9), *draws.choice([(1, 3), (2, 3), (1, 4), (3, 4), (5, 6), (7, 6), (5, 4)])
    root = draws.choice([2, 3, 5, 7])

    def write(times: int, inside: int, one: int, two: int) -> list[str]:
        angle = f"{one}\\pi" if one > 1 else "\\pi"
        return [
            f"\\left({times}\\sqrt{{{inside}}}, \\frac{{{angle}}}{{{two}}}\\right)",
            f"({times}\\sqrt{{{inside}}}, \\frac{{{angle}}}{{{two}}})",
            f"\\left({times}\\sqrt{{{inside}}},\\frac{{{one}}}{{{two}}}\\pi\\right)",
            f"(\\sqrt{{{times * times * inside}}}, {angle}/{two})",
            f"\\left({times} \\sqrt{inside}, \\dfrac{{{angle}}}{{{two}}}\\right)",
        ]

    return ask(
        write,
        (radius, root, top, bottom),
        (radius + 1, root, top, bottom),
        (radius, root, top, bottom * 5),
        (radius, root + 6, top, bottom),
    )


def lists_of_pairs(draws: Random) -> Question:
    values = draw_numbers(draws, 6)
    points = [(values[0], values[1]), (values[2], values[3]), (values[4], values[5])][: draws.randint(2, 3)]
    swapped = [(points[0][1], points[0][0]), *points[1:]]
    changed = [*points[:-1], (points[-1][0], points[-1][1] + 61)]

    def write(*written: tuple[int, int]) -> list[str]:
        texts = [f"({one}, {two})" for one, two in written]
        turned = [*texts[1:], texts[0]]
        return [
            *(", ".join(texts), ", ".join(turned), ",".join(turned).replace(" ", "")),
            *(f"{', '.join(turned[:-1])} \\text{{ and }} {turned[-1]}", f"\\{{{', '.join(turned)}\\}}"),
            "; ".join(texts),
        ]

    return ask(write, tuple(points), tuple(swapped), tuple(changed), tuple(points[:1]), problem="Find all pairs.")


def lists_with_dots(draws: Random) -> Question:
    first, step = draws.randint(1, 30), draws.randint(2, 9)
    last = draws.choice(["n", "k", str(first + step * 40)])

    def write(one: int, by: int, end: str) -> list[str]:
        head = f"{one}, {one + by}, {one + 2 * by}"
        return [
            *(f"{head}, \\ldots, {end}", f"{head}, \\dots, {end}", f"{head}, \\cdots, {end}", f"{head}, ..., {end}"),
            *(f"{head},\\ldots,{end}".replace(" ", ""), f"{head}, …, {end}"),
        ]

    return ask(write, (first, step, last), (first + 1, step, last), (first, step + 1, last), (first, step, "2n + 7"))


def sums_with_dots(draws: Random) -> Question:
    base = draws.randint(2, 30)

    def write(one: int) -> list[str]:
        return [
            *(f"1 + {one} + {one}^2 + \\cdots + {one}^n", f"1 + {one} + {one}^2 + \\dots + {one}^n"),
            *(f"1+{one}+{one}^2+\\ldots+{one}^n", f"1 + {one} + {one}^{{2}} + \\cdots + {one}^{{n}}"),
        ]

    asked = ask(write, (base,), (base + 1,))
    return Question(asked.gold, asked.equal, (*asked.unequal, f"1 + {base} + {base}^2 + \\cdots + {base}^{{n+1}}"))


# Several values


def solutions_with_or(draws: Random) -> Question:
    one, two = draw_numbers(draws, 2)
    letter = draws.choice(LETTERS)

    def write(first: int, second: int) -> list[str]:
        return [
            *(f"{letter} = {first} \\text{{ or }} {letter} = {second}", f"{second}, {first}"),
            *(f"{letter} = {second}, {letter} = {first}", f"{letter} = {first}, {second}"),
            *(f"{letter} \\in \\{{{first}, {second}\\}}", f"\\{{{second}, {first}\\}}"),
            *(f"{first} \\text{{ or }} {second}", f"{letter} = {second} \\text{{ or }} {first}"),
        ]

    asked = ask(write, (one, two), (one, two + 61), (one + 61, two), problem=f"Solve for ${letter}$.")
    return Question(asked.gold, asked.equal, (*asked.unequal, f"{letter} = {one}", f"{one}"), asked.problem)


def memberships_in_sets(draws: Random) -> Question:
    asked = solutions_with_or(draws)
    gold = asked.equal[3]
    return Question(gold, (asked.gold, *(text for text in asked.equal if text != gold)), asked.unequal, asked.problem)


def plus_and_minus(draws: Random) -> Question:
    number = draws.randint(2, 999)

    def write(one: int) -> list[str]:
        return [
            *(f"\\pm {one}", f"{one}, -{one}", f"-{one}, {one}", f"\\{{-{one}, {one}\\}}", f"x = \\pm {one}"),
            *(f"-{one} \\text{{ or }} {one}", f"±{one}"),
        ]

    asked = ask(write, (number,), (number + 1,), (number * 10,), problem="Solve for $x$.")
    return Question(asked.gold, asked.equal, (*asked.unequal, f"{number}", f"-{number}"), asked.problem)


def sums_with_plus_and_minus(draws: Random) -> Question:
    whole, root = draw_nonzero(draws, 20), draws.choice([2, 3, 5, 6, 7, 10, 11])

    def write(one: int, inside: int) -> list[str]:
        return [
            *(f"{one} \\pm \\sqrt{{{inside}}}", f"{one} + \\sqrt{{{inside}}}, {one} - \\sqrt{{{inside}}}"),
            *(f"{one} - \\sqrt{{{inside}}}, {one} + \\sqrt{{{inside}}}", f"x = {one} \\pm \\sqrt{{{inside}}}"),
            f"\\{{{one} - \\sqrt{{{inside}}}, {one} + \\sqrt{{{inside}}}\\}}",
            f"{one} + \\sqrt{{{inside}}} \\text{{ or }} {one} - \\sqrt{{{inside}}}",
        ]

    asked = ask(write, (whole, root), (-whole, root), (whole, root + 2), problem="Solve for $x$.")
    return Question(asked.gold, asked.equal, (*asked.unequal, f"{whole} + \\sqrt{{{root}}}"), asked.problem)


def _draw_named(draws: Random, count: int) -> tuple[list[str], list[int]]:
    names = draws.choice([("a", "b", "c"), ("x", "y", "z"), ("q", "r", "s"), ("m", "n", "k"), ("p", "q", "r")])
    return list(names[:count]), draw_numbers(draws, count)


def named_values(draws: Random) -> Question:
    names, values = _draw_named(draws, draws.choice([2, 2, 3]))
    changed = [values[0] + 61, *values[1:]]

    def write(called: list[str], numbers: list[int]) -> list[str]:
        named = [f"{name} = {number}" for name, number in zip(called, numbers, strict=True)]
        return [
            *(", ".join(named), ", ".join(reversed(named)), ",".join(named).replace(" ", "")),
            f"{', '.join(named[:-1])} \\text{{ and }} {named[-1]}",
            *(f"{', '.join(named[:0:-1])} \\text{{ and }} {named[0]}", ",\\quad ".join(named), "; ".join(named)),
        ]

    asked = ask(
        write,
        (names, values),
        (names, values[::-1]),
        (names[::-1], values),
        (names, changed),
        ([*names[:-1], "w"], values),
    )
    bare = (", ".join(map(str, values)), f"({', '.join(map(str, values))})")
    wrong = (", ".join(map(str, values[::-1])), f"({', '.join(map(str, changed))})")
    return Question(asked.gold, (*asked.equal, *bare), (*asked.unequal, *wrong))


def named_values_with_and(draws: Random) -> Question:
    asked = named_values(draws)
    gold = asked.equal[2]
    return Question(gold, (asked.gold, *(text for text in asked.equal if text != gold)), asked.unequal)


def named_expressions(draws: Random) -> Question:
    one, two = draw_numbers(draws, 2, 12)
    first, second = (write_polynomial([(number, "t"), (1, "")]) for number in (one, two))
    turned = tuple(write_polynomial([(1, ""), (number, "t")]) for number in (one, two))
    return Question(
        f"x = {first}, y = {second}",
        (
            f"y = {second}, x = {first}",
            f"x = {turned[0]}, y = {turned[1]}",
            f"({first}, {second})",
            f"x={first} \\text{{ and }} y={second}",
        ),
        (
            f"x = {second}, y = {first}",
            f"y = {first}, x = {second}",
            f"({second}, {first})",
            f"x = {first}, y = {first}",
            f"x = {first} + 1, y = {second}",
        ),
    )


def values_with_one_name(draws: Random) -> Question:
    value = Fraction(draw_nonzero(draws, 60), draws.choice([1, 2, 4, 5]))
    letter = draws.choice(LETTERS)

    def write(one: Fraction) -> list[str]:
        text = write_fraction(one)
        return [
            *(f"{letter} = {text}", text, f"{text} = {letter}", f"{letter}={text}", f"{letter} = {float(one):g}"),
            f"{letter} \\, = \\, {text}",
        ]

    return ask(write, (value,), (-value,), (value + 1,), problem=f"Solve for ${letter}$.")


# Equations


def equations_of_lines(draws: Random) -> Question:
    slope, shift = draws.choice([-1, 1]) * draws.randint(2, 12), draw_nonzero(draws, 12)

    def write(times: int, more: int) -> list[str]:
        line = write_polynomial([(times, "x"), (more, "")])
        return [
            *(f"y = {line}", f"{line} = y", f"y={line.replace(' ', '')}"),
            f"y = {write_polynomial([(more, ''), (times, 'x')])}",
            f"y = {write_polynomial([(times, ' x'), (more, '')])}",
        ]

    return ask(
        write,
        (slope, shift),
        (slope + 1 or 3, shift),
        (slope, -shift),
        (-slope, shift),
        problem="Give the equation of the line.",
    )


def equations_rearranged(draws: Random) -> Question:
    one, two, three = (draws.choice([-1, 1]) * draws.randint(2, 12) for _ in range(3))

    def write(first: int, second: int, third: int) -> list[str]:
        left = write_polynomial([(first, "x"), (second, "y")])
        return [
            *(f"{left} = {third}", f"{left} {'-' if third > 0 else '+'} {abs(third)} = 0"),
            *(f"{write_polynomial([(-first, 'x'), (-second, 'y')])} = {-third}", f"{third} = {left}"),
            f"{write_polynomial([(second, 'y'), (first, 'x')])} = {third}",
            f"{write_polynomial([(2 * first, 'x'), (2 * second, 'y')])} = {2 * third}",
        ]

    return ask(
        write,
        (one, two, three),
        (one, two, -three),
        (one, -two, three),
        (one + 20, two, three),
        problem="Give the equation of the line.",
    )


def circles(draws: Random) -> Question:
    one, two, radius = draw_nonzero(draws, 9), draw_nonzero(draws, 9), draws.randint(2, 12)

    def write(first: int, second: int, third: int) -> list[str]:
        left, right = (
            write_polynomial([(1, letter), (-number, "")]) for letter, number in (("x", first), ("y", second))
        )
        return [
            *(f"({left})^2 + ({right})^2 = {third * third}", f"({right})^2 + ({left})^2 = {third * third}"),
            *(f"({left})^{{2}}+({right})^{{2}}={third * third}", f"{third * third} = ({left})^2 + ({right})^2"),
            f"({left})^2 + ({right})^2 = {third}^2",
        ]

    return ask(
        write,
        (one, two, radius),
        (-one, two, radius),
        (one, two, radius + 1),
        (one, -two, radius),
        problem="Give the equation of the circle.",
    )


def vertical_and_horizontal_lines(draws: Random) -> Question:
    number = draw_nonzero(draws, 90)
    letter, other = draws.sample(["x", "y"], 2)

    def write(name: str, one: int) -> list[str]:
        return [f"{name} = {one}", f"{name}={one}", f"{one} = {name}", f"{name} = {one}.0", f"{name}\\,=\\,{one}"]

    return ask(
        write,
        (letter, number),
        (other, number),
        (letter, -number),
        (letter, number + 1),
        problem="Give the equation of the line.",
    )


# Matrices and vectors


def matrices(draws: Random) -> Question:
    numbers = [draws.randint(-12, 12) for _ in range(4)]
    numbers[1], numbers[2] = draws.sample(range(-12, 13), 2)

    def write(one: int, two: int, three: int, four: int) -> list[str]:
        body = f"{one} & {two} \\\\ {three} & {four}"
        return [
            *(f"\\begin{{pmatrix}} {body} \\end{{pmatrix}}", f"\\begin{{bmatrix}} {body} \\end{{bmatrix}}"),
            f"\\left( \\begin{{array}}{{cc}} {body} \\end{{array}} \\right)",
            f"\\begin{{pmatrix}}{body.replace(' ', '')}\\end{{pmatrix}}",
            f"\\begin{{bmatrix}} {one}.0 & {two} \\\\ {three} & {four} \\end{{bmatrix}}",
            f"\\left[ \\begin{{array}}{{rr}} {body} \\end{{array}} \\right]",
        ]

    one, two, three, four = numbers
    return ask(
        write,
        (one, two, three, four),
        (one, three, two, four),
        (one + 1, two, three, four),
        (one, two, three, four - 30),
    )


def _write_matrix(name: str, entries: Sequence[str]) -> str:
    one, two, three, four = entries
    return f"\\begin{{{name}}} {one} & {two} \\\\ {three} & {four} \\end{{{name}}}"


def matrices_of_fractions(draws: Random) -> Question:
    one, two, three, four = (Fraction(draw_nonzero(draws, 15), 4) for _ in range(4))

    def write(*values: Fraction) -> list[str]:
        texts, plain = [write_fraction(value) for value in values], [f"{float(value):g}" for value in values]
        return [
            *(_write_matrix("pmatrix", texts), _write_matrix("bmatrix", plain), _write_matrix("pmatrix", plain)),
            _write_matrix("bmatrix", [text.replace("\\frac", "\\dfrac") for text in texts]),
        ]

    wrong = ((-one, two, three, four), (one, two, three, four + 1), (one, two + 5, three, four))
    return ask(write, (one, two, three, four), *wrong)


def column_vectors(draws: Random) -> Question:
    numbers = draw_numbers(draws, 3)

    def write(*values: int) -> list[str]:
        body = " \\\\ ".join(map(str, values))
        return [
            *(f"\\begin{{pmatrix}} {body} \\end{{pmatrix}}", f"\\begin{{bmatrix}} {body} \\end{{bmatrix}}"),
            f"\\begin{{pmatrix}}{body.replace(' ', '')}\\end{{pmatrix}}",
            f"\\left[\\begin{{array}}{{c}} {body} \\end{{array}}\\right]",
        ]

    return ask(
        write, tuple(numbers), tuple(numbers[::-1]), (-numbers[0], *numbers[1:]), (*numbers[:2], numbers[2] + 61)
    )


def vectors_in_angle_brackets(draws: Random) -> Question:
    numbers = draw_numbers(draws, draws.randint(2, 3))

    def write(*values: int) -> list[str]:
        text = ", ".join(map(str, values))
        return [
            *(f"\\langle {text} \\rangle", f"\\left\\langle {text} \\right\\rangle"),
            *(f"\\langle {text.replace(' ', '')}\\rangle", f"({text})"),
            f"\\left\\langle {', '.join(f'{value}.0' for value in values)} \\right\\rangle",
        ]

    return ask(
        write, tuple(numbers), tuple(numbers[::-1]), (-numbers[0], *numbers[1:]), (*numbers[:-1], numbers[-1] + 61)
    )


# Several boxes


def several_boxes(draws: Random) -> Question:
    """The same in each; a second guess is no answer."""
    value = Fraction(draw_nonzero(draws, 40), draws.choice([1, 2, 4, 5, 8]))
    wrong = value + draw_nonzero(draws, 5)

    def write(one: Fraction, two: Fraction) -> list[str]:
        first, second, plain = write_fraction(one), write_fraction(two), f"{float(two):g}"
        return [
            *(first, f"So $\\boxed{{{first}}}$. Final answer: $\\boxed{{{second}}}$."),
            f"So $\\boxed{{x = {first}}}$. Final answer: $\\boxed{{{second}}}$.",
            f"So $\\boxed{{{first}}}$, which is $\\boxed{{{plain}}}$.",
            f"$\\boxed{{{first}}}$ or $\\boxed{{x = {plain}}}$",
        ]

    asked = ask(
        write,
        (value, value),
        (value, wrong),
        (wrong, value),
        (wrong, wrong),
        problem="Solve for $x$.",
        in_one_box=False,
    )
    bare = {write_fraction(value), write_fraction(wrong)}
    return Question(
        asked.gold, asked.equal, tuple(text for text in asked.unequal if text not in bare), asked.problem, False
    )


def boxes_for_named_values(draws: Random) -> Question:
    names, values = _draw_named(draws, 2)

    def write(called: list[str], numbers: list[int]) -> list[str]:
        one, two = (f"{name} = {number}" for name, number in zip(called, numbers, strict=True))
        return [
            *(f"{one}, {two}", f"So $\\boxed{{{one}}}$ and $\\boxed{{{two}}}$."),
            f"Thus $\\boxed{{{two}}}$, $\\boxed{{{one}}}$.",
            f"So $\\boxed{{{one}, {two}}}$. That is, $\\boxed{{{two}, {one}}}$.",
        ]

    asked = ask(write, (names, values), (names, values[::-1]), (names, [values[0] + 61, values[1]]), in_one_box=False)
    return Question(
        asked.gold, asked.equal, tuple(text for text in asked.unequal if "boxed" in text), asked.problem, False
    )


def sizes_of_brackets(draws: Random) -> Question:
    one, two = draw_numbers(draws, 2)

    def write(first: int, second: int) -> list[str]:
        return [
            f"\\left( \\frac{{{first}}}{{31}}, {second} \\right)",
            *(f"\\bigl( \\frac{{{first}}}{{31}}, {second} \\bigr)", f"\\big( \\frac{{{first}}}{{31}}, {second} \\big)"),
            f"\\Big( \\frac{{{first}}}{{31}}, {second} \\Big)",
            *(f"\\biggl( \\frac{{{first}}}{{31}}, {second} \\biggr)", f"( \\frac{{{first}}}{{31}}, {second} )"),
            f"\\left(\\frac{{{first}}}{{31}},\\,{second}\\right)",
        ]

    return ask(write, (one, two), (two, one), (-one, two), (one, two + 61))


KINDS: Final = (
    *(sets, sets_of_fractions, lists_in_any_order, lists_with_words_between, lists_in_the_order_asked_for),
    *(answers_respectively, tuples, points_with_fractions, points_with_roots, lists_of_pairs, lists_with_dots),
    *(sums_with_dots, solutions_with_or, memberships_in_sets, plus_and_minus, sums_with_plus_and_minus, named_values),
    *(named_values_with_and, named_expressions, values_with_one_name, equations_of_lines, equations_rearranged),
    *(circles, vertical_and_horizontal_lines, matrices, matrices_of_fractions, column_vectors),
    *(vectors_in_angle_brackets, several_boxes, boxes_for_named_values, sizes_of_brackets),
)
