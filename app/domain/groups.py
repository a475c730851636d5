"""What is stored of scoring: groups, their rollouts, and the listings that pages and programs read."""

from datetime import datetime

from app.domain.judging import Judgement, Mode
from app.domain.runs import Policy, Purpose, ScoringOptions
from app.domain.scores import Outcome, Score
from app.domain.tasks import Completion, Message, TaskKey, ToolSpec
from app.domain.values import FiniteJson, FiniteNumber, Frozen


class Prompt(Frozen):
    """The public face of a task, stored once by its digest."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_turns: int = 1
    metadata: dict[str, FiniteJson] = {}


class TaskRecord(Frozen):
    """A task as stored: enough to make it again, and its prompt for when that is no longer possible."""

    task_id: str
    key: TaskKey
    prompt: Prompt
    label: str | None = None
    """What figures may be broken down by within the environment: a value of its metadata, such as the character."""


class Rollout(Frozen):
    rollout_id: str
    completion: Completion
    score: Score


class Group(Frozen):
    """Completions for one task that were scored together."""

    group_id: str
    task_id: str
    environment: str
    run: str | None
    lease_id: str | None
    policy: Policy | None
    purpose: Purpose
    outcome: Outcome
    """`pending` while any rollout is, else `unscored` if any rollout is, else `scored`."""
    flags: tuple[str, ...] = ()
    rollouts: tuple[Rollout, ...]
    created_at: datetime


class Scoring(Frozen):
    """A stored group scored anew, beside what its trainer was told, which never changes."""

    scoring_id: str
    """Of the group and `scoring_digest`: the same rule scores the same group once."""
    group_id: str
    scoring_digest: str
    options: ScoringOptions
    judges: tuple[str, ...]
    """Who was asked, by name; empty where a verifier decides."""
    mode: Mode | None = None
    """How they were asked, also where `options` leave that to the settings; null where a verifier decides."""
    outcome: Outcome
    """`pending` while it is under way and nothing of it is stored."""
    flags: tuple[str, ...] = ()
    scores: tuple[Score, ...]
    """In the order of the group's completions."""
    judgements: tuple[Judgement, ...] = ()
    created_at: datetime


class GroupDetail(Frozen):
    """A group with everything that explains it. `judgements` are those of its own scores."""

    group: Group
    task: TaskRecord
    judgements: tuple[Judgement, ...]
    scorings: tuple[Scoring, ...] = ()
    """Oldest first."""


class GroupSummary(Frozen):
    """One line of a listing. `sequence` is the keyset cursor: later groups have larger ones."""

    sequence: int
    group_id: str
    task_id: str
    environment: str
    run: str | None
    policy: Policy | None
    purpose: Purpose
    outcome: Outcome
    flags: tuple[str, ...]
    size: int
    mean: FiniteNumber | None
    std: FiniteNumber | None
    rewards: tuple[FiniteNumber | None, ...] = ()
    """In request order; null where there is none."""
    title: str
    """The last line of the prompt, shortened."""
    created_at: datetime


class GroupFilter(Frozen):
    """Which groups a listing holds; every field narrows it. `before` is a `sequence`."""

    environment: str | None = None
    run: str | None = None
    outcome: Outcome | None = None
    purpose: Purpose | None = None
    task_id: str | None = None
    before: int | None = None
    limit: int = 50


class CriterionMean(Frozen):
    name: str
    mean: FiniteNumber
    count: int


class StatisticsRow(Frozen):
    """Rollouts of one environment, run and policy step, and of one label where that is asked for.
    `mean_absolute` is over gate x absolute of scored ones."""

    environment: str
    run: str | None
    step: int | None
    label: str | None = None
    """Of the tasks, when figures are broken down by it."""
    groups: int
    low_signal: int
    """Groups whose rewards hardly differ, or over which judges could not agree. Those with fewer than two rewards are
    not counted."""
    scored: int
    unscored: int
    pending: int
    mean_reward: FiniteNumber | None
    mean_absolute: FiniteNumber | None
    criteria: tuple[CriterionMean, ...] = ()


NO_PASS_RATES = (0,) * 10


class RunActivity(Frozen):
    """What a run has done in one environment."""

    environment: str
    handed_out: int
    outstanding: int
    groups: int
    scored: int
    unscored: int
    pass_rates: tuple[int, ...] = NO_PASS_RATES
    """How many of the tasks of its training groups lie in each tenth, from 0 up to 1, of mean gate x absolute over all
    that was scored of them. Ten counts; a rate of 1 is in the last."""
