"""Gates on leaks and copies: secrets, withheld events, prompt, rubric and examples."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

from app.domain.judging import GateFacts, SecretTerms
from app.domain.values import SameObject
from app.judges.text_normalisation import (
    Reply,
    contains_words,
    fold_text,
    iterate_runs,
    split_words,
    to_spoken_form,
)

PROMPT_RUN_WORDS: Final = 20
"""From this many consecutive words in common with the system prompt a reply counts as a copy: good replies take over
shorter runs of what a prompt tells them."""
RUBRIC_RUN_WORDS: Final = 12
EXAMPLE_RUN_WORDS: Final = 10
_SHORTEST_SINGULAR: Final = 3
"""Least letters of a singular that is derived from a plural."""
_MOST_COPIED_SHARE: Final = 0.8
_PHRASE_WORDS: Final = 5
"""From this many consecutive words in common they count as copied."""


def leaks_secret(reply: Reply, facts: GateFacts) -> bool:
    return _says_first(reply, _list_secret_terms(SameObject(facts.secrets)), facts.player_said)


@lru_cache(maxsize=256)
def _list_secret_terms(secrets: SameObject[tuple[SecretTerms, ...]]) -> tuple[str, ...]:
    return tuple(term for secret in secrets.value for term in secret.terms)


def may_know_withheld(reply: Reply, facts: GateFacts) -> bool:
    """Terms that occur in the prompt or earlier in the conversation are known to the character."""
    said = [term for term in facts.withheld_terms if contains_term(reply.padded_words, term)]
    if not said:
        return False
    known = to_spoken_form("\n".join((facts.prompt, facts.player_said, *facts.history)))
    return any(not contains_term(known, term) for term in said)


def contains_term(spoken: str, term: str) -> bool:
    """Whether `spoken` contains `term` in its English singular or plural. Text after an apostrophe is a separate word,
    so genitives match as well."""
    return any(contains_words(spoken, form) for form in _list_word_forms(term))


@lru_cache(maxsize=4096)
def _list_word_forms(term: str) -> tuple[str, ...]:
    folded = to_spoken_form(term).strip()
    others = [f"{folded}s", f"{folded}es"]
    if folded.endswith("y"):
        others.append(f"{folded[:-1]}ies")
    for plural, singular in (("ies", "y"), ("es", ""), ("s", "")):
        if folded.endswith(plural) and len(folded) - len(plural) >= _SHORTEST_SINGULAR:
            others.append(folded.removesuffix(plural) + singular)
    return (term, *others) if folded else ()


def introduces_forbidden_word(reply: Reply, facts: GateFacts) -> bool:
    """Words that the player used are allowed: the character may ask what they mean."""
    return _says_first(reply, facts.forbidden_words, facts.player_said)


def _says_first(reply: Reply, terms: tuple[str, ...], player_said: str) -> bool:
    """Whether the reply has a term that the player had not said."""
    return any(map(reply.padded_words.__contains__, _list_unsaid_terms(terms, player_said)))


@lru_cache(maxsize=256)
def _list_unsaid_terms(terms: tuple[str, ...], player_said: str) -> tuple[str, ...]:
    """In the form of `Reply.padded_words`. Cached, because all candidates of a group share them."""
    said = to_spoken_form(player_said)
    spoken = (to_spoken_form(term) for term in terms)
    return tuple(term for term in spoken if not term.isspace() and term not in said)


def copies_prompt(reply: Reply, facts: GateFacts) -> bool:
    return _shares_run(reply, (facts.prompt,), PROMPT_RUN_WORDS)


def leaks_rubric(reply: Reply, facts: GateFacts) -> bool:
    """Checks text that only judges get. Runs of words from the prompt or the player do not count."""
    if not facts.rubric or not _shares_run(reply, (facts.rubric,), RUBRIC_RUN_WORDS):
        return False
    rubric = _collect_runs((facts.rubric,), RUBRIC_RUN_WORDS) - _collect_runs(
        (facts.prompt, facts.player_said), RUBRIC_RUN_WORDS
    )
    return not rubric.isdisjoint(_iterate_phrases(reply.words, RUBRIC_RUN_WORDS))


def copies_example(reply: Reply, facts: GateFacts) -> bool:
    marked = _mark_known_words(reply, facts.examples)
    return _has_run(reply, facts.examples, EXAMPLE_RUN_WORDS, marked) or _is_mostly_copied(
        reply, facts.examples, marked
    )


def _shares_run(reply: Reply, sources: tuple[str, ...], length: int) -> bool:
    return _has_run(reply, sources, length, _mark_known_words(reply, sources))


def _has_run(reply: Reply, sources: tuple[str, ...], length: int, marked: bytes) -> bool:
    """The words of such a run are all `marked`, so most replies are told by single words alone."""
    if b"\x01" * length not in marked:
        return False
    return not _collect_runs(sources, length).isdisjoint(_iterate_phrases(reply.words, length))


def _is_mostly_copied(reply: Reply, sources: tuple[str, ...], marked: bytes) -> bool:
    """Whether phrases of the sources cover most of the reply."""
    least = _MOST_COPIED_SHARE * max(len(reply.words), 1)
    if sum(marked) < least:
        return False
    known = _collect_runs(sources, _PHRASE_WORDS)
    covered = bytearray(len(reply.words))
    for start, run in enumerate(iterate_runs(reply.words, _PHRASE_WORDS)):
        if " ".join(run) in known:
            covered[start : start + len(run)] = b"\x01" * len(run)
    return sum(covered) >= least


def _mark_known_words(reply: Reply, sources: tuple[str, ...]) -> bytes:
    """1 for each word that occurs in the sources."""
    return bytes(map(_collect_words(sources).__contains__, reply.words))


@lru_cache(maxsize=256)
def _collect_words(sources: tuple[str, ...]) -> frozenset[str]:
    """Cached, as their runs."""
    return frozenset(chain.from_iterable(split_words(fold_text(source)) for source in sources))


@lru_cache(maxsize=256)
def _collect_runs(sources: tuple[str, ...], length: int) -> frozenset[str]:
    """Cached, because all candidates of a group and many groups of a run share prompt and examples."""
    return frozenset(run for source in sources for run in _iterate_phrases(to_spoken_form(source).split(), length))


def _iterate_phrases(words: Sequence[str], length: int) -> Iterator[str]:
    """Strings rather than tuples, to spare the garbage collector thousands of containers."""
    return map(" ".join, iterate_runs(words, length))
