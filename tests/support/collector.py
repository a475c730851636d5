"""A collector of traces on a loopback socket, which reads OTLP as the standard says."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SentSpan

from tests.support.small_servers import Handler, Server, running

Value = str | int | float | bool


@dataclass(frozen=True)
class CollectedSpan:
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: Mapping[str, Value]
    failed: bool
    links: tuple[str, ...]
    events: int
    resource: Mapping[str, Value] = field(default_factory=dict)


class Collector(Server):
    def __init__(self) -> None:
        super().__init__(_Handler)
        self.spans: list[CollectedSpan] = []

    def outline(self, trace_id: str) -> list[str]:
        """The spans of a trace in order of the alphabet, each behind the names of those round it."""
        spans = {span.span_id: span for span in self.spans if span.trace_id == trace_id}

        def trail(span: CollectedSpan) -> str:
            above = spans.get(span.parent_id)
            return span.name if above is None else f"{trail(above)} > {span.name}"

        return sorted(trail(span) for span in spans.values())


class _Handler(Handler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Collector)
        told = ExportTraceServiceRequest.FromString(self.read_body())
        found = [
            _read_span(span, _read_attributes(group.resource.attributes))
            for group in told.resource_spans
            for scope in group.scope_spans
            for span in scope.spans
        ]
        with server.lock:
            server.spans += found
        self.answer(status=200 if self.path == "/v1/traces" else 404)


def collecting() -> AbstractContextManager[Collector]:
    return running(Collector())


def _read_span(span: SentSpan, resource: Mapping[str, Value]) -> CollectedSpan:
    return CollectedSpan(
        name=span.name,
        kind=SentSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        attributes=_read_attributes(span.attributes),
        failed=span.status.code == 2,
        links=tuple(link.span_id.hex() for link in span.links),
        events=len(span.events),
        resource=resource,
    )


def _read_attributes(sent: object) -> Mapping[str, Value]:
    return {one.key: _read_value(one.value) for one in sent}  # type: ignore[attr-defined]


def _read_value(value: AnyValue) -> Value:
    found: Value = getattr(value, value.WhichOneof("value") or "string_value")
    return found
