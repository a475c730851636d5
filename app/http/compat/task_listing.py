"""Lists of tasks by their places, for the interfaces that have them: OpenEnv's and the Open Reward Standard's."""

from typing import Annotated, Final

from pydantic import Field, JsonValue
from starlette.exceptions import HTTPException

from app.domain.errors import InvalidRequest
from app.domain.values import Frozen, Split, WholeNumber
from app.service.catalogue import Catalogue

MAX_LISTED: Final = 10_000


class SplitReference(Frozen):
    split: Split


class SplitEntry(Frozen):
    name: Split
    type: Split


SPLITS: Final = [SplitEntry(name="train", type="train"), SplitEntry(name="test", type="test")]


class TaskReference(SplitReference):
    index: Annotated[WholeNumber, Field(ge=0, le=2**40)]


class TaskRange(SplitReference):
    start: Annotated[WholeNumber, Field(ge=0, le=2**40)] | None = None
    stop: Annotated[WholeNumber, Field(ge=0, le=2**40)] | None = None


class TaskListing(Frozen):
    """Each task can begin an episode."""

    tasks: tuple[TaskReference, ...]
    env_name: str


class TaskReply(Frozen):
    task: TaskReference


class TaskCount(Frozen):
    num_tasks: int


class TaskLister:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def count_tasks(self, environment: str, split: Split, params: dict[str, JsonValue]) -> int | None:
        """None for a split without end."""
        hosted = self._catalogue.get_environment_or_current(environment)
        return hosted.environment.size(split, hosted.validate_params(params))

    def get_task(self, environment: str, task: TaskReference, params: dict[str, JsonValue]) -> TaskReply:
        end = self.count_tasks(environment, task.split, params)
        if end is not None and task.index >= end:
            raise InvalidRequest(f"the split has {end} tasks", field="body.index")
        return TaskReply(task=task)

    def list_tasks(self, environment: str, wanted: TaskRange, params: dict[str, JsonValue]) -> TaskListing:
        counted = self.count_tasks(environment, wanted.split, params)
        ends = [end for end in (counted, wanted.stop) if end is not None]
        start, stop = wanted.start or 0, require_size(min(ends, default=None))
        if stop - start > MAX_LISTED:
            raise InvalidRequest(f"at most {MAX_LISTED} tasks can be listed at once", field="body.stop")
        listed = tuple(TaskReference(split=wanted.split, index=index) for index in range(start, stop))
        return TaskListing(tasks=listed, env_name=environment)


def require_size(size: int | None) -> int:
    if size is None:
        raise HTTPException(501, "this split is endless; every index is a task")
    return size
