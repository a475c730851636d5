"""Rollups: what stored groups add up to, kept beside them so that statistics need not read them again.

A new measure is a line in `list_measures`: rollups hold measures by name, so no table changes. Groups that were counted
before lack it until the statistics are rebuilt.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

from app.domain.digests import digest
from app.domain.groups import Group, Rollout
from app.domain.judging import Judgement
from app.domain.rewards import compute_statistics
from app.domain.runs import Purpose
from app.domain.scores import Score

GROUPS_PER_BUCKET: Final = 10
"""A bucket is this many groups that follow each other in the store, so at most this many of one run."""
SATURATED_ABOVE: Final = 0.95
"""Rewards above this leave a policy little to gain."""
PASS_RATE_BINS: Final = 10

_UNIT: Final = 2.0**60
_WHOLE_UNIT: Final = 2**60

Series = Literal["run", "step", "label", "judge", "bucket"]
"""What groups are added up by beside environment, run and purpose: `run` by nothing more, `step` by policy step,
`label` and `judge` by policy step and either of these, `bucket` by their order in the store and label."""

Sums = list[int]
"""A number of values, their sum and the sum of their squares, both in units of 2^-60: whole numbers add up to the same
in any order, and what is taken away again leaves no trace."""
MeasureMap = dict[str, int | Sums]
"""By name: a count, or sums of values."""


class RollupKey(NamedTuple):
    series: Series
    environment: str
    run: str | None
    purpose: Purpose
    step: int | None = None
    label: str | None = None
    """The tasks' label, or the judge's name in the series `judge`."""
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
    """Which rollups of a series are read. Every field narrows it; `label` is a judge's name in the series `judge`."""

    series: Series
    environment: str | None = None
    run: str | None = None
    purpose: Purpose | None = "train"
    label: str | None = None
    first_bucket: int | None = None


@dataclass(frozen=True)
class CountedGroup:
    """A stored group, with what is counted and stands outside of it."""

    group: Group
    sequence: int
    readings: int = 0
    """Usable judgements of its own scores."""
    failed_readings: int = 0
    judge_calls: int = 0


def count_readings(counted: CountedGroup, judgements: Iterable[Judgement]) -> CountedGroup:
    """`counted`, with these judgements added."""
    made = list(judgements)
    failed = sum(judgement.error is not None for judgement in made)
    return replace(
        counted,
        readings=counted.readings + len(made) - failed,
        failed_readings=counted.failed_readings + failed,
        judge_calls=counted.judge_calls + sum(judgement.calls for judgement in made),
    )


def list_keys(counted: CountedGroup, label: str | None) -> list[RollupKey]:
    """Where the group counts. `label` is its task's."""
    group = counted.group
    environment, run, purpose = group.environment, group.run, group.purpose
    step = group.policy.step if group.policy else None
    keys = [RollupKey("step", environment, run, purpose, step)]
    if label is not None:
        keys.append(RollupKey("label", environment, run, purpose, step, label))
    if run is not None:
        bucket = counted.sequence // GROUPS_PER_BUCKET
        keys.append(RollupKey("run", environment, run, purpose))
        keys.append(RollupKey("bucket", environment, run, purpose, None, label, bucket))
    judges = dict.fromkeys(judge for rollout in group.rollouts for judge in rollout.score.judges)
    return keys + [RollupKey("judge", environment, run, purpose, step, judge) for judge in judges]


def list_measures(counted: CountedGroup) -> MeasureMap:
    """What the group adds to each of its rollups. Counts are of groups (`groups`, `low_signal`, `group_flag:…`) or of
    rollouts (the others). Sums are over scored rollouts, but `length` and `tokens` over all rollouts, and `spread`,
    `readings`, `failed_readings` and `judge_calls` over groups."""
    rollouts = counted.group.rollouts
    scores = [rollout.score for rollout in rollouts]
    scored = [score for score in scores if score.outcome == "scored"]
    measures: MeasureMap = {"groups": 1, "rollouts": len(scores)}
    measures.update(_count_scores(scores, scored))
    measures.update(_add_up_scores(scored))
    measures.update(_measure_group(counted, scores))
    measures["length"] = add_up(_count_characters(rollout) for rollout in rollouts)
    tokens = [len(ids) for rollout in rollouts if (ids := rollout.completion.token_ids) is not None]
    if tokens:
        measures["tokens"] = add_up(tokens)
    return measures


def _count_scores(scores: Sequence[Score], scored: Sequence[Score]) -> MeasureMap:
    rewards = [score.reward for score in scored if score.reward is not None]
    counts: Counter[str] = Counter(f"flag:{flag}" for score in scores for flag in score.flags)
    counts.update(f"unscored:{score.reason}" for score in scores if score.outcome == "unscored")
    counts["scored"] = len(scored)
    counts["unscored"] = sum(score.outcome == "unscored" for score in scores)
    counts["gated"] = sum(score.gate == 0.0 for score in scored)
    counts["capped"] = sum(score.cap is not None for score in scored)
    counts["saturated"] = sum(reward > SATURATED_ABOVE for reward in rewards)
    return {name: count for name, count in counts.items() if count}


def _add_up_scores(scored: Sequence[Score]) -> MeasureMap:
    absolutes = [
        (1.0 if score.gate is None else score.gate) * score.absolute for score in scored if score.absolute is not None
    ]
    values: dict[str, list[float]] = {
        "reward": [score.reward for score in scored if score.reward is not None],
        "absolute": absolutes,
    }
    for score in scored:
        for ordinal, criterion in enumerate(score.criteria):
            if criterion.value is not None:
                values.setdefault(f"criterion:{ordinal}:{criterion.name}", []).append(criterion.value)
    return {name: add_up(given) for name, given in values.items() if given}


def _measure_group(counted: CountedGroup, scores: Sequence[Score]) -> MeasureMap:
    group, statistics = counted.group, compute_statistics(scores)
    measures: MeasureMap = {f"group_flag:{flag}": 1 for flag in group.flags}
    if statistics.teaches_nothing and not any(score.outcome == "pending" for score in scores):
        measures["low_signal"] = 1
    if statistics.std is not None:
        measures["spread"] = add_up([statistics.std])
    if duplicates := len(group.rollouts) - len({_identify(rollout) for rollout in group.rollouts}):
        measures["duplicates"] = duplicates
    if counted.readings or counted.failed_readings:
        measures["readings"] = add_up([counted.readings])
        measures["failed_readings"] = add_up([counted.failed_readings])
        measures["judge_calls"] = add_up([counted.judge_calls])
    return measures


def _identify(rollout: Rollout) -> str:
    """Equal for equal completions."""
    completion = rollout.completion
    return json.dumps(completion.identity) if completion.text is None else completion.text


def _count_characters(rollout: Rollout) -> int:
    """Of what the model wrote."""
    completion = rollout.completion
    if completion.text is not None:
        return len(completion.text)
    return sum(len(message.content or "") for message in completion.messages or () if message.role == "assistant")


def add_up(values: Iterable[float]) -> Sums:
    """Values may be as large as numbers of tokens, and far larger."""
    count = total = squares = 0
    for value in values:
        count += 1
        total += int(value * _UNIT)
        squares += int(value * value * _UNIT)
    return [count, total, squares]


def merge_measures(into: MeasureMap, added: Mapping[str, int | Sums], sign: Literal[1, -1] = 1) -> None:
    """Adds to `into`, or takes away. What comes to nothing is left out."""
    for name, value in added.items():
        known = into.get(name)
        if isinstance(value, int):
            into[name] = merged = (known if isinstance(known, int) else 0) + sign * value
            if not merged:
                del into[name]
            continue
        count, total, squares = known if isinstance(known, list) else (0, 0, 0)
        into[name] = [count + sign * value[0], total + sign * value[1], squares + sign * value[2]]
        if into[name] == [0, 0, 0]:
            del into[name]


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
        return value[1] / (value[0] * _WHOLE_UNIT) if isinstance(value, list) and value[0] else None

    def variance(self, name: str) -> float | None:
        """The sample variance; null below two values."""
        value = self.measures.get(name)
        if not isinstance(value, list) or value[0] < 2:
            return None
        count, total, squares = value
        return max(0.0, (squares * count - total * total // _WHOLE_UNIT) / (count * (count - 1) * _WHOLE_UNIT))

    def add_up_criteria(self) -> "Rollup":
        """The sums of each criterion by its bare name, in the order in which scores list them."""
        first: dict[str, int] = {}
        merged: MeasureMap = {}
        for measure in self.list_names("criterion:"):
            _, ordinal, name = measure.split(":", 2)
            first[name] = min(int(ordinal), first.get(name, int(ordinal)))
            merge_measures(merged, {name: self.measures[measure]})
        return Rollup(self.key, {name: merged[name] for name in sorted(first, key=lambda name: (first[name], name))})

    def list_names(self, prefix: str) -> list[str]:
        """The names of measures that begin so, such as `flag:` or `criterion:`, in order."""
        return sorted(name for name in self.measures if name.startswith(prefix))


def merge_rollups(key: RollupKey, rollups: Iterable[Rollup]) -> Rollup:
    """All of them under one key, such as the buckets of a window or all labels of a bucket."""
    merged: MeasureMap = {}
    for rollup in rollups:
        merge_measures(merged, rollup.measures)
    return Rollup(key, merged)


def find_pass_rate_bin(sums: Sequence[int]) -> int | None:
    """In which tenth the mean lies, 1 in the last; null without values."""
    count, total = sums[:2]
    if count == 0:
        return None
    rate = total / (count * _WHOLE_UNIT)
    return max(place for place in range(PASS_RATE_BINS) if place == 0 or rate >= place / PASS_RATE_BINS)
