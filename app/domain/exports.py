"""What is taken out of the store as training data: which groups, and in which shape."""

from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, ConfigDict, Field, model_validator

from app.domain.groups import Group, TaskRecord
from app.domain.runs import Purpose
from app.domain.values import Frozen, Unit

Shape = Literal["rollouts", "sft", "dpo", "kto"]
Format = Literal["jsonl", "parquet"]


class ExportFilter(Frozen):
    """Which stored groups are read. Every field narrows it."""

    model_config = ConfigDict(use_attribute_docstrings=True)  # as query parameters they have no schema of the class

    env: Annotated[str | None, Field(max_length=100)] = None
    """Only groups of this environment."""
    run: Annotated[str | None, Field(max_length=100)] = None
    """Only groups of this run."""
    label: Annotated[str | None, Field(max_length=200)] = None
    """Only tasks with this label: in NPC Arena a character's id."""
    since: AwareDatetime | None = None
    """Groups that were scored at this moment or later. With its zone, such as 2026-01-31T18:00:00Z; the plus sign of
    another zone is written %2B in a URL."""
    until: AwareDatetime | None = None
    """Groups that were scored before this moment."""
    purpose: Purpose = "train"
    """`eval` takes the groups of evaluations instead, and nothing else does."""


class ExportRequest(ExportFilter):
    """`value` in what follows is gate x `absolute`, which is comparable across groups; unscored rollouts have none and
    are only ever in `rollouts`, with a null."""

    shape: Shape = "rollouts"
    """`rollouts`: everything that was scored. `sft`: good completions. `dpo`: pairs of a better and a worse one of a
    group. `kto`: completions with a verdict each."""
    format: Format = "jsonl"
    """JSON lines, a row each, or one Parquet file."""
    judge: Annotated[str | None, Field(max_length=100)] = None
    """Only completions that this judge scored."""
    offline_judge: bool = False
    """Also what judges scored that are not for training, such as the one that needs no model."""
    private: bool = False
    """Also what the policy never saw: notes and rationale of scores, and what the judges were told of the task."""
    threshold: Unit | None = None
    """`sft`: least value, 0.7 unless it is said or `top_k` is. `kto`: least value that counts as desirable, 0.5."""
    top_k: Annotated[int | None, Field(ge=1, le=1024)] = None
    """`sft`: at most so many of each task's group, the best ones; without a `threshold` none whose value is 0."""
    margin: Annotated[Unit, Field(gt=0)] = 0.1
    """`dpo`: least difference in reward between the two of a pair."""
    pairs: Annotated[int, Field(ge=1, le=1024)] = 1
    """`dpo`: at most so many pairs of a group, those of the largest margin first."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ValueError("until must be later than since")
        return self


class StoredGroup(Frozen):
    """`sequence` grows with every group that is stored."""

    sequence: int
    group: Group
    task: TaskRecord
