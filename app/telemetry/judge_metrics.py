"""Metrics of judges: counted with their judgements, and gauges of their state, read before every scrape."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from app.domain.judging import Judgement, JudgeReport
from app.telemetry.process_gauges import Joining

JUDGE_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0)

Reports = Callable[[], Mapping[str, JudgeReport]]
"""By judge."""

_GAUGES: Final[Mapping[str, tuple[str, Joining, Callable[[JudgeReport], float | None]]]] = {
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


class JudgeMetrics:
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
            buckets=JUDGE_SECONDS,
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


class JudgeGauges:
    """The state of judges, and what their caches answered, as of the last `refresh`."""

    def __init__(self, prefix: str, registry: CollectorRegistry, reports: Reports) -> None:
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
