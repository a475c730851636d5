"""Reduction: what stays of a scored group, part by part, and the digest that stands in the place of the rest.

A `KeepRule` of a run or of the operator says what stays. Statistics, rewards and the recognition of repeats work as
before on reduced groups, by sizes and digests; what needs the texts refuses them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import not_
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import Field, model_validator

from app.domain.tasks import Completion, Message
from app.domain.values import Frozen, Unit, canonical_json, is_absent

KeptPart = Literal["text", "thought", "tokens", "logprobs", "judge_prompts"]
KEPT_PARTS: Final[tuple[KeptPart, ...]] = get_args(KeptPart)

Keeping = Literal["full", "sample", "digest"]
"""`full` keeps a part, `digest` keeps a digest and a size in its place, `sample` keeps it in a share of the groups."""

_LEVELS: Final[Mapping[Keeping, int]] = {"digest": 0, "sample": 1, "full": 2}
_HANGS_ON: Final[Mapping[KeptPart, KeptPart]] = {"thought": "text", "logprobs": "tokens"}


class KeepRule(Frozen):
    """What stays of scored groups once they are reduced."""

    text: Keeping = "full"
    """What the model said. Without it a group can no longer be re-scored, labelled or exported."""
    thought: Keeping = "full"
    """`reasoning_content` of messages. It is kept no longer than the text."""
    tokens: Keeping = "full"
    """`token_ids`."""
    logprobs: Keeping = "full"
    """They are kept no longer than the tokens."""
    judge_prompts: Keeping = "full"
    """What judges were asked, and their answers as they gave them. Verdicts stay."""
    share: Unit = 0.05
    """The share of the groups in which `sample` keeps a part. It is drawn by the group's id: all parts, replicas and
    repeats draw the same groups."""

    @model_validator(mode="after")
    def _require_order(self) -> Self:
        for part, other in _HANGS_ON.items():
            mine, theirs = self.get(part), self.get(other)
            if _LEVELS[mine] > _LEVELS[theirs]:
                raise ValueError(f"{part} cannot be {mine!r} where {other} is {theirs!r}: it hangs on it, so set both")
        return self

    def get(self, part: KeptPart) -> Keeping:
        kept: Keeping = getattr(self, part)
        return kept

    @property
    def reducible(self) -> frozenset[KeptPart]:
        """The parts that do not stay in every group."""
        return frozenset(part for part in KEPT_PARTS if self.get(part) != "full")

    def choose_parts(self, group_id: str) -> frozenset[KeptPart]:
        """The parts that do not stay in this group."""
        if is_sampled(group_id, self.share):
            return frozenset(part for part in KEPT_PARTS if self.get(part) == "digest")
        return self.reducible


def is_sampled(group_id: str, share: float) -> bool:
    """Whether a group is one of those in which `sample` keeps a part."""
    draw = hashlib.sha256(f"keep {group_id}".encode("utf-8", "surrogatepass")).digest()[:8]
    return int.from_bytes(draw, "big") < share * 2**64


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


def _digest_messages(messages: Sequence[Message]) -> PartDigest:
    text = canonical_json([message.model_dump(mode="json", exclude={"reasoning_content"}) for message in messages])
    written = count_written_characters(messages)
    return PartDigest(sha256=hashlib.sha256(text.encode()).hexdigest(), characters=written, count=len(messages))


def _digest_thoughts(thoughts: Sequence[str]) -> PartDigest:
    digest = hashlib.sha256(canonical_json(list(thoughts)).encode()).hexdigest()
    return PartDigest(sha256=digest, characters=sum(map(len, thoughts)), count=len(thoughts))


def count_written_characters(messages: Sequence[Message]) -> int:
    """Characters of the messages that the model wrote."""
    return sum(len(message.content or "") for message in messages if message.role == "assistant")


def _describe_missing_text(digest: PartDigest) -> str:
    """Stands where a text is expected, for readers that know nothing of reduced groups."""
    return f"[this text is not kept: {digest.characters} characters, sha256 {digest.sha256}]"


def reduce_completion(
    completion: Completion, parts: frozenset[KeptPart], before: ReducedCompletion | None, by: ReducedBy, at: datetime
) -> tuple[Completion, ReducedCompletion | None]:
    """The completion without these parts, and the digests of all parts that it is without; None for a whole one."""
    # Before anything goes, since a repeat must be recognised afterwards.
    identity = before.identity if before is not None and before.identity else completion.identity_digest
    digests: dict[KeptPart, PartDigest] = {}
    messages = completion.messages or ()
    thoughts = [one.reasoning_content for one in messages if one.reasoning_content is not None]
    changes: dict[str, object] = {}
    if "thought" in parts and thoughts:
        digests["thought"] = _digest_thoughts(thoughts)
        changes["messages"] = tuple(one.model_copy(update={"reasoning_content": None}) for one in messages)
    if "text" in parts and (before is None or before.text is None):
        text = _digest_messages(messages) if completion.text is None else digest_text(completion.text)
        digests["text"] = text
        changes |= {"messages": None, "text": _describe_missing_text(text)}
    if "logprobs" in parts and completion.logprobs is not None:
        digests["logprobs"] = _digest_numbers(completion.logprobs)
        changes["logprobs"] = None
    if "tokens" in parts and completion.token_ids is not None:
        digests["tokens"] = _digest_numbers(completion.token_ids)
        changes["token_ids"] = None
    if not digests:
        return completion, before
    changed = {"thought", "text"} & digests.keys()
    earlier = {} if before is None else dict(before)
    marks = {"identity": identity if changed or earlier.get("identity") else "", "by": by, "at": at}
    return completion.model_copy(update=changes), ReducedCompletion.model_validate(earlier | digests | marks)
