"""How judges are doing, asked of them at every scrape."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from app.domain.judging import JudgeReport

Reports = Callable[[], Mapping[str, JudgeReport]]
"""By judge."""

_GAUGES: Final[Mapping[str, tuple[str, Callable[[JudgeReport], float | None]]]] = {
    "judge_in_flight": ("Calls to a judge's server that are under way.", lambda report: report.in_flight),
    "judge_queued": ("Calls that wait for a limit of their judge.", lambda report: report.queued),
    "judge_limit": ("Calls that may be under way at once at present.", lambda report: report.limit),
    "judge_breaker_open": (
        "1 while a judge is left alone after failures, 0.5 while one call finds out whether it is back, else 0.",
        lambda report: {"ok": 0.0, "probing": 0.5, "out": 1.0}[report.health],
    ),
    "judge_spent_usd": ("What a judge has cost since the database was made.", lambda report: report.spent.cost_usd),
    "judge_unanswered_usd": (
        "What calls without an answer may have cost at most; not in judge_spent_usd, but counted by budgets.",
        lambda report: report.spent.unanswered_usd,
    ),
    "judge_budget_left_usd": (
        "What is left of the tightest budget in US dollars, for judges that have one.",
        lambda report: report.budget_left_usd,
    ),
    "judge_budget_left_tokens": (
        "What is left of the budget in tokens, for judges that have one.",
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
            f"{self._prefix}_judge_cache_hits", "Readings answered from memory.", labels=["judge"]
        )
        for judge, report in reports.items():
            hits.add_metric([judge], report.cache_hits)
        yield hits
