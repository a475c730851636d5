"""Grading of answers in LaTeX: wrong, right, or to be decided by algebra in a worker.

Numbers are compared exactly: a decimal for a fraction is right when it is equal, never when it is near. Expressions are
read by our own parser; a wrong one is told by its value at a few points, what is left undone by its look. Only what may
be equal and is written differently is left for math-verify, in the shape in which our parser understood it.
"""

import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import isqrt, log
from typing import Annotated, Final, Literal, NamedTuple, Self, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, model_validator

from app.domain.errors import ScoringFailed
from app.domain.scores import Score
from app.domain.tasks import LARGE_TEXT, Limits, leave_out
from app.domain.values import Frozen
from app.ports.environment import Workers
from app.toolkit.answers import TEXT_COMMANDS, find_boxes, parse_number, read_json_cell
from app.toolkit.math_answers.expressions import (
    DOTS,
    EMPTY_SET,
    MOST_BOXED_CHARACTERS,
    ROOTED,
    WHY,
    ExpressionNode,
    compact_latex,
    extract_boxes,
    find_remainders,
    may_be_equal,
    may_need_positive_letters,
    parse_expression,
    tidy_latex,
)
from app.toolkit.math_answers.parts import (
    AnswerParts,
    Shape,
    detect_shape,
    has_angle_brackets,
    is_of_other_name,
    is_point,
    is_said_as_interval,
    read_ratio,
    round_angle_brackets,
    split_at,
    split_into_parts,
    split_items,
    split_said_unit,
    split_unit,
    strip_answer_lead,
    strip_lead,
)
from app.toolkit.texts import run_in_turn

# What an answer leaves undone. Equal is not enough: the question itself, put into a box, has the right value too. Every
# answer has its arithmetic done: no `2 + 3`, `2 \cdot 3`, `2^{10}`, `\sqrt{16}`, `0 \cdot x`, no function of a number
# that a right answer does not need (`\cos 15` where roots are asked for; `\ln 3` stays). A task may ask for more:
#
#   expanded    no product or power of a sum, nothing but a number below a fraction bar, like terms joined
#   factored    a product of factors of the right degrees
#   reduced     below fraction bars no higher degree than needed, and one fraction where one is enough
#   simplified  no more terms and roots than needed, nothing square under a root, no root below a fraction bar
#   lowest      of a number: a whole number, a decimal, or a fraction that cannot be reduced

Form = Literal["value", "expanded", "factored", "reduced", "simplified", "lowest"]

_HALF: Final = Fraction(1, 2)
_LOGARITHMS: Final = frozenset({"ln", "log"})
_UNFINISHED = "its arithmetic is not finished"


def describe_undone(answer: ExpressionNode, gold: ExpressionNode, form: Form) -> str:
    """What is left to be done, in words of ours; empty when it is in the form."""
    functions = {node.name for node in _iter_nodes(gold) if node.kind == "call"}
    functions |= _LOGARITHMS if functions & _LOGARITHMS else set()
    if any(_is_unfinished(node) or _is_rational_logarithm(node) for node in _iter_nodes(answer)):
        return _UNFINISHED
    if any(node.kind == "call" and not node.symbols and node.name not in functions for node in _iter_nodes(answer)):
        return _UNFINISHED
    if not answer.symbols <= gold.symbols:
        return "it has other variables than the answer needs"
    return _FORMS[form](answer, gold) if form in _FORMS else ""


def _is_rational_logarithm(node: ExpressionNode) -> bool:
    """`\\log_2 8` and `\\frac{\\ln 8}{\\ln 2}`: numbers that can be worked out."""
    both = node.parts
    if node.kind == "quotient" and all(part.kind == "call" and part.name == "ln" for part in both):
        both = tuple(part.parts[0] for part in both)
    elif node.kind != "call" or node.name != "log" or len(both) != 2:
        return False
    above, below = map(_to_fraction, both)
    if above is None or below is None or min(above, below) <= 0 or below == 1:
        return False
    ratio = log(above) / log(below)
    return any(abs(ratio * whole - round(ratio * whole)) < 1e-9 for whole in range(1, 13))


def _is_heavy(answer: ExpressionNode, gold: ExpressionNode) -> bool:
    """Whether algebra might not get done with it: far more in it than a right answer needs."""
    return any(measure(answer) > measure(gold) + spare for measure, spare in _MEASURES)


def _count_raised_sums(node: ExpressionNode) -> int:
    """What sums are raised to, all of it; a root within counts as its order."""
    powers = [inner for inner in _iter_nodes(node) if inner.kind == "power" and inner.parts[0].kind != "symbol"]
    return sum(round(abs(_to_fraction(power.parts[1]) or Fraction(2))) for power in powers)


def _count_calls(node: ExpressionNode) -> int:
    return sum(
        inner.kind == "call" or (inner.kind == "power" and inner.parts[0].name == "e") for inner in _iter_nodes(node)
    )


def _iter_nodes(node: ExpressionNode) -> Iterator[ExpressionNode]:
    yield node
    for part in node.parts:
        yield from _iter_nodes(part)


def _is_rational(node: ExpressionNode) -> bool:
    """Whether it is a number by its look: no symbol, root or function in it."""
    return not any(
        inner.kind in ("symbol", "root", "call") or _is_fractional_power(inner) for inner in _iter_nodes(node)
    )


def _is_fractional_power(node: ExpressionNode) -> bool:
    """A root that is written as a power."""
    return node.kind == "power" and (_to_fraction(node.parts[1]) or Fraction(1)).denominator > 1


def _is_bare_number(node: ExpressionNode) -> bool:
    return node.kind == "number" or (node.kind == "quotient" and all(part.kind == "number" for part in node.parts))


def _is_unfinished(node: ExpressionNode) -> bool:
    rational = sum(1 for part in node.parts if _is_rational(part) and part.value != -1)
    if node.kind in ("sum", "product"):
        return rational > 1 or any(part.kind == "number" and not part.value for part in node.parts)
    if node.kind == "power":
        base, exponent = node.parts
        if _to_fraction(exponent) == 0 or (_can_be_raised(base) and (_to_fraction(exponent) or _HALF).denominator == 1):
            return True
        return _is_rational(base) and not _is_true_root(base, exponent)
    if node.kind == "root":
        index, inner = node.parts
        return _is_rational(inner) and (not _is_bare_number(inner) or _is_perfect_power(inner, int(index.value)))
    return node.kind == "quotient" and _is_rational(node) and not _is_bare_number(node)


def _can_be_raised(base: ExpressionNode) -> bool:
    """Whether a whole power of it has a shorter form: of `6\\pi` or `i`, but not of `\\pi`, `\\ln 2` or `x + 1`."""
    return base.name == "i" or (not base.symbols and base.kind not in ("symbol", "call"))


def _is_true_root(base: ExpressionNode, exponent: ExpressionNode) -> bool:
    """Whether a power of a number cannot be worked out: `2^{1/3}`, `2^x`."""
    if not _is_rational(exponent):
        return True
    value = _to_fraction(exponent)
    return value is not None and value.denominator > 1 and not _is_perfect_power(base, value.denominator)


def _to_fraction(node: ExpressionNode) -> Fraction | None:
    if node.kind == "number":
        return node.value
    if _is_bare_number(node) and node.parts[1].value:
        return node.parts[0].value / node.parts[1].value
    return None


def _is_perfect_power(node: ExpressionNode, index: int) -> bool:
    """Whether the root of that order comes out even."""
    value = _to_fraction(node)
    return value is None or value < 0 or all(_is_power(part, index) for part in (value.numerator, value.denominator))


def _is_power(whole: int, index: int) -> bool:
    if index == 2:
        return isqrt(whole) ** 2 == whole
    near = round(whole ** (1 / index)) if whole < 10**15 else 0
    return any(guess**index == whole for guess in (near - 1, near, near + 1))


def _compute_degree(node: ExpressionNode) -> int:
    """As a polynomial is written, without joining like terms; 1 for functions and roots of variables."""
    if not node.symbols:
        return 0
    if node.kind == "sum":
        return max(_compute_degree(part) for part in node.parts)
    if node.kind == "product":
        return sum(_compute_degree(part) for part in node.parts)
    if node.kind == "quotient":
        return _compute_degree(node.parts[0])
    if node.kind == "power":
        power = _to_fraction(node.parts[1])
        return _compute_degree(node.parts[0]) * (max(1, round(abs(power))) if power is not None else 1)
    return 1


def _count_terms(node: ExpressionNode) -> int:
    """Of all sums in it, beyond the first of each."""
    return sum(len(inner.parts) - 1 for inner in _iter_nodes(node) if inner.kind == "sum")


def _count_roots(node: ExpressionNode) -> int:
    return sum(
        inner.kind == "root" or (not inner.symbols and _is_fractional_power(inner)) for inner in _iter_nodes(node)
    )


def _list_denominators(node: ExpressionNode) -> list[ExpressionNode]:
    """What stands below fraction bars, or under a negative power."""
    bars = [inner.parts[1] for inner in _iter_nodes(node) if inner.kind == "quotient"]
    powers = [inner for inner in _iter_nodes(node) if inner.kind == "power"]
    return bars + [power for power in powers if (exponent := _to_fraction(power.parts[1])) is not None and exponent < 0]


def _check_expanded(answer: ExpressionNode, gold: ExpressionNode) -> str:
    for node in _iter_nodes(answer):
        spread = node.kind == "product" or (node.kind == "power" and _is_rational(node.parts[1]))
        if spread and any(part.kind == "sum" for part in node.parts):
            return "it is not multiplied out"
    if any(not _is_rational(below) for below in _list_denominators(answer)):
        return "it is not worked out: there is more than a number below a fraction bar"
    return "" if _count_terms(answer) <= _count_terms(gold) else "like terms are not joined"


def _list_factor_degrees(node: ExpressionNode) -> list[int] | None:
    """Degrees of the factors that are no numbers; None where something is no polynomial."""
    if not node.symbols:
        return []
    if node.kind == "product":
        parts = [_list_factor_degrees(part) for part in node.parts]
        return None if None in parts else sorted(one for part in parts if part is not None for one in part)
    if node.kind == "power":
        power = _to_fraction(node.parts[1])
        inner = _list_factor_degrees(node.parts[0])
        whole = power is not None and power.denominator == 1 and power > 0
        return inner * int(power) if inner is not None and power is not None and whole else None
    if node.kind == "quotient":
        return None if node.parts[1].symbols else _list_factor_degrees(node.parts[0])
    return [_compute_degree(node)] if all(map(_has_whole_powers, _iter_nodes(node))) else None


def _has_whole_powers(node: ExpressionNode) -> bool:
    """Whether it can be part of a polynomial."""
    if node.kind == "power":
        power = _to_fraction(node.parts[1])
        return power is not None and power.denominator == 1 and power > 0
    return node.kind in ("number", "symbol", "sum", "product") or not node.symbols


def _check_factored(answer: ExpressionNode, gold: ExpressionNode) -> str:
    factors = _list_factor_degrees(answer)
    return "" if factors is not None and factors == _list_factor_degrees(gold) else "it is not factored completely"


def _check_reduced(answer: ExpressionNode, gold: ExpressionNode) -> str:
    needed = sum(_compute_degree(below) for below in _list_denominators(gold))
    if sum(_compute_degree(below) for below in _list_denominators(answer)) > needed:
        return "it can be reduced further"
    single = gold.kind == "quotient" or (gold.kind == "product" and any(part.kind == "quotient" for part in gold.parts))
    split = answer.kind == "sum" and sum(bool(_list_denominators(part)) for part in answer.parts) > 1
    return "it is not a single fraction" if single and split else ""


def _check_simplified(answer: ExpressionNode, gold: ExpressionNode) -> str:
    if any(not _is_rational(below) for below in _list_denominators(answer)):
        return "there is a root below a fraction bar"
    if _count_terms(answer) > _count_terms(gold) or _count_roots(answer) > _count_roots(gold):
        return "it can be simplified further"
    roots = [node for node in _iter_nodes(answer) if node.kind == "root" and _is_rational(node.parts[1])]
    return "it can be simplified further" if any(map(_has_square, roots)) else ""


def _has_square(root: ExpressionNode) -> bool:
    index, value = int(root.parts[0].value), _to_fraction(root.parts[1])
    # The primes below 1,000 show every square in a number up to a million, and not in a larger one.
    if value is None or value.numerator > 10**6 or value.denominator > 10**6:
        return True
    return any(whole % prime**index == 0 for whole in (abs(value.numerator), value.denominator) for prime in _PRIMES)


_PRIMES: Final = tuple(one for one in range(2, 1000) if all(one % other for other in range(2, isqrt(one) + 1)))


_MEASURES: Final[tuple[tuple[Callable[[ExpressionNode], int], int], ...]] = (
    (lambda node: sum(1 for _ in _iter_nodes(node)), 80),
    (_count_roots, 4),
    (_count_raised_sums, 8),
    (_count_calls, 6),
)
"""What is counted, and how much more than in a right answer there may be."""

_FORMS: Final[Mapping[str, Callable[[ExpressionNode, ExpressionNode], str]]] = {
    "expanded": _check_expanded,
    "factored": _check_factored,
    "reduced": _check_reduced,
    "simplified": _check_simplified,
}


# Checks without algebra

_Pair = tuple[str, ...]
"""Of LaTeX: of the right answer, and of the submitted one; then ROOTED, where letters may have to be positive."""


class GoldAnswer(Frozen):
    latex: str
    shape: Shape = "single"
    form: Form = "value"
    problem: str = ""
    """Of a data set: what is said there is no answer to it, unless it is the right one word for word."""


class AnswerCheck(NamedTuple):
    """`fault` in words of ours; where it is empty, all of `pairs` must be equal."""

    fault: str = ""
    pairs: tuple[_Pair, ...] = ()


RIGHT: Final = AnswerCheck()
OTHER = AnswerCheck("it is another answer")
_UNREAD = AnswerCheck("it is not of a form that can be read")
_TOO_LARGE = AnswerCheck("it is too large to check")
_SHAPES: Final[dict[Shape, str]] = {
    "set": "it has not as many parts as the answer needs",
    "list": "it has not as many parts as the answer needs",
    "named": "it has not as many parts as the answer needs",
    "tuple": "it has not as many parts as the answer needs",
    "intervals": "it is no such union of intervals",
    "matrix": "it is no matrix of the right size",
}
_UNIT = re.compile(
    r"(?<=[^\s+*/^(=-])\s*(?:\\[,; ]\s*)?\\(?:text|mathrm|textrm|mbox)\s?\{\s*(?:sq(?:uare|\.)?|cubic)?\s*"
    r"(?:[cmk]?m|in|ft|rad|units?|radians|inches|feet|meters|metres|centimeters|centimetres)\.?\s*\}"
    r"\s*(?:\^\s?\{?[23]\}?)?\s*"
)
_WORD = re.compile(rf"\\(?:{TEXT_COMMANDS})(?![A-Za-z])|\\[,;:! ]|[{{}}().,~\s]")
_TEXT = re.compile(rf"\\(?:{TEXT_COMMANDS})\s?\{{([^{{}}]*)\}}")
_BRACED_SIGN = re.compile(r"\{([0-9a-z]|\\[a-z]{1,20})\}")
_NUMERAL = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_NAME = re.compile(r"[A-Z](?:\s{0,8}[A-Z])+")
"""Of several points, as in `\\angle ABC`."""
_WORD_BETWEEN = re.compile(rf"(?<=[\s\d])[A-Za-z]{{2,}}(?=[\s\d])|\\(?:{TEXT_COMMANDS})\s?\{{\s?[A-Za-z]{{2}}")
"""As in `3 to 4` and `2 \\text{ by } 3`."""
_MARKUP = re.compile(rf"\\(?:{TEXT_COMMANDS}|left|right|q?quad)(?![A-Za-z])|\\[,;:! ]|[{{}}~\s]")
_CHOICE = re.compile(r"(?:[Oo]ption|[Cc]hoice|[Aa]nswer)?[(\[]?([A-Z])[)\].]{0,2}")
_INFINITY = re.compile(r"\(*(?:\+|positive|plus)?(?:(-)|(negative|minus))?\(*(?:\\infty|∞|[Ii]nfinity)\)*")
_OPERATOR = re.compile(r"[-+*/^\\]")
_IN_WORDS = re.compile(rf"\\(?:{TEXT_COMMANDS})\s?\{{[^{{}}]*\}}|[A-Za-z]{{3}}[A-Za-z ]*")
_IN_BASE = re.compile(r"[0-9A-Fa-f]{1,40}_\{?1[1-6]\}?")
"""A numeral whose digits may be letters."""
_LETTERS_ALONE = re.compile(r"[A-Za-z]{2,30}")
_NAMES_OF_SIGNS: Final = frozenset({"pi", "alpha", "beta", "gamma", "delta", "theta", "lambda", "mu", "phi", "omega"})
_ROMAN: Final = frozenset("ivxlcdm")
_SMALL_WORDS: Final = frozenset({"no", "up", "am", "pm", "ne", "nw", "se", "sw"})
_ASKS_FOR_RATIO = re.compile(r"\b(?:ratios?|odds|proportions?|scale)\b", re.IGNORECASE)
_PERCENT = re.compile(r"%|per\s?cent", re.IGNORECASE)
_MODULUS = re.compile(r"\\pmod\{([0-9]{1,40})\}")
_HEAVY = re.compile(
    r"[0-9]{12}|\)\s*\^\s*\{?\s*[0-9]{2}|\^\s*\{?\s*[-+(]*[0-9]{3}|\^[^ ]{0,12}\^|[0-9)}]\s*!"
    r"|\\(?:int|sum|prod|lim|binom)(?![A-Za-z])|(?:\{[^{}]{0,40}){8}"
)
"""What algebra might not get done with. Of answers that our reader does not understand."""
_MOST_RAW: Final = 200
"""Characters of an answer that goes to algebra as it is."""
_MOST_BELOW: Final = 10**6
"""A decimal with more digits is near to an expression, not equal, and algebra does not get done with it."""


def check_answer(answer: str, gold: GoldAnswer) -> AnswerCheck:
    """`answer` is untrusted, at most 1,000 characters long."""
    bare = tidy_latex(answer)
    if compact_latex(bare) == compact_latex(tidy_latex(gold.latex)):
        return RIGHT
    if gold.problem and _is_restated(bare, gold):
        return AnswerCheck(_UNFINISHED)
    if is_of_other_name(bare, tidy_latex(gold.latex), gold.shape, gold.problem):
        return AnswerCheck("it names another value than the answer needs")
    if gold.problem:
        check = _check_known_kinds(bare, tidy_latex(gold.latex), gold)
        if check is not None:
            return check
    expected = split_into_parts(tidy_latex(gold.latex), gold.shape)
    submitted = split_into_parts(bare, gold.shape)
    if expected is None:
        return _check_raw(bare, gold.latex)
    if submitted is None:
        return _UNREAD
    if gold.shape == "single" and len(split_at(submitted.texts[0], "=")) > 1:
        return _check_equation(bare, gold)
    return _check_parts(expected, submitted, gold)


def _check_parts(expected: AnswerParts, submitted: AnswerParts, gold: GoldAnswer) -> AnswerCheck:
    if submitted.either and not expected.either:
        return AnswerCheck("it says that one of them is so, not all")
    if gold.shape == "named":
        return _check_named(expected, submitted, gold)
    if gold.shape == "intervals" and expected.names and submitted.names not in ((), expected.names):
        return AnswerCheck("it has other variables than the answer needs")
    if len(expected.texts) != len(submitted.texts) or expected.signs.split() != submitted.signs.split():
        return AnswerCheck(_SHAPES[gold.shape])
    return _match_parts(expected, submitted, gold)


def _check_named(expected: AnswerParts, submitted: AnswerParts, gold: GoldAnswer) -> AnswerCheck:
    """Every value by its name. One without a name counts as the one whose place it has."""
    if len(expected.texts) != len(submitted.texts):
        return AnswerCheck(_SHAPES["named"])
    values = submitted.texts
    if all(submitted.names):
        if set(submitted.names) != set(expected.names):
            return AnswerCheck("it names other values than the answer needs")
        values = tuple(values[submitted.names.index(name)] for name in expected.names)
    elif any(said not in ("", name) for said, name in zip(submitted.names, expected.names, strict=True)):
        return AnswerCheck("its values are not in the order of their names")
    pairs = zip(expected.texts, values, strict=True)
    return _join_checks([_check_value(one, other, gold) for one, other in pairs])


def _check_value(expected: str, submitted: str, gold: GoldAnswer) -> AnswerCheck:
    """Of one name: of any shape."""
    return check_answer(submitted, _reshape(gold, expected))


def _check_known_kinds(answer: str, expected: str, gold: GoldAnswer) -> AnswerCheck | None:
    """Right answers that only data sets have: the letter of a choice, words, infinity, a number with a unit."""
    if gold.shape == "intervals":
        return None
    if expected == EMPTY_SET or DOTS in expected:
        return None if gold.shape == "list" else RIGHT if _has_same_signs(answer, expected) else OTHER
    check = _check_other_writing(answer, expected, gold)
    if check is not None:
        return check
    choice = _read_choice(expected)
    if choice:
        return RIGHT if _read_choice(strip_answer_lead(answer)) == choice else OTHER
    if _read_infinity(expected):
        return RIGHT if _read_infinity(strip_lead(answer)) == _read_infinity(expected) else OTHER
    if _IN_WORDS.fullmatch(expected):
        return _check_raw(answer, gold.latex)
    if gold.shape == "single" and _is_word(_MARKUP.sub("", expected), gold.problem):
        return _check_part(expected, answer, gold)
    value, unit = split_unit(expected, plain=True)
    if not unit:
        return None
    submitted, other = split_said_unit(strip_lead(answer))
    if other not in ("", unit):
        return AnswerCheck("it is in another unit")
    return check_answer(submitted, _reshape(gold, value))


def _check_other_writing(answer: str, expected: str, gold: GoldAnswer) -> AnswerCheck | None:
    """Of a vector, a ratio, and an open interval that looks like a point."""
    if has_angle_brackets(expected):
        return check_answer(round_angle_brackets(answer), _reshape(gold, round_angle_brackets(expected)))
    if gold.shape == "tuple" and is_said_as_interval(answer, expected, gold.problem):
        return check_answer(answer, gold.model_copy(update={"shape": "intervals"}))
    is_ratio = _ASKS_FOR_RATIO.search(gold.problem) and () != read_ratio(answer) == read_ratio(expected)
    return RIGHT if is_ratio else None


def _reshape(gold: GoldAnswer, latex: str) -> GoldAnswer:
    """Of another text, and of the shape that it has."""
    return gold.model_copy(update={"latex": latex, "shape": detect_shape(latex)})


def _has_same_signs(one: str, other: str) -> bool:
    """But for braces of a single sign: `2^{3}`, `2^3`."""
    first, second = (_BRACED_SIGN.sub(r"\1", compact_latex(text)) for text in (one, other))
    return first == second


def _read_choice(text: str) -> str:
    """The capital letter of a choice, with or without brackets and markup."""
    match = _CHOICE.fullmatch(_MARKUP.sub("", text))
    return match[1] if match else ""


def _read_infinity(text: str) -> int:
    """1 or -1 for an infinity of that sign, else 0."""
    match = _INFINITY.fullmatch(_MARKUP.sub("", tidy_latex(text)).replace("−", "-"))
    return 0 if match is None else -1 if match[1] or match[2] else 1


def _check_equation(answer: str, gold: GoldAnswer) -> AnswerCheck:
    """Where the right answer is an equation: the same two sides, in either order."""
    expected, submitted = split_at(tidy_latex(gold.latex), "="), split_at(answer, "=")
    if (
        not gold.problem
        or len(expected) != 2
        or len(submitted) != 2
        or not all(map(str.strip, (*expected, *submitted)))
    ):
        return AnswerCheck("it is an equation, not what is on one side of it")
    ways = (submitted, submitted[::-1])
    checks = [
        _join_checks([_check_part(one, other, gold) for one, other in zip(expected, way, strict=True)]) for way in ways
    ]
    return min(checks, key=lambda check: (bool(check.fault), len(check.pairs)))


def _is_restated(answer: str, gold: GoldAnswer) -> bool:
    compact = compact_latex(answer)
    if (
        len(compact) < 5
        or not _OPERATOR.search(compact)
        or compact not in compact_latex(gold.problem)
        or parse_number(gold.latex) is not None
    ):
        return False
    one, other = parse_expression(answer), parse_expression(gold.latex)
    return one is None or other is None or one.latex != other.latex


def _match_parts(expected: AnswerParts, submitted: AnswerParts, gold: GoldAnswer) -> AnswerCheck:
    """In order; the parts of a set in any."""
    if gold.shape != "set":
        return _join_checks(
            [_check_part(one, other, gold) for one, other in zip(expected.texts, submitted.texts, strict=True)]
        )
    left, checks = list(submitted.texts), list[AnswerCheck]()
    for one in expected.texts:
        candidates = [(_check_part(one, other, gold), other) for other in left]
        best = min(candidates, key=lambda candidate: (bool(candidate[0].fault), len(candidate[0].pairs)))
        checks.append(best[0])
        left.remove(best[1])
    return _join_checks(checks)


def _join_checks(parts: Sequence[AnswerCheck]) -> AnswerCheck:
    faults = [part.fault for part in parts if part.fault]
    return AnswerCheck(faults[0]) if faults else AnswerCheck("", tuple(pair for part in parts for pair in part.pairs))


def _check_part(expected: str, submitted: str, gold: GoldAnswer) -> AnswerCheck:
    if compact_latex(expected) == compact_latex(submitted):
        return RIGHT
    if DOTS in expected or DOTS in submitted:
        return RIGHT if _has_same_signs(submitted, expected) else OTHER
    if is_point(expected):
        return _check_point(expected, submitted, gold)
    if "infinity" in expected or "infinity" in submitted:
        return OTHER
    if _read_infinity(expected) or _read_infinity(submitted):
        return RIGHT if _read_infinity(expected) == _read_infinity(submitted) else OTHER
    check = _check_part_of_row(expected, submitted, gold) if gold.problem else None
    return _check_value_of_part(expected, submitted, gold) if check is None else check


def _check_value_of_part(expected: str, submitted: str, gold: GoldAnswer) -> AnswerCheck:
    node = parse_expression(expected)
    value = _parse_value(expected, node)
    if value is not None:
        return _check_number(submitted, value, gold)
    check = _check_large_number(submitted, expected) if gold.problem else None
    if check is not None:
        return check
    if node is None:
        return _check_raw(submitted, expected)
    return _check_expression(submitted, node, gold)


def _check_part_of_row(expected: str, submitted: str, gold: GoldAnswer) -> AnswerCheck | None:
    """What only data sets have: words, numerals of other bases, units of parts."""
    if _IN_BASE.fullmatch(compact_latex(expected)):
        return RIGHT if compact_latex(submitted).casefold() == compact_latex(expected).casefold() else OTHER
    word, said = _MARKUP.sub("", expected), _MARKUP.sub("", strip_answer_lead(submitted))
    if _is_word(word, gold.problem):
        return RIGHT if _is_same_word(said, word) else OTHER
    if said == word and word.isalpha():
        return RIGHT
    value, unit = split_unit(expected, plain=True)
    if not unit or gold.shape in ("single", "intervals", "matrix"):
        return None
    bare, other = split_said_unit(submitted)
    return _check_value_of_part(value, bare, gold) if other in ("", unit) else AnswerCheck("it is in another unit")


def _check_large_number(submitted: str, expected: str) -> AnswerCheck | None:
    """Where the right answer is a number that is not worked out, as `\\frac{1}{3^{88}}` and `99!`: any equal one. It
    may have millions of digits, so remainders by large primes are compared; None where it is something else."""
    right = find_remainders(expected)
    if right is None:
        return None
    said = find_remainders(submitted)
    return _UNREAD if said is None else RIGHT if said == right else OTHER


def _check_point(expected: str, submitted: str, gold: GoldAnswer) -> AnswerCheck:
    one, other = split_into_parts(expected, "tuple"), split_into_parts(submitted, "tuple")
    if one is None or other is None or not is_point(submitted) or len(one.texts) != len(other.texts):
        return OTHER
    return _match_parts(one, other, gold.model_copy(update={"shape": "tuple"}))


def _is_word(text: str, problem: str) -> bool:
    """Whether letters alone are a word or a name, not a product: `IV`, `NE`, `no`. A product has small letters, each of
    which stands alone somewhere in the problem."""
    if not _LETTERS_ALONE.fullmatch(text) or text in _NAMES_OF_SIGNS:
        return False
    product = text.islower() and not set(text) <= _ROMAN
    return not (product and all(re.search(rf"(?<![A-Za-z\\]){letter}(?![A-Za-z])", problem) for letter in text))


def _is_same_word(said: str, meant: str) -> bool:
    """Case counts for two capitals, which may be a line and a product."""
    folds = len(meant) > 2 or meant.casefold() in _SMALL_WORDS
    return said == meant or (folds and said.casefold() == meant.casefold())


def _parse_value(text: str, node: ExpressionNode | None) -> Fraction | None:
    """A letter behind a number is a factor, unless it is that of a unit."""
    if node is not None and (
        any(part.name not in ("", "m", "g", "s", "h", "L") for part in node.parts if node.kind == "product")
        or (node.kind not in ("number", "quotient", "product"))
    ):
        return None
    return parse_number(text)


def _check_number(submitted: str, value: Fraction, gold: GoldAnswer) -> AnswerCheck:
    number = _parse_value(submitted, _parse_without_unit(submitted))
    if number is None:
        number = _read_scientific(submitted, gold.problem)
    if number is None:
        return AnswerCheck("it is no single number that is worked out")
    if "%" in submitted and not gold.problem:
        number /= 100
    if number != value:
        return RIGHT if _is_share(submitted, number, value, gold) else AnswerCheck("it is another number")
    return _check_lowest_terms(submitted, value) if gold.form == "lowest" else RIGHT


def _is_share(submitted: str, number: Fraction, value: Fraction, gold: GoldAnswer) -> bool:
    """`82\\%` for a fraction of a data set, where the problem does not speak of per cent."""
    if not gold.problem or value.denominator == 1 or number != 100 * value or _PERCENT.search(gold.problem):
        return False
    return split_unit(submitted, plain=True)[1] == "%"


_SCIENTIFIC = re.compile(r"([-+]?(?:[0-9]{1,20}\.?[0-9]{0,20}|\.[0-9]{1,20}))[eE]([-+]?[0-9]{1,2})")
_POWER_OF_TEN = re.compile(r"(?P<above>)10\^\{?-(?P<power>[0-9]{1,2})\}?")
_OVER_POWER_OF_TEN = re.compile(r"\\frac\{(?P<above>[0-9]{1,20})\}\{10\^\{?(?P<power>[0-9]{1,2})\}?\}")


def _read_scientific(text: str, problem: str) -> Fraction | None:
    """`9.85e-3`, and in a data set `10^{-3}` and `\\frac{5}{10^{3}}`, unless the problem asks to work it out."""
    compact = compact_latex(text)
    match = _SCIENTIFIC.fullmatch(compact)
    if match is not None:
        return Fraction(match[1]) * Fraction(10) ** int(match[2])
    power = _POWER_OF_TEN.fullmatch(compact) or _OVER_POWER_OF_TEN.fullmatch(compact)
    asked = (_BRACED_SIGN.sub(r"\1", compact_latex(problem)), compact_latex(problem))
    if power is None or not problem or _BRACED_SIGN.sub(r"\1", compact) in asked[0] or compact in asked[1]:
        return None
    return Fraction(int(power["above"] or 1), 10 ** int(power["power"]))


def _parse_without_unit(text: str) -> ExpressionNode | None:
    """A word of several letters is a unit, not a product of letters."""
    node = parse_expression(text)
    letters = 0 if node is None else sum(part.kind == "symbol" and part.name != "pi" for part in node.parts)
    return None if letters > 1 else node


def _check_lowest_terms(submitted: str, value: Fraction) -> AnswerCheck:
    """A fraction that is written as one, with another part below than it would have in lowest terms."""
    node = parse_expression(submitted)
    inner = node.parts[1] if node is not None and node.kind == "product" and len(node.parts) == 2 else node
    below = inner.parts[1] if inner is not None and inner.kind == "quotient" else None
    return RIGHT if below is None or abs(below.value) == value.denominator else AnswerCheck("it can be reduced further")


def _check_expression(submitted: str, expected: ExpressionNode, gold: GoldAnswer) -> AnswerCheck:
    node = parse_expression(_UNIT.sub("", submitted))
    if node is None:
        return _UNREAD
    if node.latex == expected.latex:
        return RIGHT
    if not may_be_equal(node, expected) or (node.kind == "number" and node.value.denominator > _MOST_BELOW):
        return OTHER
    if _is_heavy(node, expected):
        return _TOO_LARGE
    fault = describe_undone(_lower_powers(node) if gold.problem else node, expected, gold.form)
    if fault == _UNFINISHED and describe_undone(expected, expected, gold.form) == _UNFINISHED:
        fault = ""
    rooted = (ROOTED,) if may_need_positive_letters(node, expected) else ()
    return AnswerCheck(fault) if fault else AnswerCheck("", ((expected.latex, node.latex, *rooted),))


def _lower_powers(node: ExpressionNode) -> ExpressionNode:
    """With `3` for `3^5` in `\\ln(3^5)`, which data sets may have as it stands: it is `5\\ln 3`."""
    parts = tuple(map(_lower_powers, node.parts))
    if node.kind == "call" and node.name == "ln" and parts[0].kind == "power":
        base, exponent = parts[0].parts
        if base.kind == exponent.kind == "number" and exponent.value.denominator == 1 and exponent.value > 1:
            parts = (base,)
    return replace(node, parts=parts)


def _check_raw(submitted: str, expected: str) -> AnswerCheck:
    """Where the right answer is more than our reader understands: words, or algebra on the text as it is."""
    said, meant = (_WORD.sub("", text).casefold() for text in (submitted, expected))
    if said == meant and _are_digits_in_place(submitted, expected):
        return RIGHT
    if meant.isalpha() or said.isalpha() or "_" in expected:  # math-verify leaves out the base of a number
        return OTHER
    modulus, other = (_MODULUS.findall(tidy_latex(text)) for text in (expected, submitted))
    if modulus and other and modulus != other:
        return OTHER
    if _list_names(expected) != _list_names(submitted):  # it would multiply the letters, in any order
        return OTHER
    if _WORD_BETWEEN.search(expected) or _WORD_BETWEEN.search(submitted):  # it would multiply the letters
        return OTHER
    if len(submitted) > _MOST_RAW or _HEAVY.search(submitted):
        return _TOO_LARGE
    return AnswerCheck("", ((expected, submitted),))


def _list_names(text: str) -> list[str]:
    return ["".join(name.split()) for name in _NAME.findall(_COMMAND.sub(",", text))]


def _are_digits_in_place(submitted: str, expected: str) -> bool:
    """Of two texts that are the same but for markup: `1:2.5` is not `1:25`. Between operators brackets count too."""
    one, other = (
        _BRACED_SIGN.sub(r"\1", compact_latex(_TEXT.sub(r" \1 ", tidy_latex(text)))).casefold()
        for text in (submitted, expected)
    )
    numerals = _NUMERAL.findall(other)
    return one == other or not numerals or (not _OPERATOR.search(other) and _NUMERAL.findall(one) == numerals)


# Rows of mathematics data sets (MATH, MATH-500, DeepScaleR, AIME): a problem and its answer, or a solution with a box

_UNBRACED_BOX = re.compile(r"\\boxed\s+([^\s{}$\\]{1,50}?)(?=[.,;]?(?:[\s$]|$))")
"""MATH has some rows with `\\boxed 5`."""


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


_LIST_OF_ONE = re.compile(r"\[\s{0,8}'([^']{1,1000})'\s{0,8}\]")


def _unwrap_list(text: str) -> str:
    """Of a list of one text, as JSON or as Python writes it, that text."""
    parsed = read_json_cell(text)
    if isinstance(parsed, list) and len(parsed) == 1 and isinstance(parsed[0], str):
        return parsed[0]
    match = _LIST_OF_ONE.fullmatch(text)
    return text if match is None else match[1].replace("\\\\", "\\")


Text = Annotated[str, BeforeValidator(_as_text)]


class MathRow(BaseModel):
    model_config = ConfigDict(frozen=True)

    problem: str = ""
    question: str = ""
    answer: Text = ""
    solution: Text = ""
    level: Text = ""
    topic: str = ""
    subject: str = ""
    type: str = ""

    @model_validator(mode="after")
    def _require_complete(self) -> Self:
        if not self.task_text.strip():
            raise ValueError("there is neither a problem nor a question")
        if not 0 < len(self.right) <= MOST_BOXED_CHARACTERS:
            raise leave_out("there is neither an answer nor a box in the solution, or it is too long")
        return self

    @property
    def task_text(self) -> str:
        return self.problem or self.question

    @property
    def right(self) -> str:
        if self.answer.strip():
            answer = _unwrap_list(self.answer.strip())
            return (find_boxes(answer, MOST_BOXED_CHARACTERS) or [answer])[-1].rpartition("####")[2].strip()
        boxes = find_boxes(self.solution, MOST_BOXED_CHARACTERS) or _UNBRACED_BOX.findall(self.solution)
        return (boxes or [""])[-1].strip()

    @property
    def gold(self) -> GoldAnswer:
        shape = detect_shape(tidy_latex(self.right), self.task_text)
        return GoldAnswer(latex=self.right, shape=shape, problem=self.task_text)

    @property
    def labels(self) -> dict[str, JsonValue]:
        """Those that there are."""
        topic = self.topic or self.subject or self.type
        return {name: text for name, text in (("level", self.level), ("topic", topic)) if text}


# Algebra in a worker


class LazyFunction:
    """A function that is imported where it is called, since sympy takes a second and a hundred megabytes. A worker
    receives only its name."""

    def __init__(self, module: str, name: str) -> None:
        self.__module__ = module
        self.__qualname__ = name

    def __call__(self, *arguments: JsonValue) -> JsonValue:
        """Imports and calls the function, for workers in this process."""
        function = getattr(importlib.import_module(self.__module__), self.__qualname__)
        return cast("JsonValue", function(*arguments))


ALL_EQUAL = LazyFunction("app.toolkit.math_answers.symbolic", "all_equal")


_LIMITS = Limits(seconds=10, cpu_seconds=3, memory_mb=512)
"""Limits for one answer. Comparing an answer usually takes a tenth of a second of processor time."""


def check_boxes(texts: Sequence[str], gold: GoldAnswer) -> AnswerCheck:
    """All must be right, so that several gain nothing; each value of a named one may have a box of its own."""
    if len(texts) == 1:
        return check_answer(texts[0], gold)
    if gold.shape == "named" and all(len(split_at(text, "=")) == 2 and len(split_items(text)) == 1 for text in texts):
        check = check_answer(", ".join(map(tidy_latex, texts)), gold)
        if not check.fault:
            return check
    return _join_checks([check_answer(text, gold) for text in texts])


async def grade_boxed(reply: str, gold: GoldAnswer, workers: Workers) -> Score:
    """1 when all boxes of the reply hold `gold`. Unscored where algebra could not be done."""
    large = len(reply) > LARGE_TEXT
    boxes = await run_in_turn("answers", extract_boxes, reply) if large else extract_boxes(reply)
    if not boxes.texts:
        return _score_flagged(boxes.flags)
    checked = check_boxes(boxes.texts, gold)
    fault = checked.fault
    if checked.pairs:
        pairs: list[JsonValue] = [list(pair) for pair in checked.pairs]
        try:
            equal = await workers.run(ALL_EQUAL, pairs, limits=_LIMITS)
        except ScoringFailed as error:
            return Score.from_error(error)
        fault = "" if equal is True else "it is another answer"
    if fault and _do_differ(boxes.texts, gold):
        return _score_flagged(("conflicting_boxes",))
    return Score.exact(not fault, rationale=fault or "correct")


def _do_differ(texts: Sequence[str], gold: GoldAnswer) -> bool:
    """Whether boxes do not say the same, as far as is seen without algebra."""
    pairs = [pair for text in texts[1:] for pair in ((texts[0], text), (text, texts[0]))]
    return any(
        check_answer(one, gold.model_copy(update={"latex": other, "form": "value"})).fault for one, other in pairs
    )


def _score_flagged(flags: tuple[str, ...]) -> Score:
    return Score.exact(False, rationale=WHY[flags[-1]]).model_copy(update={"flags": flags})
