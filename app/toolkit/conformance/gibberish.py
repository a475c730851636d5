"""Answers of the form of a right one, with words and numbers that mean nothing."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from app.toolkit.conformance.answer_changes import Change, ChangedTask
from app.toolkit.seeded import SeededRandom

GIBBERISH_SHARE: Final = 0.2
"""Least share of an answer's words and numbers that gibberish replaces."""

_WORD: Final = re.compile(r"[^\W\d_]+")
_NUMBER: Final = re.compile(r"\d+")
_VOWELS: Final = "aeiou"
_CONSONANTS: Final = "bcdfghklmnprstvw"


def _permute_letters(task: ChangedTask) -> str | None:
    return _replace_content(task, _permute_word)


def _invent_words(task: ChangedTask) -> str | None:
    return _replace_content(task, _invent_word)


GIBBERISH: Final[Mapping[str, Change]] = {
    "letters in another order": _permute_letters,
    "invented words": _invent_words,
}


def _replace_content(task: ChangedTask, invent: Callable[[str, SeededRandom], str]) -> str | None:
    """None where too little would change."""
    kept = {word.casefold() for word in _WORD.findall(task.prompt)} | task.known.form_words
    numbers = set(_NUMBER.findall(task.prompt))
    changed, words = 0, 0

    def replace(found: re.Match[str]) -> str:
        nonlocal changed, words
        words += 1
        if found[0].casefold() in kept or found[0] in numbers:
            return found[0]
        other = invent(found[0], task.draws)
        changed += other != found[0]
        return other

    text = re.sub(r"[^\W\d_]+|\d+", replace, task.answer.text)
    return text if changed > GIBBERISH_SHARE * words else None


def _permute_word(word: str, draws: SeededRandom) -> str:
    return word[0] + "".join(draws.shuffled(word[1:-1])) + word[-1] if len(word) > 1 else word


def _invent_word(word: str, draws: SeededRandom) -> str:
    """A word of the same shape and the same ends."""
    return "".join(
        sign if place in (0, len(word) - 1) and sign.isalpha() else _redraw(sign, draws)
        for place, sign in enumerate(word)
    )


def _redraw(sign: str, draws: SeededRandom) -> str:
    if sign.isdigit():
        return str(draws.below(10))
    other = draws.one(_VOWELS if sign.casefold() in _VOWELS else _CONSONANTS)
    return other.upper() if sign.isupper() else other
