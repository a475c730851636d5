"""Tokens of an episode as a trainer needs them: which were sampled, and how likely they were when they were.

Every token of a sequence is a token that the model saw or said. A mask is the token itself where the model said it
right after exactly the tokens before it, and IGNORED elsewhere.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

IGNORED: Final = -100
"""The mask of a token that is not trained on, as cross-entropy losses leave it out."""
NO_LOGPROB: Final = 1.0
"""Stands for the log probability of such a token: a value that no log probability has."""


@dataclass(frozen=True)
class Exchange:
    """The exact prompt of one message of the model, and that message. `logprobs` are in nats, one per token of `said`;
    None where they are not known."""

    prompt: tuple[int, ...]
    said: tuple[int, ...]
    logprobs: tuple[float, ...] | None = None


@dataclass(frozen=True)
class TokenSequence:
    """Three lists of one length; `logprobs` is None where any of a trained token is not known."""

    tokens: tuple[int, ...] = ()
    masks: tuple[int, ...] = ()
    logprobs: tuple[float, ...] | None = ()

    @property
    def trained(self) -> int:
        return sum(mask != IGNORED for mask in self.masks)


def sequence_of(exchanges: Iterable[Exchange]) -> TokenSequence:
    """The last exact prompt and what followed it. Where a prompt does not go on as the messages before it were sampled
    (templates that drop thoughts, other cuts between tokens), what comes after the first difference is context."""
    sequence = TokenSequence()
    for exchange in exchanges:
        sequence = _extended(sequence, exchange)
    return sequence


def _extended(before: TokenSequence, exchange: Exchange) -> TokenSequence:
    same = shared(before.tokens, exchange.prompt)
    fresh = len(exchange.prompt) - same
    logprobs = None
    if before.logprobs is not None and exchange.logprobs is not None:
        logprobs = (*before.logprobs[:same], *(NO_LOGPROB,) * fresh, *exchange.logprobs)
    return TokenSequence(
        tokens=(*exchange.prompt, *exchange.said),
        masks=(*before.masks[:same], *(IGNORED,) * fresh, *exchange.said),
        logprobs=logprobs,
    )


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two sequences begin with in common."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    return next(place for place in range(length) if one[place] != other[place])
