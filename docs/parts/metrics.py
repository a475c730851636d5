"""What /metrics exposes, from the observer that fills it."""

from typing import get_args

from app.domain.judging import Judgement, JudgeReport, Spending
from app.domain.scores import Score
from app.telemetry.metrics import PREFIX, PrometheusObserver, WatchedGauge
from docs.markdown import code, table

SEEN_SERIES_OF_A_HISTOGRAM = "le"


BUSY = JudgeReport(
    health="ok",
    last_error=None,
    in_flight=0,
    queued=0,
    limit=1,
    spent=Spending(),
    spent_today=Spending(),
    budget_left_usd=0.0,
    budget_left_tokens=0,
    cache_hits=0,
)


def metrics_table() -> str:
    return table(("metric", "type", "labels", "meaning"), _rows(build_busy_observer()))


def build_busy_observer() -> PrometheusObserver:
    """One that has been told of everything once: labels exist only from then on."""
    observer = PrometheusObserver()
    observer.record_hand_out("any", 1)
    observer.record_scores("any", [([Score.exact(True), Score.exact(False)], 0.1)])
    observer.record_judgements([Judgement(judge="any", model="any", order=(), cost_usd=0.0)])
    observer.record_refusal("any", "not_found")
    observer.record_closed_group("any", ())
    observer.record_retrieval(0.1, failed=False)
    observer.record_commit(0.1)
    observer.record_worker_call("any", "done", 0.1)
    observer.record_program("finished", 0.1)
    observer.groups_received(1, 1)
    observer.batch_asked("handed")
    observer.record_unscored_answer("any", "any", "judge_failed", "error")
    observer.watch_judges(lambda: {"any": BUSY})
    for gauge in get_args(WatchedGauge):
        observer.watch(gauge, lambda: 0.0)
    observer.record_request("/livez", "GET", 200, 0.1)
    observer.refresh()
    return observer


def _rows(observer: PrometheusObserver) -> list[tuple[str, str, str, str]]:
    rows = []
    for family in observer.registry.collect():
        if not family.name.startswith(PREFIX):
            continue
        if not family.samples:
            raise LookupError(f"nothing was told that counts in {family.name}")
        labels = sorted({label for sample in family.samples for label in sample.labels} - {SEEN_SERIES_OF_A_HISTOGRAM})
        name = family.name + ("_total" if family.type == "counter" else "")
        rows.append((code(name), family.type, ", ".join(map(code, labels)), family.documentation))
    return rows
