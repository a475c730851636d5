"""Spans of a request and of what it caused. Without a tracer all of this does nothing.

The tracer travels in the context, as the fields of log lines do: tasks inherit it, and nobody has to hand it on."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import Context, ContextVar
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from structlog.contextvars import bind_contextvars, bound_contextvars, unbind_contextvars

AttributeValue = str | int | float | bool
Attributes = Mapping[str, AttributeValue | None]
"""What is None is left out. Never a secret, and never a text that a model wrote."""
SpanKind = Literal["server", "client", "internal"]

_WORK_FIELDS: Final = ("environment", "run")


class Span(Protocol):
    def rename(self, name: str) -> None: ...

    def describe(self, attributes: Attributes) -> None: ...

    def mark_failed(self, error_type: str) -> None:
        """`error_type` is one of few: a status, or the name of a class."""


@dataclass(frozen=True)
class SpanIdentity:
    """The ids of a trace and a span, in hexadecimal digits."""

    trace_id: str
    span_id: str
    sampled: bool


class Tracer(Protocol):
    """Never raises, and never waits for whoever collects the spans."""

    def open_span(
        self, name: str, attributes: Attributes, kind: SpanKind, traceparent: str | None = None
    ) -> AbstractContextManager[Span]:
        """A child of the span of this context, or of the one that the W3C header `traceparent` names. An exception that
        leaves it marks it as failed, by its type alone."""

    def open_linked_span(
        self, name: str, attributes: Attributes, origins: Sequence[SpanIdentity]
    ) -> AbstractContextManager[Span]:
        """A trace of its own for work that several spans caused together; nothing when none of them is sampled."""

    def find_identity(self) -> SpanIdentity | None:
        """The identity of the span of this context."""

    def build_headers(self) -> Mapping[str, str]:
        """The headers that a request to another service takes along."""

    def close(self) -> None:
        """Sends what is left, within seconds."""


class _NoSpan(AbstractContextManager["_NoSpan"]):
    def rename(self, name: str) -> None:
        pass

    def describe(self, attributes: Attributes) -> None:
        pass

    def mark_failed(self, error_type: str) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


NO_SPAN: Final = _NoSpan()
_tracer: ContextVar[Tracer | None] = ContextVar("tracer", default=None)


@contextmanager
def open_request_span(
    tracer: Tracer, name: str, attributes: Attributes, traceparent: str | None = None
) -> Iterator[Span]:
    """Inside, this context has `tracer`, and so has every task that it starts."""
    token = _tracer.set(tracer)
    try:
        with tracer.open_span(name, attributes, "server", traceparent or "") as span:
            yield span
    finally:
        _tracer.reset(token)


def open_span(name: str, attributes: Attributes, kind: SpanKind = "internal") -> AbstractContextManager[Span]:
    tracer = _tracer.get()
    return NO_SPAN if tracer is None else tracer.open_span(name, attributes, kind)


@dataclass(frozen=True)
class SpanOrigin:
    """A span that asked for something, to be linked to where it is done: another thread has another context."""

    tracer: Tracer
    identity: SpanIdentity


def find_origin() -> SpanOrigin | None:
    tracer = _tracer.get()
    identity = None if tracer is None else tracer.find_identity()
    return None if tracer is None or identity is None else SpanOrigin(tracer, identity)


_joined: Final[ContextVar[tuple[SpanOrigin, ...]]] = ContextVar("joined_origins", default=())


def find_origins() -> tuple[SpanOrigin, ...]:
    """The span of this context, or all for which it works together."""
    own = find_origin()
    return _joined.get() if own is None else (own,)


def create_joint_context(origins: Iterable[SpanOrigin | None]) -> Context:
    """A context for work that several callers share. Its spans and log lines belong to none of them."""
    context = Context()
    context.run(_joined.set, tuple(origin for origin in origins if origin is not None))
    return context


def open_linked_span(name: str, attributes: Attributes, origins: Sequence[SpanOrigin]) -> AbstractContextManager[Span]:
    if not origins:
        return NO_SPAN
    return origins[0].tracer.open_linked_span(name, attributes, [origin.identity for origin in origins])


def find_identity() -> SpanIdentity | None:
    tracer = _tracer.get()
    return None if tracer is None else tracer.find_identity()


def build_trace_headers() -> Mapping[str, str]:
    """Headers for requests to judges and retrievers; empty without a tracer."""
    tracer = _tracer.get()
    return {} if tracer is None else tracer.build_headers()


def name_operation(work: Callable[..., object]) -> str:
    """`GroupStore.add` for a function that this method made, `load_keys` for `_load_keys`."""
    inner = getattr(work, "func", work)
    name = getattr(inner, "__qualname__", type(inner).__name__)
    return str(name).partition(".<locals>")[0].lstrip("_")


def note_work(environment: str | None = None, run: str | None = None) -> None:
    """From here on log lines of this context, and of every task that it starts, say what they are about."""
    bind_contextvars(**{name: value for name, value in (("environment", environment), ("run", run)) if value})


@contextmanager
def bind_request(request_id: str) -> Iterator[None]:
    """Log lines inside say which request they are of; those after it say nothing of it, nor of its work."""
    with bound_contextvars(request_id=request_id):
        try:
            yield
        finally:
            unbind_contextvars(*_WORK_FIELDS)
