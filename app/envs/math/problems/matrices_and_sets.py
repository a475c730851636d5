"""Complex numbers, matrices, inequalities, sets."""

from collections.abc import Sequence
from fractions import Fraction

from app.envs.math.problems.algebra import draw_nonzero
from app.envs.math.problems.latex import (
    Level,
    MathProblem,
    build_problem,
    multiply_polynomials,
    rank_level,
    write_fraction,
    write_polynomial,
    write_product,
    write_sum,
)
from app.toolkit.seeded import SeededRandom

Matrix = Sequence[Sequence[int]]


def _write_complex(real: Fraction | int, imaginary: Fraction | int) -> str:
    parts = [write_fraction(real)] if real else []
    return write_sum([*parts, write_product(imaginary, "i")] if imaginary else parts)


def make_complex_product(draws: SeededRandom, level: Level) -> MathProblem:
    most = (5, 9, 9)[rank_level(level)]
    factors = [(draw_nonzero(draws, most), draw_nonzero(draws, most)) for _ in range(3 if level == "hard" else 2)]
    real, imaginary = 1, 0
    for one, two in factors:
        real, imaginary = real * one - imaginary * two, real * two + imaginary * one
    said = "".join(f"({_write_complex(one, two)})" for one, two in factors)
    return build_problem(_write_complex(real, imaginary), "expanded", expression=said)


def make_complex_quotient(draws: SeededRandom, level: Level) -> MathProblem:
    most = (4, 7, 12)[rank_level(level)]
    one, two, three, four = (draw_nonzero(draws, most) for _ in range(4))
    norm = three**2 + four**2
    answer = _write_complex(Fraction(one * three + two * four, norm), Fraction(two * three - one * four, norm))
    return build_problem(answer, "expanded", above=_write_complex(one, two), below=_write_complex(three, four))


def _draw_matrix(draws: SeededRandom, rows: int, columns: int, most: int) -> list[list[int]]:
    return [[draws.below(2 * most + 1) - most for _ in range(columns)] for _ in range(rows)]


def _write_matrix(matrix: Matrix) -> str:
    rows = " \\\\ ".join(" & ".join(map(str, row)) for row in matrix)
    return f"\\begin{{pmatrix}} {rows} \\end{{pmatrix}}"


def make_determinant(draws: SeededRandom, level: Level) -> MathProblem:
    matrix = _draw_matrix(draws, *((2, 2, 12), (3, 3, 5), (3, 3, 12))[rank_level(level)])
    return build_problem(str(_compute_determinant(matrix)), matrix=_write_matrix(matrix))


def _compute_determinant(matrix: Matrix) -> int:
    if len(matrix) == 1:
        return matrix[0][0]
    minors = ([row[:place] + row[place + 1 :] for row in map(list, matrix[1:])] for place in range(len(matrix)))
    return sum((-1) ** place * matrix[0][place] * _compute_determinant(minor) for place, minor in enumerate(minors))


def make_matrix_product(draws: SeededRandom, level: Level) -> MathProblem:
    rows, inner, columns, most = ((2, 2, 2, 5), (2, 3, 2, 6), (3, 3, 2, 7))[rank_level(level)]
    one, two = _draw_matrix(draws, rows, inner, most), _draw_matrix(draws, inner, columns, most)
    product = [
        [sum(a * b for a, b in zip(row, column, strict=True)) for column in zip(*two, strict=True)] for row in one
    ]
    return build_problem(_write_matrix(product), shape="matrix", one=_write_matrix(one), two=_write_matrix(two))


def make_linear_inequality(draws: SeededRandom, level: Level) -> MathProblem:
    most = (9, 12, 20)[rank_level(level)]
    factor, constant, right = draw_nonzero(draws, most), draw_nonzero(draws, most), draw_nonzero(draws, 2 * most)
    sign = draws.one(("<", ">", "\\le", "\\ge"))
    bound = Fraction(right - constant, factor)
    below = (sign in ("<", "\\le")) == (factor > 0)
    closed = sign in ("\\le", "\\ge")
    if level == "hard":
        second = factor + draw_nonzero(draws, 5)
        left, other = write_polynomial([constant, second]), write_polynomial([right, second - factor])
    else:
        left, other = write_polynomial([constant, factor]), str(right)
    end = write_fraction(bound)
    answer = f"(-\\infty, {end}{']' if closed else ')'}" if below else f"{'[' if closed else '('}{end}, \\infty)"
    return build_problem(answer, shape="intervals", inequality=f"{left} {sign} {other}")


def make_quadratic_inequality(draws: SeededRandom, level: Level) -> MathProblem:
    lead = 1 if level == "easy" else 1 + draws.below(2 * rank_level(level) + 1)
    while True:
        first, second = Fraction(draw_nonzero(draws, 9), lead), Fraction(draw_nonzero(draws, 9))
        if first != second:
            break
    lower, upper = sorted((first, second))
    found = write_polynomial(
        multiply_polynomials([-first.numerator * (lead // first.denominator), lead], [-second.numerator, 1])
    )
    sign = draws.one(("<", ">", "\\le", "\\ge"))
    one, two = write_fraction(lower), write_fraction(upper)
    answer = {
        "<": f"({one}, {two})",
        "\\le": f"[{one}, {two}]",
        ">": f"(-\\infty, {one}) \\cup ({two}, \\infty)",
        "\\ge": f"(-\\infty, {one}] \\cup [{two}, \\infty)",
    }[sign]
    return build_problem(answer, shape="intervals", inequality=f"{found} {sign} 0")


def make_absolute_inequality(draws: SeededRandom, level: Level) -> MathProblem:
    factor = 1 + draws.below((1, 4, 9)[rank_level(level)])
    constant, right = draw_nonzero(draws, 15), 1 + draws.below(20)
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
    return build_problem(
        answer, shape="intervals", inequality=f"\\left|{write_polynomial([constant, factor])}\\right| {sign} {right}"
    )


def make_set_operation(draws: SeededRandom, level: Level) -> MathProblem:
    count = 4 + 2 * rank_level(level)
    sign = draws.one(("\\cup", "\\cap", "\\setminus"))
    while True:
        one, two = (set(draws.some(range(1, 3 * count), count + draws.below(3))) for _ in range(2))
        found = {"\\cup": one | two, "\\cap": one & two, "\\setminus": one - two}[sign]
        if len(found) > 1 and found not in (one, two):
            said = [f"\\{{{', '.join(map(str, sorted(numbers)))}\\}}" for numbers in (found, one, two)]
            return build_problem(said[0], shape="set", one=said[1], two=said[2], operation=f"A {sign} B")
