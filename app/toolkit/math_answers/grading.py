"""Grading of an answer: wrong, right, or to be decided by algebra.

Numbers are compared exactly and without algebra, as `app.toolkit.answers.numerals` reads them: a decimal for a
fraction is right when it is equal, never when it is near. Expressions are read by a reader of our own; a wrong one
is told by its value at a few places, what is left undone by its look. Only what may be equal and is written differently
is left for math-verify, in the shape in which our reader understood it.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from app.domain.values import Frozen
from app.toolkit.answers.numerals import parse_number
from app.toolkit.math_answers.boxed_answers import compact_latex, tidy_latex
from app.toolkit.math_answers.expressions import ExpressionNode, parse_expression
from app.toolkit.math_answers.forms import UNFINISHED, Form, describe_undone, is_heavy
from app.toolkit.math_answers.numeric_evaluation import may_be_equal
from app.toolkit.math_answers.structures import (
    AnswerParts,
    Shape,
    detect_shape,
    split_at,
    split_into_parts,
    strip_lead,
)
from app.toolkit.math_answers.units import split_unit

Pair = tuple[str, str]
"""Of LaTeX: of the right answer, and of the one that was given."""


class GoldAnswer(Frozen):
    latex: str
    shape: Shape = "single"
    form: Form = "value"
    problem: str = ""
    """Of a data set: what is said there is no answer to it, unless it is the right one word for word."""


class AnswerCheck(NamedTuple):
    """`fault` in words of ours; where it is empty, all of `pairs` must be equal."""

    fault: str = ""
    pairs: tuple[Pair, ...] = ()


RIGHT: Final = AnswerCheck()
OTHER = AnswerCheck("it is another answer")
UNREAD = AnswerCheck("it is not of a form that can be read")
TOO_LARGE = AnswerCheck("it is too large to check")
_SHAPES: Final[dict[Shape, str]] = {
    "set": "it has not as many parts as the answer needs",
    "tuple": "it has not as many parts as the answer needs",
    "intervals": "it is no such union of intervals",
    "matrix": "it is no matrix of the right size",
}
_UNIT = re.compile(
    r"(?<=[^\s+*/^(=-])\s*(?:\\[,; ]\s*)?\\(?:text|mathrm|textrm|mbox)\s?\{\s*(?:sq(?:uare|\.)?|cubic)?\s*"
    r"(?:[cmk]?m|in|ft|rad|units?|radians|inches|feet|meters|metres|centimeters|centimetres)\.?\s*\}"
    r"\s*(?:\^\s?\{?[23]\}?)?\s*"
)
_WORD = re.compile(r"\\(?:text|mathrm|textbf|mathbf|textrm)(?![A-Za-z])|[{}().,\s]")
_MARKUP = re.compile(r"\\(?:text|mathrm|textbf|mathbf|textrm|mbox|left|right|q?quad)(?![A-Za-z])|\\[,;:! ]|[{}~\s]")
_CHOICE = re.compile(r"(?:[Oo]ption|[Cc]hoice|[Aa]nswer)?[(\[]?([A-Z])[)\].]{0,2}")
_INFINITY = re.compile(r"\(*(?:\+|positive|plus)?(?:(-)|(negative|minus))?\(*(?:\\infty|∞|[Ii]nfinity)\)*")
_OPERATOR = re.compile(r"[-+*/^\\]")
_IN_WORDS = re.compile(r"\\(?:text|mathrm|textbf|textrm|mbox)\s?\{[^{}]*\}|[A-Za-z]{3}[A-Za-z ]*")
_HEAVY = re.compile(
    r"[0-9]{12}|\)\s*\^\s*\{?\s*[0-9]{2}|\^\s*\{?\s*[-+(]*[0-9]{3}|\^[^ ]{0,12}\^|[0-9)}]\s*!"
    r"|\\(?:int|sum|prod|lim|binom)(?![A-Za-z])|(?:\{[^{}]{0,40}){8}"
)
"""What algebra might not get done with. Of answers that our reader does not understand."""
MOST_RAW = 200
MOST_BELOW = 10**6
"""A decimal with more digits is near to an expression, not equal, and algebra does not get done with it."""


def check_answer(answer: str, gold: GoldAnswer) -> AnswerCheck:
    """`answer` is untrusted, at most 1,000 characters long."""
    bare = tidy_latex(answer)
    if compact_latex(bare) == compact_latex(tidy_latex(gold.latex)):
        return RIGHT
    if gold.problem and _is_restated(bare, gold):
        return AnswerCheck(UNFINISHED)
    if gold.problem:
        known = _check_known_kinds(bare, tidy_latex(gold.latex), gold)
        if known is not None:
            return known
    wanted = split_into_parts(tidy_latex(gold.latex), gold.shape)
    given = split_into_parts(bare, gold.shape)
    if wanted is None:
        return _check_raw(bare, gold.latex)
    if given is None:
        return UNREAD
    if gold.shape == "single" and len(split_at(given.texts[0], "=")) > 1:
        return _check_equation(bare, gold)
    if len(wanted.texts) != len(given.texts) or wanted.signs.split() != given.signs.split():
        return AnswerCheck(_SHAPES[gold.shape])
    return _match_parts(wanted, given, gold)


def _check_known_kinds(answer: str, wanted: str, gold: GoldAnswer) -> AnswerCheck | None:
    """Right answers that only data sets have: the letter of a choice, words, infinity, a number with a unit."""
    choice = _read_choice(wanted)
    if choice:
        return RIGHT if _read_choice(strip_lead(answer)) == choice else OTHER
    if read_infinity(wanted):
        return RIGHT if read_infinity(strip_lead(answer)) == read_infinity(wanted) else OTHER
    if _IN_WORDS.fullmatch(wanted):
        return _check_raw(answer, gold.latex)
    value, unit = split_unit(wanted)
    if not unit:
        return None
    given, other = split_unit(strip_lead(answer))
    if other not in ("", unit):
        return AnswerCheck("it is in another unit")
    return check_answer(given, gold.model_copy(update={"latex": value, "shape": detect_shape(value)}))


def _read_choice(text: str) -> str:
    """The capital letter of a choice, with or without brackets and markup."""
    found = _CHOICE.fullmatch(_MARKUP.sub("", text))
    return found[1] if found else ""


def read_infinity(text: str) -> int:
    """1 or -1 for an infinity of that sign, else 0."""
    found = _INFINITY.fullmatch(_MARKUP.sub("", tidy_latex(text)).replace("−", "-"))
    return 0 if found is None else -1 if found[1] or found[2] else 1


def _check_equation(answer: str, gold: GoldAnswer) -> AnswerCheck:
    """Where the right answer is an equation: the same two sides, in either order."""
    wanted, given = split_at(tidy_latex(gold.latex), "="), split_at(answer, "=")
    if not gold.problem or len(wanted) != 2 or len(given) != 2 or not all(map(str.strip, (*wanted, *given))):
        return AnswerCheck("it is an equation, not what is on one side of it")
    ways = (given, given[::-1])
    checks = [
        _join_checks([_check_part(one, other, gold) for one, other in zip(wanted, way, strict=True)]) for way in ways
    ]
    return min(checks, key=lambda check: (bool(check.fault), len(check.pairs)))


def _is_restated(answer: str, gold: GoldAnswer) -> bool:
    said = compact_latex(answer)
    if (
        len(said) < 5
        or not _OPERATOR.search(said)
        or said not in compact_latex(gold.problem)
        or parse_number(gold.latex) is not None
    ):
        return False
    one, other = parse_expression(answer), parse_expression(gold.latex)
    return one is None or other is None or one.latex != other.latex


def _match_parts(wanted: AnswerParts, given: AnswerParts, gold: GoldAnswer) -> AnswerCheck:
    """In order; the parts of a set in any."""
    if gold.shape != "set":
        return _join_checks(
            [_check_part(one, other, gold) for one, other in zip(wanted.texts, given.texts, strict=True)]
        )
    left, found = list(given.texts), list[AnswerCheck]()
    for one in wanted.texts:
        looked = [(_check_part(one, other, gold), other) for other in left]
        best = min(looked, key=lambda at: (bool(at[0].fault), len(at[0].pairs)))
        found.append(best[0])
        left.remove(best[1])
    return _join_checks(found)


def _join_checks(parts: Sequence[AnswerCheck]) -> AnswerCheck:
    faults = [part.fault for part in parts if part.fault]
    return AnswerCheck(faults[0]) if faults else AnswerCheck("", tuple(pair for part in parts for pair in part.pairs))


def _check_part(wanted: str, given: str, gold: GoldAnswer) -> AnswerCheck:
    if compact_latex(wanted) == compact_latex(given):
        return RIGHT
    if "infinity" in wanted or "infinity" in given:
        return OTHER
    if read_infinity(wanted) or read_infinity(given):
        return RIGHT if read_infinity(wanted) == read_infinity(given) else OTHER
    node = parse_expression(wanted)
    value = _parse_value(wanted, node)
    if value is not None:
        return _check_number(given, value, gold)
    if node is None:
        return _check_raw(given, wanted)
    return _check_expression(given, node, gold.form)


def _parse_value(text: str, node: ExpressionNode | None) -> Fraction | None:
    """A letter behind a number is a factor, unless it is that of a unit."""
    if node is not None and (
        any(part.name not in ("", "m", "g", "s", "h", "L") for part in node.parts if node.kind == "product")
        or (node.kind not in ("number", "quotient", "product"))
    ):
        return None
    return parse_number(text)


def _check_number(given: str, value: Fraction, gold: GoldAnswer) -> AnswerCheck:
    read = _parse_value(given, _parse_without_unit(given))
    if read is None:
        return AnswerCheck("it is no single number that is worked out")
    if "%" in given and not gold.problem:
        read /= 100
    if read != value:
        return AnswerCheck("it is another number")
    return _check_lowest_terms(given, value) if gold.form == "lowest" else RIGHT


def _parse_without_unit(text: str) -> ExpressionNode | None:
    """A word of several letters is a unit, not a product of letters."""
    node = parse_expression(text)
    letters = 0 if node is None else sum(part.kind == "symbol" and part.name != "pi" for part in node.parts)
    return None if letters > 1 else node


def _check_lowest_terms(given: str, value: Fraction) -> AnswerCheck:
    """A fraction that is written as one, with another part below than it would have in lowest terms."""
    node = parse_expression(given)
    inner = node.parts[1] if node is not None and node.kind == "product" and len(node.parts) == 2 else node
    below = inner.parts[1] if inner is not None and inner.kind == "quotient" else None
    return RIGHT if below is None or abs(below.value) == value.denominator else AnswerCheck("it can be reduced further")


def _check_expression(given: str, wanted: ExpressionNode, form: Form) -> AnswerCheck:
    node = parse_expression(_UNIT.sub("", given))
    if node is None:
        return UNREAD
    if node.latex == wanted.latex:
        return RIGHT
    if not may_be_equal(node, wanted) or (node.kind == "number" and node.value.denominator > MOST_BELOW):
        return OTHER
    if is_heavy(node, wanted):
        return TOO_LARGE
    fault = describe_undone(node, wanted, form)
    return AnswerCheck(fault) if fault else AnswerCheck("", ((wanted.latex, node.latex),))


def _check_raw(given: str, wanted: str) -> AnswerCheck:
    """Where the right answer is more than our reader understands: words, or algebra on the text as it is."""
    said, meant = (_WORD.sub("", text).casefold() for text in (given, wanted))
    if said == meant:
        return RIGHT
    if meant.isalpha() or said.isalpha() or "_" in wanted:  # a base is part of a number, which math-verify leaves out
        return OTHER
    if len(given) > MOST_RAW or _HEAVY.search(given):
        return TOO_LARGE
    return AnswerCheck("", ((wanted, given),))
