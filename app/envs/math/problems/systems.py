"""Complex numbers, matrices, inequalities, sets."""

from collections.abc import Sequence
from fractions import Fraction

from app.envs.math.problems.algebra import whole
from app.envs.math.problems.writing import Asked, Level, asked, fraction, joined, multiplied, polynomial, size, times
from app.toolkit.seeded import Draws

Matrix = Sequence[Sequence[int]]


def _complex(real: Fraction | int, imaginary: Fraction | int) -> str:
    parts = [fraction(real)] if real else []
    return joined([*parts, times(imaginary, "i")] if imaginary else parts)


def complex_product(draws: Draws, level: Level) -> Asked:
    most = (5, 9, 9)[size(level)]
    factors = [(whole(draws, most), whole(draws, most)) for _ in range(3 if level == "hard" else 2)]
    real, imaginary = 1, 0
    for one, two in factors:
        real, imaginary = real * one - imaginary * two, real * two + imaginary * one
    said = "".join(f"({_complex(one, two)})" for one, two in factors)
    return asked(_complex(real, imaginary), "expanded", expression=said)


def complex_quotient(draws: Draws, level: Level) -> Asked:
    most = (4, 7, 12)[size(level)]
    one, two, three, four = (whole(draws, most) for _ in range(4))
    norm = three**2 + four**2
    answer = _complex(Fraction(one * three + two * four, norm), Fraction(two * three - one * four, norm))
    return asked(answer, "expanded", above=_complex(one, two), below=_complex(three, four))


def _drawn(draws: Draws, rows: int, columns: int, most: int) -> list[list[int]]:
    return [[draws.below(2 * most + 1) - most for _ in range(columns)] for _ in range(rows)]


def _written(matrix: Matrix) -> str:
    rows = " \\\\ ".join(" & ".join(map(str, row)) for row in matrix)
    return f"\\begin{{pmatrix}} {rows} \\end{{pmatrix}}"


def determinant(draws: Draws, level: Level) -> Asked:
    matrix = _drawn(draws, *((2, 2, 12), (3, 3, 5), (3, 3, 12))[size(level)])
    return asked(str(_determinant(matrix)), matrix=_written(matrix))


def _determinant(matrix: Matrix) -> int:
    if len(matrix) == 1:
        return matrix[0][0]
    minors = ([row[:place] + row[place + 1 :] for row in map(list, matrix[1:])] for place in range(len(matrix)))
    return sum((-1) ** place * matrix[0][place] * _determinant(minor) for place, minor in enumerate(minors))


def matrix_product(draws: Draws, level: Level) -> Asked:
    rows, inner, columns, most = ((2, 2, 2, 5), (2, 3, 2, 6), (3, 3, 2, 7))[size(level)]
    one, two = _drawn(draws, rows, inner, most), _drawn(draws, inner, columns, most)
    product = [
        [sum(a * b for a, b in zip(row, column, strict=True)) for column in zip(*two, strict=True)] for row in one
    ]
    return asked(_written(product), shape="matrix", one=_written(one), two=_written(two))


def linear_inequality(draws: Draws, level: Level) -> Asked:
    most = (9, 12, 20)[size(level)]
    factor, constant, right = whole(draws, most), whole(draws, most), whole(draws, 2 * most)
    sign = draws.one(("<", ">", "\\le", "\\ge"))
    bound = Fraction(right - constant, factor)
    below = (sign in ("<", "\\le")) == (factor > 0)
    closed = sign in ("\\le", "\\ge")
    if level == "hard":
        second = factor + whole(draws, 5)
        left, other = polynomial([constant, second]), polynomial([right, second - factor])
    else:
        left, other = polynomial([constant, factor]), str(right)
    end = fraction(bound)
    answer = f"(-\\infty, {end}{']' if closed else ')'}" if below else f"{'[' if closed else '('}{end}, \\infty)"
    return asked(answer, shape="intervals", inequality=f"{left} {sign} {other}")


def quadratic_inequality(draws: Draws, level: Level) -> Asked:
    lead = 1 if level == "easy" else 1 + draws.below(2 * size(level) + 1)
    while True:
        first, second = Fraction(whole(draws, 9), lead), Fraction(whole(draws, 9))
        if first != second:
            break
    lower, upper = sorted((first, second))
    found = polynomial(multiplied([-first.numerator * (lead // first.denominator), lead], [-second.numerator, 1]))
    sign = draws.one(("<", ">", "\\le", "\\ge"))
    one, two = fraction(lower), fraction(upper)
    answer = {
        "<": f"({one}, {two})",
        "\\le": f"[{one}, {two}]",
        ">": f"(-\\infty, {one}) \\cup ({two}, \\infty)",
        "\\ge": f"(-\\infty, {one}] \\cup [{two}, \\infty)",
    }[sign]
    return asked(answer, shape="intervals", inequality=f"{found} {sign} 0")


def absolute_inequality(draws: Draws, level: Level) -> Asked:
    factor = 1 + draws.below((1, 4, 9)[size(level)])
    constant, right = whole(draws, 15), 1 + draws.below(20)
    lower, upper = fraction(Fraction(-right - constant, factor)), fraction(Fraction(right - constant, factor))
    sign = draws.one(("<", ">", "\\le", "\\ge"))
    answer = {
        "<": f"({lower}, {upper})",
        "\\le": f"[{lower}, {upper}]",
        ">": f"(-\\infty, {lower}) \\cup ({upper}, \\infty)",
        "\\ge": f"(-\\infty, {lower}] \\cup [{upper}, \\infty)",
    }[sign]
    return asked(
        answer, shape="intervals", inequality=f"\\left|{polynomial([constant, factor])}\\right| {sign} {right}"
    )


def set_operation(draws: Draws, level: Level) -> Asked:
    count = 4 + 2 * size(level)
    sign = draws.one(("\\cup", "\\cap", "\\setminus"))
    while True:
        one, two = (set(draws.some(range(1, 3 * count), count + draws.below(3))) for _ in range(2))
        found = {"\\cup": one | two, "\\cap": one & two, "\\setminus": one - two}[sign]
        if len(found) > 1 and found not in (one, two):
            said = [f"\\{{{', '.join(map(str, sorted(numbers)))}\\}}" for numbers in (found, one, two)]
            return asked(said[0], shape="set", one=said[1], two=said[2], operation=f"A {sign} B")
