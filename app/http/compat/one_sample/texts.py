"""Extracts the policy's answer from trainers' texts: without the prompt before it and the special tokens after it."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from app.domain.errors import InvalidRequest
from app.domain.tasks import Completion
from app.domain.values import Frozen
from app.toolkit.package_data import read_packaged_data


class _Tokens(Frozen):
    ends: tuple[str, ...]
    pads: tuple[str, ...]
    thoughts: tuple[str, ...]


_TOKENS: Final = read_packaged_data(Path(__file__).with_name("tokens.yaml"), TypeAdapter(_Tokens))
_WORD: Final = re.compile(r"\S+")
_TAIL: Final = 10_000
"""Number of characters at the end of a text that are searched for special tokens."""


def extract_response(query: str, prompt: str, field: str) -> str:
    """The text after `prompt` in `query`. Whitespace is ignored in the comparison, because tokenizers lose some of it
    when they decode a prompt. Raises InvalidRequest naming `field` if the query does not start with the prompt."""
    if query.startswith(prompt):
        return query[len(prompt) :]
    end = _find_prompt_end("".join(prompt.split()), query)
    if end is None:
        raise InvalidRequest(
            "the query does not start with its prompt. Trainers truncate long prompts at the beginning: raise the "
            "maximum length of prompt and answer, or leave out long prompts",
            field=field,
        )
    return query[end:].lstrip() if prompt[-1].isspace() else query[end:]


def _find_prompt_end(bare: str, query: str) -> int | None:
    """Where a prompt without its whitespace ends in `query`; None if the query does not start with it."""
    at = 0
    for word in _WORD.finditer(query):
        left = len(bare) - at
        if len(word[0]) >= left:
            return word.start() + left if word[0].startswith(bare[at:]) else None
        if not bare.startswith(word[0], at):
            return None
        at += len(word[0])
    return None


def build_completion(response: str, prompt: str, ends: Collection[str]) -> Completion:
    """`ends` are the configured end-of-sequence tokens; if there are any, an answer without one was truncated. A
    thought that the prompt has opened belongs to the answer."""
    stop, found = _find_end_tokens(response, {*ends, *_TOKENS.ends, *_TOKENS.pads})
    unended = "length" if ends else None
    reason = "stop" if found.intersection(ends or _TOKENS.ends) else unended
    return Completion(text=_find_open_thought(prompt) + response[:stop], finish_reason=reason)


def _find_end_tokens(text: str, tokens: Collection[str]) -> tuple[int, set[str]]:
    """The position of the special tokens at the end of `text`, and the tokens. Whitespace between and after them is
    skipped, whitespace before the first one is kept."""
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


def _find_open_thought(prompt: str) -> str:
    bare = prompt[-100:].rstrip()
    return next((thought + prompt[-100:][len(bare) :] for thought in _TOKENS.thoughts if bare.endswith(thought)), "")
