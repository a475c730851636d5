"""What labelling stores, asks and answers: the queue, the labels, and the items that people see.

Nothing in an item tells what a judge thinks of it, or whose replies they are.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Protocol

from pydantic import Field

from app.domain.judging import Rubric
from app.domain.labels import (
    Arm,
    ArmCounts,
    ItemCandidate,
    Label,
    LabelKind,
    LabelLease,
    LabelledGroupRecord,
    LabellerName,
    QueueStratum,
    ReplyLabel,
)
from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Passage, ToolSpec
from app.domain.values import FiniteJson, FiniteNumber, Frozen, Name
from app.toolkit.answers import strip_thinking


class LabelQueue(Protocol):
    """Items that people hold, have labelled or have skipped."""

    async def list_strata(self, environments: Sequence[str], run: str | None, labeller: str) -> list[QueueStratum]:
        """The runs of these environments with scored groups; only this run, if one is given."""

    async def draw_candidates(self, stratum: QueueStratum, labeller: str, most: int) -> list[ItemCandidate]:
        """At most so many of the groups that are left, each with the same chance."""

    async def find_held(self, labeller: str, environments: Sequence[str], run: str | None) -> LabelLease | None:
        """The oldest item that the labeller holds."""

    async def find_awaiting_second(
        self, labeller: str, environments: Sequence[str], run: str | None
    ) -> LabelLease | None:
        """The first lease of an item that waits for the label of a second person, who may be this one."""

    async def claim(self, lease: LabelLease, seconds: float) -> LabelLease | None:
        """None when somebody else has taken the item."""

    async def renew(self, lease: LabelLease, seconds: float) -> LabelLease | None:
        """None when its time is over: somebody else may have taken the item."""

    async def find_lease(self, lease_id: str) -> LabelLease | None: ...

    async def skip(self, lease_id: str, labeller: str) -> LabelLease:
        """Conflict when somebody else holds the item or it has its label."""

    async def count_arms(self, environments: Sequence[str], run: str | None) -> dict[Arm, ArmCounts]: ...


class LabelStore(Protocol):
    """Labels with their history, and choices that were made elsewhere."""

    async def put(self, label: Label, lease_id: str | None, *, merge: bool, show_judge: bool) -> Label:
        """Stores a label in place of the labeller's earlier one; `merge` keeps what the new one does not say. A label
        that says the same again is not stored again. Conflict when the lease is somebody else's or over, and when the
        labeller has seen the scores. `saw_judge` of the result says whether the scores may be shown: not while the item
        waits for others."""

    async def withdraw(self, label_id: str, labeller: str, seconds: float) -> Label:
        """The labeller holds the item again for so many seconds."""

    async def find(self, label_id: str) -> Label | None: ...

    async def add_imported(self, imported: Sequence[Label]) -> list[str]:
        """The ids of those that were not stored before."""

    async def replace_choice(self, labeller: str, chat: str, choice: Label | None) -> None:
        """Stores this choice of a pair in place of all others that the labeller made in the chat, in one step. None
        only withdraws them."""

    async def list_labels(
        self, environment: str | None, run: str | None, after: int, limit: int
    ) -> list[tuple[int, Label]]:
        """Live labels with their sequences, in order."""

    async def list_of_group(self, group_id: str, limit: int) -> list[Label]:
        """Live labels, newest first."""

    async def count_labels(self) -> dict[str, int]:
        """By kind."""

    async def find_mark(self, environment: str) -> tuple[int, int]:
        """Changes with every label of the environment that is stored, replaced or withdrawn."""

    async def list_labelled(
        self, judge: str, environments: Sequence[str], run: str | None
    ) -> list[LabelledGroupRecord]:
        """Groups with labels from the queue that this judge has scored, in the order of their first labels."""


LeaseSeconds = Annotated[FiniteNumber, Field(ge=10, le=86_400)]


class ItemRequest(Frozen):
    """Who wants to label what."""

    labeller: LabellerName
    environment: Annotated[str, Field(max_length=100)] | None = None
    """Only groups of this environment; left out, of all that judges score."""
    run: Name | None = None
    """Only groups of this run."""
    lease_seconds: LeaseSeconds = 1800.0
    """How long nobody else gets the item."""


class SkipRequest(Frozen):
    labeller: LabellerName
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
    """Of the item that the labeller holds again; null for an `own_pick`."""


def show_messages(completion: Completion) -> tuple[Message, ...]:
    """Without thinking, which judges do not read either."""
    spoken = completion.messages or (Message(role="assistant", content=completion.text or ""),)
    return tuple(map(_leave_out_thinking, spoken))


def _leave_out_thinking(message: Message) -> Message:
    is_reply = message.role == "assistant" and message.content is not None
    content = strip_thinking(message.content or "").text.strip() if is_reply else message.content
    return message.model_copy(update={"reasoning_content": None, "content": content})
