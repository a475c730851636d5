"""Splitting of compound answers into parts: sets, pairs, intervals, matrices.

    set        order does not count, repeats are wrong: `\\{2, 3\\}`, `x = 2 \\text{ or } x = 3`, `\\pm\\sqrt2`
    tuple      order counts, named parts are put in it: `(1, 2)`, `1, 2`, `x = 1, y = 2`
    intervals  brackets count: `(-\\infty, 3]`, `[0, 1) \\cup (2, 5)`, `x \\le 3`, `-1 < x < 3`
    matrix     `\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}`, square brackets alike
    single     anything else; `x = 3` is 3, and a chain of equations is nothing

What an answer is taken for is decided by what a right one is, never by its own look: `1,234` is a number where a number
is asked for, and two of them where a set is.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal

from app.toolkit.math_answers.boxed_answers import compact_latex
from app.toolkit.math_answers.expressions import parse_expression
from app.toolkit.math_answers.numeric_evaluation import estimate_value

Shape = Literal["single", "set", "tuple", "intervals", "matrix"]
MOST_PARTS = 40

_LEAD = re.compile(
    r"\s*((?:\\(?:text|mathrm|mathbf)\s?\{[A-Za-z ]{1,40}\}|\\(?:cap|cup|setminus|theta|alpha|lambda|angle|triangle)\b"
    r"|\\[dt]?frac\s?\{d[A-Za-z]{0,2}\}\s?\{d[a-z]\}|_\s?\{?[A-Za-z0-9,]{1,3}\}?|[A-Za-z(),'|\s]){1,40}?)"
    r"\s*(?:=|\\in(?![A-Za-z])|:|∈)(?!=)"
)
_OR = re.compile(r"\\text\s?\{\s*(?:or|and)\s*\}|(?<![A-Za-z\\])(?:or|and)(?![A-Za-z])|\\(?:lor|vee)(?![A-Za-z])")
_UNION = re.compile(r"\\(?:big)?cup(?![A-Za-z])|∪|" + _OR.pattern)
_MATRIX = re.compile(
    r"\s*(?:\\left)?\s*[(\[]?\s*\\begin\{(?:[pb]|small)?(?:matrix|array)\}(?:\{[clr| ]{1,12}\})?"
    r"(.*?)\\end\{(?:[pb]|small)?(?:matrix|array)\}\s*(?:\\right)?\s*[)\]]?\s*",
    re.DOTALL,
)
_ROW = re.compile(r"\\\\(?:\[[^\]]{0,8}\])?")
_SIZED = re.compile(r"\\(?:left|right|big|Big|bigl|bigr|Bigl|Bigr)(?![A-Za-z])\s?\.?")
_SPACED = re.compile(_SIZED.pattern + r"|(?<!\\)\\[,;:! ]|\\q?quad(?![A-Za-z])|~")
_SIZES_AND_SPACES: Final = (_SPACED, _SIZED)
"""Spaces with commas in them; in a single number they may stand between thousands."""
_CONDITION = re.compile(
    r"\s*,?\s*(?:\\text\s?\{\s*(?:for|where|if|with)?\s*\})?\s*[a-z]\s*(?:\\neq?(?![A-Za-z])|≠)[^=<>,]{1,40}\Z"
)
_RELATIONS: Final = (
    (re.compile(r"\\(?:leqslant|leq|le)(?![A-Za-z])|<=|⩽"), "≤"),
    (re.compile(r"\\(?:geqslant|geq|ge)(?![A-Za-z])|>=|⩾"), "≥"),
    (re.compile(r"\\lt(?![A-Za-z])"), "<"),
    (re.compile(r"\\gt(?![A-Za-z])"), ">"),
)
_RELATION = re.compile(r"([<>≤≥])")
_VARIABLE = re.compile(r"\s*[a-z]\s*")
_OPEN, _CLOSE = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class AnswerParts:
    """`signs` is what surrounds them: the brackets of every interval, or rows and columns."""

    texts: tuple[str, ...]
    signs: str = ""


def detect_shape(gold: str) -> Shape:
    """What a right answer of a data set is, by its look."""
    bare = _SIZED.sub("", gold).replace("\\!", "").strip()
    if "\\begin{" in bare:
        return "matrix"
    if "\\cup" in bare or ("\\infty" in bare and bare[:1] in ("(", "[")) or _is_half_open(bare):
        return "intervals"
    if _is_solved_inequality(bare):
        return "intervals"
    if bare.count("\\pm") + bare.count("±") == 1 and "=" not in bare:
        return "set"
    several = len(split_at(bare)) > 1 or len(split_at(bare[1:-1])) > 1
    if bare.startswith("\\{") and bare.endswith("\\}"):
        return "set"
    if bare.startswith("(") and bare.endswith(")") and several:
        return "tuple"
    return (
        "set" if len(split_at(bare)) > 1 and "{,}" not in bare and not re.search(r"\d,\d{3}(?!\d)", bare) else "single"
    )


def _is_half_open(bare: str) -> bool:
    return (bare[:1] == "[") != (bare[-1:] == "]") or (bare[:1] == "[" and len(split_at(bare[1:-1])) == 2)


def _is_solved_inequality(bare: str) -> bool:
    """`x \\ge -2`, `-1 < x \\le 3`: a variable between numbers."""
    found = _read_inequality(bare) if _has_relation(bare) else None
    ends = [] if found is None else [parse_expression(text) for text in found.texts if "infinity" not in text]
    return bool(ends) and all(end is not None and not end.symbols for end in ends)


def split_into_parts(text: str, shape: Shape) -> AnswerParts | None:
    """None for what is not of that shape, or has more than 40 parts."""
    found = _READERS[shape](_SIZES_AND_SPACES[shape == "single"].sub(" ", text).strip())
    return found if found is not None and 0 < len(found.texts) <= MOST_PARTS else None


def strip_lead(text: str) -> str:
    return _split_name(text)[1]


def split_at(text: str, sign: str = ",") -> list[str]:
    """At every `sign` that is in no brackets."""
    found, start, depth = list[str](), 0, 0
    for place, character in enumerate(text):
        if character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
        elif character == sign and depth == 0:
            found.append(text[start:place])
            start = place + 1
    return [*found, text[start:]]


def _split_name(text: str) -> tuple[str, str]:
    """The name before an equals sign, if any, and what follows it."""
    lead = _LEAD.match(text)
    return ("", text.strip()) if lead is None else (compact_latex(lead[1]), text[lead.end() :].strip())


def _read_single(text: str) -> AnswerParts:
    """What is left out of a variable's values may be said behind it."""
    return AnswerParts((strip_lead(_CONDITION.sub("", text)),))


def _read_set(text: str) -> AnswerParts | None:
    bare = strip_lead(text)
    if bare.startswith("\\{") and bare.endswith("\\}"):
        bare = bare[2:-2]
    items = [strip_lead(item) for item in split_at(_OR.sub(",", bare).replace(";", ","))]
    both = [one for item in items for one in _split_plus_minus(item)]
    return AnswerParts(tuple(both)) if all(both) else None


def _split_plus_minus(item: str) -> tuple[str, ...]:
    signs = item.count("\\pm") + item.count("±")
    if signs != 1:
        return (item,)
    above = item.replace("±", "\\pm ")
    return above.replace("\\pm", "+"), above.replace("\\pm", "-")


def _read_tuple(text: str) -> AnswerParts | None:
    name, rest = _split_name(text)
    bare = rest if not name or rest.startswith("(") else text
    if bare.startswith("(") and bare.endswith(")") and len(split_at(bare)) == 1:
        bare = bare[1:-1]
    items = [_split_name(item) for item in split_at(_OR.sub(",", bare).replace(";", ","))]
    names = {name for name, _ in items}
    if len(names) == len(items) and "" not in names:
        items.sort()
    return AnswerParts(tuple(item for _, item in items)) if all(item for _, item in items) else None


def _read_intervals(text: str) -> AnswerParts | None:
    every = list[AnswerParts]()
    for part in _UNION.split(strip_lead(text)):
        found = _read_inequality(part) if _has_relation(part) else _read_interval(strip_lead(part))
        if found is None:
            return None
        every.append(found)
    every.sort(key=lambda found: estimate_value(found.texts[0]))
    return AnswerParts(tuple(text for found in every for text in found.texts), "".join(found.signs for found in every))


def _read_interval(text: str) -> AnswerParts | None:
    ends = split_at(text[1:-1])
    if text[:1] not in ("(", "[") or text[-1:] not in (")", "]") or len(ends) != 2:
        return None
    return AnswerParts((_normalise_end(ends[0]), _normalise_end(ends[1])), text[0] + text[-1])


def _normalise_end(text: str) -> str:
    """Infinity has one name, whatever its sign is written with."""
    bare = compact_latex(text)
    return {"\\infty": "infinity", "+\\infty": "infinity", "-\\infty": "-infinity", "infty": "infinity"}.get(bare, bare)


def _normalise_relations(text: str) -> str:
    for pattern, sign in _RELATIONS:
        text = pattern.sub(sign, text)
    return text


def _has_relation(text: str) -> bool:
    return _RELATION.search(_normalise_relations(text)) is not None


def _read_inequality(text: str) -> AnswerParts | None:
    pieces = _RELATION.split(_normalise_relations(text))
    if len(pieces) == 3 and _VARIABLE.fullmatch(pieces[2]):
        pieces = [pieces[2], pieces[1].translate(str.maketrans("<>≤≥", "><≥≤")), pieces[0]]
    if len(pieces) == 3 and _VARIABLE.fullmatch(pieces[0]):
        if pieces[1] in "<≤":
            return AnswerParts(("-infinity", _normalise_end(pieces[2])), "(" + ("]" if pieces[1] == "≤" else ")"))
        return AnswerParts((_normalise_end(pieces[2]), "infinity"), ("[" if pieces[1] == "≥" else "(") + ")")
    if len(pieces) == 5 and _VARIABLE.fullmatch(pieces[2]):
        lower, first, _, second, upper = pieces
        if first in ">≥" and second in ">≥":
            lower, upper, first, second = upper, lower, second, first
        elif first in ">≥" or second in ">≥":
            return None
        brackets = ("[" if first in "≤≥" else "(") + ("]" if second in "≤≥" else ")")
        return AnswerParts((_normalise_end(lower), _normalise_end(upper)), brackets)
    return None


def _read_matrix(text: str) -> AnswerParts | None:
    found = _MATRIX.fullmatch(strip_lead(text))
    if found is None:
        return None
    rows = [row.split("&") for row in _ROW.split(found[1]) if row.strip()]
    entries = [entry.strip() for row in rows for entry in row]
    return AnswerParts(tuple(entries), " ".join(str(len(row)) for row in rows)) if all(entries) else None


_READERS: Final = {
    "single": _read_single,
    "set": _read_set,
    "tuple": _read_tuple,
    "intervals": _read_intervals,
    "matrix": _read_matrix,
}
