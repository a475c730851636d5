"""Prometheus metrics. Labels never hold ids, characters or anything else that a caller can invent.

What happens is counted as it happens. The state of judges and queues is read before every scrape; where several
processes share their metrics, each writes its part every few seconds, and every gauge says how the parts are joined.
"""

from bisect import bisect_left
from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, get_args

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

from app.domain.judging import Judgement, JudgeReport, summarise_scores
from app.domain.runs import SeriesName
from app.domain.scores import Score
from app.ports.environment import ScoredGroup

# Gauges where several processes share their metrics

_Joining = Literal["livesum", "livemax", "livemin", "livemostrecent"]
"""What is shown of the values of several processes, those that live."""


class _ProcessGauges:
    """What `ProcessCollector` tells of one process, under its names, labelled with the id of the process. Without the
    one that looks after the others."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._collector = ProcessCollector(registry=None)
        self._gauges = {
            sample.name: Gauge(sample.name, family.documentation, registry=registry, multiprocess_mode="liveall")
            for family in self._collector.collect()
            for sample in family.samples
        }
        self.refresh()

    def refresh(self) -> None:
        for family in self._collector.collect():
            for sample in family.samples:
                self._gauges[sample.name].set(sample.value)


# Judges: counted with their judgements, and gauges of their state

_JUDGE_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0)

_Reports = Callable[[], Mapping[str, JudgeReport]]
"""By judge."""

_GAUGES: Final[Mapping[str, tuple[str, _Joining, Callable[[JudgeReport], float | None]]]] = {
    "judge_in_flight": ("Calls in flight to a judge's server.", "livesum", lambda report: report.in_flight),
    "judge_queued": ("Calls waiting for a judge's limits.", "livesum", lambda report: report.queued),
    "judge_limit": (
        "Current concurrency limit of a judge, over all processes.",
        "livemostrecent",
        lambda report: report.limit,
    ),
    "judge_share": (
        "Concurrent calls that this replica may make now.",
        "livesum",
        lambda report: report.share,
    ),
    "judge_breaker_open": (
        "Circuit breaker of a judge: 1 open, 0.5 half open (one probe), 0 closed.",
        "livemax",
        lambda report: {"ok": 0.0, "probing": 0.5, "out": 1.0}[report.health],
    ),
    "judge_spent_usd": (
        "Total cost of a judge since the database was created.",
        "livemax",
        lambda report: report.spent.cost_usd,
    ),
    "judge_unanswered_usd": (
        "Highest possible cost of calls without an answer. Not in judge_spent_usd, but counted by budgets.",
        "livemostrecent",
        lambda report: report.spent.unanswered_usd,
    ),
    "judge_budget_left_usd": (
        "Remaining budget in US dollars (the tightest one), for judges with a budget.",
        "livemostrecent",
        lambda report: report.budget_left_usd,
    ),
    "judge_budget_left_tokens": (
        "Remaining token budget, for judges with one.",
        "livemostrecent",
        lambda report: report.budget_left_tokens,
    ),
}
"""By name: what it means, what several processes show together, and where it is read."""


class _JudgeMetrics:
    """What judges did, by judge and model."""

    def __init__(self, prefix: str, registry: CollectorRegistry) -> None:
        def create_counter(name: str, documentation: str, *labels: str) -> Counter:
            return Counter(f"{prefix}_{name}", documentation, ("judge", "model", *labels), registry=registry)

        self._judgements = create_counter("judgements", "Judgements of a group: usable or failed.", "outcome")
        self._requests = create_counter("judge_requests", "Requests sent to a judge's model, retries included.")
        self._seconds = Histogram(
            f"{prefix}_judge_seconds",
            "Time from a judge's request to its judgement.",
            ("judge", "model"),
            registry=registry,
            buckets=_JUDGE_SECONDS,
        )
        self._tokens = create_counter(
            "judge_tokens",
            "Tokens read and written by judges. `cached_input` is part of `input`, `reasoning` of `output`.",
            "type",
        )
        self._cost = create_counter("judge_cost_usd", "Cost of judges at configured prices, in US dollars.")

    def record(self, judgements: Sequence[Judgement]) -> None:
        for judgement in judgements:
            who = (judgement.judge, judgement.model)
            self._judgements.labels(*who, "usable" if judgement.error is None else "failed").inc()
            self._requests.labels(*who).inc(judgement.calls)
            self._seconds.labels(*who).observe(judgement.latency_seconds)
            self._tokens.labels(*who, "input").inc(judgement.input_tokens)
            self._tokens.labels(*who, "output").inc(judgement.output_tokens)
            self._tokens.labels(*who, "cached_input").inc(judgement.cached_input_tokens)
            self._tokens.labels(*who, "reasoning").inc(judgement.reasoning_tokens)
            if judgement.cost_usd is not None:
                self._cost.labels(*who).inc(max(0.0, judgement.cost_usd))


class _JudgeGauges:
    """The state of judges, and what their caches answered, as of the last `refresh`."""

    def __init__(self, prefix: str, registry: CollectorRegistry, reports: _Reports) -> None:
        self._reports = reports
        self._gauges = {
            name: Gauge(f"{prefix}_{name}", documentation, ("judge",), registry=registry, multiprocess_mode=joining)
            for name, (documentation, joining, _) in _GAUGES.items()
        }
        self._hits = Counter(
            f"{prefix}_judge_cache_hits", "Judgements answered from the cache.", ("judge",), registry=registry
        )
        self._counted: defaultdict[str, int] = defaultdict(int)

    def refresh(self) -> None:
        for judge, report in self._reports().items():
            for name, (_, _, value_of) in _GAUGES.items():
                if (value := value_of(report)) is not None:
                    self._gauges[name].labels(judge).set(value)
            self._hits.labels(judge).inc(report.cache_hits - self._counted[judge])
            self._counted[judge] = report.cache_hits


# Scored groups, counted together

_UNIT_BUCKETS: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_STD_BUCKETS: Final = (0.0, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6)

_MAX_CRITERIA: Final = 64
"""By environment."""
_MOST_UNCOUNTED: Final = 256
"""Groups that are kept until they are counted."""


class _CountedHistogram(Histogram):
    def observe_all(self, amounts: Sequence[float]) -> None:
        """Observes each. The histogram changes once for all of a bucket."""
        # By private attributes of the client, which observes one at a time; changing a metric is slow.
        for bucket, count in Counts([bisect_left(self._upper_bounds, amount) for amount in amounts]).items():
            self._buckets[bucket].inc(count)
        self._sum.inc(sum(amounts))


class _ScoreMetrics:
    """By environment. To change a metric takes longer than to count, so groups are counted when there are many, and
    before anybody looks."""

    def __init__(self, prefix: str, registry: CollectorRegistry) -> None:
        def create_counter(name: str, documentation: str, *labels: str) -> Counter:
            return Counter(f"{prefix}_{name}", documentation, ("env", *labels), registry=registry)

        def create_histogram(
            name: str, documentation: str, buckets: Sequence[float], *labels: str
        ) -> _CountedHistogram:
            return _CountedHistogram(
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
        self._seconds = create_histogram("group_scoring_seconds", "Time to score a group.", _JUDGE_SECONDS)
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
        summaries = [summarise_scores(scores) for scores, _ in groups]
        rewards = [reward for summary in summaries for reward in summary.rewards if reward is not None]
        self._reward.labels(env).observe_all(rewards)
        self._std.labels(env).observe_all([summary.std for summary in summaries if summary.std is not None])
        self._seconds.labels(env).observe_all([seconds for _, seconds in groups])
        self._low_signal.labels(env).inc(len([summary for summary in summaries if summary.low_signal]))

    def _count_scores(self, env: str, scores: Sequence[Score]) -> None:
        for (outcome, reason), count in Counts([(score.outcome, score.reason or "") for score in scores]).items():
            self._rollouts.labels(env, outcome, reason).inc(count)
        values: defaultdict[str, list[float]] = defaultdict(list)
        for score in scores:
            for criterion in score.criteria:
                if criterion.value is not None:
                    values[criterion.name].append(criterion.value)
        for name, amounts in values.items():
            self._criterion.labels(env, self._limit_criterion(env, name)).observe_all(amounts)

    def _limit_criterion(self, env: str, name: str) -> str:
        """Limits the label, since callers of `rlaif` name their own criteria."""
        names = self._criteria[env]
        if name not in names and len(names) >= _MAX_CRITERIA:
            return "other"
        names.add(name)
        return name


PREFIX = "atropos_envs"

_FAST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)

_MAX_ENVIRONMENTS = 256
"""Requests for unknown environments must not grow the registry without limit."""

WatchedGauge = Literal[
    "db_write_queue",
    "db_read_queue",
    "db_disk_free_bytes",
    "group_oldest_seconds",
    "worker_queue",
    "program_queue",
    "program_oldest_seconds",
    "programs_isolated",
    "openenv_sessions",
    "foreign_sessions",
]
_WATCHED: Final[Mapping[WatchedGauge, tuple[str, _Joining]]] = {
    "db_write_queue": ("Writes waiting in the queue.", "livesum"),
    "db_read_queue": ("Reads waiting for a reader of the store.", "livesum"),
    "db_disk_free_bytes": ("Free space where the SQLite file lies; absent with PostgreSQL.", "livemin"),
    "group_oldest_seconds": ("Age of the oldest scoring under way; 0 without any.", "livemax"),
    "worker_queue": ("Calls waiting for a worker.", "livesum"),
    "program_queue": ("Programs waiting for a jail.", "livesum"),
    "program_oldest_seconds": ("Age of the program that waits longest for a jail; 0 without any.", "livemax"),
    "programs_isolated": (
        "1 if programs of models are isolated strongly, 0 if not, NaN until that was tried.",
        "livemin",
    ),
    "foreign_sessions": ("Open sessions of environments that run on others' servers.", "livesum"),
    "openenv_sessions": ("Open WebSocket sessions of OpenEnv clients.", "livesum"),
}


class PrometheusObserver:
    """Implements the port `Observer`, and metrics of the store and the web layer, in its own registry. With `shared`,
    the folder of `share_metrics`, it shows those of all processes that share it: their counts together, the state of
    those that live."""

    def __init__(self, shared: Path | None = None) -> None:
        self.registry = CollectorRegistry()
        self._shown = self.registry if shared is None else CollectorRegistry()
        PlatformCollector(registry=self._shown)
        self._refreshed: list[Callable[[], None]] = []
        if shared is None:
            ProcessCollector(registry=self.registry)
        else:
            MultiProcessCollector(self._shown, str(shared))  # type: ignore[no-untyped-call]
            self._refreshed.append(_ProcessGauges(self.registry).refresh)
        self._environments: set[str] = set()
        self._requests: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._handed_out = self._create_counter("tasks_handed_out", "Tasks handed out to trainers.", "env")
        self._scores = _ScoreMetrics(PREFIX, self.registry)
        self._refused = self._create_counter("groups_refused", "Groups rejected with a problem.", "env", "code")
        self._gathered = self._create_counter(
            "groups_gathered",
            "Groups assembled from parts: whole, partial, or late for parts after the group was judged.",
            "env",
            "how",
        )
        self._retrievals = self._create_counter("retrievals", "Retriever queries: answered or failed.", "outcome")
        self._retrieval_seconds = self._create_histogram(
            "retrieval_seconds", "Time of a retriever query.", _FAST_SECONDS
        )
        self._future = self._create_counter(
            "passages_future", "Passages withheld because they are later than the requested time."
        )
        self._judges = _JudgeMetrics(PREFIX, self.registry)
        self._commit = self._create_histogram(
            "db_commit_seconds", "Time of a database write transaction.", _FAST_SECONDS
        )
        self._work = self._create_counter(
            "worker_calls",
            "Worker calls, retries included: done, broke, died, cancelled or the exceeded limit.",
            "function",
            "outcome",
        )
        self._work_seconds = self._create_histogram(
            "worker_call_seconds", "Time of a call in a worker.", _FAST_SECONDS, "function"
        )
        self._programs = self._create_histogram(
            "program_seconds",
            "Run time of a model's program by its ending; lost when the sandbox failed.",
            _FAST_SECONDS,
            "ending",
        )
        self._trajectories = self._create_counter(
            "atropos_groups", "Groups posted to the Atropos API: new or known.", "what"
        )
        self._trajectory_batches = self._create_counter(
            "atropos_batches", "Batch requests: handed, again, not_yet or no_trainer.", "outcome"
        )
        self._untold = self._create_counter(
            "compat_unscored",
            "Unscored completions over contracts that cannot express them, by what was sent: error, number or null.",
            "contract",
            "env",
            "reason",
            "told",
        )
        self._alarms = Gauge(
            f"{PREFIX}_run_alarms",
            "Alarms of runs that stand, by series.",
            ("series",),
            registry=self.registry,
            multiprocess_mode="livemostrecent",
        )
        for series in get_args(SeriesName):
            self._alarms.labels(series).set(0)
        self._http = self._create_counter("http_requests", "Requests by route template.", "route", "method", "status")
        self._http_seconds = self._create_histogram(
            "http_request_seconds", "Time to answer a request.", _FAST_SECONDS, "route", "method"
        )

    def record_hand_out(self, environment: str, tasks: int) -> None:
        self._handed_out.labels(self._limit_environment(environment)).inc(tasks)

    def record_scores(self, environment: str, groups: Sequence[ScoredGroup]) -> None:
        self._scores.record(self._limit_environment(environment), groups)

    def record_judgements(self, judgements: Sequence[Judgement]) -> None:
        if judgements:
            self._judges.record(judgements)

    def record_refusal(self, environment: str, code: str) -> None:
        self._refused.labels(self._limit_environment(environment), code).inc()

    def record_closed_group(self, environment: str, flags: Sequence[str]) -> None:
        how = "partial" if "partial_group" in flags else "late" if "late" in flags else "whole"
        self._gathered.labels(self._limit_environment(environment), how).inc()

    def record_retrieval(self, seconds: float, *, failed: bool, future: int = 0) -> None:
        self._retrievals.labels("failed" if failed else "answered").inc()
        self._retrieval_seconds.observe(seconds)
        self._future.inc(future)

    def record_alarms(self, standing: Mapping[str, int]) -> None:
        for series in get_args(SeriesName):
            self._alarms.labels(series).set(standing.get(series, 0))

    def record_commit(self, seconds: float) -> None:
        self._commit.observe(seconds)

    def watch(self, gauge: WatchedGauge, read: Callable[[], float]) -> None:
        """`read` is asked at every scrape. A gauge that nobody reads is not exposed."""
        documentation, joining = _WATCHED[gauge]
        made = Gauge(f"{PREFIX}_{gauge}", documentation, registry=self.registry, multiprocess_mode=joining)
        self._refreshed.append(lambda: made.set(read()))

    def watch_judges(self, reports: _Reports) -> None:
        """`reports` are asked for at every scrape."""
        self._refreshed.append(_JudgeGauges(PREFIX, self.registry, reports).refresh)

    def refresh(self) -> None:
        """Counts what is recorded, and reads what is watched. Where processes share their metrics, each does it every
        few seconds for the others."""
        self._scores.count()
        for refresh in self._refreshed:
            refresh()

    def record_worker_call(self, function: str, outcome: str, seconds: float) -> None:
        """`function` is one of ours, `outcome` a word of `app.sandbox.workers.ObserveCall`."""
        self._work.labels(function, outcome).inc()
        self._work_seconds.labels(function).observe(seconds)

    def record_program(self, ending: str, seconds: float) -> None:
        """`ending` is one of `app.domain.tasks.Ending`, `lost` or `cancelled`."""
        self._programs.labels(ending).observe(seconds)

    def groups_received(self, new: int, known: int) -> None:
        """Groups posted by Atropos environments. `known` groups had been sent before."""
        self._trajectories.labels("new").inc(new)
        self._trajectories.labels("known").inc(known)

    def batch_asked(self, outcome: str) -> None:
        """`outcome` is a word of `app.features.atropos.service`."""
        self._trajectory_batches.labels(outcome).inc()

    def record_unscored_answer(self, contract: str, environment: str, reason: str, told: str) -> None:
        """`reason` is one of `app.domain.scores.Reason`, `pending` or `masked`; `told` is `error`, `number`, `masked`
        or `null`."""
        self._untold.labels(contract, self._limit_environment(environment), reason, told).inc()

    def record_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """`route` is a template such as `/envs/{env}/score`."""
        series = self._requests.get((route, method, status))
        if series is None:
            series = self._http.labels(route, method, str(status)), self._http_seconds.labels(route, method)
            self._requests[route, method, status] = series
        series[0].inc()
        series[1].observe(seconds)

    def render_exposition(self) -> tuple[bytes, str]:
        """The body of /metrics and its content type."""
        self.refresh()
        return generate_latest(self._shown), CONTENT_TYPE_LATEST

    def _limit_environment(self, environment: str) -> str:
        if environment not in self._environments:
            if len(self._environments) >= _MAX_ENVIRONMENTS:
                return "other"
            self._environments.add(environment)
        return environment

    def _create_counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", documentation, labels, registry=self.registry)

    def _create_histogram(self, name: str, documentation: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"{PREFIX}_{name}", documentation, labels, registry=self.registry, buckets=buckets)


class NullObserver:
    """Does nothing. For tests, and for commands without metrics."""

    def record_hand_out(self, environment: str, tasks: int) -> None:
        pass

    def record_scores(self, environment: str, groups: Sequence[ScoredGroup]) -> None:
        pass

    def record_judgements(self, judgements: Sequence[Judgement]) -> None:
        pass

    def record_refusal(self, environment: str, code: str) -> None:
        pass

    def record_closed_group(self, environment: str, flags: Sequence[str]) -> None:
        pass

    def record_retrieval(self, seconds: float, *, failed: bool, future: int = 0) -> None:
        pass

    def record_alarms(self, standing: Mapping[str, int]) -> None:
        pass

    def groups_received(self, new: int, known: int) -> None:
        pass

    def batch_asked(self, outcome: str) -> None:
        pass
