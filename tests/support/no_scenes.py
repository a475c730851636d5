"""Views of groups whose tasks have no scene."""

from collections.abc import Mapping, Sequence

from app.domain.exact_sums import Sums
from app.domain.groups import GroupFilter
from app.ports.views import SceneSums


class NoScenes:
    async def find_scenes(self, where: GroupFilter, most: int) -> list[str]:
        return []

    async def sum_scenes(self, where: GroupFilter, scenes: Sequence[str]) -> SceneSums:
        return SceneSums()

    async def sum_tasks_of_scenes(
        self, environment: str, runs: Sequence[str], label: str | None, scenes: Sequence[str]
    ) -> Mapping[str, Sums]:
        return {}
