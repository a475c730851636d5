"""What an export asks for, and the groups that its rows are made of."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from app.domain.groups import (
    Group,
    GroupCriteria,
    GroupFilter,
    StoredReading,
    TaskRecord,
)
from app.domain.runs import Purpose
from app.domain.values import Frozen, Unit

ExportShape = Literal["rollouts", "sft", "dpo", "kto", "judgements", "labels"]


ExportFormat = Literal["jsonl", "parquet"]


class ExportRequest(GroupCriteria):
    """In the fields below, `value` is gate x `absolute`, which is comparable across groups. Unscored rollouts have no
    value; only the shape `rollouts` includes them, with nulls."""

    purpose: Purpose = "train"
    """`eval` exports evaluation groups instead of training groups."""
    shape: ExportShape = "rollouts"
    """`rollouts`: all rollouts. `sft`: good completions. `dpo`: pairs of a better and a worse completion of one group.
    `kto`: completions labelled desirable or undesirable. `judgements`: what judges were asked and answered, one row
    per reading; needs `private`. `labels`: pairs that people ordered, imported ones included. For `labels` only the
    filters `env`, `run`, `label`, `since`, `until` and `purpose` apply. Imported choices have only times."""
    format: ExportFormat = "jsonl"
    """JSON lines, one row per line, or one Parquet file."""
    judge: Annotated[str | None, Field(max_length=100)] = None
    """Only completions that this judge scored. `judgements`: only its readings."""
    offline_judge: bool = False
    """Also completions scored by judges that are not for training, such as the offline judge."""
    private: bool = False
    """Also fields that the policy never saw: notes and rationales of scores, and the context shown to judges."""
    threshold: Unit | None = None
    """`sft`: minimum value, 0.7 unless `top_k` is set. `kto`: minimum value of a desirable completion, 0.5."""
    top_k: Annotated[int | None, Field(ge=1, le=1024)] = None
    """`sft`: at most this many completions per group, best first; without a `threshold`, none with value 0."""
    margin: Annotated[Unit, Field(gt=0)] = 0.1
    """`dpo`: minimum reward difference within a pair."""
    pairs: Annotated[int, Field(ge=1, le=1024)] = 1
    """`dpo`: at most this many pairs per group, largest difference first."""

    @property
    def where(self) -> GroupFilter:
        """The groups that it is made of. `judge` is no part of them: it chooses completions."""
        return GroupFilter(**{name: getattr(self, name) for name in GroupCriteria.model_fields})

    def write_query(self) -> dict[str, str | int | float | bool | None]:
        """The parameters of `GET /export` that differ from their defaults."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)

    @model_validator(mode="after")
    def _require_time_order(self) -> Self:
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ValueError("until must be later than since")
        return self

    @model_validator(mode="after")
    def _require_private(self) -> Self:
        if self.shape == "judgements" and not self.private:
            raise ValueError("judgements hold what the policy never sees, such as secrets: set private as well")
        return self


class ExportSummaryRequest(ExportRequest):
    """The parameters of an export."""

    newest_group: Annotated[int | None, Field(ge=0, le=2**53)] = None
    """The `Newest-Group` header of an export: groups that were stored after it are not counted."""


LeftOut = Literal[
    "offline_judge",
    "other_judge",
    "unscored",
    "pending",
    "undecided",
    "below_threshold",
    "not_best",
    "no_pair",
    "duplicate",
    "no_answer",
    "reduced",
]


LEFT_OUT_MEANINGS: Final[Mapping[LeftOut, str]] = {
    "offline_judge": "scored by a judge that is not for training",
    "other_judge": "in groups that this judge did not score",
    "unscored": "without a score",
    "pending": "still being scored",
    "undecided": "on whose order the judges contradict each other",
    "below_threshold": "below the threshold",
    "not_best": "not among the best of their group",
    "no_pair": "without a partner for a pair",
    "duplicate": "equal to another row",
    "no_answer": "that failed, or whose judge is asked in no words",
    "reduced": "of which a part that the row needs is not kept any more",
}
"""Each goes on from "completions", or from "readings" of the shape `judgements`."""


class ExportSummary(Frozen):
    """What an export of the same request holds, and what it leaves out of the groups that its filters select."""

    rows: int
    left_out: dict[LeftOut, int] = {}
    """Completions that are in no row, by reason. `offline_judge`: the group was scored by a judge that is not for
    training. `other_judge`: the wanted judge did not score the group. `unscored` and `pending`: there is no score.
    `undecided`: the judges' readings contradict each other. `below_threshold`: the value is too low. `not_best`: more
    than `top_k` are better. `no_pair`: no other completion of the group is better or worse by the margin, or `pairs` is
    reached; of `labels`, the label orders nothing. `duplicate`: an equal row is there already. For `judgements`
    readings are counted in place of completions; `no_answer`: the reading failed, or its judge is asked in no words.
    `reduced`: a part that the row needs is not kept any more."""


class StoredGroup(Frozen):
    """`sequence` grows with every group that is stored."""

    sequence: int
    group: Group
    task: TaskRecord
    readings: tuple[StoredReading, ...] = ()
    """Only where they are exported: of the group's own scores, then of later scorings."""
