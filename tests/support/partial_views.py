"""Views of groups as far as others of them tell; no task has a scene."""

from collections.abc import Mapping, Sequence

from app.domain.groups import FoundGroups, GroupFilter, GroupSummary
from app.domain.rollups import Sums
from app.ports.store import FoundOutlines, GroupOutline, SceneSums


class PartialViews:
    async def find_groups(self, where: GroupFilter) -> FoundGroups:
        raise NotImplementedError

    async def find_outlines(self, where: GroupFilter) -> FoundOutlines:
        found = await self.find_groups(where)
        outlines = (
            GroupOutline(one.sequence, one.task_id, sum(reward is not None for reward in one.rewards), one.created_at)
            for one in found.groups
        )
        return FoundOutlines(tuple(outlines), found.next_before, found.looked_at)

    async def load_summaries(self, sequences: Sequence[int]) -> list[GroupSummary]:
        listed = {one.sequence: one for one in (await self.find_groups(GroupFilter(limit=10_000))).groups}
        return [listed[sequence] for sequence in sequences]

    async def find_scenes(self, where: GroupFilter, most: int) -> list[str]:
        return []

    async def sum_scenes(self, where: GroupFilter, scenes: Sequence[str]) -> SceneSums:
        return SceneSums()

    async def sum_tasks_of_scenes(
        self, environment: str, runs: Sequence[str], label: str | None, scenes: Sequence[str]
    ) -> Mapping[str, Sums]:
        return {}
