r"""The answer that a reply commits to: in `<answer>` tags, as a program, as a number, or as a letter.

Thinking, and what follows the end of the turn, counts for nothing. An answer that is merely mentioned is no commitment,
and two answers that differ are none: else a policy would be paid for listing several. Replies are untrusted, so all of
this is linear in their length: every repetition in a pattern is bounded or cannot share characters with its neighbours.

    `<answer>7</answer>` … `<answer> 7 </answer>`            7: the same, said twice
    `<answer>6</answer>` … `<answer>7</answer>`              none: they differ
    `<answer></answer>` … `<answer>7</answer>`               7: one that is empty, or only dots, is ignored
    `<answer>7`, `the answer is 7`                           none: it never ends; mentioned
"""

import asyncio
import json
import re
import unicodedata
from array import array
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from string import ascii_uppercase
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from app.domain.errors import ScoringFailed
from app.domain.scores import Score
from app.domain.tasks import LARGE_TEXT, leave_out
from app.domain.values import Frozen, is_encodable
from app.toolkit.seeded import SeededRandom
from app.toolkit.texts import iterate_lines, run_in_turn
from app.toolkit.thoughts import iterate_matches, strip_thinking

# What a reply commits to between tags

MOST_CHARACTERS: Final = 10_000
"""Maximum length of an answer."""

_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
_BLANK_ANSWER = re.compile(r"[\s.…]*")


@dataclass(frozen=True, slots=True)
class Committed:
    """`text` is without white space around it; None when there is no single answer, and `flags` say why: `no_answer`,
    `unfinished_thinking`, `conflicting_answers`, `unreadable_answer`."""

    text: str | None
    flags: tuple[str, ...] = ()


_WHY = {
    "unfinished_thinking": "the thinking never ended",
    "no_answer": "no answer was committed",
    "conflicting_answers": "two answers were committed that differ",
    "unreadable_answer": f"the answer is longer than {MOST_CHARACTERS:,} characters",
}


def extract_committed(reply: str) -> Committed:
    """Never raises; linear in the length of `reply`."""
    spoken = strip_thinking(reply)
    if spoken.unfinished:
        return Committed(None, ("no_answer", "unfinished_thinking"))
    answers = list(
        dict.fromkeys(text.strip() for text in _find_tagged(spoken.text) if not _BLANK_ANSWER.fullmatch(text))
    )
    if not answers:
        return Committed(None, ("no_answer",))
    if len(answers) > 1:
        return Committed(None, ("conflicting_answers",))
    if len(answers[0]) > MOST_CHARACTERS:
        return Committed(None, ("unreadable_answer",))
    return Committed(answers[0])


def grade_committed(reply: str, fault: Callable[[str], str]) -> Score:
    """1 when `fault` finds nothing wrong with the committed answer. It is given that answer, untrusted, and returns
    what is wrong in words of ours, which never say what was expected; the empty text when it is right."""
    answer = extract_committed(reply)
    return score_without_answer(answer) if answer.text is None else _build_score(fault(answer.text))


async def grade_committed_in_worker(replies: Sequence[str], fault: Callable[[str], Awaitable[str]]) -> list[Score]:
    """As `grade_committed`, concurrently and with `fault` in a worker. An answer that could not be checked
    (ScoringFailed) is unscored, with the reason; the others are not affected."""
    return list(await asyncio.gather(*(_grade_in_worker(reply, fault) for reply in replies)))


async def _grade_in_worker(reply: str, fault: Callable[[str], Awaitable[str]]) -> Score:
    # A large text would hold up the event loop; a small one costs less than a change of threads.
    large = len(reply) > LARGE_TEXT
    answer = await run_in_turn("answers", extract_committed, reply) if large else extract_committed(reply)
    if answer.text is None:
        return score_without_answer(answer)
    try:
        return _build_score(await fault(answer.text))
    except ScoringFailed as error:
        return Score.from_error(error)


def score_without_answer(answer: Committed) -> Score:
    """0, with the reason why there is no single answer."""
    score = Score.exact(False, rationale=_WHY[answer.flags[-1]])
    return score.model_copy(update={"flags": answer.flags})


def _build_score(wrong: str) -> Score:
    return Score.exact(not wrong, rationale=wrong or "correct")


def _find_tagged(text: str) -> list[str]:
    answers: list[str] = []
    start: int | None = None
    for tag in iterate_matches(_TAG, text, len("</answer>")):
        if not tag[1]:
            start = tag.end()
        elif start is not None:
            answers.append(text[start : tag.start()])
            start = None
    return answers


# The program that a reply commits to: a fenced block of Python. Of several blocks it is the one that holds code, or of
# those the one that defines the name, since the others show how it is used; two programs that differ and both define it
# are none. A longer fence may hold shorter ones, and a block that never ends is none.

_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})([^\n]*)")
"""As in CommonMark: up to three spaces, then three marks or more."""
_LANGUAGE = re.compile(r"[\s{.]*([^\s{},]*)")
_PYTHON = frozenset({"", "python", "python3", "py", "py3", "python-3"})
_CODE = re.compile(
    r"^\s*+(?:import|from|def|class|for|while|if|with|try|return|print|assert|lambda|pass|raise|async|@)\b"
    r"|\w\(|\w\s?[-+*/%]?=(?!=)",
    re.ASCII,
)
"""What a line of a program has and one of plain input or output seldom."""


def extract_committed_code(reply: str, name: str) -> Committed:
    """The program that defines `name`, a plain identifier. Never raises; linear in the length of `reply`."""
    spoken = strip_thinking(reply)
    if spoken.unfinished:
        return Committed(None, ("no_answer", "unfinished_thinking"))
    found = dict.fromkeys(block for block in _iter_blocks(spoken.text) if block.text.strip())
    blocks = list(dict.fromkeys(block.text for block in found))
    if len(blocks) > 1:
        # What holds no code is an example of input or output, or a remark.
        blocks = list(dict.fromkeys(block.text for block in found if block.holds_code)) or blocks
    if len(blocks) > 1:
        defines = re.compile(rf"^(?:(?:async )?def|class) {name}\b|^{name} *[:=]", re.MULTILINE)
        defining = [block for block in blocks if defines.search(block)]
        if len(defining) > 1:
            return Committed(None, ("conflicting_answers",))
        blocks = defining
    if not blocks or not is_encodable(blocks[0]):
        return Committed(None, ("no_answer",))
    if len(blocks[0]) > MOST_CHARACTERS:
        return Committed(None, ("unreadable_answer",))
    return Committed(blocks[0])


class _Block(NamedTuple):
    """`is_named`: it says that it is Python."""

    text: str
    is_named: bool

    @property
    def holds_code(self) -> bool:
        lines = [line for line in self.text.split("\n") if line.strip() and not line.lstrip().startswith("#")]
        return bool(lines) and (self.is_named or any(_CODE.search(line) is not None for line in lines))


def _iter_blocks(text: str) -> Iterator[_Block]:
    """Closed blocks of Python, or of no language."""
    opened: tuple[int, str, str] | None = None
    lines: list[str] = []
    for line in iterate_lines(text):
        fence = _FENCE.fullmatch(line)
        if opened is None:
            # As in CommonMark: text in backticks on one line is no fence.
            if fence and not (fence[2][0] == "`" and "`" in fence[3]):
                opened, lines = (len(fence[1]), fence[2], fence[3]), []
            continue
        indent, marks, info = opened
        if fence and fence[2].startswith(marks) and not fence[3].strip():
            language = _read_language(info)
            if language in _PYTHON:
                yield _Block("\n".join(lines) + "\n", is_named=language != "")
            opened = None
        else:
            lines.append(line[min(indent, len(line) - len(line.lstrip(" "))) :])


def _read_language(info: str) -> str:
    language = _LANGUAGE.match(info)
    return language[1].lower() if language is not None else ""


# One short phrase as one exact number, or as none. Read as 72: `72`, `$72.00`, `72 clips`, `72%`, `**72**`, `144/2`,
# `\frac{144}{2}`, `x = 72`, `7.2e1`, full-width digits. Read as 1200: `1,200`, `1{,}200`, `1'200`, `1.2 thousand`. Read
# as 5/2: `2 1/2`, `2½`. No number: lists, ranges, inequalities, approximations, expressions (`70 + 2`, `72x`), times,
# number words, digits of other scripts, ordinary spaces as separators (`1 200`), a decimal comma (`72,0`), more than 40
# digits.

_MAX_PHRASE: Final = 200
"""Characters; nothing longer is a committed number."""
_MAX_DIGITS: Final = 40
"""Of one number, and its largest exponent."""

# Most answers: read without the cost of the patterns below.
_PLAIN = re.compile(r"\s*(-?[0-9]{1,15})(?:\.([0-9]{0,15}))?\s*")

_FRACTIONS: Final = dict(
    zip(
        "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞",
        "1/2 1/3 2/3 1/4 3/4 1/5 2/5 3/5 4/5 1/6 5/6 1/8 3/8 5/8 7/8".split(" "),  # noqa: SIM905
        strict=True,
    )
)
_CHARACTERS = str.maketrans(
    {chr(0xFF10 + digit): str(digit) for digit in range(10)}
    | dict.fromkeys("\u2212\ufe63\uff0d", "-")
    | dict.fromkeys("\u00a0\u2007\u202f", "\u2009")
    | dict.fromkeys("\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\u00ad", "")
    | {sign: f" {fraction}\u200b" for sign, fraction in _FRACTIONS.items()}
    | {"，": ",", "．": ".", "％": "%", "＄": "$", "＋": "+", "／": "/", "：": ":", "＝": "=", "’": "'", "\u2044": "/"}
)
_BEHIND_FRACTION = re.compile(r"\u200b(?![A-Za-z])")
"""The end of `½`, but before a letter, which is a factor: what follows is no further digit of it."""
TEXT_COMMANDS: Final = "text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox"
"""Of LaTeX, without the backslash: they put words into a formula, or change how its letters look."""
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
            rf"\\(?:{TEXT_COMMANDS}|texttt|mathsf|boxed|fbox|bf|rm|emph|underline)\b\s?",
            " ",
        ),
        (r"\\%", "%"),
        (r"\\(?:times|cdot)(?![A-Za-z])", "×"),
        (r"\\[dtc]?frac\s?\{\s?([-+]?[0-9,]{1,60})\s?\}\s?\{\s?([-+]?[0-9,]{1,60})\s?\}", r" \1/\2 "),
        (r"\\[dtc]?frac\s?([0-9])\s?([0-9])", r" \1/\2 "),
        (r"\^\s?\{\s?([-+]?[0-9]{1,3})\s?\}", r"^\1"),
    )
)
_DASH_BEFORE_NUMBER = re.compile(r"[\u2010-\u2015](?=[^\sA-Za-z])")
"""A dash right before a number is a minus sign; one elsewhere is a pause."""
_LOOSE_DASH = re.compile(r"[\u2010-\u2015]")
_TILDE_AS_SPACE = re.compile(r"~(?!\s?[0-9.$-])")
"""LaTeX's unbreakable space. Before a number a tilde says "about", and is left: that is no number."""
_CURRENCY = re.compile(r"(?:\b(?:US|AU?|CA?|HK|NZ|S|R))?\$|[€£¥₹₩₽₱₫₦₴₺¢]|\b(?:USD|EUR|GBP|INR|Rs\.?)(?![A-Za-z])")
_MARKUP = re.compile(r"</?answer>|[{}()\[\]`_\"“”]|\*(?!\s?10\^)")
"""A star before a power of ten is a product, and is left."""
_UNIT_POWER = re.compile(r"(?<=[A-Za-z])(?:[²³]|\s{0,2}\^[23](?![0-9]))(?!\s{0,2}[=:])")
"""The power of a unit is no part of the number: `12 cm^2` is 12. That of a variable before `=` is left."""

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
    if len(phrase) > _MAX_PHRASE:
        return None
    plain = _PLAIN.fullmatch(phrase)
    if plain is not None:
        digits = (plain[2] or "").rstrip("0")
        return Fraction(int(plain[1] + digits), 10 ** len(digits)) if digits else Fraction(int(plain[1]))
    match = _PHRASE.fullmatch(_strip_markup(phrase))
    if match is None or sum(map(str.isdecimal, match[0])) > _MAX_DIGITS:
        return None
    scale, trail = _split_scale(match["trail"])
    if _JOINED.match(trail) or _is_unsettled(match["lead"]) or _is_unsettled(trail):
        return None
    value = _compute_value(match)
    return None if value is None else value * 10**scale


def _strip_markup(phrase: str) -> str:
    """Without LaTeX and markup. Whatever is removed leaves a space, so digits never run together."""
    text = phrase
    if not text.isascii():
        text = _BEHIND_FRACTION.sub(" ", text.translate(_CHARACTERS)).replace("\u200b", "")
        text = _LOOSE_DASH.sub(" ", _DASH_BEFORE_NUMBER.sub("-", text))
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


def _compute_value(match: re.Match[str]) -> Fraction | None:
    if match["decimal"] is not None:
        exponent = int(match["e"] or match["power"] or 0)
        if abs(exponent) > _MAX_DIGITS:
            return None
        value = Fraction(_strip_separators(match["decimal"])) * Fraction(10) ** exponent
    else:
        above, below = (match["part"], match["parts"]) if match["whole"] else (match["numerator"], match["denominator"])
        if int(_strip_separators(below)) == 0:
            return None
        value = Fraction(int(_strip_separators(above)), int(_strip_separators(below)))
        if match["whole"]:
            if value >= 1:
                return None
            value += int(_strip_separators(match["whole"]))
    return -value if match["sign"] == "-" else value


def _strip_separators(numeral: str) -> str:
    """Without separators, and with a digit on both sides of a decimal point."""
    bare = numeral.replace(",", "").replace("'", "").replace("\u2009", "")
    return f"{bare}0" if bare.endswith(".") else bare


# The number that a reply commits to: in a box, else in the last `####` line, else in the last "the answer is". Boxes
# win over later lines, and must agree (`72` and `144/2` do); a box without a digit counts only when it is alone. A line
# that commits to no single number is no number, and the sentence before it is not asked. Headings commit to nothing.

Place = Literal["box", "marker", "sentence"]

_PLACES: dict[Place, str] = {"box": "the box", "marker": "the #### line", "sentence": "the answer sentence"}

MOST_TRIED: Final = 100
"""Maximum headings or sentences without a digit that are skipped, and maximum notations of one value in boxes."""

_BRACE = re.compile(r"\\(?:boxed|fbox)\s{0,8}\{|\\[{}]|[{}]")
_LONGEST_BRACE = 20
"""Characters of the longest match of the pattern above."""
_BLANK_NUMBER = re.compile(rf"(?:[\s.…?_~$-]|\\(?:{TEXT_COMMANDS}|l?dots|quad|square)\b|\\[,;:! ]|[{{}}])*")
"""What stands in a box that a prompt or a model left to be filled."""
_DIGITS_AND_FRACTIONS = f"0-9０-９{''.join(_FRACTIONS)}"
_DIGIT = re.compile(f"[{_DIGITS_AND_FRACTIONS}]")

_HEADING = re.compile(
    rf"[\s*_]*(?:[^{_DIGITS_AND_FRACTIONS}\n]*(?:\n|$)|\(?(?:[1-9]|1[0-2])[.)]\s{{1,4}}[*_]{{0,3}}[A-Za-z]"
    r"|(?:step|part|section|method|case|phase|question|problem|solution|option|approach|scenario)\s[*_]{0,3}[0-9])",
    re.IGNORECASE,
)
"""What follows `####` in Markdown: a line without a digit, a numbered item, or a word such as `Step 3`."""
_ANSWER_TITLE = re.compile(
    r"[\s*_]*(?:(?:the\s)?(?:final\s)?answer|solution|result)[\s*_]{0,8}[:=]?[\s*_]{0,8}\n", re.I
)
_SENTENCE = re.compile(r"[Aa](?<=\b[Aa])(?i:nswer)\b[\s*_]{0,8}(?:[:=]|(?i:is|equals)\b)")
"""Beginning with a set of letters, it takes a third of the time that it takes with a boundary first."""
_LONGEST_SENTENCE = 40
"""Characters of the longest match of the pattern above."""
_BULLET = re.compile(r"\n\s{0,8}[-+•*]\s{1,8}(?=\S)")
_SENTENCE_END = re.compile(r"(?<!Rs)[.!](?=\s)|\s(?:because|since|as|so|which|given)\s", re.IGNORECASE)
"""`Rs. 50` does not end at its full stop, and a reason behind the number is no part of it."""


@dataclass(frozen=True, slots=True)
class NumberAnswer:
    """`value` is None when nothing was committed or what was committed is no single number; `flags` say which."""

    value: Fraction | None
    place: Place | None
    flags: tuple[str, ...] = ()


_NOTHING = NumberAnswer(None, None, ("no_answer",))
_LAST_NUMBER = re.compile(r"(-?[0-9][0-9,]*+(?:\.[0-9]++)?)[^0-9\n]{0,40}$")
"""A number at the end of a reply, with a few words behind it, that nothing commits to."""
_LAST_CHARACTERS = 200
"""Of a reply, in which it is looked for."""


def read_number(reply: str) -> NumberAnswer:
    """Never raises; linear in the length of `reply`. Flags: `no_answer`, `unreadable_answer`, `conflicting_boxes`,
    `unfinished_thinking`."""
    spoken = strip_thinking(reply)
    if spoken.unfinished:
        return NumberAnswer(None, None, ("no_answer", "unfinished_thinking"))
    return _read_boxes(spoken.text) or _read_marker(spoken.text) or _read_sentence(spoken.text) or _NOTHING


_EXACT = Fraction(0)


def grade_number(reply: str, gold: Fraction, margin: Fraction = _EXACT) -> Score:
    """1 when the committed number is at most `margin` from `gold`. The rationale tells what was read, never what was
    expected."""
    reading = read_number(reply)
    value = reading.value
    correct = value is not None and (value == gold or (margin > 0 and abs(value - gold) <= margin))
    score = Score.exact(correct, rationale=_explain_answer(reading, correct, reply))
    return score if not reading.flags else score.model_copy(update={"flags": reading.flags})


def _explain_answer(reading: NumberAnswer, correct: bool, reply: str) -> str:
    if "unfinished_thinking" in reading.flags:
        return "the thinking never ended"
    if reading.place is None:
        last = _LAST_NUMBER.search(reply[-_LAST_CHARACTERS:].rstrip())
        if last is None:
            return "no answer was committed"
        return f"ends with {last[1]}, but not in the form asked for: `#### {last[1]}`"
    if reading.value is None:
        return (
            "the boxes differ"
            if "conflicting_boxes" in reading.flags
            else f"no single number in {_PLACES[reading.place]}"
        )
    return f"read {reading.value} from {_PLACES[reading.place]}; {'correct' if correct else 'wrong'}"


def _read_phrase(phrase: str, place: Place) -> NumberAnswer:
    value = parse_number(phrase)
    return NumberAnswer(value, place, () if value is not None else ("unreadable_answer",))


def _read_boxes(text: str) -> NumberAnswer | None:
    """None when all boxes are empty."""
    if "boxed" not in text and "\\fbox" not in text:
        return None
    filled = [content for content in find_boxes(text) if not _BLANK_NUMBER.fullmatch(content)]
    if not filled:
        return None
    numeric = {content: None for content in filled if _DIGIT.search(content)}
    readings = [_read_phrase(content, "box") for content in list(numeric or filled[:1])[: MOST_TRIED + 1]]
    agree = len({reading.value for reading in readings}) == 1 and readings[0].value is not None
    if len(readings) == 1 or (agree and len(readings) <= MOST_TRIED):
        return readings[0]
    return NumberAnswer(None, "box", ("conflicting_boxes",))


def find_boxes(text: str, most: int = _MAX_PHRASE) -> list[str]:
    """The contents of closed boxes that are in no other closed box, each cut off one character beyond `most`."""
    starts, outside = array("q"), array("q")
    """Of the open boxes: where the content begins, and how many other braces were open before it."""
    depth = 0
    begins, ends = array("q"), array("q")
    """Of closed boxes that are in no other. In arrays, since a search for garbage looks at every object of a list."""
    for brace in iterate_matches(_BRACE, text, _LONGEST_BRACE):
        mark = brace[0]
        if mark == "{":
            depth += 1
        elif mark == "}" and depth:
            depth -= 1
        elif mark == "}" and starts:
            start, depth = starts.pop(), outside.pop()
            while begins and begins[-1] > start:
                begins.pop()
                ends.pop()
            begins.append(start)
            ends.append(brace.start())
        elif mark[1:] not in ("", "{", "}"):
            starts.append(brace.end())
            outside.append(depth)
            depth = 0
    return [text[start : min(end, start + most + 1)] for start, end in zip(begins, ends, strict=True)]


def _read_marker(text: str) -> NumberAnswer | None:
    """The last `####` that is not a heading."""
    end = len(text.rstrip("# \t\r\n"))
    for _ in range(MOST_TRIED):
        start = text.rfind("####", 0, end)
        if start < 0:
            break
        phrase = _take_after(text, start + 4).lstrip("# \t\r\n")
        title = _ANSWER_TITLE.match(phrase)
        if title is not None:
            phrase = phrase[title.end() :]
        if not _HEADING.match(phrase):
            return _read_phrase(_take_clause(phrase), "marker")
        end = start
    return None


def _read_sentence(text: str) -> NumberAnswer | None:
    if "nswer" not in text and "NSWER" not in text:
        return None
    ends = [sentence.end() for sentence in iterate_matches(_SENTENCE, text, _LONGEST_SENTENCE)]
    for end in reversed(ends[-MOST_TRIED:]):
        phrase = _take_clause(_take_after(text, end))
        if _DIGIT.search(phrase):
            return _read_phrase(phrase, "sentence")
    return None


def _take_after(text: str, start: int) -> str:
    """As much of `text` as matters; where it is cut off a mark makes sure that no number seems to end there."""
    end = start + 2 * _MAX_PHRASE
    return text[start:] if end >= len(text) else f"{text[start:end]}…"


def _take_clause(text: str) -> str:
    """The first clause of `text`: up to the end of its line or sentence."""
    unlisted = _BULLET.sub("\n", text, count=1).strip(" \t\r\n*_:=")
    line = unlisted.split("\n", 1)[0]
    end = _SENTENCE_END.search(line)
    return (line if end is None else line[: end.start()]).rstrip("!#*_ \t\r")


# Options with letters

LETTERS: Final = ascii_uppercase
_LETTER: Final = re.compile(r"\(?([A-Za-z])[).:]?")
_LETTER_BEFORE_TEXT: Final = re.compile(
    r"[*_`]{0,3}\(?([A-Za-z])\s{0,4}[).:,–-]{1,2}[*_`]{0,3}\s{1,4}(\S.*)", re.DOTALL
)
_OPTION_WORD: Final = re.compile(r"(?:option|choice|answer)\s{0,4}:?\s{1,4}(?=\W{0,4}[A-Za-z]\b)", re.IGNORECASE)
_AROUND_TEXTS: Final = (
    *(("**", "**"), ("*", "*"), ("__", "__"), ("_", "_"), ("`", "`"), ('"', '"'), ("'", "'"), ("“", "”"), ("$", "$")),
)
_AROUND_LETTERS: Final = (
    *_AROUND_TEXTS,
    *(("[", "]"), ("(", ")"), ("{", "}"), ("\\(", "\\)"), ("\\[", "\\]")),
)
_AROUND_IN_LATEX: Final = re.compile(rf"\\(?:boxed|fbox|{TEXT_COMMANDS})\s{{0,4}}\{{(.*)\}}", re.DOTALL)
_MOST_LAYERS: Final = 6
_NO_ANSWER: Final = "there is no answer"


def _read_text(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value.strip() or None if isinstance(value, str) else value


OptionText = Annotated[str | None, BeforeValidator(_read_text)]


class ChoiceOptions(Frozen):
    """The options of a question with the index of the right one, all different."""

    texts: Annotated[tuple[str, ...], Field(min_length=2)]
    right: int

    @property
    def listed(self) -> str:
        return list_options(self.texts)

    @property
    def letter(self) -> str:
        return LETTERS[self.right]

    def shuffle(self, draws: SeededRandom) -> "ChoiceOptions":
        order = draws.shuffled(range(len(self.texts)))
        return ChoiceOptions(texts=tuple(self.texts[index] for index in order), right=order.index(self.right))


class ListedOptions(Frozen):
    """A list of texts, or an object of the lists `text` and `label`; in a cell of a CSV file either of them as JSON."""

    model_config = ConfigDict(extra="ignore")

    text: tuple[OptionText, ...]
    label: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _read_list(cls, value: object) -> object:
        value = read_json_cell(value)
        return {"text": value} if isinstance(value, list | tuple) else value

    def choose(self, answer: JsonValue) -> ChoiceOptions:
        """With the option that `answer` names: a label where there are some, else a letter, an index from 0, or the
        text of the option. Options without a text are dropped. A ValueError never quotes a row."""
        right = self._find(answer)
        if not 0 <= right < len(self.text) or self.text[right] is None:
            raise ValueError("the answer is none of the options")
        options = [(index, text) for index, text in enumerate(self.text) if text is not None]
        return build_options([text for _, text in options], [index for index, _ in options].index(right))

    def _find(self, answer: JsonValue) -> int:
        if isinstance(answer, bool) or not isinstance(answer, str | int):
            raise ValueError("the answer is neither a text nor a whole number")
        if answer in ("", -1):
            raise leave_out(_NO_ANSWER)
        if self.label:
            return self._find_label(str(answer).strip())
        if isinstance(answer, int):
            return answer
        return self._find_text(answer.strip())

    def _find_label(self, answer: str) -> int:
        if len(self.label) != len(self.text):
            raise ValueError("there are not as many labels as options")
        return self.label.index(answer) if answer in self.label else -1

    def _find_text(self, answer: str) -> int:
        same = self.text.index(answer) if answer in self.text else -1
        index = int(answer) if answer.isascii() and answer.isdecimal() and len(answer) < 3 else -1
        if len(answer) == 1 and answer.isascii() and answer.isalpha():
            index = LETTERS.index(answer.upper())
        if not 0 <= index < len(self.text):
            return same
        if same not in (-1, index):
            raise leave_out("the answer may be the place of an option or the text of another one")
        return index


def list_options(texts: Sequence[str]) -> str:
    """With their letters, one to a line."""
    return "\n".join(f"{letter}. {text}" for letter, text in zip(LETTERS, texts, strict=False))


def build_options(texts: Sequence[str], right: int) -> ChoiceOptions:
    """A row is left out where it has no choice, too much of it, or two options that are the same."""
    if not 2 <= len(texts) <= len(LETTERS):
        raise leave_out(f"there are fewer than 2 options, or more than {len(LETTERS)}")
    if len({" ".join(text.split()) for text in texts}) < len(texts):
        raise leave_out("two options are the same")
    return ChoiceOptions(texts=tuple(texts), right=right)


def read_json_cell(value: object) -> object:
    """A cell of CSV that holds a list or an object as JSON; anything else as it is."""
    if isinstance(value, str) and value.strip()[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def strip_letter_markup(text: str) -> str:
    """Without quotes, brackets, markup and the word "Option" around it: `**B**`, `$B$`, `\\boxed{B}`, `[B]`."""
    for _ in range(_MOST_LAYERS):
        lead = _OPTION_WORD.match(text := text.strip())
        bare = text[lead.end() :] if lead is not None else _strip_layer(text, _AROUND_LETTERS)
        if bare == text:
            break
        text = bare
    return text


def strip_markup(text: str) -> str:
    """Without quotes and markup around it, and without a full stop behind it: `**7**`, `"7"`, `7.`."""
    for _ in range(_MOST_LAYERS):
        bare = _strip_layer(text := text.strip(), _AROUND_TEXTS).removesuffix(".")
        if bare == text:
            break
        text = bare
    return text


def forgive_markup(fault: Callable[[str], str]) -> Callable[[str], str]:
    """Finds no fault with an answer that is right as it stands, or without the markup around it."""

    def find_fault(answer: str) -> str:
        found = fault(answer)
        bare = strip_markup(answer) if found else answer
        return found if bare == answer else fault(bare)

    return find_fault


def _strip_layer(text: str, around: Sequence[tuple[str, str]]) -> str:
    """Without the outermost marks, if there are any."""
    latex = _AROUND_IN_LATEX.fullmatch(text)
    if latex is not None and _has_its_own_braces(latex[1]):
        return latex[1]
    pair = next((pair for pair in around if _stands_around(pair, text)), None)
    return text if pair is None else text[len(pair[0]) : -len(pair[1])]


def _stands_around(pair: tuple[str, str], text: str) -> bool:
    opening, closing = pair
    inside = text[len(opening) : -len(closing)]
    around = len(text) > len(opening) + len(closing) and text.startswith(opening) and text.endswith(closing)
    return around and opening not in inside and closing not in inside


def _has_its_own_braces(text: str) -> bool:
    """Whether none in it closes one before it: `A} or \\boxed{B` does."""
    depth = 0
    for character in text:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0


def find_choice_fault(answer: str, options: ChoiceOptions) -> str:
    """What is wrong with a committed answer; empty for the letter of the right option, with markup around it or with
    the text of that option, and no other word, behind it."""
    bare = strip_letter_markup(answer)
    letter = _LETTER.fullmatch(bare)
    if letter is not None:
        return "" if letter[1].upper() == options.letter else "it is another option"
    both = _LETTER_BEFORE_TEXT.fullmatch(bare)
    position = LETTERS.find(both[1].upper()) if both is not None else -1
    if both is None or not 0 <= position < len(options.texts):
        return "it is not one letter"
    if _fold_option(both[2]) != _fold_option(options.texts[position]):
        return "it is not one letter"
    return "" if position == options.right else "it is another option"


def _fold_option(text: str) -> str:
    return " ".join(strip_letter_markup(text).casefold().split()).rstrip(".")
