"""Which spans are sent, what they say, and what they never say."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.domain.tasks import ContextQuery, Program
from app.judges import judge_client
from app.ports.tracing import find_origin, open_linked_span, open_request_span, open_span
from app.rag.remote import RemoteRetriever, RemoteRetrieverConfig
from app.sandbox.programs import JailedPrograms
from app.service.retrieval import RetrievalService
from app.settings import Settings
from app.telemetry.metrics import NullObserver
from app.telemetry.open_telemetry import LONGEST_VALUE, OpenTelemetryTracer
from tests.support.chat_server import Reply, serving
from tests.support.collector import Collector, collecting
from tests.support.event_loop import closed_after
from tests.support.judge_cases import GOOD, completion, config, failure, first, judged
from tests.support.tables import read_table

TABLE = read_table(__file__, "open_telemetry.yaml", tuple[tuple[dict[str, str], bool], ...])

UNSAMPLED = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as made:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{made.url}/v1/traces")
        yield made


@contextmanager
def tracing(traceparent: str | None = None, *, sends_traceparent: bool = True) -> Iterator[None]:
    """A request, whose spans are sent at its end."""
    tracer = OpenTelemetryTracer("1", sends_traceparent=sends_traceparent)
    with open_request_span(tracer, "request", {}, traceparent):
        yield
    tracer.close()


async def test_each_call_to_a_judge_is_a_span_and_says_how_it_failed(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge_client, "FIRST_PAUSE_SECONDS", 0.01)
    with serving(first(failure(503), Reply(b"", cut=-1), completion(GOOD))) as server, tracing():
        await judged(config(server.url, api_version=None))
    calls = [span for span in collector.spans if span.kind == "client"]
    sent = [{name.lower(): one for name, one in got.headers.items()}["traceparent"] for got in server.received]
    assert [(one.name, one.failed, one.attributes.get("error.type")) for one in calls] == [
        ("chat judge-1", True, "503"),
        ("chat judge-1", True, "no_reply"),
        ("chat judge-1", False, None),
    ]
    assert [one[:52] for one in sent] == [f"00-{one.trace_id}-{one.span_id}" for one in calls]


@pytest.mark.parametrize(
    ("traceparent", "sends", "headers"), [(UNSAMPLED, True, ["00"]), (None, False, [None])], ids=["sampled", "told"]
)
async def test_a_judge_is_told_of_a_trace_as_far_as_that_is_wished(
    collector: Collector, traceparent: str | None, sends: bool, headers: list[str | None]
) -> None:
    with serving(first()) as server, tracing(traceparent, sends_traceparent=sends):
        await judged(config(server.url, api_version=None))
    sent = [{name.lower(): one for name, one in got.headers.items()}.get("traceparent") for got in server.received]
    kept = ["chat judge-1", "request"] if sends is False else []
    assert ([one and one[-2:] for one in sent], [span.name for span in collector.spans]) == (headers, kept)


async def test_programs_and_retrieval_are_spans(collector: Collector) -> None:
    query = ContextQuery(world="w", text="snow", character="hob")
    snow = Reply(b'{"passages": [{"id": "p", "text": "Snow."}]}')
    with serving(lambda number, received: snow) as server, tracing():
        async with closed_after(JailedPrograms(1)) as programs:
            await programs.run(Program(source="def f(n):\n    return n\n", function="f", calls=((1,), (2,))))
        remote = RemoteRetriever(RemoteRetrieverConfig(f"{server.url}/retrieve", allow_private=True))
        async with closed_after(remote) as retriever:
            await retriever.open()
            await RetrievalService(retriever, NullObserver()).retrieve(query, "world")
    program, retrieval = collector.spans[0], collector.spans[1]
    waited, ran = (program.attributes[f"atropos.seconds_{name}"] for name in ("waited", "run"))
    assert isinstance(waited, float)
    assert isinstance(ran, float)
    assert (program.name, program.attributes) == (
        "run program",
        {
            "atropos.language": "python",
            "atropos.calls": 2,
            "atropos.ending": "finished",
            "atropos.seconds_waited": waited,
            "atropos.seconds_run": ran,
        },
    )
    assert (retrieval.name, retrieval.attributes) == (
        "retrieve",
        {"atropos.retriever": "RemoteRetriever", "atropos.passages": 1, "atropos.withheld": 0},
    )
    headers = {name.lower(): value for name, value in server.received[0].headers.items()}
    assert headers["traceparent"][:52] == f"00-{retrieval.trace_id}-{retrieval.span_id}"


def test_no_value_is_long_or_costs_a_batch_and_no_error_is_quoted(collector: Collector) -> None:
    with tracing(), pytest.raises(ValueError, match="a text"), open_span("work", {"a": "\ud800", "b": "x" * 999}):
        raise ValueError("a text of a model")
    work = collector.spans[0]
    assert (work.attributes, work.failed, work.events) == (
        {"a": "?", "b": "x" * LONGEST_VALUE, "error.type": "ValueError"},
        True,
        0,
    )


@pytest.mark.parametrize(("traceparent", "kept"), [(None, ["batch", "request"]), (UNSAMPLED, [])])
async def test_what_several_asked_for_is_kept_when_one_of_them_is(
    collector: Collector, traceparent: str | None, kept: list[str]
) -> None:
    with tracing(traceparent):
        origin = find_origin()
        assert origin is not None

        def work() -> None:
            with open_linked_span("batch", {}, [origin]):
                pass

        await asyncio.get_running_loop().run_in_executor(None, work)
    links = [span.links for span in collector.spans if span.name == "batch"]
    requests = [(span.span_id,) for span in collector.spans if span.name == "request"]
    assert (sorted(span.name for span in collector.spans), links) == (kept, requests)


@pytest.mark.parametrize(("variables", "wanted"), TABLE)
def test_the_standard_variables_switch_traces_on(
    variables: dict[str, str], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert Settings().wants_traces is wanted
