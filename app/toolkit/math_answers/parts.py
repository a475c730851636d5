r"""Compound answers and their parts, and units: what stands around the expressions of an answer."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from app.toolkit.answers import parse_number
from app.toolkit.math_answers.expressions import compact_latex, estimate_value, parse_expression

# Compound answers and their parts. What an answer is taken for is decided by what a right one is, never by its own
# look: `1,234` is a number where a number is asked for, and two of them where a set is.
#
#   set        order does not count, repeats are wrong: `\{2, 3\}`, `x = 2 \text{ or } x = 3`, `\pm\sqrt2`
#   tuple      order counts, named parts are put in it: `(1, 2)`, `1, 2`, `x = 1, y = 2`
#   intervals  brackets count: `(-\infty, 3]`, `[0, 1) \cup (2, 5)`, `x \le 3`, `-1 < x < 3`
#   matrix     `\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}`, square brackets alike
#   single     anything else; `x = 3` is 3, and a chain of equations is nothing

Shape = Literal["single", "set", "tuple", "intervals", "matrix"]
_MOST_PARTS: Final = 40
"""The parts of a set are compared with each other, so the work grows with their square."""

_LEAD = re.compile(
    r"\s*((?:\\(?:text|mathrm|mathbf)\s?\{[A-Za-z ]{1,40}\}|\\(?:cap|cup|setminus|theta|alpha|lambda|angle|triangle)\b"
    r"|\\[dt]?frac\s?\{d[A-Za-z]{0,2}\}\s?\{d[a-z]\}|_\s?\{?[A-Za-z0-9,]{1,3}\}?|[A-Za-z(),'|\s]){1,40}?)"
    r"\s*(?:=|\\in(?![A-Za-z])|:|∈)(?!=)"
)
"""A name before an equals sign, of at most forty parts, so that a long text is not tried at every length."""
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
"""A value that the variable must not have, as in `x + 1, x \\neq 0`."""
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
    interval = _read_inequality(bare) if _has_relation(bare) else None
    ends = [] if interval is None else [parse_expression(text) for text in interval.texts if "infinity" not in text]
    return bool(ends) and all(end is not None and not end.symbols for end in ends)


def split_into_parts(text: str, shape: Shape) -> AnswerParts | None:
    """None for what is not of that shape, or has more than 40 parts."""
    parts = _READERS[shape](_SIZES_AND_SPACES[shape == "single"].sub(" ", text).strip())
    return parts if parts is not None and 0 < len(parts.texts) <= _MOST_PARTS else None


def strip_lead(text: str) -> str:
    return _split_name(text)[1]


def split_at(text: str, sign: str = ",") -> list[str]:
    """At every `sign` that is in no brackets."""
    pieces, start, depth = list[str](), 0, 0
    for position, character in enumerate(text):
        if character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
        elif character == sign and depth == 0:
            pieces.append(text[start:position])
            start = position + 1
    return [*pieces, text[start:]]


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
    intervals = list[AnswerParts]()
    for part in _UNION.split(strip_lead(text)):
        interval = _read_inequality(part) if _has_relation(part) else _read_interval(strip_lead(part))
        if interval is None:
            return None
        intervals.append(interval)
    intervals.sort(key=lambda interval: estimate_value(interval.texts[0]))
    return AnswerParts(
        tuple(text for interval in intervals for text in interval.texts),
        "".join(interval.signs for interval in intervals),
    )


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
    match = _MATRIX.fullmatch(strip_lead(text))
    if match is None:
        return None
    rows = [row.split("&") for row in _ROW.split(match[1]) if row.strip()]
    entries = [entry.strip() for row in rows for entry in row]
    return AnswerParts(tuple(entries), " ".join(str(len(row)) for row in rows)) if all(entries) else None


_READERS: Final = {
    "single": _read_single,
    "set": _read_set,
    "tuple": _read_tuple,
    "intervals": _read_intervals,
    "matrix": _read_matrix,
}


# Units of answers: `5\text{ cm}`, `12\,\mathrm{m^2}`, `\$3.50`, `40\%`, `90^\circ`, `30\text{ miles per hour}`. A unit
# has one name, however it is written; a word that is no known unit is its own (`apples`). Nothing is converted.

_WRITTEN: Final[Mapping[str, str]] = {
    "mm": "millimeter millimetre",
    "cm": "centimeter centimetre",
    "m": "meter metre",
    "km": "kilometer kilometre",
    "in": "inch inches",
    "ft": "foot feet",
    "yd": "yard",
    "mi": "mile",
    "s": "sec second",
    "min": "minute",
    "h": "hr hour",
    "d": "day",
    "mg": "milligram",
    "g": "gram gm",
    "kg": "kilogram",
    "lb": "pound",
    "oz": "ounce",
    "ml": "milliliter millilitre",
    "l": "liter litre",
    "mi/h": "mph",
    "km/h": "kph kmh",
    "degree": "deg °",
    "rad": "radian",
    "%": "percent",
    "$": "dollar usd",
    "cent": "¢",
    "€": "euro eur",
    "£": "gbp",
}
_UNIT_NAMES: Final = {
    form: name for name, forms in _WRITTEN.items() for word in (name, *forms.split()) for form in (word, f"{word}s")
}
_ALONE: Final = frozenset(_UNIT_NAMES) - {"d", "ds", "ins", "h", "hs", "s", "ss", "l", "ls"}
"""What is a unit also when it is written as plain text behind a number."""
_TEXT = r"\\(?:text|mathrm|textrm|mbox|operatorname|rm)\s?\{((?:[^{}]|\{[^{}]{0,9}\}){0,60})\}"
_UNIT_POWER = r"(?:\s?\^\s?\{?\s?[23]\s?\}?|[²³])?"
_UNIT: Final = re.compile(
    rf"(?:{_TEXT}{_UNIT_POWER}(?:\s?/\s?{_TEXT}{_UNIT_POWER})?|\\[dt]?frac\s?\{{\s?{_TEXT}\s?\}}\s?\{{\s?{_TEXT}\s?\}}"
    rf"|\\?%|\^?\s?\{{?\s?\\circ\s?\}}?|\\degree|°|(?<=[\s\d}}])[A-Za-z]{{1,12}}(?:(?:\sper\s|/)[A-Za-z]{{1,12}})?{_UNIT_POWER})\Z"
)
_MONEY: Final = re.compile(
    r"\s*(?P<sign>-?)\s*(?P<unit>\\text\s?\{\s*\\?\$\s*\}|\\?\$|\\(?:text)?dollar|€|£)(?:\s|\\[!,;: ])*(?=[-\d.\\])"
)
_COMMANDS: Final = re.compile(r"\\(?:text|mathrm|textrm|mbox|operatorname|rm|[dt]?frac)(?![A-Za-z])|[{}\\^.,~]")
_SPACES_BEHIND: Final = re.compile(r"(?:\\[\s,;:!]|[\s~])+\Z")
_NO_UNIT: Final = frozenset(
    (
        *("or", "and", "not", "if", "is", "are", "about", "approximately", "nearly", "least", "most", "am", "pm"),
        *("million", "billion", "thousand", "hundred", "half", "dozen", "squared", "cubed", "base", "unit"),
    )
)
"""Words behind a number that are no unit: they make it another number, or none."""


def split_unit(text: str) -> tuple[str, str]:
    """The value and the name of its unit; the text itself and nothing where it is no number with a unit."""
    money = _MONEY.match(text)
    if money is not None:
        value, unit = money["sign"] + text[money.end() :], _name_unit(money["unit"].replace("text", ""))
        bare, other = _split_behind(value)
        return (bare, unit) if not other or other == unit else (text, "")
    return _split_behind(text)


def _split_behind(text: str) -> tuple[str, str]:
    bare = text.strip().removesuffix(".")
    # Only the end can be a unit: a search from the start of a long answer would take quadratic time.
    match = _UNIT.search(bare, max(0, len(bare) - 160))
    while match is not None:
        value, unit = _SPACES_BEHIND.sub("", bare[: match.start()]), _name_unit(match[0])
        if unit and _is_known(match[0], unit) and _is_value(value):
            return value, unit
        match = _UNIT.search(bare, match.start() + 1)
    return text, ""


def _is_known(written: str, unit: str) -> bool:
    """Plain letters are a unit only if they are a known one; in an expression they are variables."""
    return not written[0].isalpha() or all(part.rstrip("23") in _ALONE for part in unit.split("/"))


def _is_value(text: str) -> bool:
    if not any(map(str.isdecimal, text)):
        return False
    node = parse_expression(text)
    return (node is not None and not node.symbols) or parse_number(text) is not None


def _name_unit(written: str) -> str:
    """Empty for words that are no unit."""
    if "circ" in written or "°" in written or written == "\\degree":
        return "degree"
    if "$" in written or "dollar" in written:
        return "$"
    fraction = re.sub(r"\}\s?\{", "}/{", written) if "frac" in written else written
    plain = fraction.translate({ord("²"): "2", ord("³"): "3"}).casefold().replace("per cent", "percent")
    words = _COMMANDS.sub(" ", plain).replace("%", " percent ").replace("/", " per ").split()
    if not words or _NO_UNIT.intersection(words) or not all(re.fullmatch(r"[a-z€£¢$]+|[23]", word) for word in words):
        return ""
    return "/".join(_name_power(part.split()) for part in " ".join(words).split(" per "))


def _name_power(words: list[str]) -> str:
    power = "2" if {"square", "sq"}.intersection(words) else "3" if "cubic" in words else ""
    rest = [word for word in words if word not in ("square", "sq", "cubic")]
    if rest and rest[-1] in ("2", "3"):
        power = rest.pop()
    named = [_UNIT_NAMES.get(word, word.removesuffix("s") if len(word) > 3 else word) for word in rest]
    return " ".join(named) + power
