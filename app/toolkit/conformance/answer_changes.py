"""Answers made from a right one that are not right: near misses, hedges, gibberish of the same form."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from app.toolkit.conformance.answer_forms import CALLS, WHOLE, WrittenAnswer
from app.toolkit.seeded import SeededRandom

LISTED: Final = 19
"""Most candidates around the right one."""
FORM_SHARE: Final = 0.2
"""A word that so many answers have belongs to their form."""

_NUMBER: Final = re.compile(r"\d+")
_VALUE: Final = re.compile(r"\d+(?:[.:,/-]\d+)*|[^\W\d_]+")
_AMOUNT: Final = re.compile(r"\d+(?:[.:,/-]\d+)*")
_UNIT: Final = re.compile(r"(?<=\d)(\s*(?:\\text\{\s*|\\,)?)([^\W\d_]+|[%°])(?=\}?[\s.]*$)")
_RANGE: Final = re.compile(r"([A-Za-z0-9])-([A-Za-z0-9])")
_BRACKETS: Final = re.compile(r"\[[^\s\"'\[\]]+\]")


@dataclass(frozen=True)
class NamedValue:
    name: str
    text: str


@dataclass(frozen=True)
class KnownAnswers:
    """What a policy has seen: right answers of other tasks, and the words and characters of prompts."""

    answers: Sequence[WrittenAnswer]
    form_words: AbstractSet[str]
    """Words, in lower case, that many answers have."""
    characters: AbstractSet[str]
    """Characters of the rare words of prompts."""


@dataclass(frozen=True)
class ChangedTask:
    """A right answer and what surrounds it. `values`: those that the episode told."""

    answer: WrittenAnswer
    prompt: str
    values: Sequence[NamedValue]
    known: KnownAnswers
    draws: SeededRandom


Change = Callable[[ChangedTask], str | None]
"""Another text for the answer; None where the change does not apply."""


def _change_digit(task: ChangedTask) -> str | None:
    return _change_one_digit(task.answer.text, task.draws)


def _drop_token(task: ChangedTask) -> str | None:
    found = _find_tokens(task)
    return _put(task.answer.text, task.draws.one(found), "") if len(found) > 1 else None


def _replace_token(task: ChangedTask) -> str | None:
    """By a token of another answer, a number by a number."""
    found = _find_tokens(task)
    others = _VALUE.findall(task.draws.one(task.known.answers).text) if found and task.known.answers else []
    if not others:
        return None
    place = task.draws.one(found)
    own = task.answer.text[slice(*place)]
    alike = [other for other in others if other[0].isdigit() == own[0].isdigit() and other != own]
    return _put(task.answer.text, place, task.draws.one(alike)) if alike else None


def _change_case(task: ChangedTask) -> str | None:
    found = [place for place in _find_tokens(task) if task.answer.text[place[0]].isalpha()]
    if not found:
        return None
    place = task.draws.one(found)
    return _put(task.answer.text, place, task.answer.text[slice(*place)].swapcase())


def _change_unit(task: ChangedTask) -> str | None:
    own = _UNIT.search(task.answer.text)
    if own is None or task.answer.form in (CALLS, WHOLE):
        return None
    units = sorted({found[2] for one in task.known.answers for found in _UNIT.finditer(one.text)} - {own[2]})
    return _put(task.answer.text, own.span(2), task.draws.one(units)) if units else None


def _narrow_character_ranges(task: ChangedTask) -> str | None:
    """Each range of characters becomes those of it that have been seen."""
    return _change_character_ranges(task, lambda found: _keep_seen(found, task.known.characters))


def _shorten_character_ranges(task: ChangedTask) -> str | None:
    return _change_character_ranges(task, lambda found: f"{found[1]}-{chr(max(ord(found[1]), ord(found[2]) - 1))}")


def _widen_character_ranges(task: ChangedTask) -> str | None:
    return _change_character_ranges(task, lambda found: "a-zA-Z" if found[1].isalpha() else found[0])


def _change_character_ranges(task: ChangedTask, change: Callable[[re.Match[str]], str]) -> str:
    return _BRACKETS.sub(lambda found: _RANGE.sub(change, found[0]), task.answer.text)


def _list_bare(task: ChangedTask) -> str | None:
    return _join_candidates(task, ", ", "{}")


def _list_as_candidates(task: ChangedTask) -> str | None:
    return _join_candidates(task, ", ", "Candidates, one of these is right: {}.")


def _offer_either(task: ChangedTask) -> str | None:
    return _join_candidates(task, " or ", "{}", most=1)


NEAR_MISSES: Final[Mapping[str, Mapping[str, Change]]] = {
    "near_miss_digit": {"one digit changed": _change_digit},
    "near_miss_token": {
        "one token dropped": _drop_token,
        "one token of another answer": _replace_token,
    },
    "near_miss_case": {"one word in the other case": _change_case},
    "near_miss_unit": {"another unit": _change_unit},
    "near_miss_range": {
        "ranges of the characters seen": _narrow_character_ranges,
        "ranges without their last": _shorten_character_ranges,
        "ranges of both cases": _widen_character_ranges,
    },
}
HEDGES: Final[Mapping[str, Change]] = {
    "a list": _list_bare,
    "candidates": _list_as_candidates,
    "this or that": _offer_either,
}


def strip_values(text: str) -> str:
    """The text without numbers and words, so that nothing is left of what was asked for."""
    return _VALUE.sub("", text)


def find_named_values(text: str) -> Iterator[NamedValue]:
    """The leaves of a JSON text; nothing of other texts."""
    with contextlib.suppress(ValueError):
        yield from _iterate_leaves("", json.loads(text))


def _iterate_leaves(name: str, value: object) -> Iterator[NamedValue]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _iterate_leaves(key, item)
    elif isinstance(value, list):
        for item in value:
            yield from _iterate_leaves(name, item)
    elif value not in (None, ""):
        yield NamedValue(name, str(value))


def _change_one_digit(text: str, draws: SeededRandom) -> str | None:
    found = [*_NUMBER.finditer(text)]
    if not found:
        return None
    number = draws.one(found)
    place = number.start() + draws.below(len(number[0]))
    digit = (int(text[place]) + 1 + draws.below(9)) % 10
    return _put(text, (place, place + 1), str(digit or 1 if text[place] != "1" else digit or 2))


def _put(text: str, span: tuple[int, int], other: str) -> str:
    return f"{text[: span[0]]}{other}{text[span[1] :]}"


def _keep_seen(found: re.Match[str], seen: AbstractSet[str]) -> str:
    signs = [chr(code) for code in range(ord(found[1]), ord(found[2]) + 1)]
    kept = [sign for sign in signs if sign in seen]
    return found[0] if len(kept) in (0, len(signs)) else "".join(kept)


def _join_candidates(task: ChangedTask, between: str, sentence: str, most: int = LISTED) -> str | None:
    """Calls are hedged by more calls, a text by more texts, a sentence by more values for each that it names."""
    if task.answer.form == CALLS:
        others = [call for text in _vary_digits(task.answer.text, most, task.draws) for call in _load_calls(text)]
        return json.dumps([*others, *_load_calls(task.answer.text)], ensure_ascii=False) if others else None
    parts = _find_stated_values(task) or [task.answer.text]
    listed = [_list_candidates(task, part)[:most] for part in parts]
    if not any(listed):
        return None
    every = [one for part, others in zip(parts, listed, strict=True) for one in task.draws.shuffled([*others, part])]
    return sentence.format(between.join(dict.fromkeys(every)))


def _find_tokens(task: ChangedTask) -> list[tuple[int, int]]:
    """The places of words and numbers. None in prose, where another word may be right."""
    return [] if task.answer.form == WHOLE else [found.span() for found in _VALUE.finditer(task.answer.text)]


def _find_stated_values(task: ChangedTask) -> list[str]:
    """The values of an episode that its last sentence names, and its other numbers."""
    if task.answer.form != WHOLE or not task.values:
        return []
    text = task.answer.text
    named = sorted({one.text for one in task.values if re.search(rf"(?<!\w){re.escape(one.text)}(?!\w)", text)})
    return [*named, *(number for number in _AMOUNT.findall(text) if not any(number in one for one in named))]


def _list_candidates(task: ChangedTask, right: str) -> list[str]:
    """Values of the same name, then the same with other numbers, then other answers."""
    around = _vary_digits(right, LISTED, task.draws)
    foreign = [one.text for one in task.draws.some(task.known.answers, LISTED) if one.form == task.answer.form != WHOLE]
    return [*dict.fromkeys([*_list_named_alike(task, right), *(one for one in [*around, *foreign] if one != right)])]


def _list_named_alike(task: ChangedTask, value: str) -> list[str]:
    names = {one.name for one in task.values if one.text == value}
    return [*dict.fromkeys(one.text for one in task.values if one.name in names and one.text != value)]


def _vary_digits(text: str, most: int, draws: SeededRandom) -> list[str]:
    found = [other for _ in range(most) if (other := _change_one_digit(text, draws)) is not None]
    return [*dict.fromkeys(found)]


def _load_calls(text: str) -> list[object]:
    try:
        calls = json.loads(text)
    except ValueError:
        return []
    return calls if isinstance(calls, list) else []
