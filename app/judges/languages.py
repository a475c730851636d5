"""What the offline judge knows of languages, and how to tell which one a text is in."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Final

import yaml
from pydantic import Field, TypeAdapter

from app.domain.values import Frozen
from app.judges.reading import fold, words_of

LANGUAGES: Final = ("en", "de", "es", "fr", "it")
"""ISO 639-1 codes of what it knows."""

_FOLDER: Final = Path(__file__).with_suffix("")
_LONGEST_STEMMED: Final = 40
_LONGEST_READ: Final = 20_000
"""Characters of a text by which its language is told."""
_LEAST_SHARE: Final = 0.2
"""Of a text's words, that must be function words of its language."""
_FEW_WORDS: Final = 4
"""In a text as short as this one function word is enough, if no other language has it."""
_AHEAD: Final = 1.25
"""Times as many function words as in any other language."""
_LATIN: Final = re.compile("[A-Za-z\u00aa\u00ba\u00c0-\u024f\u1e00-\u1eff]")
_LATIN_SHARE: Final = 0.9


class _Lists(Frozen):
    """A language's file: words separated by blank space, phrases by lines, endings with what stands in their place."""

    name: str
    stop_words: str
    common_words: str
    you: str
    negations: str
    lately: str
    assistant: str
    endings: tuple[tuple[str, str], ...]
    shortest_stem: Annotated[int, Field(ge=1)]


_Others: Final = TypeAdapter(dict[str, str])


@dataclass(frozen=True)
class Language:
    code: str
    name: str
    stop_words: frozenset[str]
    """Function words."""
    common_words: frozenset[str]
    """Words of every day that say little about the subject."""
    you: frozenset[str]
    negations: frozenset[str]
    lately: tuple[str, ...]
    """What says that something was not long ago, over words with one space around each."""
    assistant: tuple[str, ...]
    """What assistants say, in the same form."""
    endings: tuple[tuple[str, str], ...]
    shortest_stem: int

    @cached_property
    def _silent(self) -> frozenset[str]:
        words = self.stop_words | self.common_words
        return words | frozenset(self.stem(word) for word in words)

    def stem(self, word: str) -> str:
        """Without its ending, roughly: enough to see that "coppers" and "copper" are one."""
        return _stem(self.endings, self.shortest_stem, word) if len(word) <= _LONGEST_STEMMED else word

    def stems(self, text: str) -> Iterator[str]:
        """The words that carry a subject, without their endings."""
        for word in words_of(fold(text)):
            if len(word) > 1 and word not in self._silent:
                stem = self.stem(word)
                if stem not in self._silent:
                    yield stem


@cache
def language(code: str) -> Language | None:
    """None for a language that is not known. The region of `de-AT` does not matter."""
    short = code.casefold().replace("_", "-").split("-")[0]
    if short not in LANGUAGES:
        return None
    lists = _Lists.model_validate(yaml.safe_load((_FOLDER / f"{short}.yaml").read_text(encoding="utf-8")))
    return Language(
        code=short,
        name=lists.name,
        stop_words=_folded(lists.stop_words),
        common_words=_folded(lists.common_words),
        you=_folded(lists.you),
        negations=_folded(lists.negations),
        lately=_phrases(lists.lately),
        assistant=_phrases(lists.assistant),
        endings=tuple((fold(ending), instead) for ending, instead in lists.endings),
        shortest_stem=lists.shortest_stem,
    )


@cache
def assistant_phrases() -> tuple[str, ...]:
    """Of every language: an assistant shows through in any of them."""
    known = [found for code in LANGUAGES if (found := language(code)) is not None]
    return tuple(dict.fromkeys(phrase for each in known for phrase in each.assistant))


def told_language(text: str) -> Language | None:
    """The language that `text` is in; None where it is another, or where the text does not tell. Its function words
    decide, and those of languages that are not known count against it."""
    text = text[:_LONGEST_READ]
    letters = [character for character in text if character.isalpha()]
    if sum(_LATIN.match(letter) is not None for letter in letters) < _LATIN_SHARE * len(letters):
        return None
    words = words_of(fold(text))
    found = sorted(((sum(word in marks for word in words), code) for code, marks in _marks().items()), reverse=True)
    (best, code), (second, _) = found[:2]
    enough = 1 if len(words) <= _FEW_WORDS else 2
    if best < enough or best < _LEAST_SHARE * len(words) or best < _AHEAD * second:
        return None
    return language(code)


@cache
def _marks() -> Mapping[str, frozenset[str]]:
    """Function words by language, those of languages included that are not known."""
    others = _Others.validate_python(yaml.safe_load((_FOLDER / "others.yaml").read_text(encoding="utf-8")))
    known = [found for code in LANGUAGES if (found := language(code)) is not None]
    return {**{each.code: each.stop_words for each in known}, **{code: _folded(text) for code, text in others.items()}}


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(" ".join(words_of(fold(line))) for line in text.splitlines())


def _folded(text: str) -> frozenset[str]:
    return frozenset(words_of(fold(text)))


@lru_cache(maxsize=100_000)
def _stem(endings: tuple[tuple[str, str], ...], shortest: int, word: str) -> str:
    for ending, instead in endings:
        if len(word) - len(ending) >= shortest and word.endswith(ending):
            return word[: -len(ending)] + instead
    return word
