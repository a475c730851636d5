"""Two checkpoints on the same tasks: the stored groups of each, found in bounded looks, as two evaluations."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.domain.groups import GroupFilter, GroupSummary, StoredScores
from app.domain.model_names import is_same_model
from app.domain.rewards import compute_own_reward
from app.domain.runs import StepRange
from app.domain.scores import Score
from app.evaluation.attempts import Attempt, Evaluation, EvaluationSetup
from app.http.viewer.cards import OFFLINE_JUDGE
from app.ports.views import GroupOutline, GroupViews

WINDOW: Final = 1_250
"""Groups that one search looks at, and the page of it that is read."""
MOST_WINDOWS: Final = 2
MOST_TASKS: Final = 400
"""Tasks that are compared: the newest that both have."""
MOST_GROUPS: Final = 8
"""Of one task, of each checkpoint: the newest."""
ASKED_AT_ONCE: Final = 400


@dataclass(frozen=True)
class Checkpoint:
    """A run's groups, or of these what one model or some steps of it answered."""

    run: str
    steps: StepRange | None = None
    model: str | None = None

    @property
    def name(self) -> str:
        told = [self.run, *([] if self.model is None else [self.model]), *([] if self.steps is None else [self.steps])]
        return ", ".join(map(str, told))

    def narrow(self, where: GroupFilter) -> GroupFilter:
        return where.model_copy(
            update={
                "run": self.run,
                "model": self.model,
                "min_step": None if self.steps is None else self.steps.first,
                "max_step": None if self.steps is None else self.steps.last,
            }
        )


@dataclass(frozen=True)
class _Scanned:
    """What was found of a checkpoint: the sequences of groups."""

    by_task: Mapping[str, tuple[int, ...]]
    """The newest group of a task first, and tasks in the order of their newest groups."""
    groups: int
    looked_at: int
    is_whole: bool


@dataclass(frozen=True)
class CheckpointGroups:
    """What was found of a checkpoint. `is_whole`: nothing older was left to look at."""

    by_task: Mapping[str, tuple[GroupSummary, ...]]
    """Of the tasks that both have; the newest group of a task first."""
    groups: int
    looked_at: int
    is_whole: bool


@dataclass(frozen=True)
class SharedTasks:
    """Both checkpoints' groups of the tasks that both have, at most MOST_TASKS. `left_out` are the first's tasks that
    are older than those."""

    first: CheckpointGroups
    second: CheckpointGroups
    tasks: tuple[str, ...]
    left_out: int

    def list_group_ids(self) -> list[str]:
        return [group.group_id for group in self._iter_groups()]

    def list_policy_models(self) -> list[str]:
        return sorted({group.policy.model for group in self._iter_groups() if group.policy is not None})

    def _iter_groups(self) -> Iterator[GroupSummary]:
        for side in (self.first, self.second):
            for task in self.tasks:
                yield from side.by_task[task]


async def find_shared_tasks(
    views: GroupViews, first: Checkpoint, second: Checkpoint, where: GroupFilter
) -> SharedTasks:
    """Of the first the newest groups are looked at, of the second those of the same tasks, until MOST_TASKS are
    shared."""
    one = await _scan(views, first.narrow(where))
    wanted = list(one.by_task)
    parts = list[_Scanned]()
    for begin in range(0, len(wanted), ASKED_AT_ONCE):
        asked = tuple(wanted[begin : begin + ASKED_AT_ONCE])
        parts.append(await _scan(views, second.narrow(where).model_copy(update={"task_ids": asked})))
        if sum(len(part.by_task) for part in parts) >= MOST_TASKS:
            break
    other = _Scanned(
        by_task={task: groups for part in parts for task, groups in part.by_task.items()},
        groups=sum(part.groups for part in parts),
        looked_at=sum(part.looked_at for part in parts),
        is_whole=all(part.is_whole for part in parts),
    )
    shared = [task for task in wanted if task in other.by_task][:MOST_TASKS]
    left_out = len(wanted) - wanted.index(shared[-1]) - 1 if len(shared) == MOST_TASKS else 0
    sides = [await _load_groups(views, side, shared) for side in (one, other)]
    tasks = [task for task in shared if all(task in side.by_task for side in sides)]
    return SharedTasks(sides[0], sides[1], tuple(tasks), left_out)


async def _scan(views: GroupViews, where: GroupFilter) -> _Scanned:
    found: list[GroupOutline] = []
    looked_at, before = 0, where.before
    for _ in range(MOST_WINDOWS):
        page = await views.find_outlines(where.model_copy(update={"before": before, "limit": WINDOW}))
        found += (group for group in page.outlines if group.scored)
        looked_at, before = looked_at + page.looked_at, page.next_before
        if before is None:
            break
    by_task: dict[str, list[int]] = {}
    for group in found:
        by_task.setdefault(group.task_id, []).append(group.sequence)
    kept = {task: tuple(groups[:MOST_GROUPS]) for task, groups in by_task.items()}
    return _Scanned(kept, len(found), looked_at, before is None)


async def _load_groups(views: GroupViews, scanned: _Scanned, tasks: Sequence[str]) -> CheckpointGroups:
    """Of these tasks alone: most groups that are looked at are of others. What was pruned meanwhile is left out."""
    wanted = [sequence for task in tasks for sequence in scanned.by_task[task]]
    by_task: dict[str, tuple[GroupSummary, ...]] = {}
    for begin in range(0, len(wanted), ASKED_AT_ONCE):
        for group in await views.load_summaries(wanted[begin : begin + ASKED_AT_ONCE]):
            by_task[group.task_id] = (*by_task.get(group.task_id, ()), group)
    return CheckpointGroups(by_task, scanned.groups, scanned.looked_at, scanned.is_whole)


async def load_scores(views: GroupViews, group_ids: Sequence[str]) -> dict[str, StoredScores]:
    found: dict[str, StoredScores] = {}
    for begin in range(0, len(group_ids), ASKED_AT_ONCE):
        found |= await views.load_scores(group_ids[begin : begin + ASKED_AT_ONCE])
    return found


def list_own_judges(scores: Mapping[str, StoredScores]) -> tuple[str, ...]:
    """Those by whom the groups were scored when they were sent; none where verifiers decide."""
    return tuple(sorted({judge for each in scores.values() for score in each.scores for judge in score.judges}))


def list_other_judges(
    shared: SharedTasks, scores: Mapping[str, StoredScores], own: Sequence[str], models: Mapping[str, str]
) -> tuple[str, ...]:
    """Judges of a model that neither scored nor answered these groups, and that scored groups of both checkpoints anew;
    those of the most tasks first. `models` are the models of judges by name."""
    used = {models.get(judge, judge) for judge in own} | set(shared.list_policy_models())
    counts: dict[str, int] = {}
    for task in shared.tasks:
        sides = [
            {judge for group in side.by_task[task] for judge in _list_sole_judges(scores.get(group.group_id))}
            for side in (shared.first, shared.second)
        ]
        for judge in sides[0] & sides[1]:
            if judge not in own and not any(is_same_model(models.get(judge, judge), model) for model in used):
                counts[judge] = counts.get(judge, 0) + 1
    return tuple(sorted(counts, key=lambda judge: (-counts[judge], judge)))


def _list_sole_judges(scores: StoredScores | None) -> Iterator[str]:
    for scoring in () if scores is None else scores.scorings:
        if len(scoring.judges) == 1 and scoring.outcome == "scored":
            yield scoring.judges[0]


def pick_scores(scores: StoredScores | None, judge: str | None) -> tuple[Score, ...]:
    """The newest by this judge alone, or the group's own for None; nothing where there are none."""
    if scores is None or judge is None:
        return () if scores is None else scores.scores
    made = [each for each in scores.scorings if each.judges == (judge,) and each.outcome == "scored"]
    return made[-1].scores if made else ()


def build_evaluations(
    checkpoints: tuple[Checkpoint, Checkpoint],
    shared: SharedTasks,
    scores: Mapping[str, StoredScores],
    judge: str | None,
    now: datetime,
) -> tuple[Evaluation, Evaluation]:
    """What `compare` would be given, had the groups been evaluations."""
    one, other = (
        _build_evaluation(checkpoint, side, shared.tasks, scores, judge, now)
        for checkpoint, side in zip(checkpoints, (shared.first, shared.second), strict=True)
    )
    return one, other


def _build_evaluation(
    checkpoint: Checkpoint,
    side: CheckpointGroups,
    tasks: Sequence[str],
    scores: Mapping[str, StoredScores],
    judge: str | None,
    now: datetime,
) -> Evaluation:
    groups = [group for task in tasks for group in side.by_task[task]]
    models = sorted({group.policy.model for group in groups if group.policy is not None})
    steps = {None if group.policy is None else group.policy.step for group in groups}
    setup = EvaluationSetup(
        environment=" + ".join(sorted({group.environment for group in groups})) or "none",
        version="",
        tasks=max(1, len(tasks)),
        samples=1,
        model=", ".join(models) or checkpoint.name,
        step=next(iter(steps)) if len(steps) == 1 else None,
        run=checkpoint.run,
        label="label",
        offline_judges=(OFFLINE_JUDGE,),
        started_at=min((group.created_at for group in groups), default=now),
    )
    attempts = tuple(
        attempt
        for place, task in enumerate(tasks)
        for attempt in _build_attempts(place, side.by_task[task], scores, judge)
    )
    return Evaluation(setup=setup, attempts=attempts, finished_at=now)


def _build_attempts(
    place: int, groups: Sequence[GroupSummary], scores: Mapping[str, StoredScores], judge: str | None
) -> Iterator[Attempt]:
    sample = 0
    for group in groups:
        for score in pick_scores(scores.get(group.group_id), judge):
            reward = compute_own_reward(score)
            yield Attempt(
                task_id=group.task_id,
                place=place,
                sample=sample,
                outcome="unscored" if reward is None else "scored",
                reason=(score.reason or "pending") if reward is None else None,
                reward=reward,
                calibrated=score.calibrated,
                criteria={criterion.name: criterion.value for criterion in score.criteria},
                label=group.label,
                flags=score.flags,
                judges=score.judges,
                scoring_digest=score.scoring_digest,
                group_id=group.group_id,
            )
            sample += 1
