"""The language of a text, by its script and by frequent words.

The same everywhere, unlike the unseeded detector of the published checks, and surer of short texts."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from app.domain.values import Frozen
from app.envs.instruction_following.constraints.prose_checks import is_english
from app.toolkit.package_data import read_packaged_data

_SCRIPTS: Final[Mapping[str, str]] = {
    "latin": "A-Za-z\u00aa\u00ba\u00c0-\u024f\u1e00-\u1eff",
    "cyrillic": "\u0400-\u04ff",
    "devanagari": "\u0900-\u097f",
    "arabic": "\u0600-\u06ff\ufb50-\ufdff\ufe70-\ufeff",
    "he": "\u0590-\u05ff",
    "bn": "\u0980-\u09ff",
    "pa": "\u0a00-\u0a7f",
    "gu": "\u0a80-\u0aff",
    "ta": "\u0b80-\u0bff",
    "te": "\u0c00-\u0c7f",
    "kn": "\u0c80-\u0cff",
    "ml": "\u0d00-\u0d7f",
    "th": "\u0e00-\u0e7f",
    "el": "\u0370-\u03ff",
    "ko": "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af",
    "ja": "\u3040-\u30ff",
    "zh": "\u3400-\u4dbf\u4e00-\u9fff",
}
"""Letters of each script; one that a single language has here is called by its code."""
_LETTERS: Final = {name: re.compile(f"[{letters}]") for name, letters in _SCRIPTS.items()}
_WORDS: Final = re.compile(r"[^\W\d_]+(?:[\u0900-\u097f]+[^\W\d_]*)*")
_KANA_SHARE: Final = 0.05
"""Japanese has kana beside the signs that it shares with Chinese."""
_READ: Final = 20_000


class _Marks(Frozen):
    words: str
    letters: str


def _read_marks() -> dict[str, dict[str, tuple[frozenset[str], frozenset[str]]]]:
    path = Path(__file__).with_suffix(".yaml")
    scripts = read_packaged_data(path, TypeAdapter(dict[str, dict[str, _Marks]]))
    return {
        script: {code: (frozenset(marks.words.split()), frozenset(marks.letters)) for code, marks in languages.items()}
        for script, languages in scripts.items()
    }


_MARKS: Final = cache(_read_marks)


@cache
def list_languages() -> frozenset[str]:
    """Codes of the languages that can be told."""
    shared = _MARKS()
    return frozenset(_SCRIPTS).difference(shared).union(*shared.values())


def list_words(code: str) -> list[str]:
    """Frequent words of a language; of one that has its script alone, letters of it in threes, which tell it too."""
    for languages in _MARKS().values():
        if code in languages:
            return sorted(languages[code][0])
    letters = [letter for letter in map(chr, range(0x370, 0xB000)) if _LETTERS[code].match(letter) and letter.isalpha()]
    return ["".join(letters[place : place + 3]) for place in range(0, min(len(letters), 60), 2)]


def detect_text_language(text: str) -> str | None:
    """Its code; empty if nothing tells. None for a text without letters."""
    text = text[:_READ].lower()
    found = {name: len(letters.findall(text)) for name, letters in _LETTERS.items()}
    script = max(found, key=lambda name: found[name])
    if not any(map(str.isalpha, text)):
        return None
    if script == "zh" and found["ja"] > _KANA_SHARE * found["zh"]:
        return "ja"
    if script not in _MARKS():
        return script
    words = _WORDS.findall(text)
    counts = {
        code: sum(map(known.__contains__, words)) + sum(map(letters.__contains__, text))
        for code, (known, letters) in _MARKS()[script].items()
    }
    best = max(counts, key=lambda code: counts[code])
    if counts[best]:
        return best
    return "en" if words and 2 * sum(map(is_english, words)) > len(words) else ""
