"""The fields of a reset: the task, the run, and the group in which its answer is compared."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, JsonValue, ValidationError, model_validator

from app.domain.runs import Policy, Purpose
from app.domain.values import FiniteJson, FiniteNumber, Frozen, Name, Split, WholeNumber
from app.http.compat.openenv.frames import FrameRefused
from app.http.web.problems import format_field_path
from app.service.request_models import Cursor, LeaseSeconds, TaskId, TaskSelection

MAX_GROUP: Final = 256

Printable = Annotated[str, Field(max_length=255, pattern=r"^[^\x00-\x1f\x7f]*$")]


class Siblings(Frozen):
    """Episodes over the same task that are judged together."""

    key: Annotated[Printable, Field(max_length=200)] = ""
    """Separates groups over the same task; resets with the same key get the same task."""
    size: Annotated[WholeNumber, Field(ge=1, le=MAX_GROUP)]


class Reset(Frozen):
    """Every field is optional. `task_id`, `index` or `seed` selects the task; with only a `run`, a task is leased."""

    seed: Annotated[WholeNumber, Field(ge=0, lt=2**64)] | None = None
    """The same seed always gives the same task."""
    episode_id: Printable | None = None
    """Returned by `state`; generated if it is missing. Of an episode whose connection was lost: continues it."""
    run: Name | None = None
    """Run name to store results under."""
    split: Split = "train"
    params: dict[str, FiniteJson] = {}
    """The environment's params; see its entry in the catalogue."""
    select: TaskSelection = TaskSelection()
    task_id: TaskId | None = None
    """A task that was handed out before, over any API."""
    index: Cursor | None = None
    """Position in the order of tasks; a test split ends after its last task."""
    group: Siblings | None = None
    group_size: Annotated[WholeNumber, Field(ge=1, le=MAX_GROUP)] | None = None
    """`group` without a key."""
    policy: Policy | None = None
    purpose: Purpose = "train"
    lease_seconds: LeaseSeconds = 600.0
    gather_seconds: Annotated[FiniteNumber, Field(ge=0, le=600)] = 20.0
    """How long to wait for the other members of a group, from the first one's last step."""
    wait_seconds: Annotated[FiniteNumber, Field(gt=0, le=600)] = 50.0
    """Maximum seconds until the last step is answered. OpenEnv's clients time out after 60."""
    unscored: Literal["error", "null"] = "error"
    """The response to the last step if there is no score: an error, after which the same step can be sent again, or a
    reward of null."""

    @model_validator(mode="after")
    def _check_task_choice(self) -> Self:
        named = [name for name in ("task_id", "index", "seed") if getattr(self, name) is not None]
        if self.task_id is not None and self.index is not None:
            raise ValueError("give either task_id or index")
        if self.group is not None and self.group_size is not None:
            raise ValueError("give either group or group_size")
        if self.siblings.size > 1 and not named and not self.siblings.key:
            raise ValueError(
                "members of a group need the same task: give all of them the same seed, index, task_id or group.key"
            )
        if self.purpose == "eval" and not named:
            raise ValueError("an evaluation needs a seed, an index or a task_id")
        return self

    @property
    def siblings(self) -> Siblings:
        return self.group or Siblings(size=self.group_size or 1)


def read_reset(data: dict[str, JsonValue]) -> Reset:
    """Parses a reset; null counts as absent. Raises FrameRefused naming the unknown or invalid fields."""
    try:
        return Reset.model_validate({name: value for name, value in data.items() if value is not None})
    except (ValidationError, RecursionError) as error:
        raise FrameRefused("VALIDATION_ERROR", describe_faults(error)) from None


def describe_faults(error: ValidationError | RecursionError) -> str:
    """Names the invalid fields without their values."""
    if isinstance(error, RecursionError):
        return "data is nested too deeply"
    found = error.errors(include_url=False, include_input=False, include_context=False)
    told = [f"{format_field_path(item['loc'])}: {item['msg'].removeprefix('Value error, ')}" for item in found[:8]]
    return "; ".join(one.removeprefix(": ") for one in told)
