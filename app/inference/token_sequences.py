"""Token sequences of episodes for training: which tokens were sampled, with their log probabilities.

Every token of a sequence was in a prompt or sampled. A mask is the token itself where the model sampled it after
exactly the tokens before it, and IGNORED elsewhere."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

IGNORED: Final = -100
"""The mask of a token that is not trained on, the ignore index of cross-entropy losses."""
NO_LOGPROB: Final = 1.0
"""Placeholder for the log probability of such a token; no log probability is above 0."""


@dataclass(frozen=True)
class Exchange:
    """One model message and its exact prompt. `logprobs` are in nats, one per token of `said`; None when unknown."""

    prompt: tuple[int, ...]
    said: tuple[int, ...]
    logprobs: tuple[float, ...] | None = None
    from_server: bool = True


@dataclass(frozen=True)
class TurnTokens:
    """The tokens of one model message, without repeating those of the messages before it: its exact prompt is the first
    `kept` tokens of the prompt and message before it, then `prompt_ids`."""

    kept: int
    joined: bool
    """Whether all before it was kept; if not, a template or another cut into tokens has rewritten it."""
    from_server: bool
    """False for ids that a local tokenizer made from the text, which may not be those that were sampled."""
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None


@dataclass(frozen=True)
class TokenSequence:
    """Three lists of equal length. `logprobs` is None when one of a trained token is unknown."""

    tokens: tuple[int, ...] = ()
    masks: tuple[int, ...] = ()
    logprobs: tuple[float, ...] | None = ()

    @property
    def trained(self) -> int:
        return sum(mask != IGNORED for mask in self.masks)


def build_turns(exchanges: Sequence[Exchange]) -> tuple[TurnTokens, ...]:
    """Nothing is joined that was not sampled so: every exchange can be had from them again, token by token."""
    turns: list[TurnTokens] = []
    before: tuple[int, ...] = ()
    for exchange in exchanges:
        kept = count_shared_prefix(before, exchange.prompt)
        turns.append(
            TurnTokens(
                kept=kept,
                joined=kept == len(before),
                from_server=exchange.from_server,
                prompt_ids=exchange.prompt[kept:],
                completion_ids=exchange.said,
                logprobs=exchange.logprobs,
            )
        )
        before = exchange.prompt + exchange.said
    return tuple(turns)


def build_sequence(exchanges: Iterable[Exchange]) -> TokenSequence:
    """The last exact prompt and its message. Where a prompt differs from the sampled tokens before it (templates that
    drop thoughts, different tokenization), everything after the first difference is untrained context."""
    sequence = TokenSequence()
    for exchange in exchanges:
        sequence = _extend_sequence(sequence, exchange)
    return sequence


def _extend_sequence(before: TokenSequence, exchange: Exchange) -> TokenSequence:
    same = count_shared_prefix(before.tokens, exchange.prompt)
    fresh = len(exchange.prompt) - same
    logprobs = None
    if before.logprobs is not None and exchange.logprobs is not None:
        logprobs = (*before.logprobs[:same], *(NO_LOGPROB,) * fresh, *exchange.logprobs)
    return TokenSequence(
        tokens=(*exchange.prompt, *exchange.said),
        masks=(*before.masks[:same], *(IGNORED,) * fresh, *exchange.said),
        logprobs=logprobs,
    )


def count_shared_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common prefix of two sequences."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    return next(place for place in range(length) if one[place] != other[place])
