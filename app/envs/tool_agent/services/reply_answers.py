"""Whether a reply gives the answers that were asked for, and not a list of candidates.

    answer 11:30      "Board lunch starts at 11:30."                  given
                      "It is moved from 10:30 to 11:30."              given, if the user or a change named 10:30
                      "Candidates: 08:30, 10:30, 11:30"               not given: 08:30 is another time
    answer Umbrella   "It was the Umbrella, not the Desk lamp."       not given: another name of the same kind

Values that may stand beside an answer: those in the user's own words, in the calls that fulfil the wishes and their
results, answers that were given before, and what a scenario names in `beside`.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pydantic import JsonValue

MOST_REPLIED: Final = 2_000
"""Characters of the replies to one wish that are searched for answers: reciting everything does not count."""

_NUMBER_GROUP: Final = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_DIGITS: Final = re.compile(r"\d+")
_WORD: Final = re.compile(r"\w+")
_ENDS: Final = re.compile(r"[.;!?](?=\s|$)|\n")
_ITEM: Final = re.compile(r"^\W*\d{1,2}[.)]")
_JOINED: Final = re.compile(r"(?:[\s,/|&*•\"'`]|\b(?:and|or|the|an?|either|maybe|perhaps|possibly|else)\b)*")
"""What joins the items of a list, and says nothing of them."""


@dataclass(frozen=True, slots=True)
class FoundValue:
    value: str
    start: int
    end: int


class AnswerKind:
    """The values that an answer could be confused with: texts that differ from it in digits only, and values that the
    service holds in the same place."""

    def __init__(self, answer: str, held: JsonValue) -> None:
        self.answer = _normalise_value(answer)
        names = {answer, *_find_rivals(answer, held)}
        patterns = [_build_digit_variant_pattern(one) if _DIGITS.search(one) else _write_name(one) for one in names]
        longest_first = sorted(set(patterns), key=lambda one: (-len(one), one))
        self._pattern = re.compile("|".join(longest_first))

    def find(self, text: str) -> list[FoundValue]:
        """In a text that `normalise_text` has returned, in order, without overlaps."""
        found = self._pattern.finditer(text)
        return [FoundValue(_normalise_value(one[0]), one.start(), one.end()) for one in found]


def gives_answers(said: str, answers: Sequence[str], known: str, held: JsonValue) -> bool:
    """Whether `said` contains every answer and no other value of an answer's kind but those in `known`, none of them
    in a list with the answer. `held` is what the service holds."""
    said, known = _normalise_text(_strip_pasted_results(said)[:MOST_REPLIED]), _normalise_text(known)
    wanted = {_normalise_value(one) for one in answers}
    return all(_gives_answer(said, AnswerKind(one, held), wanted, known) for one in answers)


def _gives_answer(said: str, kind: AnswerKind, wanted: set[str], known: str) -> bool:
    values = {one.value for one in kind.find(said)}
    others = values - wanted
    if kind.answer not in values or (others and not others <= {one.value for one in kind.find(known)}):
        return False
    sentences = [(sentence, kind.find(sentence)) for sentence in _ENDS.split(said)]
    frames = [(_blank_values(sentence, found), {one.value for one in found}) for sentence, found in sentences if found]
    repeated = {frame for frame, held in frames if held - wanted} & {frame for frame, held in frames if held <= wanted}
    return not repeated and not any(_has_list(sentence, found, wanted) for sentence, found in sentences)


def _blank_values(sentence: str, found: Sequence[FoundValue]) -> str:
    """What is said of the values: the same of two in two sentences is a list."""
    ends = [0, *(one.end for one in found)]
    starts = [*(one.start for one in found), len(sentence)]
    said = "_".join(sentence[end:start] for end, start in zip(ends, starts, strict=True))
    return " ".join(_WORD.findall(_ITEM.sub("", said)))


def _has_list(sentence: str, found: Sequence[FoundValue], wanted: set[str]) -> bool:
    """Whether an answer and another value stand side by side with only commas and the like between them."""
    return any(
        (one.value in wanted) != (other.value in wanted) and _JOINED.fullmatch(sentence, one.end, other.start)
        for one, other in pairwise(found)
    )


def _find_rivals(answer: str, held: JsonValue) -> set[str]:
    """All values under a key that holds the answer; of files, those with the same ending; of numbers, none: their form
    tells them."""
    ending = _find_ending(answer)
    if _DIGITS.search(answer) and not ending.isalpha():
        return set()
    leaves = list(_list_values(held))
    keys = {key for key, value in leaves if value.casefold() == answer.casefold()}
    return {value for key, value in leaves if key in keys and _WORD.search(value) and _find_ending(value) == ending}


def _list_values(held: JsonValue, key: str = "") -> Iterator[tuple[str, str]]:
    """Texts with their keys. A text of several lines counts line by line, a path by its last name."""
    if isinstance(held, dict):
        for name, value in held.items():
            yield from _list_values(value, name)
    elif isinstance(held, list):
        for value in held:
            yield from _list_values(value, key)
    elif isinstance(held, str):
        for line in held.splitlines():
            yield key, line.rpartition("/")[2] if line.startswith("/") else line


def _find_ending(value: str) -> str:
    stem, dot, ending = value.rpartition(".")
    return ending if stem and dot and " " not in value else ""


def _build_digit_variant_pattern(value: str) -> str:
    """A pattern of all texts that differ from the value in digits only; digits after the first ones are as many."""
    value = _normalise_value(value)
    first, *others = _DIGITS.split(value)
    runs = [rf"\d{{{len(run)}}}" for run in _DIGITS.findall(value)]
    runs[0] = r"\d+"
    form = re.escape(first) + "".join(run + re.escape(other) for run, other in zip(runs, others, strict=True))
    opens = r"(?<!\d)(?<!\d[.:])(?<!(?<!\w)-)" if not first else r"(?<![^\W_])"
    closes = r"(?!\d)(?![.:]\d)" if not others[-1] else r"(?![^\W_])"
    return f"{opens}{form}{closes}"


def _write_name(value: str) -> str:
    words = r"\W{1,3}".join(map(re.escape, _WORD.findall(_normalise_value(value))))
    return rf"(?<![^\W_]){words}(?![^\W_])"


def _strip_pasted_results(reply: str) -> str:
    """Drops everything between the first and the last brace: pasted tool results do not count as answers."""
    opens, closes = reply.find("{"), reply.rfind("}")
    return f"{reply[:opens]} {reply[closes + 1 :]}" if 0 <= opens < closes else reply


def _normalise_text(text: str) -> str:
    """Case-folded, without thousands separators."""
    return _NUMBER_GROUP.sub("", unicodedata.normalize("NFKC", text).casefold())


def _normalise_value(value: str) -> str:
    """Values with digits as they are written; of names only the words."""
    value = _normalise_text(value)
    return value if _DIGITS.search(value) else " ".join(_WORD.findall(value))
