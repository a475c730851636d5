"""How replies are counted: what a word, a sentence, a line and a paragraph are.

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
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Final

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
ENDINGS: Final = ".!?"


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
    if text.isascii():
        text = text if text.isprintable() else text.translate(_ASCII_UNSEEN)
    else:
        seen = (c for c in text if c in "\n\t" or unicodedata.category(c) not in _UNSEEN)
        text = unicodedata.normalize("NFKC", "".join(seen).translate(_STRAIGHT)).translate(_STRAIGHT)
    return text.strip()


def split_words(text: str) -> tuple[str, ...]:
    return tuple(word for word in _PARTING.split(text) if any(map(str.isalnum, word)))


def find_bare_words(folded: str) -> tuple[str, ...]:
    return tuple(_BARE.findall(folded))


def ends_with_sentence_mark(word: str) -> bool:
    return word.rstrip(_CLOSING)[-1:] in tuple(ENDINGS)


def _split_sentences(line: str) -> list[str]:
    found: list[list[str]] = [[]]
    for word in line.split():
        found[-1].append(word)
        if ends_with_sentence_mark(word):
            found.append([])
    said = (" ".join(words) for words in found)
    return [sentence for sentence in said if any(map(str.isalpha, sentence))]
