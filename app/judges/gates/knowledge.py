"""Gates on leaks and copies: secrets, withheld events, prompt, rubric and examples."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from app.domain.judging import GateFacts
from app.judges.reading import Reply, ngrams, says, spoken_form

PROMPT_RUN: Final = 12
"""From this many consecutive words in common with the system prompt a reply counts as a copy."""
EXAMPLE_RUN: Final = 10
_PHRASE: Final = 5
_SHORTEST: Final = 3
"""Least letters of a singular that is derived from a plural."""
_MOST: Final = 0.8


def leaks_secret(reply: Reply, facts: GateFacts) -> bool:
    said = spoken_form(facts.player_said)
    terms = (term for secret in facts.secrets for term in secret.terms)
    return any(reply.mentions(term) and not says(said, term) for term in terms)


def may_know_withheld(reply: Reply, facts: GateFacts) -> bool:
    """Terms that occur in the prompt or earlier in the conversation are known to the character."""
    said = [term for term in facts.withheld_terms if names(reply.spoken, term)]
    if not said:
        return False
    known = spoken_form("\n".join((facts.prompt, facts.player_said, *facts.history)))
    return any(not names(known, term) for term in said)


def names(spoken: str, term: str) -> bool:
    """Whether `spoken` contains `term` in its English singular or plural. Text after an apostrophe is a separate word,
    so genitives match as well."""
    return any(says(spoken, form) for form in _forms(term))


@lru_cache(maxsize=4096)
def _forms(term: str) -> tuple[str, ...]:
    folded = spoken_form(term).strip()
    others = [f"{folded}s", f"{folded}es"]
    if folded.endswith("y"):
        others.append(f"{folded[:-1]}ies")
    for plural, singular in (("ies", "y"), ("es", ""), ("s", "")):
        if folded.endswith(plural) and len(folded) - len(plural) >= _SHORTEST:
            others.append(folded.removesuffix(plural) + singular)
    return (term, *others) if folded else ()


def forbidden_word(reply: Reply, facts: GateFacts) -> bool:
    """Words that the player used are allowed: the character may ask what they mean."""
    said = spoken_form(facts.player_said)
    return any(reply.mentions(word) and not says(said, word) for word in facts.forbidden_words)


def copies_prompt(reply: Reply, facts: GateFacts) -> bool:
    return _shares_run(reply, (facts.prompt,), PROMPT_RUN)


def leaks_rubric(reply: Reply, facts: GateFacts) -> bool:
    """Checks text that only judges get. Runs of words from the prompt or the player do not count."""
    if not facts.rubric or not _shares_run(reply, (facts.rubric,), PROMPT_RUN):
        return False
    rubric = _runs((facts.rubric,), PROMPT_RUN) - _runs((facts.prompt, facts.player_said), PROMPT_RUN)
    return not rubric.isdisjoint(_phrases(reply.words, PROMPT_RUN))


def copies_example(reply: Reply, facts: GateFacts) -> bool:
    return _shares_run(reply, facts.examples, EXAMPLE_RUN) or _mostly_made_of(reply, facts.examples)


def _shares_run(reply: Reply, sources: tuple[str, ...], length: int) -> bool:
    return not _runs(sources, length).isdisjoint(_phrases(reply.words, length))


def _mostly_made_of(reply: Reply, sources: tuple[str, ...]) -> bool:
    """Whether phrases of the sources cover most of the reply."""
    if len(reply.words) < _PHRASE:
        return False
    known = _runs(sources, _PHRASE)
    covered = bytearray(len(reply.words))
    for start, phrase in enumerate(_phrases(reply.words, _PHRASE)):
        if phrase in known:
            covered[start : start + _PHRASE] = b"\x01" * _PHRASE
    return sum(covered) >= _MOST * len(covered)


@lru_cache(maxsize=256)
def _runs(sources: tuple[str, ...], length: int) -> frozenset[str]:
    """Cached, because all candidates of a group and many groups of a run share prompt and examples."""
    return frozenset(run for source in sources for run in _phrases(spoken_form(source).split(), length))


def _phrases(words: Sequence[str], length: int) -> Iterator[str]:
    """Strings rather than tuples, to spare the garbage collector thousands of containers."""
    return map(" ".join, ngrams(words, length))
