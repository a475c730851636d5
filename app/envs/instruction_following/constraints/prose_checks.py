"""What every reply must be besides following its instructions: English sentences of its own about the subject.

Without these checks an empty text would follow "no commas", and one repeated word would have any length."""

import gzip
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from app.domain.values import Frozen
from app.envs.instruction_following.constraints.instruction import format_count
from app.envs.instruction_following.constraints.text_units import MOST_CHARACTERS, ParsedText, parse_text
from app.envs.instruction_following.constraints.writing_requests import WritingRequest
from app.toolkit.package_data import read_packaged_data

COPIED_RUN: Final = 5
"""So many words in a row that the prompt has too count as copied."""
SHARE_OF_FUNCTION_WORDS: Final = (0.2, 0.8)
"""Least and most share of all words; in English prose it is about half."""
LEAST_SHARE_OF_DIFFERENT_WORDS: Final = 0.4
COUNTED_FOR_DIFFERENCE: Final = 150
"""The share is required of so many words only: longer texts repeat more words."""
NEW_WORDS: Final = 5
"""One in so many of the required words must be a different one that is not in the prompt."""
LONGEST_AVERAGE: Final = 60
SHORTEST_AVERAGE: Final = 3
"""Words of a sentence, on average."""
SAME_SENTENCE: Final = 3
"""Words; shorter sentences may be repeated."""

FUNCTION_WORDS: Final = frozenset(
    read_packaged_data(Path(__file__).with_name("function_words.yaml"), TypeAdapter(tuple[str, ...]))
)
SHARE_OF_ENGLISH_WORDS: Final = 3 / 4
"""Least share of the different words that mean something, names aside: names begin with a capital inside a sentence."""
SHARE_WITH_NAMES: Final = 2 / 3
"""Least share where names count as unknown words, so that a capital does not turn any word into a name."""
ENGLISH_WORDS: Final = Path(__file__).with_name("english_words.txt.gz")
"""In small letters, without accents; names of people, places, months and days as well. Its licence lies beside it."""
WORDS_A_CLASH: Final = 50
"""Pairs of words that never follow one another in English are allowed once in so many words, and at least once."""


class _Clash(Frozen):
    before: tuple[str, ...]
    after: tuple[str, ...]


_LISTED: Final = read_packaged_data(Path(__file__).with_name("clashes.yaml"), TypeAdapter(tuple[_Clash, ...]))
CLASHES: Final = frozenset((one, other) for listed in _LISTED for one in listed.before for other in listed.after)
_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzæœøðþłđıªº")


def find_prose_fault(reading: ParsedText, request: WritingRequest, prompt: str) -> str:
    """Why the reply does not count as a text; empty if it does. `prompt` is all that could be copied from."""
    if len(reading.text) > MOST_CHARACTERS:
        return f"it is longer than {MOST_CHARACTERS:,} characters"
    return next(chain(_find_missing_content(reading, request, parse_prompt(prompt)), _find_prose_faults(reading)), "")


def parse_prompt(prompt: str) -> list[str]:
    """Its bare words. Prompts share most of their lines."""
    return [word for line in prompt.split("\n") for word in _parse_prompt_line(line)]


@lru_cache(maxsize=4_096)
def _parse_prompt_line(line: str) -> tuple[str, ...]:
    return parse_text(line).bare


def _find_missing_content(reading: ParsedText, request: WritingRequest, prompt: Sequence[str]) -> Iterator[str]:
    bare, known = reading.bare, set(prompt)
    own = len(reading.words) - count_copied_words(bare, prompt)
    if own < request.least:
        yield f"{format_count(max(own, 0), 'word')} of its own where at least {request.least} were asked"
    missing = {request.thing, request.place}.difference(bare)
    if missing:
        yield f"it does not mention {' and '.join(sorted(missing))}"
    new = len(set(bare).difference(known))
    if new < request.least // NEW_WORDS:
        yield f"only {format_count(new, 'word')} that the prompt does not have"


def _find_prose_faults(reading: ParsedText) -> Iterator[str]:
    bare = reading.bare
    if any(character.isalpha() and character not in _LETTERS for character in reading.folded):
        yield "it has letters that English does not have"
    if len(set(bare)) < LEAST_SHARE_OF_DIFFERENT_WORDS * min(len(bare), COUNTED_FOR_DIFFERENCE):
        yield "it says the same words over and over"
    holding = sum(map(FUNCTION_WORDS.__contains__, bare))
    least, most = SHARE_OF_FUNCTION_WORDS
    if holding < least * len(bare):
        yield "it is a list of words rather than sentences"
    if holding > most * len(bare):
        yield "hardly any of its words mean something"
    said = [parse_text(sentence).bare for sentence in reading.sentences]
    if not SHORTEST_AVERAGE <= len(bare) / max(len(said), 1) <= LONGEST_AVERAGE:
        yield "it is not divided into sentences"
    if _lacks_english_words(reading):
        yield "too few of its words are English"
    clashes = sum(pair in CLASHES for words in said for pair in pairwise(words))
    if clashes > max(1, len(bare) // WORDS_A_CLASH):
        yield "its words do not go together"
    long = [words for words in said if len(words) >= SAME_SENTENCE]
    if len(set(long)) < len(long):
        yield "it says a sentence twice"


def _lacks_english_words(reading: ParsedText) -> bool:
    meaning = {word for word in reading.bare if len(word) > 1 and word not in FUNCTION_WORDS and not word.isdecimal()}
    unknown = {word for word in meaning if not is_english(word)}
    known, names = len(meaning) - len(unknown), len(unknown & _find_names(reading))
    return known < max(SHARE_OF_ENGLISH_WORDS * (len(meaning) - names), SHARE_WITH_NAMES * len(meaning))


def is_english(word: str) -> bool:
    """`word` is bare: in small letters, without accents. Of `weren't` and `girl's` the first part has to be known."""
    stem, _, ending = word.partition("'")
    return stem in read_english_words() or (ending == "t" and stem.removesuffix("n") in read_english_words())


@cache
def read_english_words() -> frozenset[str]:
    return frozenset(gzip.decompress(ENGLISH_WORDS.read_bytes()).decode().split())


def _find_names(reading: ParsedText) -> set[str]:
    inside = (word for sentence in reading.sentences for word in sentence.split()[1:])
    titles = (word for word in inside if word.strip("\"'(*_").istitle())
    return {name for word in titles for name in parse_text(word).bare}


def count_copied_words(bare: Sequence[str], prompt: Sequence[str]) -> int:
    """Number of words that belong to runs copied from the prompt."""
    runs = set(_iterate_runs(prompt))
    covered = bytearray(len(bare))
    for place, run in enumerate(_iterate_runs(bare)):
        if run in runs:
            covered[place : place + COPIED_RUN] = b"\x01" * COPIED_RUN
    return sum(covered)


def _iterate_runs(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return zip(*(words[place:] for place in range(COPIED_RUN)), strict=False)
