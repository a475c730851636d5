"""Spans by OpenTelemetry's SDK, sent by OTLP over HTTP from a thread of the SDK's.

Only imported where an endpoint is configured: the SDK takes a fifth of a second.

The SDK itself reads the standard variables: `OTEL_EXPORTER_OTLP_*`, `OTEL_TRACES_SAMPLER*`, `OTEL_BSP_*`,
`OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`. Its global provider is left alone, so that no library starts to
write spans of its own, with URLs and texts in them."""

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final, Self

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app.ports.tracing import NO_SPAN, Attributes, AttributeValue, Span, SpanIdentity
from app.ports.tracing import SpanKind as Kind

_SERVICE_NAME: Final = "atropos-environments"
CLOSE_SECONDS: Final = 5.0
"""The longest that a stop waits for a collector."""
LONGEST_VALUE: Final = 256
"""Characters of an attribute: names and ids are shorter, and nothing else belongs there."""
_TRACEPARENT: Final = "traceparent"

_KINDS: Final[Mapping[Kind, SpanKind]] = {
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "internal": SpanKind.INTERNAL,
}
_W3C: Final = TraceContextTextMapPropagator()

log = logging.getLogger(__name__)


class OpenTelemetryTracer:
    def __init__(self, version: str, *, sends_traceparent: bool = True) -> None:
        """`sends_traceparent`: whether other services are told which trace they are part of."""
        named = Resource({"service.name": _SERVICE_NAME, "service.version": version})
        resource = Resource.get_empty().merge(named).merge(OTELResourceDetector().detect())
        processor = BatchSpanProcessor(OTLPSpanExporter())
        self._sends_traceparent = sends_traceparent
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        # A batch is kept when one of the writes in it is, whatever the sampler says of new traces.
        batches = TracerProvider(resource=resource, shutdown_on_exit=False, sampler=ALWAYS_ON)
        batches.add_span_processor(processor)
        self._tracer = self._provider.get_tracer(_SERVICE_NAME, version)
        self._batch_tracer = batches.get_tracer(_SERVICE_NAME, version)

    def open_span(
        self, name: str, attributes: Attributes, kind: Kind, traceparent: str | None = None
    ) -> AbstractContextManager[Span]:
        if traceparent is None:
            above = trace.get_current_span().get_span_context()
            if above.is_valid and not above.trace_flags.sampled:
                return NO_SPAN  # by far the cheapest, and what the sampler would say
            parent = None
        else:  # nothing else of the caller's is read: its `tracestate` and `baggage` would be passed on to judges
            parent = _W3C.extract({_TRACEPARENT: traceparent})
        return _OpenSpan(self._tracer.start_span(name, parent, _KINDS[kind], _clean_all(attributes)))

    def open_linked_span(
        self, name: str, attributes: Attributes, origins: Sequence[SpanIdentity]
    ) -> AbstractContextManager[Span]:
        links = [Link(_build_context(origin)) for origin in origins if origin.sampled]
        if not links:
            return NO_SPAN
        return _OpenSpan(self._batch_tracer.start_span(name, attributes=_clean_all(attributes), links=links))

    def find_identity(self) -> SpanIdentity | None:
        span = trace.get_current_span().get_span_context()
        if not span.is_valid:
            return None
        return SpanIdentity(
            trace.format_trace_id(span.trace_id), trace.format_span_id(span.span_id), span.trace_flags.sampled
        )

    def build_headers(self) -> Mapping[str, str]:
        if not self._sends_traceparent:
            return {}
        headers: dict[str, str] = {}
        _W3C.inject(headers)
        return headers

    def close(self) -> None:
        """In a thread that nobody waits for longer: a collector that is away must not hold up a stop."""
        closing = threading.Thread(target=self._provider.shutdown, name="spans-closing", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)
        if closing.is_alive():
            log.warning("the last spans were not sent: the collector did not take them within %g s", CLOSE_SECONDS)


class _OpenSpan(AbstractContextManager[Span]):
    """Entered once. Not by the SDK's own context managers: they record what errors say, and take twice the time."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._failed = False

    def __enter__(self) -> Self:
        self._token = context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        context.detach(self._token)
        if kind is not None and not self._failed:
            self.mark_failed(kind.__name__)
        self._span.end()

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def describe(self, attributes: Attributes) -> None:
        if self._span.is_recording():
            self._span.set_attributes(_clean_all(attributes))

    def mark_failed(self, error_type: str) -> None:
        self._failed = True
        self._span.set_attribute("error.type", _clean(error_type))
        self._span.set_status(Status(StatusCode.ERROR))


def _build_context(origin: SpanIdentity) -> SpanContext:
    return SpanContext(
        int(origin.trace_id, 16), int(origin.span_id, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)
    )


def _clean_all(attributes: Attributes) -> dict[str, AttributeValue]:
    return {name: _clean(value) for name, value in attributes.items() if value is not None}


def _clean(value: AttributeValue) -> AttributeValue:
    """A lone surrogate would cost every span of its batch: it cannot be encoded."""
    if isinstance(value, str):
        return value[:LONGEST_VALUE].encode("utf-8", "replace").decode()
    return value
