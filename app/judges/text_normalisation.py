"""Text normalisation of model output: visible text, folding for comparison, words."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from typing import Final

from app.toolkit.large_texts import WINDOW, iterate_pieces, iterate_words

THOUGHT_TAGS: Final = ("think", "thinking")

_UNSEGMENTED: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Scripts written without spaces: Thai, Lao, Burmese, Khmer, kana, Han. Each character counts as a word."""

_BESIDE_UNSEGMENTED: Final = re.compile(rf" (?=[{_UNSEGMENTED}])|(?<=[{_UNSEGMENTED}]) ")
_WORD: Final = re.compile(rf"[{_UNSEGMENTED}]|[^\W_{_UNSEGMENTED}]+")
_WORD_OR_END: Final = re.compile(rf"[{_UNSEGMENTED}]|[^\W_{_UNSEGMENTED}]+|[.!?\n。！？]")
_ENDS: Final = frozenset(".!?\n。！？")
_ASCII_GAPS: Final = "".join(chr(code) if chr(code).isalnum() else " " for code in range(128))
"""What stands between words of ASCII. Replacing it takes a tenth of the time of looking for words."""
_ASCII_GAPS_BUT_ENDS: Final = "".join(
    "\x00" if sign == "\n" else sign if sign in _ENDS else gap
    for sign, gap in zip(map(chr, range(128)), _ASCII_GAPS, strict=True)
)
"""The same but for ends. NUL stands for the end of a line, since white space is lost where words are split."""
_ASCII_WINDOW: Final = 8 * WINDOW
_STANDS_ALONE: Final = re.compile("[\x00-\x7f\u3001\u3002\u4e00-\u9fff]")
"""Characters that NFKC leaves as they are, and never joins with those before them."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_MARKS_KEPT: Final = 4
"""Most combining marks kept in a row, since normalising longer runs takes quadratic time."""

_LONGEST_CACHED: Final = 20_000
"""Longest text whose words are cached."""

_PLAIN_QUOTES: Final = {ord(fancy): plain for fancy, plain in zip("’‘ʼ‛“”„‟«»", '\'\'\'\'""""""', strict=True)}

_INVISIBLE_RANGES: Final = (
    (0x00AD, 0x00AD),
    (0x180E, 0x180E),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x2069),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xE0000, 0xE01EF),
)
_INVISIBLE: Final = re.compile("[" + "".join(f"{chr(low)}-{chr(high)}" for low, high in _INVISIBLE_RANGES) + "]+")


def replace_surrogates(text: str) -> str:
    """Replaces lone surrogates, so that the text can be encoded as UTF-8."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def strip_thoughts(text: str) -> str:
    """The text that a player sees: without leading thoughts and surrounding white space. Empty when a thought never
    ends."""
    rest = text.strip()
    for tag in THOUGHT_TAGS:
        opening, closing = f"<{tag}>", f"</{tag}>"
        if rest[: len(opening)].lower() == opening:
            end = rest.find(closing)
            return "" if end < 0 else rest[end + len(closing) :].strip()
        # chat templates that put the opening tag into the prompt leave only the closing one
        end = rest.find(closing)
        if end >= 0 and opening not in rest[:end]:
            return rest[end + len(closing) :].strip()
    return rest


def fold_text(text: str) -> str:
    """Folds text for comparison: NFKC, case folded, straight quotation marks, no invisible characters. Linear time."""
    return _fold_piece(text) if len(text) <= WINDOW else "".join(map(_fold_piece, iterate_pieces(text, _STANDS_ALONE)))


def _fold_piece(text: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _limit_combining_marks(_INVISIBLE.sub("", text))).translate(_PLAIN_QUOTES)
    return text.casefold()


def split_words(text: str) -> tuple[str, ...]:
    """The words of folded or unfolded text; an apostrophe separates ("it's" is two)."""
    if text.isascii() and len(text) <= _ASCII_WINDOW:
        return tuple(text.translate(_ASCII_GAPS).split())
    return tuple(_WORD.findall(text) if len(text) <= WINDOW else iterate_words(_WORD, text))


def count_words(words: Iterable[str]) -> float:
    """Length in words. A character of a script without spaces counts half."""
    listed = tuple(words)
    return float(len(listed)) if _are_ascii(listed) else sum(map(_count_halves, listed)) / 2


def iterate_ngrams(words: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    return zip(*(islice(words, start, None) for start in range(size)), strict=False)


def iterate_runs(words: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """The shortest run of `size` words or more from each word on, by the length of `count_words`. Linear time."""
    if _are_ascii(words) or all(_count_halves(word) == 2 for word in set(words)):
        return iterate_ngrams(words, size)
    return _iterate_runs_of_short_words(words, size)


def _iterate_runs_of_short_words(words: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    end, halves = 0, 0
    for start, word in enumerate(words):
        while end < len(words) and halves < 2 * size:
            halves += _count_halves(words[end])
            end += 1
        if halves < 2 * size:
            return
        yield words[start:end]
        halves -= _count_halves(word)


def _are_ascii(words: Iterable[str]) -> bool:
    return all(map(str.isascii, words))


def _count_halves(word: str) -> int:
    return 2 if len(word) > 1 or word < "\u0e00" or "\uac00" <= word <= "\ud7af" else 1


def _limit_combining_marks(text: str) -> str:
    combining = frozenset(filter(unicodedata.combining, set(text)))
    if not combining:
        return text
    kept: list[str] = []
    marks = 0
    for character in text:
        marks = marks + 1 if character in combining else 0
        if marks <= _MARKS_KEPT:
            kept.append(character)
    return "".join(kept)


@dataclass(frozen=True)
class Reply:
    """One completion, normalised once for all gates."""

    raw: str

    @cached_property
    def visible(self) -> str:
        return strip_thoughts(self.raw)

    @cached_property
    def folded(self) -> str:
        return fold_text(self.visible)

    @cached_property
    def _words_and_ends(self) -> Sequence[str]:
        return _split_words_and_ends(self.folded)

    @cached_property
    def words(self) -> tuple[str, ...]:
        if self.folded.isascii():
            return split_words(self.folded)
        return tuple([word for word in self._words_and_ends if word not in _ENDS])

    @cached_property
    def length(self) -> float:
        """In words, as `count_words`."""
        return count_words(self.words)

    @cached_property
    def padded_words(self) -> str:
        """The words with one space around each."""
        return f" {' '.join(self.words)} "

    @cached_property
    def sentences(self) -> str:
        """As `spoken`, with the ends of sentences and lines kept as words of their own, and no spaces beside
        characters of scripts that have none."""
        return _join_ascii_sentences(self.folded) or _join_words_and_ends(self._words_and_ends)

    def mentions(self, term: str) -> bool:
        """Whether the words of `term` occur in a row, in any spelling that folds alike."""
        return contains_words(self.padded_words, term)


def to_sentences(folded: str) -> str:
    """The form of `Reply.sentences`."""
    return _join_ascii_sentences(folded) or _join_words_and_ends(_split_words_and_ends(folded))


def _join_ascii_sentences(folded: str) -> str:
    """Without patterns, which take three times as long. Empty where that is not enough."""
    if not folded.isascii() or len(folded) > _ASCII_WINDOW:
        return ""
    apart = folded.replace(".", " . ").replace("!", " ! ").replace("?", " ? ").replace("\n", " \n ")
    return f" {' '.join(apart.translate(_ASCII_GAPS_BUT_ENDS).split())} ".replace("\x00", "\n")


def _split_words_and_ends(folded: str) -> Sequence[str]:
    if len(folded) <= WINDOW:
        return _WORD_OR_END.findall(folded)
    return tuple(iterate_words(_WORD_OR_END, folded))


def _join_words_and_ends(listed: Sequence[str]) -> str:
    joined = f" {' '.join(listed)} "
    return joined if joined.isascii() else _BESIDE_UNSEGMENTED.sub("", joined)


def contains_words(spoken: str, term: str) -> bool:
    """Whether `term` occurs in `spoken`. A term without words never occurs."""
    words = to_spoken_form(term)
    return not words.isspace() and words in spoken


def to_spoken_form(text: str) -> str:
    """The words of `text` with one space around each."""
    return _cached_spoken_form(text) if len(text) <= _LONGEST_CACHED else _build_spoken_form(text)


def _build_spoken_form(text: str) -> str:
    return f" {' '.join(split_words(fold_text(text)))} "


_cached_spoken_form: Final = lru_cache(maxsize=4096)(_build_spoken_form)
"""Cached, since prompts, player lines and sheet terms recur with every reply."""
