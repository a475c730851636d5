"""Plans of gold texts, which instructions fill in, and the prose that they are made of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from app.domain.values import Frozen
from app.envs.instruction_following.constraints.writing_requests import WritingRequest
from app.toolkit.package_data import read_packaged_data


class _Prose(Frozen):
    cores: tuple[str, ...]
    openers: Mapping[str, tuple[str, ...]]
    tails: tuple[str, ...]
    about: tuple[str, ...]
    counted: tuple[str, ...]
    keywords: tuple[str, ...]
    forbidden: tuple[str, ...]
    first_words: tuple[str, ...]
    last_words: tuple[str, ...]
    beginnings: tuple[str, ...]
    endings: tuple[str, ...]
    emoji: tuple[str, ...]
    palindromes: tuple[str, ...]
    acrostics: tuple[str, ...]
    numbers: tuple[str, ...]


PROSE: Final = read_packaged_data(Path(__file__).with_name("prose.yaml"), TypeAdapter(_Prose))


@dataclass
class TextPlan:
    """Properties that the text should have; each instruction adds its own."""

    request: WritingRequest
    words: tuple[int, int]
    """Fewest and most, of the whole text."""
    sentences: tuple[int, int] = (4, 60)
    groups: int = 1
    """Paragraphs, lines, sections …: `separator` stands between them."""
    separator: str = "\n\n"
    each: int = 0
    """Sentences of each group; 0: as it comes."""
    headings: tuple[str, ...] = ()
    first_words: dict[int, str] = field(default_factory=dict)
    """Of groups, by place."""
    initials: str = ""
    """Of the sentences, one after the other."""
    different_starts: bool = False
    longest_sentence: int = 30
    rising: bool = False
    beginning: str = ""
    ending: str = ""
    last_word: str = ""
    said: list[str] = field(default_factory=list)
    """Clauses that must occur, in this order."""
    avoided: set[str] = field(default_factory=set)
    """Letters."""
    favoured: str = ""
    """A letter that should occur often."""
    forbidden: set[str] = field(default_factory=set)
    longest_word: int = 40
    marks: dict[str, int] = field(default_factory=dict)
    """How many sentences end with something else than a full stop."""
    items: tuple[str, ...] = ()
    """What a list's lines begin with."""
    above: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)
    wraps: list[Callable[[str], str]] = field(default_factory=list)
    """Each is done to one word."""
    finishes: list[Callable[[str], str]] = field(default_factory=list)
    """Done to the whole text, in this order."""

    def permits(self, sentence: str) -> bool:
        """`sentence` is without punctuation, words separated by blanks."""
        return self.permits_part(sentence) and len(sentence.split()) <= self.longest_sentence

    def permits_part(self, part: str) -> bool:
        """Whether a sentence may have this part, however long it is."""
        folded, words, longest = split_folded(part)
        return (
            longest <= self.longest_word
            and (not self.avoided or self.avoided.isdisjoint(folded))
            and (not self.forbidden or self.forbidden.isdisjoint(words))
        )


@lru_cache(maxsize=16_384)
def split_folded(part: str) -> tuple[str, tuple[str, ...], int]:
    """In lower case; its words; the letters of the longest of them."""
    folded = part.casefold()
    words = tuple(folded.split())
    return folded, words, max(map(len, words))
