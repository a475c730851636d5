"""Stored results of scoring: tasks, groups, rollouts and scorings, and the listings that pages and programs read.

A group is the completions of one task that were scored together; a rollout is one of them with its score. Scores that
are final never change, and a later scoring stands beside the group.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from operator import not_
from typing import Annotated, Final, Literal, Self

from pydantic import AwareDatetime, ConfigDict, Field

from app.domain.access import KeyBounds
from app.domain.judging import Judgement, Mode, RubricLabel, combine_outcomes
from app.domain.keeping import ReducedCompletion
from app.domain.making import GroupMaking
from app.domain.runs import Policy, Purpose, ScoringOptions
from app.domain.scores import Outcome, Reason, Score
from app.domain.tasks import Completion, Message, TaskKey, ToolSpec
from app.domain.values import FiniteJson, FiniteNumber, Frozen, is_absent
from app.domain.worlds import extract_terms


class StoredReading(Frozen):
    judgement: Judgement
    scoring_id: str
    """Of the later scoring that it was made for; empty for the group's own scores."""


# Searches in texts

MOST_PHRASES: Final = 16
_MOST_TERMS: Final = 16
"""Of one phrase."""
_QUOTES: Final = '"\u201c\u201d\u201e'
_PIECE: Final = re.compile(f"[{_QUOTES}]([^{_QUOTES}]*)[{_QUOTES}]?|[^\\s{_QUOTES}]+")


class TextQuery(Frozen):
    """Each phrase is one or more terms that stand side by side. There is at least one."""

    phrases: tuple[tuple[str, ...], ...]


def parse_text_query(text: str) -> TextQuery | None:
    """The query that a person typed: words, and phrases in quotes, all of which must occur. None where there is no word
    in it. A word that has several terms, such as `well-met`, is a phrase."""
    phrases = dict.fromkeys(islice(_split_phrases(text), MOST_PHRASES))
    return TextQuery(phrases=tuple(phrases)) if phrases else None


def _split_phrases(text: str) -> Iterator[tuple[str, ...]]:
    for piece in _PIECE.finditer(text):
        quoted = piece.group(1)
        if terms := extract_terms(piece.group() if quoted is None else quoted)[:_MOST_TERMS]:
            yield terms


def share_words(texts: Iterable[str], most: int) -> list[tuple[str, ...]]:
    """The terms of each text, at most so many in all. Where there are more, the longest texts lose their ends."""
    term_lists = [extract_terms(text) for text in texts]
    room, left = most, len(term_lists)
    longest = 0
    for length in sorted(map(len, term_lists)):  # shorter ones leave room for the others
        longest = max(longest, min(length, room // left))
        room, left = room - min(length, room // left), left - 1
    return [terms[:longest] for terms in term_lists]


# Stored tasks and groups

_LONGEST_SCENE: Final = 100
"""Characters of a scene's name by which groups are found."""


class TaskPrompt(Frozen):
    """The public part of a task, stored once per digest."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_turns: int = 1
    metadata: dict[str, FiniteJson] = {}

    @property
    def dataset(self) -> str | None:
        """The data set that the task is from; None for a task of the environment's own."""
        name = self.metadata.get("dataset")
        return name if isinstance(name, str) else None

    @property
    def scene(self) -> str | None:
        """The scene that the task plays in; None without one, and for what is no short name on one line."""
        name = self.metadata.get("scene")
        is_name = isinstance(name, str) and 0 < len(name) <= _LONGEST_SCENE and name.isprintable()
        return str(name) if is_name and name == str(name).strip() else None


class TaskRecord(Frozen):
    """A stored task: the key to rebuild it, and its prompt in case that is no longer possible."""

    task_id: str
    key: TaskKey
    prompt: TaskPrompt
    label: str | None = None
    """The value by which statistics can be broken down, such as the character."""


class Rollout(Frozen):
    rollout_id: str
    completion: Completion
    score: Score
    reduced: Annotated[ReducedCompletion | None, Field(exclude_if=is_absent)] = None
    """What of the completion is not kept. Where that is its text, `completion.text` says so in its place."""

    @classmethod
    def begin(cls, group_id: str, place: int, completion: Completion) -> "Rollout":
        """The rollout at this place of a group, before scoring."""
        return cls.build_trusted(
            rollout_id=f"{group_id}-{place}", completion=completion, score=Score.pending(), reduced=None
        )

    @property
    def place(self) -> int:
        return int(self.rollout_id.rpartition("-")[2])


class Group(Frozen):
    """Completions of one task that were scored together."""

    group_id: str
    task_id: str
    environment: str
    run: str | None
    lease_id: str | None
    policy: Policy | None
    purpose: Purpose
    outcome: Outcome
    """`pending` if any rollout is pending, else `unscored` if any is unscored, else `scored`."""
    flags: tuple[str, ...] = ()
    rollouts: tuple[Rollout, ...]
    created_at: datetime
    hand_out_step: int | None = None
    """The training step of the lease; null without a lease, or where the trainer did not say it."""
    sender: str | None = None
    """The name of the key that sent it: judging it counts against the quotas of that key."""

    @property
    def lag(self) -> int | None:
        """The training step at scoring minus the one at hand-out; None unless both are known. Negative where a trainer
        went back to an older checkpoint."""
        step = None if self.policy is None else self.policy.step
        return None if step is None or self.hand_out_step is None else step - self.hand_out_step

    @property
    def is_final(self) -> bool:
        """Whether asking again gives the same scores."""
        return self.outcome == "scored" or self.is_masked or all(rollout.score.is_final for rollout in self.rollouts)

    @property
    def is_masked(self) -> bool:
        """Whether a trainer was told that no member has a reward, which the others must be told too."""
        return "masked" in self.flags

    @property
    def lacks_text(self) -> bool:
        """Whether what its completions said is not kept."""
        return any(one.reduced is not None and one.reduced.text is not None for one in self.rollouts)

    @property
    def scores(self) -> tuple[Score, ...]:
        return tuple([rollout.score for rollout in self.rollouts])

    def merge_scores(self, scores: Sequence[Score]) -> "Group":
        """The group with these scores, in order, for rollouts without a score."""
        fresh = iter(scores)
        rollouts = tuple(
            [one if one.score.is_final else one.model_copy(update={"score": next(fresh)}) for one in self.rollouts]
        )
        outcome = combine_outcomes([one.score for one in rollouts])
        return self.model_copy(update={"rollouts": rollouts, "outcome": outcome})

    def mark_pending(self) -> "Group":
        """The group with all rollouts without a score set to pending, also in a retry."""
        return self.merge_scores((Score.pending(),) * len(self.rollouts))


class Scoring(Frozen):
    """A new scoring of a stored group. The rewards that the trainer received never change."""

    scoring_id: str
    """Derived from the group and `scoring_digest`: each rule scores a group once."""
    group_id: str
    scoring_digest: str
    options: ScoringOptions
    judges: tuple[str, ...]
    """Names of the judges; empty for verified environments."""
    mode: Mode | None = None
    """How judges were asked, with settings filled in; null for verified environments."""
    rubric: Annotated[RubricLabel | None, Field(exclude_if=not_)] = None
    """The rubric that was given in place of the environment's own; null for its own."""
    outcome: Outcome
    """`pending` while the scoring is in progress; nothing of it is stored yet."""
    flags: tuple[str, ...] = ()
    scores: tuple[Score, ...]
    """Scores in the order of the group's completions."""
    judgements: tuple[Judgement, ...] = ()
    created_at: datetime


class GroupDetail(Frozen):
    """A group with its task and judgements. `judgements` belong to the group's own scores, and `making` says how these
    were made of them; it is null where nobody judged, and where that was not recorded."""

    group: Group
    task: TaskRecord
    judgements: tuple[Judgement, ...]
    scorings: tuple[Scoring, ...] = ()
    """New scorings of the group, oldest first."""
    making: GroupMaking | None = None


class StoredScores(Frozen):
    """What the completions of a group were given, without what they say."""

    scores: tuple[Score, ...]
    scorings: tuple[Scoring, ...] = ()
    """New scorings of the group without their judgements, oldest first."""


# Listings and statistics


class GroupSummary(Frozen):
    """One entry of a listing. `sequence` is the pagination cursor; later groups have larger numbers."""

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
    """Rewards in request order; null for completions without one."""
    title: str
    """The last user message of the prompt, shortened."""
    label: str | None = None
    """What `/stats` can be broken down by, such as the character."""
    created_at: datetime


_Step = Annotated[int | None, Field(ge=-(2**53), le=2**53)]
_Number = Annotated[float | None, Field(allow_inf_nan=False)]


class GroupCriteria(Frozen):
    """Which stored groups are meant, by the names that lists, exports and pages share. Every field narrows them."""

    # As query parameters they have no schema of the class, so that the docstrings are read here.
    model_config = ConfigDict(use_attribute_docstrings=True, validate_by_name=True, validate_by_alias=True)

    environment: Annotated[str | None, Field(max_length=100, alias="env")] = None
    """Only groups of this environment."""
    run: Annotated[str | None, Field(max_length=100)] = None
    """Only groups of this run."""
    label: Annotated[str | None, Field(max_length=200)] = None
    """Only tasks with this label: in NPC Arena a character's id."""
    scene: Annotated[str | None, Field(max_length=100)] = None
    """Only tasks of this scene, by its id."""
    since: AwareDatetime | None = None
    """Groups scored at this time or later. Include the time zone, such as 2026-01-31T18:00:00Z; in a URL write a plus
    sign as %2B."""
    until: AwareDatetime | None = None
    """Groups scored before this time."""
    purpose: Purpose | None = None
    """Only training groups, or only evaluation groups."""
    task_id: Annotated[str | None, Field(max_length=100)] = None
    """Only groups of this task."""
    outcome: Outcome | None = None
    """Only groups that are scored, pending or unscored."""
    reason: Reason | None = None
    """Only groups with a completion that has no score for this reason."""
    model: Annotated[str | None, Field(max_length=200)] = None
    """Only groups of this policy model."""
    flag: Annotated[str | None, Field(max_length=200)] = None
    """Only groups with this flag, on the group or on a completion."""
    min_step: _Step = None
    """Only groups of this policy step or later."""
    max_step: _Step = None
    """Only groups of this policy step or earlier."""
    min_mean: _Number = None
    """Only groups whose mean reward is at least this."""
    max_mean: _Number = None
    """Only groups whose mean reward is at most this."""
    min_std: _Number = None
    """Only groups whose rewards have at least this standard deviation."""
    max_std: _Number = None
    """Only groups whose rewards have at most this standard deviation."""


class GroupFilter(GroupCriteria):
    """What the store looks for, and which page of it: `before` and `after` are a `sequence`, and `after` turns the
    order round: oldest first. `environments` and `runs` are names, or what names begin with and `*`; empty for all."""

    model_config = ConfigDict(loc_by_alias=False)

    environments: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    task_ids: tuple[str, ...] = ()
    """Empty for all. A few hundred at most."""
    judge: str | None = None
    """One that read the group for its own scores."""
    text: TextQuery | None = None
    """Of its prompt, its completions or their rationales."""
    before: int | None = None
    after: int | None = None
    counts: bool = True
    """Whether more is looked for than the page holds, so that `matched` tells how many there are."""
    limit: int = 50

    def within(self, bounds: KeyBounds) -> Self:
        """Of what a key may see."""
        return self.model_copy(update={"environments": bounds.environments, "runs": bounds.runs})


class FoundGroups(Frozen):
    """A page of what a filter finds among the newest groups of an index. `looked_at` of them were looked at, `matched`
    of these match; both end with the page where all that the index finds match. What the index of texts finds counts as
    looked at. `next_before` goes on from there; null where nothing older is left."""

    groups: tuple[GroupSummary, ...]
    next_before: int | None
    looked_at: int
    matched: int
    not_indexed: Annotated[int | None, Field(exclude_if=is_absent)] = None
    """Where a text is asked for: about how many of the newest groups its index does not have yet."""


class CriterionMean(Frozen):
    name: str
    mean: FiniteNumber
    count: int


class FlagCount(Frozen):
    name: str
    count: int


StatisticsBreakdown = Literal["label", "judge", "dataset"]
"""What statistics are broken down by beside environment, run and policy step."""


class StatisticsRow(Frozen):
    """Statistics of one environment, run and policy step, and of one label, judge or data set if broken down
    by it.
    `mean_absolute` is the mean of gate x absolute over scored rollouts."""

    environment: str
    run: str | None
    step: int | None
    label: str | None = None
    """The tasks' label, if broken down by label."""
    judge: Annotated[str | None, Field(exclude_if=is_absent)] = None
    """The judge, if broken down by judge. A group counts for each judge that scored it."""
    dataset: Annotated[str | None, Field(exclude_if=is_absent)] = None
    """The data set, if broken down by data set. Groups of tasks without one are in no row then."""
    groups: int
    low_signal: int
    """Groups whose rewards hardly differ or whose judges disagree. Groups with fewer than two rewards are not
    counted."""
    scored: int
    unscored: int
    pending: int
    mean_reward: FiniteNumber | None
    mean_absolute: FiniteNumber | None
    lagged: int = 0
    """Groups with a lag of 0 or more. Others have no steps, or an older policy than at hand-out."""
    mean_lag: FiniteNumber | None = None
    """Of these groups; null without any."""
    stale: int = 0
    """Groups beyond the run's `max_lag`, scored or not."""
    mean_calibrated: FiniteNumber | None = None
    """Over the `calibrated` rollouts that have such a value; null without any."""
    calibrated: int = 0
    criteria: tuple[CriterionMean, ...] = ()
    mean_std: FiniteNumber | None = None
    """Mean over groups of the standard deviation of their rewards; null where no group has two."""
    gated: int = 0
    """Scored rollouts that a gate set to 0."""
    mean_length: FiniteNumber | None = None
    """Characters of a completion."""
    flags: tuple[FlagCount, ...] = ()
    """Rollouts with each flag."""
    group_flags: tuple[FlagCount, ...] = ()
    """Groups with each flag."""
    mean_judge_calls: FiniteNumber | None = None
    """Calls to judges for the scores of a group, over groups that judges read."""
    mean_judge_usd: FiniteNumber | None = None
    """US dollars of these calls, over the `priced` groups: those whose cost is known."""
    priced: int = 0


NO_PASS_RATES = (0,) * 10


class RunActivity(Frozen):
    """A run's activity in one environment."""

    environment: str
    handed_out: int
    outstanding: int
    groups: int
    scored: int
    unscored: int
    pass_rates: tuple[int, ...] = NO_PASS_RATES
    """Histogram of pass rates: ten counts of tasks, by the mean of gate x absolute over the task's scored training
    rollouts. A rate of 1 is in the last bin."""
