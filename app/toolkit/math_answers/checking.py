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
from app.toolkit.answers.numerals import number
from app.toolkit.math_answers.committing import compact
from app.toolkit.math_answers.expressions import Node, expression
from app.toolkit.math_answers.forms import UNFINISHED, Form, heavy, undone
from app.toolkit.math_answers.structures import Parts, Shape, parts_of, split
from app.toolkit.math_answers.values import may_be_equal

Pair = tuple[str, str]
"""Of LaTeX: of the right answer, and of the one that was given."""


class Gold(Frozen):
    latex: str
    shape: Shape = "single"
    form: Form = "value"
    problem: str = ""
    """Of a data set: what is said there is no answer to it, unless it is the right one word for word."""


class Checked(NamedTuple):
    """`fault` in words of ours; where it is empty, all of `pairs` must be equal."""

    fault: str = ""
    pairs: tuple[Pair, ...] = ()


RIGHT: Final = Checked()
OTHER = Checked("it is another answer")
UNREAD = Checked("it is not of a form that can be read")
TOO_LARGE = Checked("it is too large to check")
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
_LOOK = re.compile(r"\\(?:boldsymbol|mathbf|bm|underline|boxed|fbox|displaystyle)(?![A-Za-z])\s?")
_AT_THE_END = re.compile(r"(?:\\[\s,;:!]|[\s.~]|\\)+\Z")
_WORD = re.compile(r"\\(?:text|mathrm|textbf|mathbf|textrm)(?![A-Za-z])|[{}().,\s]")
_OPERATOR = re.compile(r"[-+*/^\\]")
_IN_WORDS = re.compile(r"\\(?:text|mathrm|textbf|textrm|mbox)\s?\{[^{}]*\}|[A-Za-z]{3}[A-Za-z ]*")
_HEAVY = re.compile(
    r"[0-9]{12}|\)\s*\^\s*\{?\s*[0-9]{2}|\^\s*\{?\s*[-+(]*[0-9]{3}|\^[^ ]{0,12}\^|[0-9)}]\s*!"
    r"|\\(?:int|sum|prod|lim|binom)(?![A-Za-z])|(?:\{[^{}]{0,40}){8}"
)
"""What algebra might not get done with. Of answers that our reader does not understand."""
MOST_RAW = 200


def check(answer: str, gold: Gold) -> Checked:
    """`answer` is untrusted, at most 1,000 characters long."""
    bare = _tidy(answer)
    if compact(bare) == compact(_tidy(gold.latex)):
        return RIGHT
    if gold.problem and _restated(bare, gold):
        return Checked(UNFINISHED)
    if gold.problem and _IN_WORDS.fullmatch(_tidy(gold.latex)):
        return _raw(bare, gold.latex)
    wanted = parts_of(_tidy(gold.latex), gold.shape)
    given = parts_of(bare, gold.shape)
    if wanted is None:
        return _raw(bare, gold.latex)
    if given is None:
        return UNREAD
    if gold.shape == "single" and len(split(given.texts[0], "=")) > 1:
        return Checked("it is an equation, not what is on one side of it")
    if len(wanted.texts) != len(given.texts) or wanted.signs.split() != given.signs.split():
        return Checked(_SHAPES[gold.shape])
    return _matched(wanted, given, gold)


def _tidy(text: str) -> str:
    """Without dollar signs around it, a full stop behind it, and what only changes how it looks."""
    bare = _AT_THE_END.sub("", _LOOK.sub("", text).replace("\\lbrace", "\\{").replace("\\rbrace", "\\}")).strip()
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if len(bare) > 4 and bare.startswith(opening) and bare.endswith(closing) and bare.count("$") in (0, 2, 4):
            bare = bare[len(opening) : -len(closing)].strip()
    return _AT_THE_END.sub("", bare)


def _restated(answer: str, gold: Gold) -> bool:
    said = compact(answer)
    if (
        len(said) < 5
        or not _OPERATOR.search(said)
        or said not in compact(gold.problem)
        or number(gold.latex) is not None
    ):
        return False
    one, other = expression(answer), expression(gold.latex)
    return one is None or other is None or one.latex != other.latex


def _matched(wanted: Parts, given: Parts, gold: Gold) -> Checked:
    """In order; the parts of a set in any."""
    if gold.shape != "set":
        return _joined([_part(one, other, gold) for one, other in zip(wanted.texts, given.texts, strict=True)])
    left, found = list(given.texts), list[Checked]()
    for one in wanted.texts:
        looked = [(_part(one, other, gold), other) for other in left]
        best = min(looked, key=lambda at: (bool(at[0].fault), len(at[0].pairs)))
        found.append(best[0])
        left.remove(best[1])
    return _joined(found)


def _joined(parts: Sequence[Checked]) -> Checked:
    faults = [part.fault for part in parts if part.fault]
    return Checked(faults[0]) if faults else Checked("", tuple(pair for part in parts for pair in part.pairs))


def _part(wanted: str, given: str, gold: Gold) -> Checked:
    if compact(wanted) == compact(given):
        return RIGHT
    if "infinity" in wanted or "infinity" in given:
        return OTHER
    node = expression(wanted)
    value = _value(wanted, node)
    if value is not None:
        return _number(given, value, gold)
    if node is None:
        return _raw(given, wanted)
    return _expression(given, node, gold.form)


def _value(text: str, node: Node | None) -> Fraction | None:
    """A letter behind a number is a factor, unless it is that of a unit."""
    if node is not None and (
        any(part.name not in ("", "m", "g", "s", "h", "L") for part in node.parts if node.kind == "product")
        or (node.kind not in ("number", "quotient", "product"))
    ):
        return None
    return number(text)


def _number(given: str, value: Fraction, gold: Gold) -> Checked:
    read = _value(given, _unit_less(given))
    if read is None:
        return Checked("it is no single number that is worked out")
    if "%" in given and not gold.problem:
        read /= 100
    if read != value:
        return Checked("it is another number")
    return _lowest(given, value) if gold.form == "lowest" else RIGHT


def _unit_less(text: str) -> Node | None:
    """A word of several letters is a unit, not a product of letters."""
    node = expression(text)
    letters = 0 if node is None else sum(part.kind == "symbol" and part.name != "pi" for part in node.parts)
    return None if letters > 1 else node


def _lowest(given: str, value: Fraction) -> Checked:
    """A fraction that is written as one, with another part below than it would have in lowest terms."""
    node = expression(given)
    inner = node.parts[1] if node is not None and node.kind == "product" and len(node.parts) == 2 else node
    below = inner.parts[1] if inner is not None and inner.kind == "quotient" else None
    return RIGHT if below is None or abs(below.value) == value.denominator else Checked("it can be reduced further")


def _expression(given: str, wanted: Node, form: Form) -> Checked:
    node = expression(_UNIT.sub("", given))
    if node is None:
        return UNREAD
    if node.latex == wanted.latex:
        return RIGHT
    if not may_be_equal(node, wanted):
        return OTHER
    if heavy(node, wanted):
        return TOO_LARGE
    fault = undone(node, wanted, form)
    return Checked(fault) if fault else Checked("", ((wanted.latex, node.latex),))


def _raw(given: str, wanted: str) -> Checked:
    """Where the right answer is more than our reader understands: words, or algebra on the text as it is."""
    said, meant = (_WORD.sub("", text).casefold() for text in (given, wanted))
    if said == meant:
        return RIGHT
    if meant.isalpha() or said.isalpha() or "_" in wanted:  # a base is part of a number, which math-verify leaves out
        return OTHER
    if len(given) > MOST_RAW or _HEAVY.search(given):
        return TOO_LARGE
    return Checked("", ((wanted, given),))
