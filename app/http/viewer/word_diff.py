"""Two texts word by word: what both have, and what only one has."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final, Literal

from app.toolkit.display import escape_invisible

MOST_WORDS: Final = 2_400
"""Of each text, gaps and marks included: what is behind them is not compared. So many take a tenth of a second."""
MOST_LINES: Final = 5_000
MOST_CHARACTERS: Final = 20_000
"""Of a block of lines that is too long to be compared."""
_WORD: Final = re.compile(r"\s+|\w+|[^\w\s]")


@dataclass(frozen=True)
class DiffPiece:
    kind: Literal["both", "first", "second"]
    text: str


@dataclass(frozen=True)
class WordDiff:
    """`left_out` are characters of both that were not compared."""

    pieces: tuple[DiffPiece, ...]
    similarity: float
    left_out: int


def compare_words(first: str, second: str) -> WordDiff:
    one, other = _split(first), _split(second)
    matcher = SequenceMatcher(None, one, other)
    pieces: list[DiffPiece] = []
    for kind, begin, end, from_, to in matcher.get_opcodes():
        if kind == "equal":
            pieces.append(DiffPiece("both", _join(one[begin:end])))
            continue
        if begin < end:
            pieces.append(DiffPiece("first", _join(one[begin:end])))
        if from_ < to:
            pieces.append(DiffPiece("second", _join(other[from_:to])))
    left = len(first) + len(second) - sum(map(len, one)) - sum(map(len, other))
    return WordDiff(tuple(pieces), matcher.ratio(), left)


def compare_revisions(first: str, second: str) -> WordDiff:
    """The lines that differ, word by word, with two lines around each change."""
    one, other = first.splitlines(keepends=True), second.splitlines(keepends=True)
    if max(len(one), len(other)) > MOST_LINES:
        return WordDiff((), 0, len(first) + len(second))
    matcher = SequenceMatcher(None, one, other)
    pieces: list[DiffPiece] = []
    words, left = MOST_WORDS, 0
    for number, group in enumerate(matcher.get_grouped_opcodes(2)):
        pieces += [DiffPiece("both", "⋯\n")] if number else []
        for kind, begin, end, from_, to in group:
            before, now = "".join(one[begin:end]), "".join(other[from_:to])
            if kind == "equal":
                pieces.append(DiffPiece("both", escape_invisible(before)))
                continue
            size = max(len(_split(before)), len(_split(now)))
            is_compared = bool(before and now) and size < words
            block = compare_words(before, now) if is_compared else _show_block(before, now)
            words -= size if is_compared else 0
            pieces += block.pieces
            left += block.left_out
    return WordDiff(tuple(pieces), matcher.ratio(), left)


def _show_block(first: str, second: str) -> WordDiff:
    """The beginnings, without a comparison."""
    before, now = first[:MOST_CHARACTERS], second[:MOST_CHARACTERS]
    pieces = (DiffPiece("first", escape_invisible(before)), DiffPiece("second", escape_invisible(now)))
    left = len(first) + len(second) - len(before) - len(now)
    return WordDiff(tuple(piece for piece in pieces if piece.text), 0, left)


def _split(text: str) -> Sequence[str]:
    words = []
    for found in _WORD.finditer(text):
        words.append(found[0])
        if len(words) == MOST_WORDS:
            break
    return words


def _join(words: Sequence[str]) -> str:
    return escape_invisible("".join(words))
