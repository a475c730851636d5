"""What instructions share: a request, the plan of a text that follows them, and how a reply is counted.

An instruction of a kind says what it asks, finds how a reply breaks it, and adds to a plan what makes a text follow it.
What is counted:

characters   compatibility forms are plain ones (full-width letters and digits, ligatures); typographic quotation marks
             and apostrophes are straight; what nobody sees (zero-width characters, controls, lone surrogates) and
             combining marks are left out; every kind of line end is one
word         what stands between white space or dashes and has a letter or a digit: `well-known`, `don't`, `3.5` are
             one each, `house—which` are two, `*` is none
sentence     goes on to a word with `.`, `!` or `?` at its end (quotation marks and brackets may follow), or to the end
             of its line, and has a letter: `1.` is none, and `Mr. Lee left.` are two
line         one that is not blank
paragraph    lines without a blank one between them
"""

import re
import unicodedata
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import ClassVar, Final, Literal, Self

from pydantic import TypeAdapter

from app.domain.values import MEBIBYTE, Frozen, remember
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import read_packaged_data

_LEAST_WORDS: Final = (30, 40, 50, 60)


class _RequestParts(Frozen):
    forms: tuple[str, ...]
    readers: tuple[str, ...]
    things: tuple[str, ...]
    places: tuple[str, ...]


PARTS: Final = read_packaged_data(Path(__file__).with_name("requests.yaml"), TypeAdapter(_RequestParts))


class WritingRequest(Frozen):
    form: str
    thing: str
    place: str
    """Both nouns must occur in the reply."""
    reader: str
    least: int
    """Words of one's own that the reply must have."""

    @property
    def sentence(self) -> str:
        """The request in words."""
        return f"{self.form} {add_article(self.thing)} in {add_article(self.place)}{self.reader}."


def draw_request(draws: SeededRandom, lengths: Sequence[int] = _LEAST_WORDS) -> WritingRequest:
    return WritingRequest(
        form=draws.one(PARTS.forms),
        thing=draws.one(PARTS.things),
        place=draws.one(PARTS.places),
        reader=draws.one(PARTS.readers),
        least=draws.one(lengths),
    )


def add_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


# Plans of gold texts, and the prose that these are made of.


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
    """Of groups, by their number."""
    initials: str = ""
    """Of the sentences, one after the other."""
    different_starts: bool = False
    longest_sentence: int = 30
    rising: bool = False
    beginning: str = ""
    ending: str = ""
    last_word: str = ""
    clauses: list[str] = field(default_factory=list)
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


@remember(4 * MEBIBYTE)
def split_folded(part: str) -> tuple[str, tuple[str, ...], int]:
    """In lower case; its words; the letters of the longest of them."""
    folded = part.casefold()
    words = tuple(folded.split())
    return folded, words, max(map(len, words))


# How replies are counted.

MOST_CHARACTERS: Final = 20_000
"""Longer replies are not read."""

_LINE_END = re.compile(r"\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_PARTING = re.compile(r"\s+|[\u2012-\u2015]|--")
_BARE = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_STRAIGHT: Final = str.maketrans(
    {**dict.fromkeys("“”„‟«»〝〞＂", '"'), **dict.fromkeys("‘’‛′ʼ´＇", "'"), "\u00a0": " ", "\u202f": " "}
)
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Mn", "Me"})
_ASCII_UNSEEN: Final = {code: None for code in (*range(32), 127) if chr(code) not in "\n\t"}
_CLOSING: Final = "\"')]}>*_`~\\"
_ENDINGS: Final = ".!?"


@dataclass(frozen=True)
class ParsedText:
    """A reply, normalised (`text`) and as it came (`raw`, for what has a grammar of its own, such as JSON)."""

    text: str
    raw: str = ""

    @cached_property
    def folded(self) -> str:
        """In lower case, without accents."""
        if self.text.isascii():
            return self.text.lower()
        # an accent becomes a mark of its own after its letter, which can be left out
        apart = unicodedata.normalize("NFKD", self.text.casefold())
        return "".join(character for character in apart if unicodedata.category(character) != "Mn")

    @cached_property
    def words(self) -> tuple[str, ...]:
        """As written, with attached punctuation."""
        return split_words(self.text)

    @cached_property
    def bare(self) -> tuple[str, ...]:
        """Folded runs of letters and digits, with inner apostrophes: the form in which words are searched."""
        return find_bare_words(self.folded)

    @cached_property
    def lines(self) -> tuple[str, ...]:
        return tuple(line.strip() for line in self.text.split("\n") if line.strip())

    @cached_property
    def paragraphs(self) -> tuple[str, ...]:
        lines = (line.strip() for line in self.text.split("\n"))
        return tuple("\n".join(part) for written, part in groupby(lines, bool) if written)

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        return tuple(sentence for line in self.lines for sentence in _split_sentences(line))

    def split_at(self, mark: str) -> tuple[str, ...]:
        """The parts between lines that consist of `mark` only."""
        parts: list[list[str]] = [[]]
        for line in self.text.split("\n"):
            if line.strip() == mark:
                parts.append([])
            else:
                parts[-1].append(line)
        return tuple("\n".join(part).strip() for part in parts)


def parse_text(reply: str) -> ParsedText:
    """Of at most MOST_CHARACTERS; never raises."""
    raw = reply[: MOST_CHARACTERS + 1]
    return ParsedText(normalise_text(raw), raw.strip())


def normalise_text(text: str) -> str:
    """Combining marks are removed first: normalising a long run of them takes quadratic time."""
    text = _LINE_END.sub("\n", text)
    if text.isascii():  # most replies: much quicker
        text = text if text.isprintable() else text.translate(_ASCII_UNSEEN)
    else:
        seen = (c for c in text if c in "\n\t" or unicodedata.category(c) not in _UNSEEN)
        # before, for `´`, which normalising takes apart; and after, for `″`, of which it makes two of `′`
        text = unicodedata.normalize("NFKC", "".join(seen).translate(_STRAIGHT)).translate(_STRAIGHT)
    return text.strip()


def split_words(text: str) -> tuple[str, ...]:
    return tuple(word for word in _PARTING.split(text) if any(map(str.isalnum, word)))


def find_bare_words(folded: str) -> tuple[str, ...]:
    return tuple(_BARE.findall(folded))


def _ends_with_sentence_mark(word: str) -> bool:
    return word.rstrip(_CLOSING)[-1:] in tuple(_ENDINGS)


def _split_sentences(line: str) -> list[str]:
    sentences: list[list[str]] = [[]]
    for word in line.split():
        sentences[-1].append(word)
        if _ends_with_sentence_mark(word):
            sentences.append([])
    texts = (" ".join(words) for words in sentences)
    return [sentence for sentence in texts if any(map(str.isalpha, sentence))]


# Kinds of instructions.

Asked = Literal["at least", "at most", "exactly"]
"""How a number is meant."""

WORDINGS: Final = read_packaged_data(Path(__file__).with_name("wordings.yaml"), TypeAdapter(dict[str, tuple[str, ...]]))
"""Ways of asking for each kind, with the fields of the instruction as `{slots}`."""


class Instruction(Frozen):
    """One kind of instruction. The fields of a subclass are its arguments, such as a number of words.

    Two kinds conflict if both claim the same thing (`claims`), or if one `bars` what the other claims or adds. Whether
    two kinds really fit is only known once a text follows both.
    """

    kind: str
    family: ClassVar[str]
    hard: ClassVar[bool] = False
    claims: ClassVar[frozenset[str]] = frozenset()
    adds: ClassVar[frozenset[str]] = frozenset()
    """Things that several kinds may add: `blocks` are lines that are not prose."""
    bars: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        """An instruction that suits the request, as far as this is known before a text is written. Without arguments
        nothing is drawn."""
        return cls.model_validate({})

    @abstractmethod
    def find_fault(self, reading: ParsedText) -> str:
        """How the reply breaks the instruction; empty if it follows it. Takes time linear in the reply."""

    @abstractmethod
    def apply_to(self, draft: TextPlan) -> None:
        """Adds to `draft` what makes its text follow the instruction."""

    def build_slots(self) -> Mapping[str, str | int]:
        """Values for the slots of a wording: each field; several words become a quoted list."""
        return {name: _format_slot(getattr(self, name)) for name in type(self).model_fields if name != "kind"}

    def phrase_request(self, draws: SeededRandom) -> str:
        return draws.one(WORDINGS[self.kind]).format_map(self.build_slots())


class CountInstruction(Instruction):
    """So many of something."""

    asked: ClassVar[Asked] = "exactly"
    noun: ClassVar[str]
    behind: ClassVar[str] = ""
    """Words behind the noun."""
    drawn: ClassVar[tuple[int, int]] = (2, 4)
    """The least number, and how many numbers there are from it on."""
    count: int

    @classmethod
    def draw(cls, draws: SeededRandom, request: WritingRequest) -> Self:
        least, numbers = cls.drawn
        return cls.model_validate({"count": least + draws.below(numbers)})

    @abstractmethod
    def count_in(self, reading: ParsedText) -> int:
        """How many there are."""

    def find_fault(self, reading: ParsedText) -> str:
        found = self.count_in(reading)
        return find_count_fault(found, f"{format_count(found, self.noun)}{self.behind}", self.asked, self.count)


def find_count_fault(found: int, words: str, asked: Asked, number: int) -> str:
    """`words` say what was found."""
    kept = {"at least": found >= number, "at most": found <= number, "exactly": found == number}
    return "" if kept[asked] else f"{words} where {asked} {number} were asked"


def is_conflict(one: type[Instruction], other: type[Instruction]) -> bool:
    return bool(
        one.claims & other.claims
        or one.bars & (other.claims | other.adds)
        or other.bars & (one.claims | one.adds)
        or one is other
    )


def format_count(number: int, noun: str) -> str:
    """`1 word`, `3 words`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _format_slot(value: object) -> str | int:
    if isinstance(value, tuple):
        return ", ".join(f'"{word}"' for word in value)
    return value if isinstance(value, int) else str(value)
