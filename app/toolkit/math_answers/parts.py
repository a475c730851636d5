r"""Compound answers and their parts, and units: what stands around the expressions of an answer."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, Literal

from app.toolkit.answers import TEXT_COMMANDS, parse_number
from app.toolkit.math_answers.expressions import compact_latex, estimate_value, parse_expression

# Compound answers and their parts. What an answer is taken for is decided by what a right one is, never by its own
# look: `1,234` is a number where a number is asked for, and two of them where a set is.
#
#   set        order does not count, repeats are wrong: `\{2, 3\}`, `x = 2 \text{ or } x = 3`, `(1, 2), (3, 4)`
#   list       order counts, since the problem asks for one, or dots stand for what is between: `1, 2, \ldots, n`
#   tuple      order counts, named parts are put in it: `(1, 2)`, `1, 2`, `x = 1, y = 2`
#   named      every value by its name, or all of them bare, in the order of the names: `a = 3, b = 5`
#   intervals  brackets count: `(-\infty, 3]`, `[0, 1) \cup (2, 5)`, `x \le 3`, `\{x \mid x > 5\}`, `\mathbb{R}`
#   matrix     `\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}`, square brackets alike
#   single     anything else; `x = 3` is 3, and a chain of equations is nothing

Shape = Literal["single", "set", "list", "tuple", "named", "intervals", "matrix"]
_MOST_PARTS: Final = 40
"""The parts of a set are compared with each other, so the work grows with their square."""

_LEAD = re.compile(
    rf"\s*((?:\\(?:{TEXT_COMMANDS})\s?\{{[A-Za-z ]{{1,40}}\}}"
    r"|\\(?:cap|cup|setminus|theta|alpha|lambda|angle|triangle)\b"
    r"|\\[dt]?frac\s?\{d[A-Za-z]{0,2}\}\s?\{d[a-z]\}|_\s?\{?[A-Za-z0-9,]{1,3}\}?|[A-Za-z(),'|\s]){1,40}?)"
    r"\s*(?:=|\\in(?![A-Za-z])|:|∈)(?!=)"
)
"""A name before an equals sign, of at most forty parts, so that a long text is not tried at every length."""
_IN_TEXT = rf"\\(?:{TEXT_COMMANDS})\s?\{{\s*"
_OR = re.compile(rf"{_IN_TEXT}or\s*\}}|(?<![A-Za-z\\])or(?![A-Za-z])")
_AND = re.compile(rf"{_IN_TEXT}and\s*\}}|(?<![A-Za-z\\])and(?![A-Za-z])")
_OR_SIGN = re.compile(r"\\(?:lor|vee)(?![A-Za-z])")
_AND_SIGN = re.compile(r"\\(?:land|wedge)(?![A-Za-z])")
_UNION = re.compile(rf"\\(?:big)?cup(?![A-Za-z])|∪|{_OR.pattern}|{_OR_SIGN.pattern}")
_SEPARATOR = re.compile(rf"[,;，；、]?\s{{0,8}}(?:{_OR.pattern}|{_AND.pattern})|[;，；、]")
"""What stands between the parts of a list, but for a comma alone."""
_REALS = re.compile(
    r"(?:[A-Za-z]\s?(?:\\in|∈)\s?)?(?:\\mathbb\s?\{?\s?R\s?\}?|\\R|ℝ|"
    r"(?:x\s?is\s?)?(?:the\s?set\s?of\s?)?(?:all|any|every)?\s?real(?:s|\s?numbers?|\s?values?)?(?:\s?x)?)\s?",
    re.IGNORECASE,
)
_LEFT_OUT = re.compile(
    r"(?P<reals>.{1,60}?)\s?(?:\\setminus|\\backslash|-|,?\s?except(?:\s?for)?)\s?(?:\\\{(?P<set>[^{}\\]{1,200}(?:\\[a-z]{1,9}(?![a-z])[^\\]{0,60})*)\\\}|(?P<one>[-+0-9./]{1,40}))"
)
"""The real numbers without some of them."""
_BUILDER = re.compile(
    r"\\\{\s{0,8}(?P<name>[A-Za-z]|\\[a-z]{2,7})\s{0,8}(?:(?:\\in(?![A-Za-z])|∈)\s{0,8}(?:\\mathbb\s?\{?\s?R\s?\}?|\\R|ℝ)\s{0,8})?"
    r"(?:\\mid(?![A-Za-z])|\\vert(?![A-Za-z])|\||:|\\colon(?![A-Za-z]))(?P<says>.*)\\\}",
    re.DOTALL,
)
"""`\\{x \\mid x > 5\\}`; of whole numbers, say, it is no interval."""
_BUILDS = re.compile(r"\\(?:mid|vert|colon)(?![A-Za-z])|[|:]")
_ALL_IN_TEXT = re.compile(rf"\\(?:{TEXT_COMMANDS})\s?\{{([^{{}}]*)\}}")
_NOT_EQUAL = re.compile(r"\\neq?(?![A-Za-z])|≠")
_MATRIX = re.compile(
    r"\s*(?:\\left)?\s*[(\[]?\s*\\begin\{(?:[pb]|small)?(?:matrix|array)\}(?:\{[clr| ]{1,12}\})?"
    r"(.*?)\\end\{(?:[pb]|small)?(?:matrix|array)\}\s*(?:\\right)?\s*[)\]]?\s*",
    re.DOTALL,
)
_ROW = re.compile(r"\\\\(?:\[[^\]]{0,8}\])?")
_SIZED = re.compile(r"\\(?:left|right|[bB]igg?[lmr]?)(?![A-Za-z])\s?\.?")
_SPACED = re.compile(_SIZED.pattern + r"|(?<!\\)\\[,;:! ]|\\q?quad(?![A-Za-z])|~")
_SIZES_AND_SPACES: Final = (_SPACED, _SIZED)
"""Spaces with commas in them; in a single number they may stand between thousands."""
_BLANKS = re.compile(r"\s{2,}")
_FOR_ALL = re.compile(
    r"\s?,?\s?(?:\\text\s?\{\s?for (?:all|every|any)(?: real)?\s?\}|\\forall|for (?:all|every|any)(?: real)?)\s?[a-z]"
    r"(?:\s?\\in\s?\\mathbb\s?\{?R\}?)?\s?\Z"
)
"""What an answer in a variable says anyway, as in `f(x) = x, \\forall x`."""
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
_VARIABLE = re.compile(r"\s*((?![ei]\s*$)[A-Za-z]|\\(?!infty|pi)[a-z]{2,7})\s*")
_MEMBER = re.compile(rf"{_VARIABLE.pattern}(?:\\in(?![A-Za-z])|∈)")
_SHORT_NAME = re.compile(r"[A-Za-z](?:_\{?[0-9]{1,3}\}?)?|\\[a-z]{2,7}")
_AXES: Final = frozenset("xyz")
_NO_NAMES: Final = frozenset({"e", "i", "\\pi", "\\infty"})
_OPEN, _CLOSE = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class AnswerParts:
    """`signs` is what surrounds them: the brackets of every interval, rows and columns. `names` are those of all parts,
    empty where one has none; of intervals, that of their variable. `either`: "or" stands between parts with an order or
    names."""

    texts: tuple[str, ...]
    signs: str = ""
    names: tuple[str, ...] = ()
    either: bool = False


_ASKS_FOR_ORDER = re.compile(
    r"\b(?:order|sort|rank|arrange)(?:e?d|s|ing)?\b|\barranging\b|\brespectively\b"
    r"|\b(?:from|list\w*)\b[^.?!]{0,80}?\b(?:\w{2,20}est|least|most|first|low|high)\b[^.?!]{0,20}"
    r"\bto\b[^.?!]{0,20}\b(?:\w{2,20}est|least|most|last|low|high)\b",
    re.IGNORECASE,
)
_ASKS_FOR_NONE = re.compile(
    r"\bin order (?:to|that|for)\b|\b(?:any|no|particular|either|of|first|second|third|nth|\w{3,20}th)[- ]order\b"
    r"|\border (?:of magnitude|do(?:es)? not|doesn't|is not|isn't|is irrelevant)\b|\b(?:sorts?|rank) of\b",
    re.IGNORECASE,
)
"""The same words where they say nothing of how an answer is written: `in any order`, `a second-order equation`."""
_ORDERED_POINT = re.compile(r"\bordered (?:pair|triple|triplet|quadruple|tuple|n-tuple|solution)s?\b", re.IGNORECASE)
"""Says nothing of the order of several points."""


def detect_shape(gold: str, problem: str = "") -> Shape:
    """What a right answer of a data set is, by its look, and by what the problem says of its order."""
    bare = _spell_connectives(_SIZED.sub("", gold)).replace("\\!", "").strip()
    if "\\begin{" in bare:
        return "matrix"
    if _is_named(bare):
        return "named"
    if "\\cup" in bare or ("\\infty" in bare and bare[:1] in ("(", "[")) or _is_half_open(bare):
        return "intervals"
    if _is_solved_inequality(bare):
        return "intervals"
    if bare.count("\\pm") + bare.count("±") == 1 and "=" not in bare:
        return "set"
    if bare.startswith("\\{") and bare.endswith("\\}"):
        return "set"
    if _is_set_of_values(bare):
        return "set"
    shape = _detect_list(bare)
    if shape != "set" or _OR.search(bare):
        return shape
    says = _ASKS_FOR_NONE.sub(" ", problem)
    if all(is_point(item) for item in split_items(bare)):
        says = _ORDERED_POINT.sub(" ", says)
    return "list" if _ASKS_FOR_ORDER.search(says) or "\\ldots" in bare else "set"


def _is_set_of_values(bare: str) -> bool:
    """`x \\in \\{2, 3\\}`: a letter and its values."""
    member = _MEMBER.match(bare)
    rest = "" if member is None else bare[member.end() :].strip()
    return rest.startswith("\\{") and rest.endswith("\\}") and not _BUILDS.search(rest) and "\\{" not in rest[2:]


def _detect_list(bare: str) -> Shape:
    items = [item.strip() for item in split_items(bare)]
    if len(items) > 1 and all(map(is_point, items)):
        return "set"
    if bare.startswith("(") and bare.endswith(")") and (len(items) > 1 or len(split_at(bare[1:-1])) > 1):
        return "tuple"
    if len(split_at(bare)) > 1:
        return "single" if "{,}" in bare or re.search(r"\d,\d{3}(?!\d)", bare) else "set"
    return "set" if len(items) > 1 and all(map(_is_without_words, items)) else "single"


def _is_without_words(item: str) -> bool:
    """Whether it is an expression, or an equation of one, not `3 hours` or `red`."""
    return parse_expression(strip_lead(item)) is not None and not re.search(r"(?<![\\A-Za-z])[A-Za-z]{2}", item)


def is_point(text: str) -> bool:
    """`(1, 2)`: a pair, or more, in one pair of round brackets."""
    bare = text.strip()
    return bare[:1] == "(" and bare[-1:] == ")" and len(split_at(bare[1:-1])) > 1 and _is_one_bracket(bare)


def _is_one_bracket(text: str) -> bool:
    """Whether the first bracket is closed by the last character and no earlier one."""
    depth = 0
    for position, character in enumerate(text):
        depth += (character in _OPEN) - (character in _CLOSE)
        if depth == 0:
            return position == len(text) - 1
    return False


def _has_own_brackets(inside: str) -> bool:
    """Whether none in it closes one before it: `1, 2) (or so` does."""
    depth = 0
    for character in inside:
        depth += (character in _OPEN) - (character in _CLOSE)
        if depth < 0:
            return False
    return True


def _is_named(bare: str) -> bool:
    named = _read_named(bare)
    return named is not None and len(named.texts) > 1 and all(named.names)


def _is_half_open(bare: str) -> bool:
    if (bare[:1] == "[") != (bare[-1:] == "]"):
        return True
    return (bare[:1], bare[-1:]) in (("[", "]"), ("]", "[")) and len(split_at(bare[1:-1])) == 2


def _is_solved_inequality(bare: str) -> bool:
    """`x \\ge -2`, `-1 < x \\le 3`, `x \\in [2, 3]`, `\\mathbb{R}`: a variable between numbers."""
    says_so = _has_relation(bare) or _has_reals(bare) or _MEMBER.match(bare) or _NOT_EQUAL.search(bare)
    read = _read_intervals(bare) if says_so else None
    if read is None:
        return False
    ends = [parse_expression(text) for text in read.texts if "infinity" not in text]
    return all(end is not None and not end.symbols for end in ends)


def split_into_parts(text: str, shape: Shape) -> AnswerParts | None:
    """None for what is not of that shape, or has more than 40 parts."""
    text = _spell_connectives(_FOR_ALL.sub("", _BLANKS.sub(" ", text)))
    parts = _READERS[shape](_BLANKS.sub(" ", _SIZES_AND_SPACES[shape == "single"].sub(" ", text)).strip())
    return parts if parts is not None and 0 < len(parts.texts) <= _MOST_PARTS else None


def _spell_connectives(text: str) -> str:
    """With words for the signs between equations and inequalities: `x < 1 \\lor x > 3`. Elsewhere they are operators of
    their own, as in `p \\land q`."""
    sides = _AND_SIGN.split(_OR_SIGN.sub(r"\\land ", text))
    if len(sides) == 1 or not all("=" in side or _has_relation(side) for side in sides):
        return text
    return _AND_SIGN.sub(" and ", _OR_SIGN.sub(" or ", text))


def strip_lead(text: str) -> str:
    return _split_name(text)[1]


_ANGLES = re.compile(r"\s*(?:\\langle(?![A-Za-z])|⟨).*(?:\\rangle(?![A-Za-z])|⟩)\s*", re.DOTALL)


def has_angle_brackets(text: str) -> bool:
    """`\\langle 1, 2 \\rangle`: all of it, and more than one part."""
    bare = _SIZED.sub("", text)
    return _ANGLES.fullmatch(bare) is not None and len(split_at(bare)) > 1


def round_angle_brackets(text: str) -> str:
    return re.sub(r"\\rangle(?![A-Za-z])|⟩", ")", re.sub(r"\\langle(?![A-Za-z])|⟨", "(", text))


def is_of_other_name(answer: str, gold: str, shape: Shape, problem: str) -> bool:
    """`x = 4` for `y = 4`: another line. Of a name that the problem does not have, nobody can know which was meant; but
    x, y and z are those of axes everywhere."""
    meant, said = _find_names(gold, shape), _find_names(answer, shape)
    if not meant or not said or any(map(_are_one_name, product(meant, said))):
        return False
    given = any(re.search(rf"(?<![A-Za-z\\]){re.escape(name)}(?![A-Za-z])", problem) for name in meant)
    return given or (meant | said) <= _AXES


def _are_one_name(names: tuple[str, str]) -> bool:
    """`x_1` may be `x`: one of its values."""
    one, other = names
    return one == other or one.partition("_")[0] == other or one == other.partition("_")[0]


def _find_names(text: str, shape: Shape) -> frozenset[str]:
    """Short ones that the values of a number or set are said to be of: `x = 3`, `3 = x`, `x = 2 \\text{ or } x = 3`."""
    if shape not in ("single", "set"):
        return frozenset()
    member = _MEMBER.match(text)
    if member is not None:
        return frozenset({compact_latex(member[1])})
    items = split_items(text) if shape == "set" else [text]
    return frozenset(name for item in items if (name := _find_name(item)))


def _find_name(equation: str) -> str:
    """Empty before a set, whose own name it is: `S = \\{2, 3\\}`."""
    sides = [compact_latex(side) for side in split_at(equation, "=")]
    bare = [re.sub(r"[{}]", "", side) for side in sides]
    names = [side for side in bare if _SHORT_NAME.fullmatch(side) and side not in _NO_NAMES]
    return names[0] if len(sides) == 2 and len(names) == 1 and not sides[1].startswith("\\{") else ""


_ANSWER_LEAD = re.compile(
    r"\s*(?:the )?(?:(?:final|correct|right|best) )?(?:answer|option|choice)(?: is)?\s*(?:[:=]|:?\s?\}\s*[:=]?)\s*",
    re.IGNORECASE,
)


def strip_answer_lead(text: str) -> str:
    """Without `answer:` before a choice or a word. Any other lead may be an answer itself: `yes: no`."""
    bare = text.strip()
    command = re.match(rf"\\(?:{TEXT_COMMANDS})\s?\{{", bare)
    lead = _ANSWER_LEAD.match(bare, 0 if command is None else command.end())
    return bare if lead is None else bare[lead.end() :]


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


_RATIO_SIGN = re.compile(rf"\s?(?:{_IN_TEXT}to\s*\}}|(?<![A-Za-z])to(?![A-Za-z])|:|∶)\s?")
_NUMERAL = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,20})?")


def read_ratio(text: str) -> tuple[str, ...]:
    """The numerals of `3:19` and `3 \\text{ to } 19`."""
    numerals = tuple(_RATIO_SIGN.split(_BLANKS.sub(" ", text).strip()))
    return numerals if len(numerals) > 1 and all(map(_NUMERAL.fullmatch, numerals)) else ()


def split_items(text: str) -> list[str]:
    """At every comma, semicolon, "and" and "or" that is in no brackets: `(2 or 5)` is no pair."""

    def write_comma(found: re.Match[str]) -> str:
        depth = sum(text.count(sign, 0, found.start()) for sign in "([") - sum(
            text.count(sign, 0, found.start()) for sign in ")]"
        )
        return found[0] if depth > 0 and _OR.search(found[0]) else ","

    return split_at(_SEPARATOR.sub(write_comma, text))


def _split_name(text: str) -> tuple[str, str]:
    """The name before an equals sign, if any, and what follows it."""
    lead = _LEAD.match(text)
    return ("", text.strip()) if lead is None else (compact_latex(lead[1]), text[lead.end() :].strip())


def _read_single(text: str) -> AnswerParts:
    """What is left out of a variable's values may be said behind it."""
    return AnswerParts((strip_lead(_CONDITION.sub("", text)),))


def _read_set(text: str) -> AnswerParts | None:
    words = _ALL_IN_TEXT.fullmatch(text)
    bare = strip_lead(text if words is None else words[1])
    if bare.startswith("\\{") and bare.endswith("\\}"):
        bare = bare[2:-2]
    items = [strip_lead(item) for item in split_items(bare)]
    both = [one for item in items for one in _split_plus_minus(item)]
    return AnswerParts(tuple(both)) if all(both) else None


def _read_list(text: str) -> AnswerParts | None:
    bare = strip_lead(text)
    if _is_one_bracket(bare) and bare[:1] == "(":
        bare = bare[1:-1]
    read = _read_set(bare)
    return None if read is None else replace(read, either=_OR.search(text) is not None)


_MARKED_NAME = re.compile(rf"\\(?:{TEXT_COMMANDS}|operatorname)(?![A-Za-z])|[{{}}~]")
_OUTSIDE_OF_NAMES = frozenset('+-*/^<>≤≥≠&%$!.?"')


def _read_named(text: str) -> AnswerParts | None:
    """Values with their names, where they have some; `(x, y) = (1, 2)` is two of them."""
    sides = split_at(text, "=")
    if len(sides) == 2 and is_point(sides[0]) and is_point(sides[1]):
        names, values = ([*split_at(side.strip()[1:-1])] for side in sides)
        return _name_parts(list(zip(names, values, strict=True)), either=False) if len(names) == len(values) else None
    bare = text.strip()
    if is_point(bare):
        bare = bare[1:-1]
    pieces = [split_at(item, "=") for item in split_items(bare)]
    if any(len(piece) > 2 for piece in pieces):
        return None
    named = [("" if len(piece) == 1 else piece[0], piece[-1]) for piece in pieces]
    return _name_parts(named, either=_OR.search(text) is not None)


def _name_parts(pairs: list[tuple[str, str]], *, either: bool) -> AnswerParts | None:
    names = [compact_latex(_MARKED_NAME.sub("", name)) for name, _ in pairs]
    given = [name for name in names if name]
    if len(set(given)) < len(given) or not all(map(_is_name, given)) or not all(value.strip() for _, value in pairs):
        return None
    return AnswerParts(tuple(value.strip() for _, value in pairs), names=tuple(names), either=either)


def _is_name(text: str) -> bool:
    """`x`, `a_1`, `f(2)`, `\\theta`, `mean`, and no expression such as `2x` or `a+b`."""
    outside = "".join(re.split(r"\([^()]{0,60}\)", text))
    return text[:1] not in "0123456789" and any(map(str.isalpha, text)) and _OUTSIDE_OF_NAMES.isdisjoint(outside)


def _split_plus_minus(item: str) -> tuple[str, ...]:
    signs = item.count("\\pm") + item.count("±")
    if signs != 1:
        return (item,)
    above = item.replace("±", "\\pm ")
    return above.replace("\\pm", "+"), above.replace("\\pm", "-")


def _read_tuple(text: str) -> AnswerParts | None:
    name, rest = _split_name(text)
    bare = rest if not name or rest.startswith("(") else text
    if bare.startswith("(") and bare.endswith(")") and len(split_at(bare)) == 1 and _has_own_brackets(bare[1:-1]):
        bare = bare[1:-1]
    items = [_split_name(item) for item in split_items(bare)]
    if is_point(name):
        heads = split_at(name[1:-1])
        if len(heads) != len(items):
            return None
        items = [(own or head, value) for head, (own, value) in zip(heads, items, strict=True)]
    names = [name for name, _ in items]
    if len(set(names)) == len(names) and set(names) <= {"x", "y", "z"}:
        items.sort()
    elif not _stand_in_order(names, as_asked=is_point(name)):
        return None
    either = _OR.search(text) is not None
    return AnswerParts(tuple(item for _, item in items), either=either) if all(item for _, item in items) else None


def _stand_in_order(names: list[str], *, as_asked: bool) -> bool:
    """But for x, y and z nobody knows the order that was meant, so names stay as they are written. Latin letters behind
    Greek ones, or against the alphabet, are in another order; `as_asked`: such as `(m, b) = (3, 4)` may be meant so."""
    short = [name for name in names if _SHORT_NAME.fullmatch(name)]
    places = [(name[0] == "\\", "" if as_asked or name[0] == "\\" else name) for name in short]
    return len(short) < len(names) or places == sorted(places)


def _read_intervals(text: str) -> AnswerParts | None:
    """In order. `x < 1 \\text{ and } x > 2` is no union."""
    built = _BUILDER.fullmatch(text.strip())
    name = "" if built is None else built["name"]
    lead, rest = _split_name(text) if built is None else ("", built["says"])
    if "|" in lead:
        return None
    member = _MEMBER.match(text)
    name = name if member is None else member[1]
    found = [_read_real_numbers(rest)] if _has_reals(rest) else [_read_piece(part) for part in _UNION.split(rest)]
    pieces = [piece for piece in found if piece is not None]
    if len(pieces) < len(found):
        return None
    bounds = [
        (piece.texts[at], piece.texts[at + 1], piece.signs[at : at + 2])
        for piece in pieces
        for at in range(0, len(piece.texts), 2)
    ]
    bounds.sort(key=lambda bound: estimate_value(bound[0]))
    names = {one for piece in pieces for one in piece.names} | ({name} if name else set())
    if len(names) > 1:
        return None
    return AnswerParts(
        tuple(end for bound in bounds for end in bound[:2]), "".join(bound[2] for bound in bounds), tuple(names)
    )


def _read_piece(text: str) -> AnswerParts | None:
    """What stands between the signs of a union."""
    if not _has_relation(text):
        sides = _NOT_EQUAL.split(text)
        if len(sides) == 2 and _VARIABLE.fullmatch(sides[0]):
            return _leave_out_points([sides[1]], (sides[0].strip(),))
        lead, rest = _split_name(text)
        return None if "|" in lead else _read_interval(rest)
    pieces = [_read_inequality(part) for part in _AND.split(text)]
    if len(pieces) == 1:
        return pieces[0]
    return _intersect(pieces[0], pieces[1]) if len(pieces) == 2 else None


def _intersect(one: AnswerParts | None, other: AnswerParts | None) -> AnswerParts | None:
    """Of a lower and an upper bound on the same variable: `x > 1 \\text{ and } x < 2`."""
    if one is None or other is None or one.names != other.names:
        return None
    lower, upper = (one, other) if one.texts[1] == "infinity" else (other, one)
    bounded = "infinity" not in lower.texts[0] and "infinity" not in upper.texts[1]
    if lower.texts[1] != "infinity" or upper.texts[0] != "-infinity" or not bounded:
        return None
    if not estimate_value(lower.texts[0]) < estimate_value(upper.texts[1]):
        return None
    return AnswerParts((lower.texts[0], upper.texts[1]), lower.signs[0] + upper.signs[1], one.names)


_LINE: Final = AnswerParts(("-infinity", "infinity"), "()")


def _strip_words(text: str) -> str:
    return " ".join(_MARKED_NAME.sub(" ", text).split())


def _has_reals(text: str) -> bool:
    return "\\mathbb" in text or "\\R" in text or "ℝ" in text or "real" in text.casefold()


def _read_real_numbers(text: str) -> AnswerParts | None:
    """All real numbers, or all but some."""
    if _REALS.fullmatch(text.strip()) or _REALS.fullmatch(_strip_words(text)):
        return _LINE
    match = _LEFT_OUT.fullmatch(text.strip()) or _LEFT_OUT.fullmatch(_strip_words(text))
    if match is None or not (_REALS.fullmatch(match["reals"]) or _REALS.fullmatch(_strip_words(match["reals"]))):
        return None
    return _leave_out_points(split_at(match["one"] or match["set"]), ())


def _leave_out_points(points: list[str], names: tuple[str, ...]) -> AnswerParts | None:
    nodes = [parse_expression(point) for point in points]
    if len(points) > _MOST_PARTS or any(node is None or node.symbols for node in nodes):
        return None
    ordered = sorted((_normalise_end(point) for point in points), key=estimate_value)
    ends = ["-infinity", *(end for point in ordered for end in (point, point)), "infinity"]
    return AnswerParts(tuple(ends), "()" * (len(ordered) + 1), names)


def _read_interval(text: str) -> AnswerParts | None:
    """Brackets may point outward where an end is left out: `]1, 3]`."""
    ends = split_at(text[1:-1])
    if text[:1] not in ("(", "[", "]") or text[-1:] not in (")", "]", "[") or len(ends) != 2:
        return None
    if not _has_own_brackets(text[1:-1]):
        return None
    signs = text[0].replace("]", "(") + text[-1].replace("[", ")")
    return AnswerParts((_normalise_end(ends[0]), _normalise_end(ends[1])), signs)


_ASKS_FOR_POINT = re.compile(
    r"\b(?:points?|coordinates?|pairs?|triples?|tuples?|vertex|vertices|vectors?|midpoint|cent(?:er|re)s?|foc(?:us|i)|\w*intercepts?)\b"
    r"|\(\s?[A-Za-z]\s?,",
    re.IGNORECASE,
)


def is_said_as_interval(answer: str, gold: str, problem: str) -> bool:
    """Where a right answer looks like a point, `(1, 3)`: whether it may be an interval, and the answer is one that is
    written otherwise: `1 < x < 3`, `]1, 3[`."""
    bare = _SIZED.sub("", answer).strip()
    if not (_has_relation(bare) or strip_lead(bare).startswith("]")) or _ASKS_FOR_POINT.search(problem):
        return False
    interval = _read_interval(_SIZED.sub("", gold).strip())
    ends = [] if interval is None else [parse_expression(end) for end in interval.texts]
    if interval is None or any(end is None or end.symbols for end in ends):
        return False
    return estimate_value(interval.texts[0]) < estimate_value(interval.texts[1])


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
    if len(pieces) == 3 and not _VARIABLE.fullmatch(pieces[0]):
        pieces = [pieces[2], pieces[1].translate(str.maketrans("<>≤≥", "><≥≤")), pieces[0]]
    if len(pieces) == 3 and _VARIABLE.fullmatch(pieces[0]):
        end, names = _normalise_end(pieces[2]), (pieces[0].strip(),)
        if pieces[1] in "<≤":
            return AnswerParts(("-infinity", end), "(" + ("]" if pieces[1] == "≤" else ")"), names)
        return AnswerParts((end, "infinity"), ("[" if pieces[1] == "≥" else "(") + ")", names)
    if len(pieces) == 5 and _VARIABLE.fullmatch(pieces[2]):
        lower, first, variable, second, upper = pieces
        if first in ">≥" and second in ">≥":
            lower, upper, first, second = upper, lower, second, first
        elif first in ">≥" or second in ">≥":
            return None
        brackets = ("[" if first in "≤≥" else "(") + ("]" if second in "≤≥" else ")")
        return AnswerParts((_normalise_end(lower), _normalise_end(upper)), brackets, (variable.strip(),))
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
    "list": _read_list,
    "tuple": _read_tuple,
    "named": _read_named,
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
_SPACES_BEHIND: Final = re.compile(r"(?:\\[\s,;:!]|[\s~])++\Z")
_NO_UNIT: Final = frozenset(
    (
        *("or", "and", "not", "if", "is", "are", "about", "approximately", "nearly", "least", "most", "am", "pm"),
        *("million", "billion", "thousand", "hundred", "half", "dozen", "squared", "cubed", "base", "unit"),
    )
)
"""Words behind a number that are no unit: they make it another number, or none."""


_PLAIN_UNIT: Final = re.compile(
    r"(?<=[0-9}\])])\s{1,8}(?P<unit>[A-Za-z]{1,20}(?:\s[A-Za-z]{1,20}){0,3}(?:\s?\^\s?\{?[23]\}?)?)\Z"
)
_BLANKS_BEFORE_LETTER: Final = re.compile(r"(?:~|\\[ ,;:!]|\\q?quad(?![A-Za-z]))++\s*+(?=[A-Za-z])")
_BEHIND_DIGIT: Final = re.compile(rf"(?<=[0-9])\s?[A-Za-z]{{1,20}}(?:/[A-Za-z]{{1,20}})?{_UNIT_POWER}\Z")


def split_said_unit(text: str) -> tuple[str, str]:
    """As `split_unit`, of an answer where the right one is a number with a unit: letters right behind a digit are no
    factors there, so `69mi/h` has one."""
    value, unit = split_unit(text, plain=True)
    bare = text.strip().removesuffix(".")
    behind = None if unit else _BEHIND_DIGIT.search(bare, max(0, len(bare) - 60))
    named = "" if behind is None else _name_unit(behind[0])
    known = bool(named) and all(part.rstrip("23") in _UNIT_NAMES for part in named.split("/"))
    return (bare[: behind.start()], named) if behind is not None and known else (value, unit)


def split_unit(text: str, *, plain: bool = False) -> tuple[str, str]:
    """The value and the name of its unit; the text itself and nothing where it is no number with a unit. `plain`: any
    words behind a blank are one, as in `133 apples`."""
    bare = _BLANKS_BEFORE_LETTER.sub(" ", text).strip().removesuffix(".")
    match = _PLAIN_UNIT.search(bare, max(0, len(bare) - 100)) if plain else None
    if match is not None and (len(match["unit"]) > 2 or match["unit"].casefold() in _UNIT_NAMES):
        named, value = _name_unit(match["unit"]), bare[: match.start()]
        if named and _is_value(value):
            return value, named
    value, unit = _split_written_unit(bare)
    return (value, unit) if unit else (text, "")


def _split_written_unit(text: str) -> tuple[str, str]:
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
        of_angle = unit == "degree" and _TRIGONOMETRIC.search(value)
        apart = bare[: match.start()][-1:].isspace()
        if unit and _is_known(match[0], unit, apart=apart) and _is_value(value) and not of_angle:
            return value, unit
        match = _UNIT.search(bare, match.start() + 1)
    return text, ""


_TRIGONOMETRIC: Final = re.compile(r"(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")


def _is_known(written: str, unit: str, *, apart: bool) -> bool:
    """Plain letters are a unit only if they are a known one; in an expression they are variables. `apart`: they stand
    behind a blank, so `69 m/s` has one, and `3m/s` may be a product."""
    above, *below = (part.rstrip("23") for part in unit.split("/"))
    known = _UNIT_NAMES if apart else _ALONE
    return not written[0].isalpha() or (above in _ALONE and all(part in known for part in below))


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
