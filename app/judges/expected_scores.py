"""Expected scores: each score's mean over the numbers the judge might have given, weighted by token probability."""

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from app.judges.verdict_parsing import HIGHEST

ALTERNATIVES_ASKED: Final = 8
"""`top_logprobs` to request: five scores and some other tokens."""
LEAST_KNOWN_PROBABILITY: Final = 0.5
"""Least total probability of the alternatives that are scores."""

_SCORES: Final = re.compile(rb'"scores"[ \t\r\n]*:[ \t\r\n]*\{([^{}"]*(?:"[^"\\{}]*"[^{}"]*)*)\}')
_BY_CRITERION: Final = re.compile(
    rb'"scores"[ \t\r\n]*:[ \t\r\n]*\{((?:[ \t\r\n,]*"[^"\\{}]*"[ \t\r\n]*:[ \t\r\n]*(?:null|\{[^{}]*\}))+)'
)
"""Scores of the short form: an object of candidates for each criterion."""
_OF_CRITERION: Final = re.compile(rb"\{([^{}]*)\}")
_SCORE: Final = re.compile(rb'"[^"\\{}]*"[ \t\r\n]*:[ \t\r\n]*([0-9])(?=[ \t\r\n]*(?:,|$))')
_LEAST_LOG: Final = -1000.0
_SURROUNDING_BYTES: Final = b' \t\r\n:,}"'


@dataclass(frozen=True)
class Token:
    """A token of an answer, and its alternatives with their probabilities, itself included."""

    piece: bytes
    alternatives: tuple[tuple[bytes, float], ...]


def insert_expected_scores(text: str, tokens: Sequence[Token]) -> str:
    """`text` with each whole number in a `scores` object replaced by its expected value (G-Eval, arXiv 2303.16634,
    section 2). `text` itself where `tokens` are not those of `text`; a number stays where the tokens do not tell."""
    data = text.encode("utf-8", "surrogatepass")
    written = b"".join(token.piece for token in tokens)
    start = written.rfind(data)
    if not tokens or start < 0:
        return text
    ends = list(accumulate(len(token.piece) for token in tokens))
    pieces: list[bytes] = []
    done = 0
    for place in _find_score_offsets(data):
        token = tokens[bisect_right(ends, start + place)]
        value = _compute_expected_score(token)
        if value is not None:
            pieces += [data[done:place], f"{value:.4f}".encode()]
            done = place + 1
    return b"".join((*pieces, data[done:])).decode("utf-8", "surrogatepass")


def parse_tokens(choice: object) -> tuple[Token, ...]:
    """The tokens of one choice of a chat completion; none where the server sent none, or some that are not whole."""
    listed = _get_field(_get_field(choice, "logprobs"), "content")
    if not isinstance(listed, list):
        return ()
    tokens: list[Token] = []
    for item in listed:
        own = _parse_token_probability(item)
        if own is None:
            return ()
        others = _get_field(item, "top_logprobs")
        weighed = [_parse_token_probability(other) for other in others] if isinstance(others, list) else []
        # the token itself need not be among the likeliest when it was drawn by lot
        found = dict([own, *(other for other in weighed if other is not None)])
        tokens.append(Token(own[0], tuple(found.items())))
    return tuple(tokens)


def _find_score_offsets(data: bytes) -> Iterator[int]:
    """Where the digits of whole-number scores stand."""
    for scores in _SCORES.finditer(data):
        for score in _SCORE.finditer(scores.group(1)):
            yield scores.start(1) + score.start(1)
    for scores in _BY_CRITERION.finditer(data):
        for criterion in _OF_CRITERION.finditer(scores.group(1)):
            for score in _SCORE.finditer(criterion.group(1)):
                yield scores.start(1) + criterion.start(1) + score.start(1)


def _compute_expected_score(token: Token) -> float | None:
    """None where the token is no single score, or most of what might have stood there is none."""
    if _parse_score(token.piece) is None:
        return None
    scores = [(score, chance) for piece, chance in token.alternatives if (score := _parse_score(piece)) is not None]
    known = math.fsum(chance for _, chance in scores)
    return None if known < LEAST_KNOWN_PROBABILITY else math.fsum(score * chance for score, chance in scores) / known


def _parse_score(piece: bytes) -> int | None:
    digit = piece.strip(_SURROUNDING_BYTES)
    return int(digit) if len(digit) == 1 and digit.isdigit() and int(digit) <= HIGHEST else None


def _parse_token_probability(item: object) -> tuple[bytes, float] | None:
    """A token and its probability. `bytes` are meant where both are given: some tokens are no whole characters."""
    text, raw, log = _get_field(item, "token"), _get_field(item, "bytes"), _get_field(item, "logprob")
    if isinstance(log, bool) or not isinstance(log, int | float) or not log <= 0.0:
        return None
    chance = math.exp(max(log, _LEAST_LOG))
    if isinstance(raw, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in raw):
        return bytes(raw), chance
    return (text.encode("utf-8", "surrogatepass"), chance) if isinstance(text, str) else None


def _get_field(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None
