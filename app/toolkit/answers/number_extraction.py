"""Extraction and grading of the number that a reply commits to.

Order of commitments: a box, else the last `####` line, else the last "the answer is". Thinking and what follows the end
of the turn count for nothing. A number that is merely mentioned, even alone, is no commitment.

    `\\boxed{72}` twice, or `\\boxed{72}` and `\\boxed{144/2}`     72: they agree
    `\\boxed{71}` … `\\boxed{72}`                                 none: the boxes differ
    `\\boxed{}` (or only dots) …                                 the box is ignored, the next commitment counts
    `\\boxed{answer}` … `\\boxed{72}`                             72: a box without a digit counts only when alone
    `\\boxed{72}` … `#### 71`                                    72: the box wins
    `#### 71` … `#### 72`                                       72: the last one
    `#### Step 3: add`, `#### 1. Add`, `#### Conclusion`        headings, not commitments
    `the answer is 72`, "the answer is right"                   72: a sentence without a digit commits to nothing
    `#### 71 or 72` … `the answer is 72`                        none: the line commits, but to no single number
"""

import re
from array import array
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from app.domain.scores import Score
from app.toolkit.answers.committed import strip_thinking
from app.toolkit.answers.numerals import MAX_PHRASE, parse_number
from app.toolkit.large_texts import iterate_matches

Place = Literal["box", "marker", "sentence"]

_PLACES: dict[Place, str] = {"box": "the box", "marker": "the #### line", "sentence": "the answer sentence"}

MOST_TRIED = 100
"""Maximum headings or sentences without a digit that are skipped, and maximum notations of one value in boxes."""

_BRACE = re.compile(r"\\(?:boxed|fbox)\s{0,8}\{|\\[{}]|[{}]")
_LONGEST_BRACE = 20
_BLANK = re.compile(r"(?:[\s.…?_~$-]|\\(?:text|mathrm|l?dots|quad|square)\b|\\[,;:! ]|[{}])*")
_DIGIT = re.compile(r"[0-9０-９]")

_HEADING = re.compile(
    r"[\s*_]*(?:[^0-9０-９\n]*(?:\n|$)|\(?(?:[1-9]|1[0-2])[.)]\s{1,4}[*_]{0,3}[A-Za-z]"
    r"|(?:step|part|section|method|case|phase|question|problem|solution|option|approach|scenario)\s[*_]{0,3}[0-9])",
    re.IGNORECASE,
)
_ANSWER_TITLE = re.compile(
    r"[\s*_]*(?:(?:the\s)?(?:final\s)?answer|solution|result)[\s*_]{0,8}[:=]?[\s*_]{0,8}\n", re.I
)
_SENTENCE = re.compile(r"[Aa](?<=\b[Aa])(?i:nswer)\b[\s*_]{0,8}(?:[:=]|(?i:is|equals)\b)")
"""Beginning with a set of letters, it takes a third of the time that it takes with a boundary first."""
_LONGEST_SENTENCE = 40
_BULLET = re.compile(r"\n\s{0,8}[-+•*]\s{1,8}(?=\S)")
_SENTENCE_END = re.compile(r"(?<!Rs)[.!](?=\s)|\s(?:because|since|as|so|which|given)\s", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NumberAnswer:
    """`value` is None when nothing was committed or what was committed is no single number; `flags` say which."""

    value: Fraction | None
    place: Place | None
    flags: tuple[str, ...] = ()


_NOTHING = NumberAnswer(None, None, ("no_answer",))


def read_number(reply: str) -> NumberAnswer:
    """Never raises; linear in the length of `reply`. Flags: `no_answer`, `unreadable_answer`, `conflicting_boxes`,
    `unfinished_thinking`."""
    said = strip_thinking(reply)
    if said.unfinished:
        return NumberAnswer(None, None, ("no_answer", "unfinished_thinking"))
    return _read_boxes(said.text) or _read_marker(said.text) or _read_sentence(said.text) or _NOTHING


_EXACT = Fraction(0)


def grade_number(reply: str, gold: Fraction, margin: Fraction = _EXACT) -> Score:
    """1 when the committed number is at most `margin` from `gold`. The rationale tells what was read, never what was
    expected."""
    reading = read_number(reply)
    value = reading.value
    correct = value is not None and (value == gold or (margin > 0 and abs(value - gold) <= margin))
    score = Score.exact(correct, rationale=_explain_answer(reading, correct))
    return score if not reading.flags else score.model_copy(update={"flags": reading.flags})


def _explain_answer(reading: NumberAnswer, correct: bool) -> str:
    if reading.place is None:
        return "the thinking never ended" if "unfinished_thinking" in reading.flags else "no answer was committed"
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
    filled = [content for content in find_boxes(text) if not _BLANK.fullmatch(content)]
    if not filled:
        return None
    numeric = {content: None for content in filled if _DIGIT.search(content)}
    readings = [_read_phrase(content, "box") for content in list(numeric or filled[:1])[: MOST_TRIED + 1]]
    agree = len({reading.value for reading in readings}) == 1 and readings[0].value is not None
    if len(readings) == 1 or (agree and len(readings) <= MOST_TRIED):
        return readings[0]
    return NumberAnswer(None, "box", ("conflicting_boxes",))


def find_boxes(text: str, most: int = MAX_PHRASE) -> list[str]:
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
    end = start + 2 * MAX_PHRASE
    return text[start:] if end >= len(text) else f"{text[start:end]}…"


def _take_clause(text: str) -> str:
    """The first clause of `text`: up to the end of its line or sentence."""
    unlisted = _BULLET.sub("\n", text, count=1).strip(" \t\r\n*_:=")
    line = unlisted.split("\n", 1)[0]
    end = _SENTENCE_END.search(line)
    return (line if end is None else line[: end.start()]).rstrip("!#*_ \t\r")
