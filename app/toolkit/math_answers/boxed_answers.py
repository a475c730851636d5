"""The answer that a reply commits to in `\\boxed{…}`, outside its thinking.

`\\boxed{\\frac{1}{2}}`                          \\frac{1}{2}
`\\boxed{x+1}` … `\\boxed{x + 1}`                x+1: the same, said twice
`\\boxed{\\frac12}` … `\\boxed{0.5}`              \\frac12: numbers that are equal agree
`\\boxed{2}` … `\\boxed{3}`                      none: they differ, whichever is right
`\\boxed{}`, `\\boxed{answer}` … `\\boxed{2}`     2: a box that is empty, or only says where the answer goes, is ignored
`\\boxed{2`, `the answer is 2`, `#### 2`         none: nothing is in a closed box
"""

import re

from app.toolkit.answers.committed import Committed, strip_thinking
from app.toolkit.answers.number_extraction import MOST_TRIED, find_boxes
from app.toolkit.answers.numerals import parse_number
from app.toolkit.math_answers.expressions import normalise_latex

MOST_CHARACTERS = 1_000

_BLANK = re.compile(
    r"(?:[\s.…?_~$-]|\\(?:text|mathrm|textbf|l?dots|quad|square|ldots|cdots)\b|\\[,;:! ]|[{}]"
    r"|<?\b(?:your|the|final|exact|answer|here|result)\b>?)*",
    re.IGNORECASE,
)
_SPACE = re.compile(r"\s+")
_APART = re.compile(r"(?<=[0-9])\s+(?=[0-9])")
_LOOK = re.compile(r"\\(?:boldsymbol|mathbf|bm|underline|boxed|fbox|displaystyle)(?![A-Za-z])\s?")
_AT_THE_END = re.compile(r"(?:\\[\s,;:!]|[\s.~]|\\)+\Z")
_TIMES = re.compile(r"\\(times|cdot)(?=\d)")
_POWER = re.compile(r"(?<=10)[⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")

WHY = {
    "unfinished_thinking": "the thinking never ended",
    "no_answer": "no answer was put into a box",
    "conflicting_boxes": "two boxes were filled that differ",
    "unreadable_answer": f"the box holds more than {MOST_CHARACTERS:,} characters",
}
"""By the last flag."""


def extract_committed_box(reply: str) -> Committed:
    """Never raises; linear in the length of `reply`. Flags are the keys of `WHY`."""
    said = strip_thinking(reply)
    if said.unfinished:
        return Committed(None, ("no_answer", "unfinished_thinking"))
    different: dict[str, None] = {}
    last = ""
    for content in find_boxes(said.text, MOST_CHARACTERS):
        if not _BLANK.fullmatch(content):
            last = content.strip()
            different[last] = None
            if len(different) > MOST_TRIED:
                return Committed(None, ("conflicting_boxes",))
    if not different:
        return Committed(None, ("no_answer",))
    if len({_normalise_content(content) for content in different}) > 1:
        return Committed(None, ("conflicting_boxes",))
    if len(last) > MOST_CHARACTERS:
        return Committed(None, ("unreadable_answer",))
    return Committed(last)


def _normalise_content(content: str) -> object:
    """Equal for what says the same."""
    value = parse_number(content)
    return value if value is not None else compact_latex(content)


def compact_latex(text: str) -> str:
    """Without white space, but for what keeps digits apart, and with one way of writing for what has several."""
    return _SPACE.sub("", _APART.sub("~", normalise_latex(text)))


def tidy_latex(text: str) -> str:
    """Without dollar signs around it, a full stop behind it, and what only changes how it looks."""
    text = _TIMES.sub(r"\\\1 ", _POWER.sub(_write_power, text)).replace(",\\!", "{,}").replace("\\!", "")
    bare = _AT_THE_END.sub("", _LOOK.sub("", text).replace("\\lbrace", "\\{").replace("\\rbrace", "\\}")).strip()
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if len(bare) > 4 and bare.startswith(opening) and bare.endswith(closing) and bare.count("$") in (0, 2, 4):
            bare = bare[len(opening) : -len(closing)].strip()
    return _AT_THE_END.sub("", bare)


def _write_power(found: re.Match[str]) -> str:
    return f"^{{{found[0].translate(_RAISED)}}}"
