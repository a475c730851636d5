"""What the policy said, out of the texts that trainers send: the prompt before it and special tokens behind."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from app.domain.errors import InvalidRequest
from app.domain.tasks import Completion
from app.domain.values import Frozen
from app.toolkit.package_data import packaged_data


class _Tokens(Frozen):
    ends: tuple[str, ...]
    pads: tuple[str, ...]
    thoughts: tuple[str, ...]


_TOKENS: Final = packaged_data(Path(__file__).with_name("tokens.yaml"), TypeAdapter(_Tokens))
_WORD: Final = re.compile(r"\S+")
_TAIL: Final = 10_000
"""Characters at the end of a text in which special tokens are looked for; more of them is a policy that babbles."""


def response_of(query: str, prompt: str, field: str) -> str:
    """What follows `prompt` in `query`. White space is no difference, since tokenizers lose some of it when they write
    a prompt out again. InvalidRequest naming `field` where the query begins otherwise."""
    if query.startswith(prompt):
        return query[len(prompt) :]
    end = _end_of("".join(prompt.split()), query)
    if end is None:
        raise InvalidRequest(
            "the query does not begin with its prompt. Trainers cut the beginning off prompts that are too long for "
            "them: let prompt and answer be longer, or leave long prompts out",
            field=field,
        )
    return query[end:].lstrip() if prompt[-1].isspace() else query[end:]


def _end_of(bare: str, query: str) -> int | None:
    """Where a prompt without its white space ends in `query`; None where it does not stand at the beginning."""
    at = 0
    for word in _WORD.finditer(query):
        left = len(bare) - at
        if len(word[0]) >= left:
            return word.start() + left if word[0].startswith(bare[at:]) else None
        if not bare.startswith(word[0], at):
            return None
        at += len(word[0])
    return None


def completion_of(response: str, prompt: str, ends: Collection[str]) -> Completion:
    """`ends` are the tokens by one of which the policy's answers end, as far as they were named: an answer without one
    was cut off. A thought that the prompt has begun belongs to the answer."""
    stop, found = _end_tokens(response, {*ends, *_TOKENS.ends, *_TOKENS.pads})
    unended = "length" if ends else None
    reason = "stop" if found.intersection(ends or _TOKENS.ends) else unended
    return Completion(text=_begun(prompt) + response[:stop], finish_reason=reason)


def _end_tokens(text: str, tokens: Collection[str]) -> tuple[int, set[str]]:
    """Where the tokens begin with which `text` ends, and which they are. White space between and behind them is theirs,
    what stands before the first of them is not."""
    found: set[str] = set()
    tail = text[-_TAIL:]
    stop = len(tail)
    while True:
        bare = tail[:stop].rstrip()
        token = next((one for one in tokens if bare.endswith(one)), None)
        if token is None:
            return len(text) - len(tail) + stop, found
        found.add(token)
        stop = len(bare) - len(token)


def _begun(prompt: str) -> str:
    bare = prompt[-100:].rstrip()
    return next((thought + prompt[-100:][len(bare) :] for thought in _TOKENS.thoughts if bare.endswith(thought)), "")
