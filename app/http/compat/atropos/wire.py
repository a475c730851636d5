"""The JSON messages of Atropos 0.4.0, key by key. Unknown keys are dropped, as in Atropos."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_serializer, model_validator
from pydantic_core import PydanticCustomError

from app.domain.values import FiniteJson

Message = dict[str, FiniteJson]
Rows = list[list[float]]


def _require_role_and_content(messages: list[list[Message]]) -> list[list[Message]]:
    for message in (message for sequence in messages for message in sequence):
        if "role" not in message or "content" not in message:
            raise ValueError("Message must have 'role' and 'content' fields")
    return messages


class ScoredData(BaseModel):
    """A group of N sequences. `tokens` and `masks` are N x T integers, where T differs by sequence; `scores` has N
    numbers; `advantages`, `ref_logprobs` and `inference_logprobs` are N x T; both distillation fields are N x T x K.
    Missing logprobs may be an empty list."""

    model_config = ConfigDict(allow_inf_nan=False, extra="allow")

    tokens: list[list[int]]
    masks: list[list[int]]
    scores: list[float]
    advantages: Rows | None = None
    ref_logprobs: Rows | None = None
    messages: Annotated[list[list[Message]], AfterValidator(_require_role_and_content)] | None = None
    generation_params: Message | None = None
    inference_logprobs: Rows | None = None
    overrides: list[Message] | None = None
    group_overrides: Message | None = None
    images: FiniteJson | None = None
    env_id: int | None = None
    distill_token_ids: list[list[list[int]]] | None = None
    distill_logprobs: list[list[list[float]]] | None = None

    @field_serializer("inference_logprobs")
    def _replace_null(self, rows: Rows | None) -> Rows:
        """Atropos' `null` makes its own example trainer fail."""
        return rows or []

    @model_validator(mode="after")
    def _check_shapes(self) -> Self:
        fault = next(find_faults(self), None)
        if fault is not None:
            field, message = fault
            raise PydanticCustomError("shape", "{field}: {message}", {"field": field, "message": message})
        return self


def find_faults(group: ScoredData) -> Iterator[tuple[str, str]]:
    """Yields each field whose shape does not match, with the reason."""
    lengths = [len(tokens) for tokens in group.tokens]
    if not lengths:
        yield "tokens", "a group has at least one sequence"
    if 0 in lengths:
        yield f"tokens[{lengths.index(0)}]", "a sequence has at least one token"
    if len(group.scores) != len(lengths):
        yield "scores", f"{len(group.scores)} scores for {len(lengths)} sequences"
    yield from _check_rows("masks", group.masks, lengths)
    for name in ("advantages", "ref_logprobs", "inference_logprobs"):
        rows: Rows | None = getattr(group, name)
        if rows and any(rows):
            yield from _check_rows(name, rows, lengths)
    for name in ("messages", "overrides"):
        items: Sequence[object] | None = getattr(group, name)
        if items and len(items) != len(lengths):
            yield name, f"{len(items)} items for {len(lengths)} sequences"
    yield from _check_distillation(group, lengths)


def _check_rows(name: str, rows: Sequence[Sequence[object]], lengths: Sequence[int]) -> Iterator[tuple[str, str]]:
    if len(rows) != len(lengths):
        yield name, f"{len(rows)} rows for {len(lengths)} sequences"
    for place, (row, length) in enumerate(zip(rows, lengths, strict=False)):
        if len(row) != length:
            yield f"{name}[{place}]", f"{len(row)} values for {length} tokens"


def _check_distillation(group: ScoredData, lengths: Sequence[int]) -> Iterator[tuple[str, str]]:
    ids, logprobs = group.distill_token_ids, group.distill_logprobs
    for name, rows in (("distill_token_ids", ids), ("distill_logprobs", logprobs)):
        if rows and any(rows):
            yield from _check_rows(name, rows, lengths)
    if (
        ids
        and logprobs
        and [[len(top) for top in row] for row in ids] != [[len(top) for top in row] for row in logprobs]
    ):
        yield "distill_logprobs", "must have the shape of distill_token_ids"


class EnvIdentifier(BaseModel):
    env_id: int


class Root(BaseModel):
    message: str = "AtroposLib API"


class TrainerRegistered(BaseModel):
    uuid: int
    """128 bits, as a JSON number."""


class WaitForTrainer(BaseModel):
    status: str = "wait for trainer to start"


class EnvJoined(BaseModel):
    status: Literal["success"] = "success"
    env_id: int
    wandb_name: str
    checkpoint_dir: str
    starting_step: int
    checkpoint_interval: int
    num_steps: int


class Success(BaseModel):
    status: Literal["success"] = "success"


class Failure(BaseModel):
    status: Literal["failure"] = "failure"
    error: str


class WandbInfo(BaseModel):
    group: str | None
    project: str | None


class Info(BaseModel):
    batch_size: int
    max_token_len: int


class Received(BaseModel):
    status: Literal["received"] = "received"


class ReceivedList(BaseModel):
    status: Literal["received"] = "received"
    groups_processed: int


class Status(BaseModel):
    current_step: int
    queue_size: int


class EnvStatus(BaseModel):
    current_step: int
    queue_size: int
    unallocated_fraction: float
    self_queue_size: int
    max_group_size: int
    env_weight: float


class BatchExplanation(BaseModel):
    """Why there is no batch yet. Not part of Atropos."""

    run: str
    ready: bool
    why: str = Field(examples=["The queue has 8 of the 16 sequences of a batch."])
    notes: tuple[str, ...] = ()
    current_step: int
    queue_size: int
    """Groups that wait or will be sent again."""
    sequences: int
    """Sequences in these groups."""
    mean_lag: float | None
    """Steps since the groups in the queue were posted; null without groups that were posted to a registered trainer."""
    max_lag: int | None
    older_policy: int
    """Groups that were posted at a later step than the present one, as after a restart from an older checkpoint. They
    are in neither figure."""
