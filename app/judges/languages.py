"""Word lists per language for the offline judge, and language detection."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Final

import yaml
from pydantic import Field, TypeAdapter

from app.domain.values import Frozen
from app.judges.text_normalisation import fold_text, split_words

LANGUAGES: Final = ("en", "de", "es", "fr", "it")
"""ISO 639-1 codes of the supported languages."""

_FOLDER: Final = Path(__file__).with_suffix("")
_LONGEST_STEMMED: Final = 40
_TEXTS_KEPT: Final = 4_096
"""Of sheets, scenes and events, whose stems are kept: 30 MB at most."""
_LONGEST_KEPT: Final = 500
"""Characters of such a text."""
_LONGEST_READ: Final = 20_000
"""Characters of a text that language detection reads."""
_LEAST_SHARE: Final = 0.2
"""Least share of stop words of the detected language."""
_FEW_WORDS: Final = 4
"""In texts up to this many words one stop word is enough, if no other language has it."""
_LEAST_LEAD: Final = 1.25
"""Required ratio of stop words to those of any other language."""
_LATIN: Final = re.compile("[A-Za-z\u00aa\u00ba\u00c0-\u024f\u1e00-\u1eff]")
_LATIN_SHARE: Final = 0.9


class _LanguageFile(Frozen):
    """A language's file: words separated by white space, one phrase per line, endings with replacements."""

    name: str
    stop_words: str
    common_words: str
    you: str
    negations: str
    lately: str
    assistant: str
    endings: tuple[tuple[str, str], ...]
    shortest_stem: Annotated[int, Field(ge=1)]


_STOP_WORDS_ADAPTER: Final = TypeAdapter(dict[str, str])


@dataclass(frozen=True)
class Language:
    code: str
    name: str
    stop_words: frozenset[str]
    """Stop words."""
    common_words: frozenset[str]
    """Everyday words that say little about the subject."""
    you: frozenset[str]
    negations: frozenset[str]
    lately: tuple[str, ...]
    """Phrases for the recent past, as words separated by single spaces."""
    assistant: tuple[str, ...]
    """Typical phrases of assistants, in the same form."""
    endings: tuple[tuple[str, str], ...]
    shortest_stem: int

    @cached_property
    def _silent(self) -> frozenset[str]:
        words = self.stop_words | self.common_words
        return words | frozenset(self.stem(word) for word in words)

    def stem(self, word: str) -> str:
        """A rough stem without the ending: enough to match "coppers" and "copper"."""
        return _strip_ending(self.endings, self.shortest_stem, word) if len(word) <= _LONGEST_STEMMED else word

    def extract_stems(self, text: str) -> Iterator[str]:
        """Stems of the content words."""
        for word in split_words(fold_text(text)):
            if len(word) > 1 and word not in self._silent:
                stem = self.stem(word)
                if stem not in self._silent:
                    yield stem

    def collect_stems(self, text: str) -> frozenset[str]:
        """The stems of a text that replies are compared with. Those of short texts are kept for the next reply."""
        if len(text) > _LONGEST_KEPT:
            return frozenset(self.extract_stems(text))
        return _collect_stems(self.code, text)


@lru_cache(maxsize=_TEXTS_KEPT)
def _collect_stems(code: str, text: str) -> frozenset[str]:
    language = get_language(code)
    return frozenset() if language is None else frozenset(language.extract_stems(text))


@cache
def get_language(code: str) -> Language | None:
    """None for an unsupported language. Regions as in `de-AT` are ignored."""
    short = code.casefold().replace("_", "-").split("-")[0]
    if short not in LANGUAGES:
        return None
    lists = _LanguageFile.model_validate(yaml.safe_load((_FOLDER / f"{short}.yaml").read_text(encoding="utf-8")))
    return Language(
        code=short,
        name=lists.name,
        stop_words=_parse_words(lists.stop_words),
        common_words=_parse_words(lists.common_words),
        you=_parse_words(lists.you),
        negations=_parse_words(lists.negations),
        lately=_parse_phrases(lists.lately),
        assistant=_parse_phrases(lists.assistant),
        endings=tuple((fold_text(ending), instead) for ending, instead in lists.endings),
        shortest_stem=lists.shortest_stem,
    )


@cache
def list_assistant_phrases_of_all_languages() -> tuple[str, ...]:
    """Assistant phrases of all languages."""
    known = [found for code in LANGUAGES if (found := get_language(code)) is not None]
    return tuple(dict.fromkeys(phrase for each in known for phrase in each.assistant))


def detect_language(text: str) -> Language | None:
    """Detects the language of `text` by its stop words, including those of unsupported languages; None when it is
    unsupported or unclear."""
    text = text[:_LONGEST_READ]
    letters = [character for character in text if character.isalpha()]
    if sum(_LATIN.match(letter) is not None for letter in letters) < _LATIN_SHARE * len(letters):
        return None
    words = split_words(fold_text(text))
    found = sorted(
        ((sum(word in marks for word in words), code) for code, marks in _collect_stop_words().items()), reverse=True
    )
    (best, code), (second, _) = found[:2]
    enough = 1 if len(words) <= _FEW_WORDS else 2
    if best < enough or best < _LEAST_SHARE * len(words) or best < _LEAST_LEAD * second:
        return None
    return get_language(code)


@cache
def _collect_stop_words() -> Mapping[str, frozenset[str]]:
    """Stop words by language, including unsupported languages."""
    others = _STOP_WORDS_ADAPTER.validate_python(yaml.safe_load((_FOLDER / "others.yaml").read_text(encoding="utf-8")))
    known = [found for code in LANGUAGES if (found := get_language(code)) is not None]
    return {
        **{each.code: each.stop_words for each in known},
        **{code: _parse_words(text) for code, text in others.items()},
    }


def _parse_phrases(text: str) -> tuple[str, ...]:
    return tuple(" ".join(split_words(fold_text(line))) for line in text.splitlines())


def _parse_words(text: str) -> frozenset[str]:
    return frozenset(split_words(fold_text(text)))


@lru_cache(maxsize=100_000)
def _strip_ending(endings: tuple[tuple[str, str], ...], shortest: int, word: str) -> str:
    for ending, instead in endings:
        if len(word) - len(ending) >= shortest and word.endswith(ending):
            return word[: -len(ending)] + instead
    return word
