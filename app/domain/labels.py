"""What people say about replies: labels, the queue that asks for them, and choices that they made elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, Literal, Self, TypedDict

from pydantic import AfterValidator, Field, model_validator

from app.domain.access import Caller
from app.domain.errors import InvalidRequest
from app.domain.judging import RubricLabel
from app.domain.tasks import Message, ToolCall, ToolSpec
from app.domain.values import FiniteNumber, Frozen, WholeNumber, is_absent, require_encodable

LabellerName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._@-]{0,63}$",
        description="Who labels, where the service has no keys. It proves nothing. With a key, the key's name is it.",
    ),
]
PersonName = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._@-]{0,63}$",
        description="Whom the caller labels for: people who share a key or a tool stay apart by it.",
    ),
]
LabelKind = Literal["queue", "own_pick", "pair", "implicit", "edit"]
"""`queue`: of an item that the queue chose, blind. `own_pick`: of a group that the labeller chose. `pair`: imported.
`implicit`: the reply of a chat that its player went on with. `edit`: a reply of a chat that its player rewrote. Only
`queue` is in figures, and of that what was drawn uniformly."""
Arm = Literal["uniform", "doubtful"]
"""`uniform`: each group of the filter was equally likely, so these alone say something of all groups. `doubtful`: a
group of whose replies the judges were least certain."""
FORMER_ARMS: Final[Mapping[str, Arm]] = {"random": "uniform", "targeted": "doubtful"}
"""The arms as draws that were stored earlier name them."""
LabelState = Literal["live", "replaced", "withdrawn"]

LEVELS_OF_LABELS = 5
Text = Annotated[str, Field(max_length=4000), AfterValidator(require_encodable)]
LongText = Annotated[str, Field(max_length=200_000), AfterValidator(require_encodable)]
RolloutId = Annotated[str, Field(max_length=64)]
Level = Annotated[WholeNumber, Field(ge=0, le=LEVELS_OF_LABELS - 1)]


class LabellerFields(TypedDict):
    """As `ByLabeller` has them."""

    labeller: str
    on_behalf_of: str
    verified: bool


@dataclass(frozen=True)
class Labeller:
    """Who labels, and whom for. Two are the same person where all of it is."""

    name: str
    """Of the caller's key, or of whom a proxy signs in. Where the service has no keys, any that is given."""
    on_behalf_of: str = ""
    verified: bool = False
    """The name is the caller's own, and not one that anybody may give."""

    @property
    def fields(self) -> LabellerFields:
        return {"labeller": self.name, "on_behalf_of": self.on_behalf_of, "verified": self.verified}

    def owns(self, made: "ByLabeller") -> bool:
        """Whoever shares a key or a tool owns what was made with it, for whomever."""
        return (self.name, self.verified) == (made.labeller, made.verified)


def find_labeller(caller: Caller | None, name: str | None, on_behalf_of: str | None) -> Labeller:
    """The caller. `name` counts where no key is needed alone. InvalidRequest for another name than the key's, and for
    none where there is no key."""
    if caller is None:
        if name is None:
            raise InvalidRequest("say who labels: this service has no keys that would tell", field="labeller")
        return Labeller(name, on_behalf_of or "")
    if name is not None and name != caller.name:
        raise InvalidRequest(
            f"you label as {caller.name!r}, the name of your key: leave `labeller` out, and say in `on_behalf_of` whom "
            "you label for",
            field="labeller",
        )
    return Labeller(caller.name, on_behalf_of or "", verified=True)


class ByLabeller(Frozen):
    """What somebody made, labelled or holds."""

    labeller: str
    """The name of a key, or one that was given where the service had no keys."""
    on_behalf_of: str = ""
    """Whom it was made for, as the caller said; empty where nobody was named."""
    verified: bool = False
    """The labeller is a key, and no name that anybody could give."""

    @property
    def by(self) -> Labeller:
        return Labeller(self.labeller, self.on_behalf_of, self.verified)


class NamedLabeller(Frozen):
    """Who labels, as far as a request says. With a key, the caller is the labeller."""

    labeller: LabellerName | None = None
    on_behalf_of: PersonName | None = None


class ReplyLabel(Frozen):
    """What a person says of one reply."""

    levels: Annotated[dict[Annotated[str, Field(max_length=100)], Level | None], Field(max_length=64)] = {}
    """By criterion, 0 to 4; null where the criterion does not apply."""
    defect: bool | None = None
    """Whether the reply has a defect for which it should get little or nothing; null where nothing is said."""


class PreferredPair(Frozen):
    better: RolloutId
    worse: RolloutId


class QueueDraw(Frozen):
    """How the queue came to an item."""

    lease_id: str
    arm: Arm
    probability: Annotated[float, Field(gt=0, le=1)] | None = None
    """With which an earlier version's draw chose this group; draws are plain now, and record none."""
    second: bool = False
    """The item had a label of somebody else, who was not shown to this labeller."""

    @model_validator(mode="before")
    @classmethod
    def _read_former(cls, draw: object) -> object:
        """Draws that were stored earlier hold more, and name the arms otherwise."""
        if not isinstance(draw, Mapping):
            return draw
        kept = {name: value for name, value in draw.items() if name not in _FORMER_PARTS}
        return kept | {"arm": FORMER_ARMS.get(str(kept.get("arm")), kept.get("arm"))}


_FORMER_PARTS: Final = frozenset({"reasons", "other_probability", "population"})


class ImportedChoice(Frozen):
    """A choice that was made elsewhere, with the chat's own prompt."""

    prompt: Annotated[tuple[Message, ...], Field(min_length=1, max_length=5000)]
    chosen: LongText
    rejected: Annotated[tuple[LongText, ...], Field(min_length=1, max_length=200)]
    chat: Text = ""
    """What the choices of one chat have in common. They are no independent evidence."""
    source: Text = ""
    """File and line."""
    place: int | None = None
    """Which of the offered replies was chosen, from 0. People stop at the first good one."""
    tools: Annotated[tuple[ToolSpec, ...], Field(max_length=100, exclude_if=is_absent)] = ()
    """What could be called beside the words."""
    chosen_calls: Annotated[tuple[ToolCall, ...], Field(max_length=100, exclude_if=is_absent)] = ()
    """What was called beside the chosen words."""
    rejected_calls: Annotated[
        tuple[Annotated[tuple[ToolCall, ...], Field(max_length=100)], ...],
        Field(max_length=200, exclude_if=is_absent),
    ] = ()
    """In the order of `rejected`; empty where nothing was called."""
    chosen_model: Text = ""
    rejected_models: Annotated[tuple[Text, ...], Field(max_length=200)] = ()
    """In the order of `rejected`; empty where the file does not say."""
    may_be_edited: bool = False
    """Something in the chat was edited, and no message says what: the chosen text may be the player's own."""


class ImportedLabel(Frozen):
    kind: Literal["pair", "implicit", "edit"]
    choice: ImportedChoice
    language: Annotated[str, Field(max_length=20)] = ""


class ImportRequest(NamedLabeller):
    """Choices that were made elsewhere. What is stored already is left as it is."""

    choices: Annotated[tuple[ImportedLabel, ...], Field(min_length=1, max_length=1000)]


class Label(ByLabeller):
    """One person's label of one group, or one choice that was imported."""

    label_id: str
    kind: LabelKind
    state: LabelState = "live"
    group_id: str | None = None
    environment: str = ""
    run: str | None = None
    order: tuple[tuple[str, ...], ...] = ()
    """Rollout ids, best first; those in one list are equally good. Empty where nothing was compared."""
    replies: dict[str, ReplyLabel] = {}
    """By rollout id."""
    seconds: FiniteNumber | None = None
    """How long the labeller took."""
    rubric: RubricLabel | None = None
    """The rubric that the labeller had; null where none was shown."""
    language: str = ""
    comment: str = ""
    saw_judge: bool = False
    """The labeller has seen the scores since, so the label stays as it is."""
    draw: QueueDraw | None = None
    choice: ImportedChoice | None = None
    created_at: datetime


class LabelRequest(NamedLabeller):
    """What both routes take."""

    lease_id: Annotated[str, Field(max_length=64)] | None = None
    """Of the item that the queue gave. Without it the label is an `own_pick`, which is in no figure."""
    seconds: Annotated[FiniteNumber, Field(ge=0, le=86_400)] | None = None
    rubric_version: Annotated[str, Field(max_length=100)] | None = None
    """Of the rubric that the labeller had. Refused (409) if it is not the item's any more."""
    comment: Text = ""
    show_judge: bool = False
    """Answer with the scores, if the item waits for nobody else. The label can then not be changed any more."""


class GroupLabelRequest(LabelRequest):
    """A label of a group: an order or a pair, and what there is to say of single replies."""

    order: Annotated[tuple[Annotated[tuple[RolloutId, ...], Field(min_length=1)], ...], Field(max_length=1024)] = ()
    """Best first; ids in one list are equally good. It may leave replies out."""
    pair: PreferredPair | None = None
    """A short form of an order of two."""
    replies: Annotated[dict[RolloutId, ReplyLabel], Field(max_length=1024)] = {}

    @model_validator(mode="after")
    def _require_content(self) -> Self:
        if self.pair is not None and self.order:
            raise ValueError("give an order or a pair, not both")
        if self.pair is not None and self.pair.better == self.pair.worse:
            raise ValueError("pair: both ids are the same")
        if self.pair is None and not self.order and not self.replies:
            raise ValueError("the label is empty: give an order, a pair or replies")
        named = [one for tier in self.order for one in tier]
        if len(named) != len(set(named)):
            raise ValueError("order: an id is there more than once")
        if self.order and len(named) < 2:
            raise ValueError("order: name at least two replies")
        return self

    @property
    def tiers(self) -> tuple[tuple[str, ...], ...]:
        return self.order if self.pair is None else ((self.pair.better,), (self.pair.worse,))


class ReplyLabelRequest(LabelRequest, ReplyLabel):
    """A label of one reply."""

    @model_validator(mode="after")
    def _require_content(self) -> Self:
        if not self.levels and self.defect is None:
            raise ValueError("the label is empty: give levels or defect")
        return self


class LabelLease(ByLabeller):
    """Who holds an item, and until when."""

    lease_id: str
    group_id: str
    environment: str
    run: str | None
    draw: QueueDraw
    wanted: int
    """How many people are to label the item."""
    state: Literal["live", "done", "skipped", "expired"]
    expires_at: datetime


class ArmCounts(Frozen):
    """Leases of one arm: how they ended."""

    labelled: int = 0
    skipped: int = 0


class LabelledGroupRecord(Frozen):
    """The labels of one group that the queue drew uniformly, oldest first, with what a judge made of it."""

    task_id: str
    labels: tuple[Label, ...]
    rewards: dict[str, FiniteNumber]
    """By rollout id; those without one are left out."""
    absolutes: dict[str, FiniteNumber] = {}
    levels: dict[str, dict[str, FiniteNumber]] = {}
    """By rollout id and criterion, in [0, 1]."""
    gated: tuple[str, ...] = ()
    capped: tuple[str, ...] = ()
    with_others: bool = False
    """The scores are those of a panel of several judges."""
