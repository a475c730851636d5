"""Pairs of intervals, inequalities, unions of them, whole lines and empty sets. `pairs` says what a kind is."""

from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Final

from tests.toolkit.math_answers.pairs import LETTERS, Question, ask, draw_nonzero, draw_numbers, write_fraction


def _draw_bounds(draws: Random) -> tuple[Fraction, Fraction]:
    drawn = {Fraction(draw_nonzero(draws, 25), draws.choice([1, 1, 1, 2, 3, 4])) for _ in range(8)}
    low, high = sorted(draws.sample(sorted(drawn), 2))
    return low, high


def _write_interval(low: Fraction, high: Fraction, closed: tuple[bool, bool]) -> str:
    return f"{'[' if closed[0] else '('}{write_fraction(low)}, {write_fraction(high)}{']' if closed[1] else ')'}"


def _write_between(low: Fraction, high: Fraction, closed: tuple[bool, bool], letter: str = "x") -> str:
    first, second = ("\\le" if one else "<" for one in closed)
    return f"{write_fraction(low)} {first} {letter} {second} {write_fraction(high)}"


def _draw_closed(draws: Random) -> tuple[bool, bool]:
    return draws.random() < 0.5, draws.random() < 0.5


def _ask_interval(
    draws: Random, write: Callable[[Fraction, Fraction, tuple[bool, bool]], list[str]], problem: str
) -> Question:
    low, high = _draw_bounds(draws)
    closed = _draw_closed(draws)
    return ask(
        write,
        (low, high, closed),
        (low, high, (not closed[0], closed[1])),
        (low, high, (closed[0], not closed[1])),
        (low - 1, high, closed),
        (low, high + Fraction(1, 2), closed),
        problem=problem,
    )


def intervals(draws: Random) -> Question:
    def write(low: Fraction, high: Fraction, closed: tuple[bool, bool]) -> list[str]:
        text = _write_interval(low, high, closed)
        return [
            *(text, text.replace(", ", ","), f"\\left{text[:-1]}\\right{text[-1]}"),
            f"\\left{text[:-1]}\\right{text[-1]}".replace("\\frac", "\\dfrac"),
            f"{text[0]}{float(low):g}, {float(high):g}{text[-1]}"
            if 3 not in (low.denominator, high.denominator)
            else text,
            f"\\big{text[:-1]}\\big{text[-1]}",
        ]

    return _ask_interval(draws, write, problem="Solve the inequality.")


def intervals_with_outward_brackets(draws: Random) -> Question:
    def write(low: Fraction, high: Fraction, closed: tuple[bool, bool]) -> list[str]:
        one, two = write_fraction(low), write_fraction(high)
        first, last = "[" if closed[0] else "]", "]" if closed[1] else "["
        return [
            *(_write_interval(low, high, closed), f"{first}{one}, {two}{last}"),
            *(f"\\left{first}{one}, {two}\\right{last}", f"{first}{one},{two}{last}"),
        ]

    return _ask_interval(draws, write, problem="Solve the inequality.")


def intervals_as_inequalities(draws: Random) -> Question:
    def write(low: Fraction, high: Fraction, closed: tuple[bool, bool]) -> list[str]:
        text = _write_between(low, high, closed)
        first, second = ("\\ge" if one else ">" for one in closed)
        last = "\\le" if closed[1] else "<"
        one, two = write_fraction(low), write_fraction(high)
        backwards = f"{two} {second} x {first} {one}"
        return [
            *(_write_interval(low, high, closed), text, text.replace("\\le", "\\leq"), text.replace("<", "\\lt")),
            *(text.replace("\\le", "≤"), backwards, f"x {first} {one} \\text{{ and }} x {last} {two}"),
        ]

    return _ask_interval(draws, write, problem="Solve for $x$.")


def inequalities_as_intervals(draws: Random) -> Question:
    def write(low: Fraction, high: Fraction, closed: tuple[bool, bool]) -> list[str]:
        text = _write_interval(low, high, closed)
        return [
            *(_write_between(low, high, closed), text, f"x \\in {text}", f"\\left{text[:-1]}\\right{text[-1]}"),
            _write_between(low, high, closed).replace("\\le", "\\leqslant"),
        ]

    return _ask_interval(draws, write, problem="Solve for $x$.")


def intervals_by_membership(draws: Random) -> Question:
    letter = draws.choice(("x", "k", "a", "m"))

    def write(low: Fraction, high: Fraction, closed: tuple[bool, bool]) -> list[str]:
        text = _write_interval(low, high, closed)
        return [
            *(f"{letter} \\in {text}", text, f"{letter}\\in{text}"),
            *(f"{letter} \\in \\left{text[:-1]}\\right{text[-1]}", _write_between(low, high, closed, letter)),
            f"{letter} ∈ {text}",
        ]

    return _ask_interval(draws, write, problem=f"Which values may ${letter}$ have?")


def intervals_as_sets(draws: Random) -> Question:
    def write(low: Fraction, high: Fraction, closed: tuple[bool, bool]) -> list[str]:
        between = _write_between(low, high, closed)
        return [
            *(_write_interval(low, high, closed), f"\\{{x \\mid {between}\\}}", f"\\{{x : {between}\\}}"),
            *(f"\\{{ x \\in \\mathbb{{R}} \\mid {between} \\}}", f"\\left\\{{x \\mid {between}\\right\\}}"),
            f"\\{{x | {between}\\}}",
        ]

    asked = _ask_interval(draws, write, problem="Solve the inequality.")
    if draws.random() < 0.5:
        return asked
    return Question(asked.equal[0], (asked.gold, *asked.equal[1:]), asked.unequal, asked.problem)


def rays(draws: Random) -> Question:
    low, _ = _draw_bounds(draws)
    closed, upward = _draw_closed(draws)

    def write(bound: Fraction, is_closed: bool, up: bool) -> list[str]:
        text = write_fraction(bound)
        interval = (
            f"{'[' if is_closed else '('}{text}, \\infty)" if up else f"(-\\infty, {text}{']' if is_closed else ')'}"
        )
        more, less = ("\\ge", "\\le") if is_closed else (">", "<")
        return [
            *(interval, f"x {more if up else less} {text}", f"{text} {less if up else more} x", f"x \\in {interval}"),
            *(f"\\{{x \\mid x {more if up else less} {text}\\}}", f"\\left{interval[:-1]}\\right{interval[-1]}"),
            interval.replace(" \\infty", " +\\infty"),
        ]

    return ask(
        write,
        (low, closed, upward),
        (low, not closed, upward),
        (low, closed, not upward),
        (low + 1, closed, upward),
        problem="Solve for $x$.",
    )


def inequalities(draws: Random) -> Question:
    bound, _ = _draw_bounds(draws)
    mark, other = draws.sample([">", "<", "\\ge", "\\le"], 2)
    letter = draws.choice(LETTERS)
    turned = {">": "<", "<": ">", "\\ge": "\\le", "\\le": "\\ge"}
    long = {">": "\\gt", "<": "\\lt", "\\ge": "\\geq", "\\le": "\\leq"}
    sign = {">": ">", "<": "<", "\\ge": "≥", "\\le": "≤"}

    def write(one: Fraction, of: str) -> list[str]:
        text = write_fraction(one)
        return [
            *(f"{letter} {of} {text}", f"{text} {turned[of]} {letter}", f"{letter} {long[of]} {text}"),
            *(f"{letter} {sign[of]} {text}", f"{letter} {of} {one}"),
        ]

    return ask(
        write, (bound, mark), (bound, other), (bound + 1, mark), (-bound, mark), problem=f"Solve for ${letter}$."
    )


def unions(draws: Random) -> Question:
    low, high = _draw_bounds(draws)
    closed = _draw_closed(draws)

    def write(one: Fraction, two: Fraction, of: tuple[bool, bool]) -> list[str]:
        first = f"(-\\infty, {write_fraction(one)}{']' if of[0] else ')'}"
        second = f"{'[' if of[1] else '('}{write_fraction(two)}, \\infty)"
        less, more = "\\le" if of[0] else "<", "\\ge" if of[1] else ">"
        return [
            *(f"{first} \\cup {second}", f"{second} \\cup {first}", f"{first}\\cup{second}"),
            f"x {less} {write_fraction(one)} \\text{{ or }} x {more} {write_fraction(two)}",
            f"x \\in {first} \\cup {second}",
            f"\\left{first[:-1]}\\right{first[-1]} \\cup \\left{second[:-1]}\\right{second[-1]}",
            f"x {more} {write_fraction(two)} \\text{{ or }} x {less} {write_fraction(one)}",
        ]

    asked = ask(
        write,
        (low, high, closed),
        (low, high, (not closed[0], closed[1])),
        (low, high, (closed[0], not closed[1])),
        (low - 1, high, closed),
        (low, high + 1, closed),
        problem="Solve for $x$.",
    )
    other = (
        asked.equal[2].replace(" or ", " and "),
        asked.gold.replace("\\cup", "\\cap"),
        _write_interval(low, high, closed),
        asked.gold.partition(" \\cup")[0],
    )
    return Question(asked.gold, asked.equal, (*asked.unequal, *other), asked.problem)


def unions_of_bounded_intervals(draws: Random) -> Question:
    first, second, third, fourth = sorted(draw_numbers(draws, 4))
    closed = (*_draw_closed(draws), *_draw_closed(draws))

    def write(numbers: tuple[int, ...], of: tuple[bool, ...]) -> list[str]:
        one = _write_interval(Fraction(numbers[0]), Fraction(numbers[1]), (of[0], of[1]))
        two = _write_interval(Fraction(numbers[2]), Fraction(numbers[3]), (of[2], of[3]))
        between = _write_between(Fraction(numbers[0]), Fraction(numbers[1]), (of[0], of[1]))
        beyond = _write_between(Fraction(numbers[2]), Fraction(numbers[3]), (of[2], of[3]))
        return [
            *(f"{one} \\cup {two}", f"{two} \\cup {one}", f"{between} \\text{{ or }} {beyond}"),
            *(f"\\left{one[:-1]}\\right{one[-1]}\\cup\\left{two[:-1]}\\right{two[-1]}", f"x \\in {one} \\cup {two}"),
        ]

    numbers = (first, second, third, fourth)
    return ask(
        write,
        (numbers, closed),
        ((first - 1, second, third, fourth), closed),
        ((first, second, third, fourth + 1), closed),
        (numbers, (not closed[0], *closed[1:])),
        (numbers, (*closed[:3], not closed[3])),
        problem="Solve for $x$.",
    )


def lines_without_a_point(draws: Random) -> Question:
    number = draw_nonzero(draws, 40)

    def write(one: int) -> list[str]:
        return [
            *(f"(-\\infty, {one}) \\cup ({one}, \\infty)", f"\\mathbb{{R}} \\setminus \\{{{one}\\}}", f"x \\ne {one}"),
            *(f"x \\neq {one}", f"({one}, \\infty) \\cup (-\\infty, {one})"),
            *(f"\\mathbb{{R}} \\backslash \\{{{one}\\}}", f"x < {one} \\text{{ or }} x > {one}"),
        ]

    asked = ask(write, (number,), (-number,), (number + 1,), problem="What is the domain?")
    wrong = (f"x = {number}", "\\mathbb{R}", f"(-\\infty, {number}] \\cup ({number}, \\infty)", f"({number}, \\infty)")
    if draws.random() < 0.5:
        return Question(asked.gold, asked.equal, (*asked.unequal, *wrong), asked.problem)
    return Question(asked.equal[0], (asked.gold, *asked.equal[1:]), (*asked.unequal, *wrong), asked.problem)


def whole_lines(draws: Random) -> Question:
    """There are few ways to say it; any bound is a wrong answer."""
    number = draw_nonzero(draws, 60)
    forms = [
        *("\\mathbb{R}", "(-\\infty, \\infty)", "\\text{all real numbers}", "(-\\infty, +\\infty)"),
        *("x \\in \\mathbb{R}", "\\left(-\\infty, \\infty\\right)", "\\text{All real numbers}", "ℝ"),
        "all real numbers",
    ]
    gold = draws.choice(forms[:4])
    wrong = (
        f"({number}, \\infty)",
        f"(-\\infty, {number}]",
        "\\mathbb{Z}",
        f"x \\ne {number}",
        "\\mathbb{Q}",
        "\\emptyset",
    )
    return Question(gold, tuple(text for text in forms if text != gold), wrong, "Solve the inequality.")


def empty_sets(draws: Random) -> Question:
    """There are few ways to say it; any set that holds something is a wrong answer."""
    number = draw_nonzero(draws, 60)
    forms = ["\\emptyset", "\\varnothing", "\\{\\}", "\\{ \\}", "∅", "\\left\\{\\right\\}"]
    gold = draws.choice(forms[:3])
    wrong = ("0", "\\{0\\}", f"\\{{{number}\\}}", f"{number}", "\\mathbb{R}", "\\{\\emptyset\\}")
    return Question(gold, tuple(text for text in forms if text != gold), wrong, "Find the set of solutions.")


KINDS: Final = (
    *(intervals, intervals_with_outward_brackets, intervals_as_inequalities, inequalities_as_intervals),
    *(intervals_by_membership, intervals_as_sets, rays, inequalities, unions, unions_of_bounded_intervals),
    *(lines_without_a_point, whole_lines, empty_sets),
)
