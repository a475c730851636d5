"""Prometheus metrics. Labels never hold ids, characters or anything else that a caller can invent."""

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

from app.domain.judging import Judgement
from app.domain.run_health import SeriesName
from app.ports.runtime import ScoredGroup
from app.telemetry.judge_metrics import JudgeGauges, JudgeMetrics, Reports
from app.telemetry.process_gauges import Joining, ProcessGauges
from app.telemetry.score_metrics import ScoreMetrics

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
]
_WATCHED: Final[Mapping[WatchedGauge, tuple[str, Joining]]] = {
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
            self._refreshed.append(ProcessGauges(self.registry).refresh)
        self._environments: set[str] = set()
        self._requests: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._handed_out = self._create_counter("tasks_handed_out", "Tasks handed out to trainers.", "env")
        self._scores = ScoreMetrics(PREFIX, self.registry)
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
        self._judges = JudgeMetrics(PREFIX, self.registry)
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

    def watch_judges(self, reports: Reports) -> None:
        """`reports` are asked for at every scrape."""
        self._refreshed.append(JudgeGauges(PREFIX, self.registry, reports).refresh)

    def refresh(self) -> None:
        """Counts what is recorded, and reads what is watched. Where processes share their metrics, each does it every
        few seconds for the others."""
        self._scores.count()
        for refresh in self._refreshed:
            refresh()

    def record_worker_call(self, function: str, outcome: str, seconds: float) -> None:
        """`function` is one of ours, `outcome` a word of `app.sandbox.pool.Told`."""
        self._work.labels(function, outcome).inc()
        self._work_seconds.labels(function).observe(seconds)

    def record_program(self, ending: str, seconds: float) -> None:
        """`ending` is one of `app.domain.programs.Ending`, `lost` or `cancelled`."""
        self._programs.labels(ending).observe(seconds)

    def groups_received(self, new: int, known: int) -> None:
        """Groups posted by Atropos environments. `known` groups had been sent before."""
        self._trajectories.labels("new").inc(new)
        self._trajectories.labels("known").inc(known)

    def batch_asked(self, outcome: str) -> None:
        """`outcome` is a word of `app.http.compat.atropos.queue`."""
        self._trajectory_batches.labels(outcome).inc()

    def record_unscored_answer(self, contract: str, environment: str, reason: str, told: str) -> None:
        """`reason` is one of `app.domain.scores.Reason`, `pending` or `masked`; `told` is `error`, `number`, `masked`
        or `null`."""
        self._untold.labels(contract, self._limit_environment(environment), reason, told).inc()

    def record_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """`route` is a template such as `/envs/{env}/score`."""
        known = self._requests.get((route, method, status))
        if known is None:
            known = self._http.labels(route, method, str(status)), self._http_seconds.labels(route, method)
            self._requests[route, method, status] = known
        known[0].inc()
        known[1].observe(seconds)

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
