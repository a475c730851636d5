"""Gates on what a reply gives away or copies."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from app.domain.judging import GateFacts
from app.judges.reading import Reply, ngrams, says, spoken_form

PROMPT_RUN: Final = 12
"""Consecutive words in common with the system prompt that make a recital."""
EXAMPLE_RUN: Final = 10
_PHRASE: Final = 5
_MOST: Final = 0.8


def leaks_secret(reply: Reply, facts: GateFacts) -> bool:
    said = spoken_form(facts.player_said)
    terms = (term for secret in facts.secrets for term in secret.terms)
    return any(reply.mentions(term) and not says(said, term) for term in terms)


def leaks_withheld(reply: Reply, facts: GateFacts) -> bool:
    """A term that stands in the prompt, or that was spoken before, is known to the character from there."""
    known = spoken_form("\n".join((facts.prompt, facts.player_said, *facts.history)))
    return any(reply.mentions(term) and not says(known, term) for term in facts.withheld_terms)


def forbidden_word(reply: Reply, facts: GateFacts) -> bool:
    """A word that the player used may be said back: one may ask what it means."""
    said = spoken_form(facts.player_said)
    return any(reply.mentions(word) and not says(said, word) for word in facts.forbidden_words)


def copies_prompt(reply: Reply, facts: GateFacts) -> bool:
    return _shares_run(reply, (facts.prompt,), PROMPT_RUN)


def leaks_rubric(reply: Reply, facts: GateFacts) -> bool:
    """What only judges are told; words that the prompt or the player used are known from there."""
    if not facts.rubric or not _shares_run(reply, (facts.rubric,), PROMPT_RUN):
        return False
    known = _runs(facts.prompt, PROMPT_RUN) | _runs(facts.player_said, PROMPT_RUN)
    rubric = _runs(facts.rubric, PROMPT_RUN) - known
    return any(gram in rubric for gram in ngrams(reply.words, PROMPT_RUN))


def copies_example(reply: Reply, facts: GateFacts) -> bool:
    return _shares_run(reply, facts.examples, EXAMPLE_RUN) or _mostly_made_of(reply, facts.examples)


def _shares_run(reply: Reply, sources: Iterable[str], length: int) -> bool:
    if len(reply.words) < length:
        return False
    runs = [runs for source in sources if (runs := _runs(source, length))]
    return any(gram in known for known in runs for gram in ngrams(reply.words, length))


def _mostly_made_of(reply: Reply, sources: Iterable[str]) -> bool:
    """Whether phrases of the sources cover most of the reply."""
    if len(reply.words) < _PHRASE:
        return False
    known = frozenset[tuple[str, ...]]().union(*(_runs(source, _PHRASE) for source in sources))
    covered = bytearray(len(reply.words))
    for start, gram in enumerate(ngrams(reply.words, _PHRASE)):
        if gram in known:
            covered[start : start + _PHRASE] = b"\x01" * _PHRASE
    return sum(covered) >= _MOST * len(covered)


@lru_cache(maxsize=256)
def _runs(source: str, length: int) -> frozenset[tuple[str, ...]]:
    """Of a prompt or an example, which all candidates of a group and many groups of a run share."""
    return frozenset(ngrams(spoken_form(source).split(), length))
