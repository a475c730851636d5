"""What is kept of a run's health between two looks at it, and what is shown of it."""

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import Field

from app.domain.change_detection import WINDOW_BUCKETS
from app.domain.run_health import GROUPS_PER_BUCKET, Alarm, HealthFigure, HealthOptions, Hold, TrendName
from app.domain.values import FiniteNumber, Frozen

ReadingKind = Literal["anchor", "shadow"]
MARKS_KEPT: Final = WINDOW_BUCKETS + 2


class Mark(Frozen):
    """Where a bucket of a run's own groups begins: in the store's buckets, and after how many groups of the run."""

    first: int = 0
    groups: int = 0


class HealthState(Frozen):
    """`marks` are of the newest buckets; the last one is still filling. `first_bucket` is the number of the first."""

    marks: tuple[Mark, ...] = (Mark(),)
    first_bucket: int = 0
    groups: int = 0
    """Groups of the run that are in buckets, the one that is filling included."""
    since: dict[TrendName, int] = {}
    """The bucket from which on a series is followed after its last alarm."""
    judge_since: int = 0
    """The same for all series of judges, after an alarm about leniency."""
    anchors_after: int = 0
    """The reading that brought the last alarm about leniency."""
    versions_seen: int = -1
    """Versions of its judges that were known at the last look."""
    rush: int = 0
    """Anchor readings to be made soon, since a judge has changed."""
    failures: int = 0
    """Anchor readings in a row that failed, and how many groups the run had at the last of them."""
    failed_at: int = 0

    @property
    def newest(self) -> int:
        """The newest full bucket; -1 before there is one."""
        return self.first_bucket + len(self.marks) - 2

    def find_bucket(self, at_group: int) -> int:
        return self.first_bucket + bisect_right([mark.groups for mark in self.marks], at_group) - 1

    def place_bucket(self, store_bucket: int) -> int:
        return self.first_bucket + bisect_right([mark.first for mark in self.marks], store_bucket) - 1

    def count_groups_before(self, bucket: int) -> int:
        place = min(max(0, bucket - self.first_bucket), len(self.marks) - 1)
        return self.marks[place].groups


def advance_state(state: HealthState, totals: Sequence[tuple[int, int]]) -> HealthState:
    """With the groups that the run has in later buckets of the store, in order. `totals` begin where the last mark
    does, and none of them will grow."""
    marks, filled = list(state.marks), 0
    for store_bucket, groups in totals:
        filled += groups
        if filled >= GROUPS_PER_BUCKET:
            marks.append(Mark(first=store_bucket + 1, groups=marks[-1].groups + filled))
            filled = 0
    dropped = max(0, len(marks) - MARKS_KEPT)
    return state.model_copy(
        update={
            "marks": tuple(marks[dropped:]),
            "first_bucket": state.first_bucket + dropped,
            "groups": marks[-1].groups + filled,
        }
    )


class HealthReading(Frozen):
    """One reading for run health. It never enters a reward, and is no scoring of its group."""

    reading_id: str
    run: str
    environment: str
    label: str | None
    group_id: str
    kind: ReadingKind
    judges: tuple[str, ...]
    at_group: int
    """How many groups the run had then."""
    values: tuple[FiniteNumber | None, ...]
    """The absolute of each rollout; null where a gate or a failure left none."""
    distance: FiniteNumber | None = None
    """Of the shadow judge: mean absolute of the group's own score minus its own."""
    tokens: int = 0
    failed: str = ""
    sequence: int = 0
    """Set by the store."""


class HealthTokens(Frozen):
    """What judges read and wrote."""

    run: int = 0
    """For the run's own groups."""
    groups: int = 0
    """How many these were."""
    anchor: int = 0
    anchor_readings: int = 0
    shadow: int = 0
    shadow_readings: int = 0

    @property
    def spent(self) -> int:
        return self.anchor + self.shadow

    def expect(self, kind: ReadingKind) -> float:
        """Tokens of the next such reading: as the mean of those so far, at first as a group's."""
        count = self.anchor_readings if kind == "anchor" else self.shadow_readings
        if count:
            return (self.anchor if kind == "anchor" else self.shadow) / count
        return self.run / self.groups if self.groups else 0.0


class JudgeVersion(Frozen):
    """What a judge's server said answered, and when it first said so. Another version is another judge."""

    judge: str
    model: str
    system_fingerprint: str
    first_at: datetime


class HealthSpending(Frozen):
    """Judge tokens of anchors and the shadow judge, which are part of the judges' spend and of the run's cost."""

    anchors: int
    anchor_readings: int
    shadow: int
    shadow_readings: int
    tokens: int
    run_tokens: int
    """Of the run's own groups."""
    share: FiniteNumber | None
    most_share: FiniteNumber


class RunHealth(Frozen):
    """An audit of a run. It says what changed and since when; it changes no reward."""

    run: str
    groups: int
    """Groups that the figures include."""
    options: HealthOptions
    held: Hold | None
    alarms: tuple[Alarm, ...]
    """Newest first, at most a hundred."""
    figures: tuple[HealthFigure, ...]
    anchors: int
    """Frozen groups that are read again."""
    judges: tuple[JudgeVersion, ...]
    """Versions of the run's judges, oldest first."""
    spent: HealthSpending
    can_see: Annotated[tuple[str, ...], Field(description="What this audit can see.")]
    cannot_see: Annotated[tuple[str, ...], Field(description="What this audit cannot see.")]
