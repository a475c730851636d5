"""What a reset may ask for: which task, for which run, and whom its answer is compared with."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, JsonValue, ValidationError, model_validator

from app.domain.runs import Policy, Purpose
from app.domain.values import FiniteJson, FiniteNumber, Frozen, Name, Split, WholeNumber
from app.http.compat.openenv.frames import FrameRefused
from app.http.web.problems import field_path
from app.service.requests import Cursor, LeaseSeconds, Select, TaskId

MAX_GROUP: Final = 256

Printable = Annotated[str, Field(max_length=255, pattern=r"^[^\x00-\x1f\x7f]*$")]


class Siblings(Frozen):
    """Episodes over the same task that are judged together."""

    key: Annotated[Printable, Field(max_length=200)] = ""
    """Tells groups over the same task apart; resets with the same key are given the same task."""
    size: Annotated[WholeNumber, Field(ge=1, le=MAX_GROUP)]


class Reset(Frozen):
    """Everything is optional. A `task_id`, an `index` or a `seed` says which task; with a `run` alone one is leased."""

    seed: Annotated[WholeNumber, Field(ge=0, lt=2**64)] | None = None
    """The same seed is the same task, always."""
    episode_id: Printable | None = None
    """Given back by `state`; made up where there is none."""
    run: Name | None = None
    """Your job's name, under which scores are kept."""
    split: Split = "train"
    params: dict[str, FiniteJson] = {}
    """Of the environment; see its entry in the catalogue."""
    select: Select = Select()
    task_id: TaskId | None = None
    """One that was handed out before, over whichever door."""
    index: Cursor | None = None
    """A place in the order of tasks; past the last one of a test split there is none."""
    group: Siblings | None = None
    group_size: Annotated[WholeNumber, Field(ge=1, le=MAX_GROUP)] | None = None
    """`group` without a key."""
    policy: Policy | None = None
    purpose: Purpose = "train"
    lease_seconds: LeaseSeconds = 600.0
    gather_seconds: Annotated[FiniteNumber, Field(ge=0, le=600)] = 20.0
    """How long the other members of a group are waited for, from the first last step."""
    wait_seconds: Annotated[FiniteNumber, Field(gt=0, le=600)] = 50.0
    """The longest that a last step takes to be answered. OpenEnv's clients wait for 60."""
    unscored: Literal["error", "null"] = "error"
    """What the last step is answered with when the service has no score: an error, after which the same step may be
    sent again, or a reward of null."""

    @model_validator(mode="after")
    def _one_task(self) -> Self:
        named = [name for name in ("task_id", "index", "seed") if getattr(self, name) is not None]
        if self.task_id is not None and self.index is not None:
            raise ValueError("give one of task_id and index")
        if self.group is not None and self.group_size is not None:
            raise ValueError("give one of group and group_size")
        if self.siblings.size > 1 and not named and not self.siblings.key:
            raise ValueError(
                "members of a group need the same task: give all of them the same seed, index, task_id or group.key"
            )
        if self.purpose == "eval" and not named:
            raise ValueError("an evaluation says which task: give a seed, an index or a task_id")
        return self

    @property
    def siblings(self) -> Siblings:
        return self.group or Siblings(size=self.group_size or 1)


def read_reset(data: dict[str, JsonValue]) -> Reset:
    """FrameRefused naming the fields that are unknown or wrong; null is the same as absent."""
    try:
        return Reset.model_validate({name: value for name, value in data.items() if value is not None})
    except (ValidationError, RecursionError) as error:
        raise FrameRefused("VALIDATION_ERROR", faults_of(error)) from None


def faults_of(error: ValidationError | RecursionError) -> str:
    """Names fields, and repeats nothing that they hold."""
    if isinstance(error, RecursionError):
        return "data is nested too deeply"
    found = error.errors(include_url=False, include_input=False, include_context=False)
    told = [f"{field_path(item['loc'])}: {item['msg'].removeprefix('Value error, ')}" for item in found[:8]]
    return "; ".join(one.removeprefix(": ") for one in told)
