"""The best replies of two checkpoints to a task, and their words."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.domain.access import KeyBounds
from app.domain.errors import GatewayError
from app.domain.groups import GroupSummary, StoredScores
from app.domain.rewards import compute_own_reward
from app.evaluation.comparison import TaskChange
from app.http.viewer.checkpoints import SharedTasks, pick_scores
from app.http.viewer.group_pages import write_out
from app.http.viewer.word_diff import WordDiff, compare_words
from app.ports.views import GroupViews
from app.service.key_bounds import allows_task


@dataclass(frozen=True)
class BestReply:
    """The best completion that a checkpoint has for a task; None of its text where it is not kept."""

    group: GroupSummary
    slot: int
    reward: float
    text: str


@dataclass(frozen=True)
class TaskPair:
    """A task with the best reply of each checkpoint, and their words."""

    change: TaskChange
    title: str
    first: BestReply | None
    second: BestReply | None
    diff: WordDiff | None


@dataclass(frozen=True)
class ReplyReader:
    """Reads the best replies of both checkpoints, by the scores that are compared."""

    views: GroupViews
    bounds: KeyBounds
    shared: SharedTasks
    scores: Mapping[str, StoredScores]
    judge: str | None

    async def load_pair(self, change: TaskChange) -> TaskPair:
        groups = [side.by_task[change.task_id] for side in (self.shared.first, self.shared.second)]
        first, second = [await self._load_best(some) for some in groups]
        diff = None
        if first is not None and second is not None:
            diff = await asyncio.to_thread(compare_words, first.text, second.text)
        return TaskPair(change, groups[0][0].title, first, second, diff)

    async def _load_best(self, groups: Sequence[GroupSummary]) -> BestReply | None:
        """None where the group is gone by now, is of a task that the caller may not see, or its text is not kept."""
        reward, group, slot = max(self._iter_places(groups), key=lambda place: place[0])
        try:
            detail = await self.views.get_group(group.group_id)
        except GatewayError as error:
            if error.status in {404, 410}:
                return None
            raise
        if detail is None or slot >= len(detail.group.rollouts) or not allows_task(self.bounds, detail.task):
            return None
        rollout = detail.group.rollouts[slot]
        kept = rollout.reduced is None or rollout.reduced.text is None
        return BestReply(group, slot + 1, reward, write_out(rollout.completion)) if kept else None

    def _iter_places(self, groups: Sequence[GroupSummary]) -> Iterator[tuple[float, GroupSummary, int]]:
        for group in groups:
            for slot, score in enumerate(pick_scores(self.scores.get(group.group_id), self.judge)):
                if (reward := compute_own_reward(score)) is not None:
                    yield reward, group, slot
