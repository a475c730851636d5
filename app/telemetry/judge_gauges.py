"""Gauges of the judges' state, read at every scrape."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from app.domain.judging import JudgeReport

Reports = Callable[[], Mapping[str, JudgeReport]]
"""By judge."""

_GAUGES: Final[Mapping[str, tuple[str, Callable[[JudgeReport], float | None]]]] = {
    "judge_in_flight": ("Calls in flight to a judge's server.", lambda report: report.in_flight),
    "judge_queued": ("Calls waiting for a judge's limits.", lambda report: report.queued),
    "judge_limit": ("Current concurrency limit of a judge, over all processes.", lambda report: report.limit),
    "judge_share": ("Concurrent calls that this process may make now.", lambda report: report.share),
    "judge_breaker_open": (
        "Circuit breaker of a judge: 1 open, 0.5 half open (one probe), 0 closed.",
        lambda report: {"ok": 0.0, "probing": 0.5, "out": 1.0}[report.health],
    ),
    "judge_spent_usd": ("Total cost of a judge since the database was created.", lambda report: report.spent.cost_usd),
    "judge_unanswered_usd": (
        "Highest possible cost of calls without an answer. Not in judge_spent_usd, but counted by budgets.",
        lambda report: report.spent.unanswered_usd,
    ),
    "judge_budget_left_usd": (
        "Remaining budget in US dollars (the tightest one), for judges with a budget.",
        lambda report: report.budget_left_usd,
    ),
    "judge_budget_left_tokens": (
        "Remaining token budget, for judges with one.",
        lambda report: report.budget_left_tokens,
    ),
}


class JudgeGauges(Collector):
    def __init__(self, prefix: str, reports: Reports) -> None:
        self._prefix = prefix
        self._reports = reports

    def collect(self) -> Iterator[Metric]:
        reports = self._reports()
        for name, (documentation, value_of) in _GAUGES.items():
            gauge = GaugeMetricFamily(f"{self._prefix}_{name}", documentation, labels=["judge"])
            for judge, report in reports.items():
                if (value := value_of(report)) is not None:
                    gauge.add_metric([judge], value)
            yield gauge
        hits = CounterMetricFamily(
            f"{self._prefix}_judge_cache_hits", "Judgements answered from the cache.", labels=["judge"]
        )
        for judge, report in reports.items():
            hits.add_metric([judge], report.cache_hits)
        yield hits
