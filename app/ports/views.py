"""Views of what is stored: pages, statistics, exports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from app.domain.exact_sums import Sums
from app.domain.exports import ExportFilter, StoredGroup
from app.domain.groups import (
    FoundGroups,
    GroupDetail,
    GroupFilter,
    GroupSummary,
    StatisticsBreakdown,
    StatisticsRow,
    StoredScores,
)
from app.domain.rollups import Rollup, RollupFilter


@dataclass(frozen=True)
class SceneSums:
    """What training groups of a run add up to by policy step and scene, which is the label of each key. Of the scenes
    that are `sampled` not all groups were read."""

    rollups: tuple[Rollup, ...] = ()
    sampled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupOutline:
    """Of a group what is known without its task and its completions, which take longest to read."""

    sequence: int
    task_id: str
    scored: int
    """Completions with a score."""
    created_at: datetime


@dataclass(frozen=True)
class FoundOutlines:
    """As `FoundGroups`."""

    outlines: tuple[GroupOutline, ...]
    next_before: int | None
    looked_at: int


class GroupViews(Protocol):
    """Read models for pages and dashboards."""

    async def find_groups(self, where: GroupFilter) -> FoundGroups:
        """Newest first, unless another order is asked for. Where a filter has no index, at most a number of the newest
        groups are looked at."""

    async def find_outlines(self, where: GroupFilter) -> FoundOutlines:
        """What `find_groups` finds."""

    async def load_summaries(self, sequences: Sequence[int]) -> list[GroupSummary]:
        """Of those of these groups that are stored. A few hundred at most."""

    async def get_group(self, group_id: str) -> GroupDetail | None:
        """Gone when it was pruned."""

    async def load_scores(self, group_ids: Sequence[str]) -> Mapping[str, StoredScores]:
        """Of those of these groups that are stored. A few hundred at most."""

    async def get_statistics(
        self,
        environment: str | None,
        run: str | None,
        *,
        by: StatisticsBreakdown | None = None,
        judge: str | None = None,
    ) -> list[StatisticsRow]:
        """Statistics of training rollouts; `eval` is left out. `by` also breaks them down and leaves out groups without
        a label or judge. `judge` asks for groups that this judge scored, without `by` or with `by="judge"`."""

    async def list_rollups(self, where: RollupFilter) -> list[Rollup]:
        """What statistics are made of, ordered by step and by bucket."""

    async def find_scenes(self, where: GroupFilter, most: int) -> list[str]:
        """Scenes of the newest training groups that match, those with the most of them first."""

    async def sum_scenes(self, where: GroupFilter, scenes: Sequence[str]) -> SceneSums:
        """Of the run, environment and label of the filter, from as many groups as its limit says: an even sample where
        there are more. A few scenes at most."""

    async def sum_tasks_of_scenes(
        self, environment: str, runs: Sequence[str], label: str | None, scenes: Sequence[str]
    ) -> Mapping[str, Sums]:
        """Sums of gate x absolute of training rollouts by scene, of the tasks with this label. Pruned groups count."""

    async def count_uncounted(self) -> int:
        """How many stored groups no statistics include yet: those from before an upgrade, until they are counted."""


class StatisticsStore(Protocol):
    """Counts stored groups into the statistics. Groups count when they are stored; these are for all others."""

    async def count_groups(self, limit: int) -> int:
        """Counts the oldest groups that no statistics include yet, and returns how many they were; 0 when all are
        counted. It may be interrupted at any time, and replicas share the work."""

    async def forget_all(self) -> int:
        """Empties the statistics and returns the number of groups to count again."""


class ExportStore(Protocol):
    """Reads stored groups for exports."""

    async def get_newest_group_sequence(self) -> int:
        """The sequence of the newest group; 0 where nothing is stored."""

    async def read_page(self, where: ExportFilter, after: int, last: int, limit: int) -> list[StoredGroup]:
        """Groups with sequences above `after` up to `last`, in order."""
