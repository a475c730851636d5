"""Rollups: what stored groups add up to, kept beside them so that statistics need not read them again.

A rollup holds the measures of all groups of one key: an environment, a run and a purpose, and in some series a policy
step, label, judge or data set. A group that is scored again takes its former measures away and adds the new ones. Sums
are whole numbers, so that they come out the same in whatever order replicas add them, and after a rebuild.

A new measure is a line in `list_measures`: rollups hold measures by name, so no table changes. Groups that were counted
before lack it until the statistics are rebuilt.

`PassRates` adds up the outcomes of a run's tasks instead, for the choice of tasks by their difficulty. Older outcomes
weigh less, since the policy changes.
"""

import json
import math
from bisect import bisect_right
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final, Literal, NamedTuple, Self

from app.domain.access import KeyBounds
from app.domain.groups import Group, Rollout
from app.domain.judging import Judgement, summarise_scores
from app.domain.keeping import count_written_characters
from app.domain.runs import Purpose
from app.domain.scores import Score, ScoreSummary
from app.domain.values import Frozen, digest

# Exact sums

UNIT: Final = 2**60
Sums = list[int]
"""A number of values and their sum, the number of their groups, and the sum over these of the group's squared sum by
its number of values. Sums are in units of 2^-60: whole numbers add up to the same in any order, and what is taken away
again leaves no trace. What was counted before squares were kept has the first two alone."""
NO_VALUES: Final[Sums] = [0, 0]
_NO_GROUPS: Final[Sums] = [0, 0, 0, 0]


def _build_sums(count: int, units: int) -> Sums:
    """Of one group."""
    return [count, units, 1, units * units // (count * UNIT)] if count else _NO_GROUPS


def add_up(values: Sequence[float]) -> Sums:
    """Of one group."""
    return _build_sums(len(values), int(math.fsum(values) * UNIT))


def _add_up_whole(values: Sequence[int]) -> Sums:
    """Exact, however large the values are."""
    return _build_sums(len(values), sum(values) * UNIT)


def _add_up_sums(one: Sums, other: Sums) -> Sums:
    """Without squares where one has none."""
    if len(one) == len(other) == 4:
        return [one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3]]
    return [one[0] + other[0], one[1] + other[1]]


def compute_mean(sums: Sequence[int]) -> float | None:
    return sums[1] / (sums[0] * UNIT) if sums[0] else None


class GroupSpread(NamedTuple):
    """How far the means of groups lie apart. `squares` over `freedom` estimates the variance of a single value, had the
    values of a group nothing in common."""

    squares: float = 0.0
    freedom: int = 0


def compute_spread(sums: Sums) -> GroupSpread:
    """By the sum of squares between groups, each of which weighs as much as it has values."""
    if len(sums) < 4 or sums[2] < 2 or not sums[0]:
        return GroupSpread()
    count, units, groups, squares = sums
    return GroupSpread(max(0, squares - units * units // (count * UNIT)) / UNIT, groups - 1)


# Sizes of completions, which are the same whether they are whole or reduced


@dataclass(frozen=True)
class _CompletionSizes:
    """`different` counts those of which no earlier one is equal."""

    lengths: list[int]
    tokens: list[int]
    different: int


def _measure_sizes(rollouts: Sequence[Rollout]) -> _CompletionSizes:
    if any([rollout.reduced is not None for rollout in rollouts]):
        return _measure_reduced(rollouts)
    completions = [rollout.completion for rollout in rollouts]
    texts = [completion.text for completion in completions if completion.text is not None]
    lengths = [len(text) for text in texts]
    different = len(set(texts))
    if len(texts) < len(completions):
        others = [completion for completion in completions if completion.text is None]
        lengths += [count_written_characters(completion.messages or ()) for completion in others]
        different += len({json.dumps(completion.identity) for completion in others})
    tokens = [len(ids) for completion in completions if (ids := completion.token_ids) is not None]
    return _CompletionSizes(lengths, tokens, different)


def _measure_reduced(rollouts: Sequence[Rollout]) -> _CompletionSizes:
    measured = [_measure_one(rollout) for rollout in rollouts]
    tokens = [count for _, count, _ in measured if count is not None]
    return _CompletionSizes([length for length, _, _ in measured], tokens, len({key for _, _, key in measured}))


def _measure_one(rollout: Rollout) -> tuple[int, int | None, tuple[str, str]]:
    """Length, number of tokens, and a key that equal ones share: texts are compared by themselves, messages with all
    that identifies them."""
    completion, reduced = rollout.completion, rollout.reduced
    tokens = None if completion.token_ids is None else len(completion.token_ids)
    if reduced is not None and reduced.tokens is not None:
        tokens = reduced.tokens.count
    if reduced is not None and reduced.text is not None:
        text = reduced.text
        key = ("text", text.sha256) if text.count is None else ("messages", reduced.identity)
        return text.characters or 0, tokens, key
    if completion.text is not None:
        return len(completion.text), tokens, ("said", completion.text)
    identity = "" if reduced is None else reduced.identity
    length = count_written_characters(completion.messages or ())
    return length, tokens, ("messages", identity or completion.identity_digest)


# Rollups

GROUPS_PER_BUCKET: Final = 10
"""A bucket is this many groups that follow each other in the store, so at most this many of one run."""
_SATURATED_ABOVE: Final = 0.95
"""Rewards above this leave a policy little to gain."""
PASS_RATE_BINS: Final = 10
LONGEST_NAME: Final = 200
"""Characters of a flag or of a criterion's name by which it is counted."""

PICODOLLARS: Final = 10**12  # in a dollar
MOST_NAMES: Final = 256
_REST_OF: Final = {
    "criterion": "other_criteria",
    "flag": "other_flags",
    "gate_flag": "other_gate_flags",
    "group_flag": "other_group_flags",
}
"""Where new flags and criteria are counted, by kind, once a rollup has MOST_NAMES measures."""

_PASS_RATES: Final = [number / PASS_RATE_BINS for number in range(1, PASS_RATE_BINS)]

Series = Literal["run", "step", "label", "judge", "dataset", "bucket"]
"""What groups are added up by beside environment, run and purpose: `run` by nothing more, `step` by policy step,
`label`, `judge` and `dataset` by policy step and one of these, `bucket` by their order in the store and label."""
WITH_CRITERIA: Final = frozenset(("step", "label", "judge", "dataset"))
"""The series from which criteria are read; the others do without them."""

MeasureMap = dict[str, int | Sums]
"""By name: a count, or sums of values."""


class RollupKey(NamedTuple):
    series: Series
    environment: str
    run: str | None
    purpose: Purpose
    step: int | None = None
    label: str | None = None
    """The tasks' label, or in the series `judge` and `dataset` the name of that."""
    bucket: int | None = None
    """The group's number in the store, divided by GROUPS_PER_BUCKET."""

    @property
    def digest(self) -> str:
        return digest(list(self))

    @property
    def place(self) -> tuple[str | int, ...]:
        """Orders keys of one series; nulls come first."""
        numbers = (-1 if number is None else number for number in (self.step, self.bucket))
        return (self.environment, self.run or "", *numbers, self.label or "", self.purpose)


@dataclass(frozen=True)
class RollupFilter:
    """Which rollups of a series are read. Every field narrows it, by the names of `GroupFilter`; `label` is the name of
    a judge or data set in their series."""

    series: Series
    environment: str | None = None
    run: str | None = None
    purpose: Purpose | None = "train"
    label: str | None = None
    first_bucket: int | None = None
    min_step: int | None = None
    max_step: int | None = None
    environments: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()

    def within(self, bounds: KeyBounds) -> Self:
        """Of what a key may see."""
        return replace(self, environments=bounds.environments, runs=bounds.runs)


@dataclass(frozen=True)
class CountedGroup:
    """A stored group, with what is counted and stands outside of it."""

    group: Group
    sequence: int
    readings: int = 0
    """Usable judgements of its own scores."""
    failed_readings: int = 0
    judge_calls: int = 0
    priced: int = 0
    unpriced: int = 0
    """Judgements whose cost is not known, although a model was asked."""
    judge_picodollars: int = 0
    """Whole numbers, so that a sum in the store is the same sum."""


def count_readings(counted: CountedGroup, judgements: Iterable[Judgement]) -> CountedGroup:
    """`counted`, with these judgements added. Readings for another purpose than scores are left out."""
    readings = [judgement for judgement in judgements if judgement.purpose == "score"]
    if not readings:
        return counted
    failed = sum(judgement.error is not None for judgement in readings)
    return replace(
        counted,
        readings=counted.readings + len(readings) - failed,
        failed_readings=counted.failed_readings + failed,
        judge_calls=counted.judge_calls + sum(judgement.calls for judgement in readings),
        priced=counted.priced + sum(judgement.cost_usd is not None for judgement in readings),
        unpriced=counted.unpriced + sum(judgement.cost_usd is None and judgement.calls > 0 for judgement in readings),
        judge_picodollars=counted.judge_picodollars
        + sum(round(judgement.cost_usd * PICODOLLARS) for judgement in readings if judgement.cost_usd is not None),
    )


def list_keys(counted: CountedGroup, label: str | None, dataset: str | None) -> list[RollupKey]:
    """The keys of the rollups in which the group counts. `label` and `dataset` are its task's."""
    group = counted.group
    environment, run, purpose = group.environment, group.run, group.purpose
    step = group.policy.step if group.policy else None
    keys = [RollupKey("step", environment, run, purpose, step)]
    if run is not None:
        bucket = counted.sequence // GROUPS_PER_BUCKET
        keys.append(RollupKey("run", environment, run, purpose))
        keys.append(RollupKey("bucket", environment, run, purpose, None, label, bucket))
    panels = dict.fromkeys([rollout.score.judges for rollout in group.rollouts])
    names: list[tuple[Series, str | None]] = [("label", label), ("dataset", dataset)]
    names += dict.fromkeys([("judge", judge) for panel in panels for judge in panel])
    return keys + [RollupKey(kind, environment, run, purpose, step, name) for kind, name in names if name is not None]


class _Columns(NamedTuple):
    """Fields of the scored rollouts, each as a column: every score is read once."""

    gate: tuple[float | None, ...] = ()
    cap: tuple[float | None, ...] = ()
    reward: tuple[float, ...] = ()
    absolute: tuple[float | None, ...] = ()
    calibrated: tuple[float | None, ...] = ()


_read_fields: Final = attrgetter(*_Columns._fields)


def list_measures(counted: CountedGroup) -> MeasureMap:
    """What the group adds to each of its rollups. Counts are of groups (`groups`, `low_signal`, `group_flag:…`) or of
    rollouts (the others). Sums are over scored rollouts, but `length` and `tokens` over all rollouts, and `spread`,
    `readings`, `failed_readings`, `judge_calls` and `judge_usd` over groups: the last where every cost is known."""
    rollouts = counted.group.rollouts
    scores = [rollout.score for rollout in rollouts]
    summary = summarise_scores(scores)
    return {
        **measure_scores(scores, summary),
        **_measure_completions(rollouts),
        **_measure_group(counted, summary),
    }


def measure_scores(scores: Sequence[Score], summary: ScoreSummary) -> MeasureMap:
    """Those of `list_measures` that follow from the scores of a group alone. `gate_flag:…` counts the flags of replies
    that a gate set to 0."""
    scored = [score for score in scores if score.outcome == "scored"]
    columns = _Columns(*zip(*map(_read_fields, scored), strict=True))
    measures: MeasureMap = {"groups": 1, "rollouts": len(scores)}
    if scored:
        measures.update(_measure_scored(columns, summary))
    if len(scored) < len(scores) and (reasons := [score.reason for score in scores if score.outcome == "unscored"]):
        measures["unscored"] = len(reasons)
        measures.update({f"unscored:{reason}": count for reason, count in Counter(reasons).items()})
    if flags := [flag[:LONGEST_NAME] for score in scores if score.flags for flag in score.flags]:
        measures.update({f"flag:{flag}": count for flag, count in Counter(flags).items()})
    if 0.0 in columns.gate:
        gated = [flag[:LONGEST_NAME] for score in scored if score.gate == 0 for flag in score.flags]
        measures.update({f"gate_flag:{flag}": count for flag, count in Counter(gated).items()})
    if summary.std is not None:
        measures["spread"] = add_up([summary.std])
    return measures


def list_criteria(group: Group) -> MeasureMap:
    """What the group adds to those of its rollups from which criteria are read."""
    values: defaultdict[tuple[int, str], list[float]] = defaultdict(list)
    for score in group.scores:
        for ordinal, criterion in enumerate(score.criteria if score.outcome == "scored" else ()):
            if criterion.value is not None:
                values[ordinal, criterion.name].append(criterion.value)
    return {f"criterion:{ordinal}:{name[:LONGEST_NAME]}": add_up(of) for (ordinal, name), of in values.items()}


def _measure_completions(rollouts: Sequence[Rollout]) -> MeasureMap:
    sizes = _measure_sizes(rollouts)
    measures: MeasureMap = {"length": _add_up_whole(sizes.lengths)}
    if sizes.tokens:
        measures["tokens"] = _add_up_whole(sizes.tokens)
    if duplicates := len(rollouts) - sizes.different:
        measures["duplicates"] = duplicates
    return measures


def _measure_scored(scored: _Columns, summary: ScoreSummary) -> MeasureMap:
    counts = {
        "scored": len(scored.reward),
        "gated": scored.gate.count(0.0),
        "capped": len(scored.cap) - scored.cap.count(None),
        "saturated": len([reward for reward in scored.reward if reward > _SATURATED_ABOVE]),
    }
    measures: MeasureMap = {name: count for name, count in counts.items() if count}
    measures["reward"] = add_up(scored.reward)
    if summary.absolutes:
        measures["absolute"] = add_up(summary.absolutes)
    if scored.calibrated.count(None) < len(scored.calibrated):
        measures.update(_measure_calibrated(scored))
    return measures


def _measure_calibrated(scored: _Columns) -> MeasureMap:
    pairs = list(zip(scored.absolute, scored.calibrated, strict=True))
    gaps = [absolute - value for absolute, value in pairs if absolute is not None and value is not None]
    measures: MeasureMap = {"calibrated": add_up([value for _, value in pairs if value is not None])}
    return measures | {"calibration_gap": add_up(gaps)} if gaps else measures


def _measure_group(counted: CountedGroup, summary: ScoreSummary) -> MeasureMap:
    group = counted.group
    measures: MeasureMap = {f"group_flag:{flag[:LONGEST_NAME]}": 1 for flag in group.flags}
    if summary.low_signal:
        measures["low_signal"] = 1
    if group.lag is not None and group.lag >= 0:
        measures["lag"] = _add_up_whole([group.lag])
    if "stale" in group.flags:
        measures["stale"] = 1
    if counted.readings or counted.failed_readings:
        measures["readings"] = _add_up_whole([counted.readings])
        measures["failed_readings"] = _add_up_whole([counted.failed_readings])
        measures["judge_calls"] = _add_up_whole([counted.judge_calls])
    if counted.priced and not counted.unpriced:
        measures["judge_usd"] = _build_sums(1, counted.judge_picodollars * UNIT // PICODOLLARS)
    return measures


def negate(measures: Mapping[str, int | Sums]) -> MeasureMap:
    """The measures that take these away again."""
    return {name: -of if isinstance(of, int) else [-number for number in of] for name, of in measures.items()}


def merge_measures(parts: Iterable[Mapping[str, int | Sums]]) -> MeasureMap:
    """The sum of measures. What comes to nothing is left out."""
    merged: MeasureMap = {}
    for part in parts:
        for name, value in part.items():
            present = merged.get(name)
            if present is None:
                merged[name] = value
            elif isinstance(present, int):
                merged[name] = present + value  # type: ignore[operator]  # a name is either always a count or never
            else:
                merged[name] = _add_up_sums(present, value)  # type: ignore[arg-type]
    return {name: value for name, value in merged.items() if value and value != NO_VALUES and value != _NO_GROUPS}


def add_measures(present: Mapping[str, int | Sums], added: MeasureMap) -> MeasureMap:
    """A rollup after a change. It holds at most MOST_NAMES names and those of _REST_OF: what tasks, sheets and rubrics
    name is counted together once there are more. From then on no new name is held, so that what is taken away again was
    counted under the same name."""
    is_full = not present.keys().isdisjoint(_REST_OF.values())
    room = 0 if is_full else MOST_NAMES - len(present)
    if len(added) <= room:
        return merge_measures((present, added)) if present else added
    folded: list[Mapping[str, int | Sums]] = [present]
    for name, value in sorted(added.items()):
        rest = None if name in present else _REST_OF.get(name.partition(":")[0])
        folded.append({name if rest is None or room > 0 else rest: value})
        room -= rest is not None
    return merge_measures(folded)


@dataclass(frozen=True)
class Rollup:
    """The measures of all groups of one key."""

    key: RollupKey
    measures: MeasureMap = field(default_factory=dict)

    def count(self, name: str) -> int:
        """A count, or the number of values in a sum."""
        value = self.measures.get(name, 0)
        return value if isinstance(value, int) else value[0]

    def share(self, name: str, of: str = "scored") -> float | None:
        """One count over another, such as `gated` of `scored`, `low_signal` of `groups`, `duplicates` of `rollouts`."""
        total = self.count(of)
        return self.count(name) / total if total else None

    def mean(self, name: str) -> float | None:
        value = self.measures.get(name)
        return compute_mean(value) if isinstance(value, list) else None

    def spread(self, name: str) -> GroupSpread:
        value = self.measures.get(name)
        return compute_spread(value) if isinstance(value, list) else GroupSpread()

    def add_up_criteria(self) -> "Rollup":
        """The sums of each criterion by its bare name, in the order in which scores list them."""
        first: dict[str, int] = {}
        parts: list[MeasureMap] = []
        for measure in self.list_names("criterion:"):
            _, ordinal, name = measure.split(":", 2)
            first[name] = min(int(ordinal), first.get(name, int(ordinal)))
            parts.append({name: self.measures[measure]})
        merged = merge_measures(parts)
        return Rollup(self.key, {name: merged[name] for name in sorted(merged, key=lambda name: (first[name], name))})

    def list_names(self, prefix: str) -> list[str]:
        """The names of measures that begin so, such as `flag:` or `criterion:`, in order."""
        return sorted(name for name in self.measures if name.startswith(prefix))


def add_up_rollups(rollups: Sequence[Rollup]) -> Rollup:
    """All together, under the key of the first."""
    return Rollup(rollups[0].key, merge_measures([rollup.measures for rollup in rollups]))


def find_pass_rate_bin(sums: Sequence[int]) -> int | None:
    """The tenth in which the mean lies, counted from 0, with 1 in the last; None without values."""
    mean = compute_mean(sums)
    return None if mean is None else bisect_right(_PASS_RATES, mean)


# Pass rates of tasks

_TASK_MEMORY: Final = 0.7
"""Weight of a task's older groups relative to a newer one, since the policy changes."""

HALF_LIFE_GROUPS: Final = 2_000
"""Half-life of a task's observations, in groups of the run."""

_LABEL_MEMORY: Final = 0.98
_OVERALL_MEMORY: Final = 0.99
"""The same of a label and of all tasks, which have more groups and move more slowly."""
TASK_PRIOR: Final = 2.0
"""Weight of the prior from similar tasks, in completions. Small, because similar tasks differ, so an untried task
stays uncertain."""

_LABEL_PRIOR: Final = 8.0
MAX_TASKS: Final = 20_000
"""Maximum number of tasks kept; the least recently tried are dropped."""


class TaskOutcome(Frozen):
    """One training group of a run. `sequence` is its place among all groups."""

    sequence: int
    index: int
    label: str | None = None
    tried: int
    """Number of completions with a score."""
    passed: float
    """Sum of gate x absolute over them; for a verifier, the number of correct ones."""
    pending: bool = False


@dataclass(frozen=True, slots=True)
class _PassTally:
    """Weighted counts: older groups weigh less, so both are real numbers."""

    tried: float = 0.0
    passed: float = 0.0

    def add_outcome(self, outcome: TaskOutcome, memory: float) -> "_PassTally":
        return _PassTally(self.tried * memory + outcome.tried, self.passed * memory + outcome.passed)

    def fade(self, share: float) -> "_PassTally":
        return _PassTally(self.tried * share, self.passed * share)

    def estimate_rate(self, prior: float, weight: float) -> float:
        """Mean of a Beta posterior; the prior has mean `prior` and the weight of `weight` completions."""
        return (self.passed + prior * weight) / (self.tried + weight)


@dataclass(frozen=True, slots=True)
class ExpectedRate:
    """Mean and variance of a task's pass rate."""

    rate: float
    variance: float

    def compute_distance(self, target: float) -> float:
        """Expected squared distance from the target. Uncertain tasks are farther than well-known ones of the same
        rate."""
        return (self.rate - target) ** 2 + self.variance


@dataclass(frozen=True, slots=True)
class _TaskTally:
    """Observations of one task. `at` is the number of groups counted when it was last tried."""

    tally: _PassTally
    at: int


@dataclass(slots=True)
class PassRates:
    """Pass rates of a run's tasks in one environment, split and params."""

    tasks: OrderedDict[int, _TaskTally] = field(default_factory=OrderedDict)
    """By index, most recently tried last."""
    labels: dict[str, _PassTally] = field(default_factory=dict)
    overall: _PassTally = _PassTally()
    counted: int = 0

    def add_outcome(self, outcome: TaskOutcome) -> None:
        if outcome.tried == 0:
            return
        self.counted += 1
        seen = _TaskTally(self._get_tally(outcome.index).add_outcome(outcome, _TASK_MEMORY), self.counted)
        self.tasks[outcome.index] = seen
        self.tasks.move_to_end(outcome.index)
        if len(self.tasks) > MAX_TASKS:
            self.tasks.popitem(last=False)
        self.overall = self.overall.add_outcome(outcome, _OVERALL_MEMORY)
        if outcome.label is not None:
            self.labels[outcome.label] = self.labels.get(outcome.label, _PassTally()).add_outcome(
                outcome, _LABEL_MEMORY
            )

    def estimate(self, index: int, label: str | None) -> ExpectedRate:
        """Estimates a task's rate from its own outcomes, shrunk towards those of its label and of all tasks."""
        of_all = self.overall.estimate_rate(0.5, 2.0)
        alike = of_all if label is None else self.labels.get(label, _PassTally()).estimate_rate(of_all, _LABEL_PRIOR)
        tally = self._get_tally(index)
        rate = min(1.0, tally.estimate_rate(alike, TASK_PRIOR))
        return ExpectedRate(rate, rate * (1 - rate) / (tally.tried + TASK_PRIOR + 1))

    def _get_tally(self, index: int) -> _PassTally:
        seen = self.tasks.get(index)
        return _PassTally() if seen is None else seen.tally.fade(0.5 ** ((self.counted - seen.at) / HALF_LIFE_GROUPS))


def find_nearest(target: float, expected: Mapping[int, ExpectedRate]) -> int:
    """The key of the task expected closest to the target; the first one on ties."""
    return min(expected, key=lambda key: expected[key].compute_distance(target))
