"""Plans of gold texts, which instructions fill in, and the prose that they are made of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
        """`sentence` is in lower case, without punctuation, words separated by blanks."""
        words = sentence.split()
        return (
            not (self.avoided & set(sentence))
            and not self.forbidden.intersection(words)
            and max(map(len, words)) <= self.longest_word
            and len(words) <= self.longest_sentence
        )
