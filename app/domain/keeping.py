"""Reduction: what stays of a scored group, and the digests that stand in the place of the rest.

A run or the operator says what stays. Statistics, rewards and the recognition of repeats work as before on reduced
groups, by sizes and digests. Texts were parts that could go once: what needs them refuses groups that lack them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import not_
from typing import Annotated, Final, Literal, get_args

from pydantic import Field

from app.domain.tasks import Completion, Message
from app.domain.values import Frozen, canonical_json, is_absent

KeptPart = Literal["text", "thought", "tokens", "logprobs", "judge_prompts"]
KEPT_PARTS: Final[tuple[KeptPart, ...]] = get_args(KeptPart)

KeepLevel = Literal["all", "texts"]
"""What stays of scored groups once they are reduced: `all` of it, or scores and `texts` only. What completions said
stays either way, so that a group can always be re-scored, labelled and exported."""

_DROPPED: Final[Mapping[KeepLevel, frozenset[KeptPart]]] = {
    "all": frozenset(),
    "texts": frozenset(("tokens", "logprobs", "judge_prompts")),
}


def list_dropped(level: KeepLevel) -> frozenset[KeptPart]:
    """The parts in whose place digests stand."""
    return _DROPPED[level]


def read_former_rule(rule: Mapping[str, object]) -> KeepLevel:
    """There were rules with a word for each part: `full`, `sample` or `digest`. One of them counts as the level that
    keeps more: a part of which it kept anything goes on being kept."""
    return "texts" if all(rule.get(part) == "digest" for part in _DROPPED["texts"]) else "all"


class PartDigest(Frozen):
    """Stands for a part that is not kept."""

    sha256: str
    """Of a text: of its bytes in UTF-8. Of a list of messages, thoughts or numbers: of its canonical JSON."""
    characters: Annotated[int | None, Field(exclude_if=is_absent)] = None
    """Of messages: of those that the model wrote."""
    count: Annotated[int | None, Field(exclude_if=is_absent)] = None
    """Of a list, how many there were in it."""


ReducedBy = Literal["run", "operator"]
"""Whose choice it was: the run's own `keep`, or the settings or a command of the operator."""


class ReducedCompletion(Frozen):
    """The parts of a completion that are not kept."""

    text: Annotated[PartDigest | None, Field(exclude_if=is_absent)] = None
    thought: Annotated[PartDigest | None, Field(exclude_if=is_absent)] = None
    tokens: Annotated[PartDigest | None, Field(exclude_if=is_absent)] = None
    logprobs: Annotated[PartDigest | None, Field(exclude_if=is_absent)] = None
    identity: Annotated[str, Field(exclude_if=not_)] = ""
    """Of a completion without its text or thought: the digest by which it is known when it is sent again."""
    by: ReducedBy
    at: datetime

    @property
    def missing(self) -> tuple[KeptPart, ...]:
        return tuple(part for part in KEPT_PARTS if getattr(self, part, None) is not None)


class ReducedReading(Frozen):
    """What a judge was asked and answered, where that is not kept."""

    prompt: Annotated[PartDigest | None, Field(exclude_if=is_absent)] = None
    raw: Annotated[PartDigest | None, Field(exclude_if=is_absent)] = None
    by: ReducedBy
    at: datetime


def digest_text(text: str) -> PartDigest:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return PartDigest(sha256=digest, characters=len(text))


def _digest_numbers(numbers: Sequence[float]) -> PartDigest:
    digest = hashlib.sha256(canonical_json(list(numbers)).encode()).hexdigest()
    return PartDigest(sha256=digest, count=len(numbers))


def count_written_characters(messages: Sequence[Message]) -> int:
    """Characters of the messages that the model wrote."""
    return sum(len(message.content or "") for message in messages if message.role == "assistant")


def reduce_completion(
    completion: Completion, parts: frozenset[KeptPart], before: ReducedCompletion | None, by: ReducedBy, at: datetime
) -> tuple[Completion, ReducedCompletion | None]:
    """The completion without these parts, and the digests of all parts that it is without; None for a whole one."""
    digests: dict[KeptPart, PartDigest] = {}
    changes: dict[str, object] = {}
    if "logprobs" in parts and completion.logprobs is not None:
        digests["logprobs"] = _digest_numbers(completion.logprobs)
        changes["logprobs"] = None
    if "tokens" in parts and completion.token_ids is not None:
        digests["tokens"] = _digest_numbers(completion.token_ids)
        changes["token_ids"] = None
    if not digests:
        return completion, before
    earlier = {} if before is None else dict(before)
    reduced = ReducedCompletion.model_validate(earlier | digests | {"by": by, "at": at})
    return completion.model_copy(update=changes), reduced
