"""Metrics of scored groups, counted together."""

from bisect import bisect_left
from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from app.domain.rewards import has_low_signal, measure_spread
from app.domain.scores import Score
from app.ports.runtime import ScoredGroup
from app.telemetry.judge_metrics import JUDGE_SECONDS

_UNIT_BUCKETS: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_STD_BUCKETS: Final = (0.0, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6)

_MAX_CRITERIA: Final = 64
"""By environment."""
_MOST_UNCOUNTED: Final = 256
"""Groups that are kept until they are counted."""


class CountedHistogram(Histogram):
    def observe_all(self, amounts: Sequence[float]) -> None:
        """Observes each. The histogram changes once for all of a bucket."""
        for place, count in Counts([bisect_left(self._upper_bounds, amount) for amount in amounts]).items():
            self._buckets[place].inc(count)
        self._sum.inc(sum(amounts))


class ScoreMetrics:
    """By environment. To change a metric takes longer than to count, so groups are counted when there are many, and
    before anybody looks."""

    def __init__(self, prefix: str, registry: CollectorRegistry) -> None:
        def create_counter(name: str, documentation: str, *labels: str) -> Counter:
            return Counter(f"{prefix}_{name}", documentation, ("env", *labels), registry=registry)

        def create_histogram(name: str, documentation: str, buckets: Sequence[float], *labels: str) -> CountedHistogram:
            return CountedHistogram(
                f"{prefix}_{name}", documentation, ("env", *labels), registry=registry, buckets=buckets
            )

        self._rollouts = create_counter("rollouts", "Completions by outcome of scoring.", "outcome", "reason")
        self._reward = create_histogram("reward", "Rewards of scored completions.", _UNIT_BUCKETS)
        self._criterion = create_histogram("criterion", "Criteria of scored completions.", _UNIT_BUCKETS, "criterion")
        self._std = create_histogram(
            "group_reward_std", "Sample standard deviation of a group's rewards.", _STD_BUCKETS
        )
        self._low_signal = create_counter(
            "groups_low_signal", "Groups with almost equal rewards, or with judges that contradict themselves."
        )
        self._seconds = create_histogram("group_scoring_seconds", "Time to score a group.", JUDGE_SECONDS)
        self._criteria: defaultdict[str, set[str]] = defaultdict(set)
        self._uncounted: list[tuple[str, ScoredGroup]] = []

    def record(self, env: str, groups: Sequence[ScoredGroup]) -> None:
        self._uncounted += [(env, group) for group in groups]
        if len(self._uncounted) >= _MOST_UNCOUNTED:
            self.count()

    def count(self) -> None:
        by_environment: defaultdict[str, list[ScoredGroup]] = defaultdict(list)
        for env, group in self._uncounted:
            by_environment[env].append(group)
        self._uncounted.clear()
        for env, groups in by_environment.items():
            self._count_groups(env, groups)
            self._count_scores(env, [score for scores, _ in groups for score in scores])

    def _count_groups(self, env: str, groups: Sequence[ScoredGroup]) -> None:
        rewards = [[score.reward for score in scores if score.reward is not None] for scores, _ in groups]
        spreads = [measure_spread(of_group)[1] for of_group in rewards]
        self._reward.labels(env).observe_all([reward for of_group in rewards for reward in of_group])
        self._std.labels(env).observe_all([std for std in spreads if std is not None])
        self._seconds.labels(env).observe_all([seconds for _, seconds in groups])
        low = [
            std is not None and has_low_signal(scores, std) for (scores, _), std in zip(groups, spreads, strict=True)
        ]
        self._low_signal.labels(env).inc(low.count(True))

    def _count_scores(self, env: str, scores: Sequence[Score]) -> None:
        for (outcome, reason), count in Counts([(score.outcome, score.reason or "") for score in scores]).items():
            self._rollouts.labels(env, outcome, reason).inc(count)
        values: defaultdict[str, list[float]] = defaultdict(list)
        for score in scores:
            for criterion in score.criteria:
                if criterion.value is not None:
                    values[criterion.name].append(criterion.value)
        for name, given in values.items():
            self._criterion.labels(env, self._limit_criterion(env, name)).observe_all(given)

    def _limit_criterion(self, env: str, name: str) -> str:
        """Limits the label, since callers of `rlaif` name their own criteria."""
        known = self._criteria[env]
        if name not in known and len(known) >= _MAX_CRITERIA:
            return "other"
        known.add(name)
        return name
