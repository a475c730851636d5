"""What labelling stores, asks and answers: the queue, the labels, and the items that people see.

Nothing in an item tells what a judge thinks of it, or whose replies they are.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

from pydantic import Field

from app.domain.judging import Rubric
from app.domain.labels import (
    Arm,
    ArmCounts,
    Label,
    LabelKind,
    LabelledGroupRecord,
    NamedLabeller,
    ReplyLabel,
)
from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Passage, ToolSpec
from app.domain.values import FiniteJson, FiniteNumber, Frozen, Name
from app.toolkit.thoughts import strip_thinking

LeaseSeconds = Annotated[FiniteNumber, Field(ge=10, le=86_400)]


class ItemRequest(NamedLabeller):
    """Who wants to label what."""

    environment: Annotated[str, Field(max_length=100)] | None = None
    """Only groups of this environment; left out, of all that judges score."""
    run: Name | None = None
    """Only groups of this run."""
    lease_seconds: LeaseSeconds = 1800.0
    """How long nobody else gets the item."""


class SkipRequest(NamedLabeller):
    lease_id: Annotated[str, Field(max_length=64)]


class ItemCriterion(Frozen):
    name: str
    description: str
    anchors: dict[int, str]
    """What a level from 0 to 4 means."""


class ItemDefect(Frozen):
    code: str
    description: str


class ItemRubric(Frozen):
    """What the labeller goes by. Weights are left out."""

    name: str
    version: str
    criteria: tuple[ItemCriterion, ...]
    defects: tuple[ItemDefect, ...]

    @classmethod
    def from_rubric(cls, rubric: Rubric) -> "ItemRubric":
        return cls(
            name=rubric.name,
            version=rubric.version,
            criteria=tuple(
                ItemCriterion(name=one.name, description=one.description, anchors=dict(one.anchors))
                for one in rubric.criteria
            ),
            defects=tuple(ItemDefect(code=one.code, description=one.description) for one in rubric.defects),
        )


class ShownReply(Frozen):
    rollout_id: str
    messages: tuple[Message, ...]
    """Without the model's thinking."""


class LabelItem(Frozen):
    """What a labeller sees. The replies are in an order of this lease alone."""

    lease_id: str
    expires_at: datetime
    group_id: str
    environment: str
    language: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    metadata: dict[str, FiniteJson]
    passages: tuple[Passage, ...]
    rubric: ItemRubric | None
    replies: tuple[ShownReply, ...]


class NextItem(Frozen):
    """Null with the reason where there is no item."""

    item: LabelItem | None
    reason: str = ""


class LabelReceipt(Frozen):
    """What was stored. It says nothing of how the queue came to the item, since that tells of its scores."""

    label_id: str
    kind: LabelKind
    labeller: str
    on_behalf_of: str
    verified: bool
    group_id: str
    order: tuple[tuple[str, ...], ...]
    replies: dict[str, ReplyLabel]
    judge: dict[str, Score] | None = None
    """The scores by rollout id, where they were asked for and the item waits for nobody else."""
    judge_hidden: str = ""
    """Why the scores that were asked for are not shown."""

    @classmethod
    def from_label(cls, label: Label, scores: Mapping[str, Score] | None, *, asked: bool) -> "LabelReceipt":
        hidden = ""
        if asked and scores is None:
            picked = "only items of the queue show their scores"
            hidden = picked if label.kind == "own_pick" else "somebody else is still to label this item"
        return cls(
            label_id=label.label_id,
            kind=label.kind,
            labeller=label.labeller,
            on_behalf_of=label.on_behalf_of,
            verified=label.verified,
            group_id=label.group_id or "",
            order=label.order,
            replies=label.replies,
            judge=None if scores is None else dict(scores),
            judge_hidden=hidden,
        )


class LabelEvidence(Frozen):
    """What agreement with a judge is measured from."""

    records: tuple[LabelledGroupRecord, ...]
    labels: dict[str, int]
    draws: dict[Arm, ArmCounts]


class LabelProgress(Frozen):
    """How far the labelling of one or all environments, of one or all runs, has come."""

    labelled: int
    """Items with a label, second labels included."""
    skipped: int
    left: int
    """Groups that the labeller who asks may still get."""
    groups: int


class ImportReceipt(Frozen):
    added: int
    known: int
    """Already stored, or twice in the request."""


class WithdrawnLabel(Frozen):
    label_id: str
    lease_id: str | None
    """Of the item that the labeller holds again; null for an `own_pick`, and where an admin took another's label back:
    then the item is in the queue again."""


def show_messages(completion: Completion) -> tuple[Message, ...]:
    """Without thinking, which judges do not read either."""
    spoken = completion.messages or (Message(role="assistant", content=completion.text or ""),)
    return tuple(map(_leave_out_thinking, spoken))


def _leave_out_thinking(message: Message) -> Message:
    is_reply = message.role == "assistant" and message.content is not None
    content = strip_thinking(message.content or "").text.strip() if is_reply else message.content
    return message.model_copy(update={"reasoning_content": None, "content": content})
