"""Units of answers: `5\\text{ cm}`, `12\\,\\mathrm{m^2}`, `\\$3.50`, `40\\%`, `90^\\circ`, `30\\text{ miles per hour}`.

A unit has one name, however it is written: `centimeters` is `cm`. A word that is no known unit is its own (`apples`).
Nothing is converted.
"""

import re
from collections.abc import Mapping
from typing import Final

from app.toolkit.answers.numerals import parse_number
from app.toolkit.math_answers.expressions import parse_expression

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
_NAMES: Final = {
    form: name for name, forms in _WRITTEN.items() for word in (name, *forms.split()) for form in (word, f"{word}s")
}
_ALONE: Final = frozenset(_NAMES) - {"d", "ds", "ins", "h", "hs", "s", "ss", "l", "ls"}
"""What is a unit also when it is written as plain text behind a number."""
_TEXT = r"\\(?:text|mathrm|textrm|mbox|operatorname|rm)\s?\{((?:[^{}]|\{[^{}]{0,9}\}){0,60})\}"
_RAISED = r"(?:\s?\^\s?\{?\s?[23]\s?\}?|[²³])?"
_UNIT: Final = re.compile(
    rf"(?:{_TEXT}{_RAISED}(?:\s?/\s?{_TEXT}{_RAISED})?|\\[dt]?frac\s?\{{\s?{_TEXT}\s?\}}\s?\{{\s?{_TEXT}\s?\}}"
    rf"|\\?%|\^?\s?\{{?\s?\\circ\s?\}}?|\\degree|°|(?<=[\s\d}}])[A-Za-z]{{1,12}}(?:(?:\sper\s|/)[A-Za-z]{{1,12}})?{_RAISED})\Z"
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
    found = _UNIT.search(bare, max(0, len(bare) - 160))
    while found is not None:
        value, unit = _SPACES_BEHIND.sub("", bare[: found.start()]), _name_unit(found[0])
        if unit and _is_known(found[0], unit) and _is_value(value):
            return value, unit
        found = _UNIT.search(bare, found.start() + 1)
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
    named = [_NAMES.get(word, word.removesuffix("s") if len(word) > 3 else word) for word in rest]
    return " ".join(named) + power
