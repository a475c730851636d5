"""Rollups: what stored groups add up to, kept beside them so that statistics need not read them again.

A new measure is a line in `list_measures`: rollups hold measures by name, so no table changes. Groups that were counted
before lack it until the statistics are rebuilt.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final, Literal, NamedTuple

from app.domain.completion_sizes import measure_completions
from app.domain.digests import digest
from app.domain.exact_sums import NO_VALUES, UNIT, Sums, add_up, add_up_whole, compute_mean
from app.domain.groups import Group, Rollout
from app.domain.judging import Judgement
from app.domain.rewards import has_low_signal, measure_spread
from app.domain.runs import Purpose
from app.domain.scores import Score

GROUPS_PER_BUCKET: Final = 10
"""A bucket is this many groups that follow each other in the store, so at most this many of one run."""
SATURATED_ABOVE: Final = 0.95
"""Rewards above this leave a policy little to gain."""
PASS_RATE_BINS: Final = 10
LONGEST_NAME: Final = 200
"""Characters of a flag or of a criterion's name by which it is counted."""

PICODOLLARS: Final = 10**12  # in a dollar
MOST_NAMES: Final = 256
REST_OF: Final = {"criterion": "other_criteria", "flag": "other_flags", "group_flag": "other_group_flags"}
"""Where new flags and criteria are counted, by kind, once a rollup has MOST_NAMES measures."""

_PASS_RATES: Final = [place / PASS_RATE_BINS for place in range(1, PASS_RATE_BINS)]

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
    """Which rollups of a series are read. Every field narrows it; `label` is the name of a judge or data set
    in their series."""

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
    priced: int = 0
    unpriced: int = 0
    """Judgements whose cost is not known, although a model was asked."""
    judge_picodollars: int = 0
    """Whole numbers, so that a sum in the store is the same sum."""


def count_readings(counted: CountedGroup, judgements: Iterable[Judgement]) -> CountedGroup:
    """`counted`, with these judgements added. Readings for another purpose than scores are left out."""
    made = [judgement for judgement in judgements if judgement.purpose == "score"]
    if not made:
        return counted
    failed = sum(judgement.error is not None for judgement in made)
    return replace(
        counted,
        readings=counted.readings + len(made) - failed,
        failed_readings=counted.failed_readings + failed,
        judge_calls=counted.judge_calls + sum(judgement.calls for judgement in made),
        priced=counted.priced + sum(judgement.cost_usd is not None for judgement in made),
        unpriced=counted.unpriced + sum(judgement.cost_usd is None and judgement.calls > 0 for judgement in made),
        judge_picodollars=counted.judge_picodollars
        + sum(round(judgement.cost_usd * PICODOLLARS) for judgement in made if judgement.cost_usd is not None),
    )


def list_keys(counted: CountedGroup, label: str | None, dataset: str | None) -> list[RollupKey]:
    """Where the group counts. `label` and `dataset` are its task's."""
    group = counted.group
    environment, run, purpose = group.environment, group.run, group.purpose
    step = group.policy.step if group.policy else None
    keys = [RollupKey("step", environment, run, purpose, step)]
    if run is not None:
        bucket = counted.sequence // GROUPS_PER_BUCKET
        keys.append(RollupKey("run", environment, run, purpose))
        keys.append(RollupKey("bucket", environment, run, purpose, None, label, bucket))
    panels = dict.fromkeys([rollout.score.judges for rollout in group.rollouts])
    named: list[tuple[Series, str | None]] = [("label", label), ("dataset", dataset)]
    named += dict.fromkeys([("judge", judge) for panel in panels for judge in panel])
    return keys + [RollupKey(kind, environment, run, purpose, step, name) for kind, name in named if name is not None]


class _Columns(NamedTuple):
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
    scored = [score for score in scores if score.outcome == "scored"]
    columns = _Columns(*zip(*map(_read_fields, scored), strict=True))
    measures: MeasureMap = {"groups": 1, "rollouts": len(scores)}
    measures.update(_measure_completions(rollouts))
    if scored:
        measures.update(_measure_scored(columns))
    if len(scored) < len(scores) and (reasons := [score.reason for score in scores if score.outcome == "unscored"]):
        measures["unscored"] = len(reasons)
        measures.update({f"unscored:{reason}": count for reason, count in Counter(reasons).items()})
    if flags := [flag[:LONGEST_NAME] for score in scores if score.flags for flag in score.flags]:
        measures.update({f"flag:{flag}": count for flag, count in Counter(flags).items()})
    measures.update(_measure_group(counted, scores, columns.reward))
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
    sizes = measure_completions(rollouts)
    measures: MeasureMap = {"length": add_up_whole(sizes.lengths)}
    if sizes.tokens:
        measures["tokens"] = add_up_whole(sizes.tokens)
    if duplicates := len(rollouts) - sizes.different:
        measures["duplicates"] = duplicates
    return measures


def _measure_scored(scored: _Columns) -> MeasureMap:
    counts = {
        "scored": len(scored.reward),
        "gated": scored.gate.count(0.0),
        "capped": len(scored.cap) - scored.cap.count(None),
        "saturated": len([reward for reward in scored.reward if reward > SATURATED_ABOVE]),
    }
    measures: MeasureMap = {name: count for name, count in counts.items() if count}
    measures["reward"] = add_up(scored.reward)
    absolutes = [
        absolute if gate is None else gate * absolute
        for gate, absolute in zip(scored.gate, scored.absolute, strict=True)
        if absolute is not None
    ]
    if absolutes:
        measures["absolute"] = add_up(absolutes)
    if scored.calibrated.count(None) < len(scored.calibrated):
        measures.update(_measure_calibrated(scored))
    return measures


def _measure_calibrated(scored: _Columns) -> MeasureMap:
    both = list(zip(scored.absolute, scored.calibrated, strict=True))
    gaps = [absolute - value for absolute, value in both if absolute is not None and value is not None]
    found: MeasureMap = {"calibrated": add_up([value for _, value in both if value is not None])}
    return found | {"calibration_gap": add_up(gaps)} if gaps else found


def _measure_group(counted: CountedGroup, scores: Sequence[Score], rewards: Sequence[float]) -> MeasureMap:
    group = counted.group
    measures: MeasureMap = {f"group_flag:{flag[:LONGEST_NAME]}": 1 for flag in group.flags}
    _, std = measure_spread(rewards)
    if std is not None:
        measures["spread"] = add_up([std])
        if group.outcome != "pending" and has_low_signal(scores, std):
            measures["low_signal"] = 1
    if group.lag is not None and group.lag >= 0:
        measures["lag"] = add_up_whole([group.lag])
    if "stale" in group.flags:
        measures["stale"] = 1
    if counted.readings or counted.failed_readings:
        measures["readings"] = add_up_whole([counted.readings])
        measures["failed_readings"] = add_up_whole([counted.failed_readings])
        measures["judge_calls"] = add_up_whole([counted.judge_calls])
    if counted.priced and not counted.unpriced:
        measures["judge_usd"] = [1, counted.judge_picodollars * UNIT // PICODOLLARS]
    return measures


def negate(measures: Mapping[str, int | Sums]) -> MeasureMap:
    """What takes these measures away."""
    return {name: -of if isinstance(of, int) else [-number for number in of] for name, of in measures.items()}


def merge_measures(parts: Iterable[Mapping[str, int | Sums]]) -> MeasureMap:
    """Their sum. What comes to nothing is left out."""
    merged: MeasureMap = {}
    for part in parts:
        for name, value in part.items():
            known = merged.get(name)
            if known is None:
                merged[name] = value
            elif isinstance(known, int):
                merged[name] = known + value  # type: ignore[operator]  # a name is either always a count or never
            else:
                merged[name] = [known[0] + value[0], known[1] + value[1]]  # type: ignore[index]
    return {name: value for name, value in merged.items() if value and value != NO_VALUES}


def add_measures(known: Mapping[str, int | Sums], added: MeasureMap) -> MeasureMap:
    """A rollup after a change. It holds at most MOST_NAMES names and REST_OF: what tasks, sheets and rubrics name is
    counted together once there are more. From then on no new name is held, so that what is taken away again was
    counted under the same name."""
    is_full = not known.keys().isdisjoint(REST_OF.values())
    room = 0 if is_full else MOST_NAMES - len(known)
    if len(added) <= room:
        return merge_measures((known, added)) if known else added
    folded: list[Mapping[str, int | Sums]] = [known]
    for name, value in sorted(added.items()):
        rest = None if name in known else REST_OF.get(name.partition(":")[0])
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


def find_pass_rate_bin(sums: Sequence[int]) -> int | None:
    """In which tenth the mean lies, 1 in the last; null without values."""
    mean = compute_mean(sums)
    return None if mean is None else bisect_right(_PASS_RATES, mean)
