"""One short phrase as one exact number, or as none.

Read as 72: `72`, `$72.00`, `72 clips`, `72%`, `**72**`, `$72$`, `144/2`, `\\frac{144}{2}`, `x = 72`, `7.2e1`,
`7.2 \\times 10^1`, `072`, `７２` (full-width digits). Read as -72: `-72`, `−72`, `–72`, `-$72`, `$-72`. Read as 1200:
`1,200`, `1{,}200`, `1\\,200`, `1'200`, `1.2 thousand`. Read as 5/2: `2 1/2`.

Not a number: lists (`72, 73`), ranges (`72-73`), inequalities and approximations (`> 72`, `about 72`, `72 or so`),
expressions (`70 + 2`, `7*2`, `72x`, `5!` in a box), times and compound measures (`1:12`, `1 hour 12 minutes`), number
words, digits of other scripts, ordinary spaces as separators (`1 200`), a decimal comma (`72,0`), more than 40 digits.
"""

import re
import unicodedata
from fractions import Fraction

MAX_PHRASE = 200
"""Characters; nothing longer is a committed number."""
MAX_DIGITS = 40

_PLAIN = re.compile(r"\s*(-?[0-9]{1,15})(?:\.([0-9]{0,15}))?\s*")

_CHARACTERS = str.maketrans(
    {chr(0xFF10 + digit): str(digit) for digit in range(10)}
    | dict.fromkeys("\u2212\ufe63\uff0d", "-")
    | dict.fromkeys("\u00a0\u2007\u202f", "\u2009")
    | dict.fromkeys("\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\u00ad", "")
    | {"，": ",", "．": ".", "％": "%", "＄": "$", "＋": "+", "／": "/", "：": ":", "＝": "=", "’": "'", "\u2044": "/"}
)
_LATEX: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\!", ""),
        (
            r"\\(?:text)?color\s?\{[A-Za-z]{1,20}\}|\\text(?:dollar|euro)\b|\\(?:pounds|euro|large|Large|LARGE|huge|Huge)\b",
            " ",
        ),
        (r"\{,\}", ","),
        (r"\\[,;: ]", "\u2009"),
        (r"\^\s?\{?\s?\\(?:circ|degree)\b\s?\}?|\\degree\b|\\(?:left|right|displaystyle|q?quad)\b|\\[()\[\]{}$]", " "),
        (
            r"\\(?:text|textbf|textit|textrm|texttt|mathrm|mathbf|mathit|mathsf|mbox|boxed|fbox|bf|rm|emph|underline)\b\s?",
            " ",
        ),
        (r"\\%", "%"),
        (r"\\(?:times|cdot)\b", "×"),
        (r"\\[dtc]?frac\s?\{\s?([-+]?[0-9,]{1,60})\s?\}\s?\{\s?([-+]?[0-9,]{1,60})\s?\}", r" \1/\2 "),
        (r"\\[dtc]?frac\s?([0-9])\s?([0-9])", r" \1/\2 "),
        (r"\^\s?\{\s?([-+]?[0-9]{1,3})\s?\}", r"^\1"),
    )
)
_DASH_BEFORE_NUMBER = re.compile(r"[\u2010-\u2015](?=[^\sA-Za-z])")
_LOOSE_DASH = re.compile(r"[\u2010-\u2015]")
_TILDE_AS_SPACE = re.compile(r"~(?!\s?[0-9.$-])")
_CURRENCY = re.compile(r"(?:\b(?:US|AU?|CA?|HK|NZ|S|R))?\$|[€£¥₹₩₽₱₫₦₴₺¢]|\b(?:USD|EUR|GBP|INR|Rs\.?)(?![A-Za-z])")
_MARKUP = re.compile(r"</?answer>|[{}()\[\]`_\"“”]|\*(?!\s?10\^)")
_UNIT_POWER = re.compile(r"(?<=[A-Za-z])(?:[²³]|\s{0,2}\^[23](?![0-9]))(?!\s{0,2}[=:])")

_WHOLE = r"[0-9]{1,3}(?:[,'\u2009][0-9]{3})+|[0-9]+"
# Removed marks leave spaces, any number of them. Every run of spaces is therefore taken whole, without backtracking
# (`*+`): several `\s*` that could share one run of n spaces would try all ways of doing so, about n to the fifth.
_PHRASE = re.compile(
    rf"""
    \s*+ [:=]? \s*+
    (?P<lead> (?: [A-Za-z][A-Za-z' ]{{0,60}} (?: [:=] | \b(?:is|are|equals)\b ) )? \s*+ [:=]? \s*+
              (?: (?:final\s++)?answer \b \s*+ )? (?: (?:exactly|simply|just|only|therefore|thus)\b ,? \s*+ )? )
    (?P<sign> [-+]? ) \s*+
    (?: (?P<whole> {_WHOLE} ) \s++ (?P<part> [0-9]+ ) \s?/\s? (?P<parts> [0-9]+ )
      | (?P<numerator> [-+]? (?:{_WHOLE}) ) \s?/\s? (?P<denominator> [-+]? (?:{_WHOLE}) )
      | (?P<decimal> (?:{_WHOLE}) (?:\.[0-9]*)? | \.[0-9]+ )
        (?: [eE] (?P<e> [-+]?[0-9]{{1,3}} ) | \s*+ [×x*·] \s*+ 10\^ (?P<power> [-+]?[0-9]{{1,3}} ) )?
    )
    (?P<trail> [^0-9]* )
    """,
    re.VERBOSE | re.IGNORECASE,
)

_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_NUMBER_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety half halves thirds quarters fifths tenths"
)
_UNSETTLING = frozenset(
    f"{_NUMBER_WORDS} {' '.join(_SCALES)} or nor not but least most approximately approx roughly nearly almost maybe "
    "perhaps possibly plus minus squared cubed divided multiplied wrong incorrect unsure".split()
)
"""Words beside a number that make it another number, or none."""
_WORDS = re.compile(r"[A-Za-z]+")
_JOINED = re.compile(r"(?:[xyznke]|(?-i:[MB]))(?![A-Za-z])|.*(?:\band an?\b|\.\.|=)", re.IGNORECASE | re.DOTALL)
"""A factor written against the number, a further part of a mixed number, digits left out, another side."""
_EXPRESSION = re.compile(r"[+*^<>|~?!&@\\·…π]")


def parse_number(phrase: str) -> Fraction | None:
    """The number that `phrase` says, exactly; None when it says none, several, or one that is not worked out."""
    if len(phrase) > MAX_PHRASE:
        return None
    plain = _PLAIN.fullmatch(phrase)
    if plain is not None:
        digits = (plain[2] or "").rstrip("0")
        return Fraction(int(plain[1] + digits), 10 ** len(digits)) if digits else Fraction(int(plain[1]))
    found = _PHRASE.fullmatch(_strip_markup(phrase))
    if found is None or sum(map(str.isdecimal, found[0])) > MAX_DIGITS:
        return None
    scale, trail = _split_scale(found["trail"])
    if _JOINED.match(trail) or _is_unsettled(found["lead"]) or _is_unsettled(trail):
        return None
    value = _compute_value(found)
    return None if value is None else value * 10**scale


def _strip_markup(phrase: str) -> str:
    """Without LaTeX and markup. Whatever is removed leaves a space, so digits never run together."""
    text = phrase
    if not text.isascii():
        text = _LOOSE_DASH.sub(" ", _DASH_BEFORE_NUMBER.sub("-", text.translate(_CHARACTERS)))
    if "\\" in text or "{" in text:
        for pattern, replacement in _LATEX:
            text = pattern.sub(replacement, text)
    if "~" in text:
        text = _TILDE_AS_SPACE.sub(" ", text)
    return _UNIT_POWER.sub("", _MARKUP.sub(" ", _CURRENCY.sub(" ", text)))


def _split_scale(trail: str) -> tuple[int, str]:
    """The power of ten that a word such as `million` right after the number adds, and what follows it."""
    first = _WORDS.search(trail)
    if first is None or trail[: first.start()].strip() or first[0].lower() not in _SCALES:
        return 0, trail
    return _SCALES[first[0].lower()], trail[first.end() :]


def _is_unsettled(words: str) -> bool:
    """Whether the text beside the number changes it, hedges it, or makes it part of an expression."""
    if _EXPRESSION.search(words) or not _UNSETTLING.isdisjoint(_WORDS.findall(words.lower())):
        return True
    return not words.isascii() and any(
        unicodedata.category(character) == "Sm" or (not character.isascii() and character.isnumeric())
        for character in words
        if character != "="
    )


def _compute_value(found: re.Match[str]) -> Fraction | None:
    if found["decimal"] is not None:
        exponent = int(found["e"] or found["power"] or 0)
        if abs(exponent) > MAX_DIGITS:
            return None
        value = Fraction(_strip_separators(found["decimal"])) * Fraction(10) ** exponent
    else:
        above, below = (found["part"], found["parts"]) if found["whole"] else (found["numerator"], found["denominator"])
        if int(_strip_separators(below)) == 0:
            return None
        value = Fraction(int(_strip_separators(above)), int(_strip_separators(below)))
        if found["whole"]:
            if value >= 1:
                return None
            value += int(_strip_separators(found["whole"]))
    return -value if found["sign"] == "-" else value


def _strip_separators(numeral: str) -> str:
    """Without separators, and with a digit on both sides of a decimal point."""
    bare = numeral.replace(",", "").replace("'", "").replace("\u2009", "")
    return f"{bare}0" if bare.endswith(".") else bare
