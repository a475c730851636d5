"""Logging: one JSON object per line on stderr, or coloured lines on a terminal.

A thread writes the lines, so that the event loop never waits for a slow reader of stderr. Secrets are redacted last,
when tracebacks are text already. Lines of libraries take the same way.
"""

import logging
import os
import queue
import re
import sys
import time
from collections.abc import Mapping, MutableMapping, Sequence
from logging.handlers import QueueHandler, QueueListener
from typing import Any, Final, Literal, TextIO

import structlog
from structlog.types import Processor

from app.ports.tracing import find_identity

# A handler that does not block

_MOST_QUEUED_LINES = 10_000
"""Most unwritten lines kept in memory. Further lines are dropped and counted."""
_FLUSH_SECONDS = 2.0


class NonBlockingHandler(QueueHandler):
    """Formats in the caller, writes in a listener's thread. Lines beyond `room` are dropped, and the next written line
    reports how many."""

    def __init__(self, stream: TextIO, room: int = _MOST_QUEUED_LINES) -> None:
        self._lines: queue.Queue[logging.LogRecord] = queue.Queue(room)
        super().__init__(self._lines)
        self._dropped = 0
        self._listener = QueueListener(self._lines, _LineWriter(stream))
        self._listening = False

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            if self._dropped:
                self._lines.put_nowait(self.prepare(_build_dropped_record(self._dropped)))
                self._dropped = 0
            self._lines.put_nowait(record)
        except queue.Full:
            self._dropped += 1
        if not self._listening:
            self._listening = True
            self._listener.start()

    def flush(self) -> None:
        """Waits at most _FLUSH_SECONDS until all lines are written."""
        end = time.monotonic() + _FLUSH_SECONDS
        with self._lines.all_tasks_done:
            while self._lines.unfinished_tasks and (left := end - time.monotonic()) > 0:
                self._lines.all_tasks_done.wait(left)


class _LineWriter(logging.StreamHandler[TextIO]):
    """Writes lines that are formatted already."""

    def handleError(self, record: logging.LogRecord) -> None:
        """The reader is gone or the stream is closed: there is nobody to tell."""


def _build_dropped_record(dropped: int) -> logging.LogRecord:
    words = "log lines were dropped because the output was blocked: %d"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, words, (dropped,), None)


def _escape_control_characters(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """A structlog processor for console output: escapes control characters, so that a value cannot break the line, move
    the cursor or colour the terminal. Tracebacks keep their lines, each with a prefix."""
    for name, value in event.items():
        if name in {"exception", "stack"} and isinstance(value, str):
            event[name] = "\n".join("  | " + _escape_unprintable(line) for line in value.split("\n"))
        elif isinstance(value, str):
            event[name] = _escape_unprintable(value)
    return event


def _escape_unprintable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


# Secrets

_REDACTED = "[redacted]"

_SECRET_NAME = re.compile(r"authorization|api[-_]?key|passw(or)?d|secret|credential|cookie", re.IGNORECASE)
"""Fields whose values are never shown, whatever they hold."""

_SECRET_TEXT = re.compile(
    r"""(?P<before>bearer\s+|basic\s+(?=[^\s]{16}))[A-Za-z0-9+/=._~-]{6,}  # an Authorization header
      | (?P<scheme>://)[^\s/@"']+@                                # user and password of a URL
      | (?P<name>(?:api[-_]?key|password|passwd|secret)["']?\s{0,3}[=:]\s{0,3}["']?)[^\s"'&,;]+
      | \b(?:gw_|sk-)[A-Za-z0-9_-]{16,}                           # a key of ours, a key of most model services
    """,
    re.IGNORECASE | re.VERBOSE,
)

_MAX_DEPTH = 6
"""Deeper values are written as text and searched as such."""


def _redact(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor. Runs after exceptions are formatted, because tracebacks quote URLs and headers."""
    for name, value in event.items():
        event[name] = _redact_value(name, value, 0)
    return event


def redact_text(text: str) -> str:
    return _SECRET_TEXT.sub(_keep_context, text)


def _keep_context(match: re.Match[str]) -> str:
    if match["scheme"]:
        return f"{match['scheme']}{_REDACTED}@"
    return f"{match['before'] or match['name'] or ''}{_REDACTED}"


def _redact_value(name: str, value: object, depth: int) -> object:
    if _SECRET_NAME.search(name):
        return _REDACTED
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return redact_text(value)
    if depth < _MAX_DEPTH and isinstance(value, Mapping):
        return {str(key): _redact_value(str(key), item, depth + 1) for key, item in value.items()}
    if depth < _MAX_DEPTH and isinstance(value, list | tuple):
        return [_redact_value("", item, depth + 1) for item in value]
    return redact_text(str(value))


# Configuration

_Level = Literal["debug", "info", "warning", "error"]
Form = Literal["auto", "json", "console"]
"""`auto` is `console` on a terminal, else `json`."""

_HEALTH_PATHS = frozenset({"/livez", "/readyz", "/metrics"})


def _add_trace(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: which span a line was written in."""
    if (identity := find_identity()) is not None:
        event["trace_id"], event["span_id"] = identity.trace_id, identity.span_id
    return event


def _add_process(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: which of several processes wrote a line."""
    event["process"] = os.getpid()
    return event


_FIELDS: Final[tuple[Processor, ...]] = (
    structlog.contextvars.merge_contextvars,
    _add_trace,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.stdlib.ExtraAdder(allow=("client", "method", "path", "status")),
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
)
"""What every line says, ours and those of libraries."""

_VERBOSE_LIBRARIES = (
    "httpx",
    "httpx2",
    "httpcore",
    "httpcore2",
    "aiohttp",
    "openai",
    "asyncio",
    "datasets",
    "filelock",
)
"""Libraries whose debug lines quote requests, headers included."""


def configure_logging(
    level: _Level = "info", form: Form = "auto", stream: TextIO | None = None, *, name_process: bool = False
) -> None:
    """Call once at start. Standard-library loggers use the same output, also uvicorn's if started with
    `log_config=None`."""
    fields = (*_FIELDS, _add_process) if name_process else _FIELDS
    out = stream or sys.stderr
    threshold = logging.getLevelNamesMapping()[level.upper()]
    handler = NonBlockingHandler(out)
    handler.setFormatter(_build_formatter(fields, for_people=form == "console" or (form == "auto" and out.isatty())))
    structlog.configure(
        processors=[*fields, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    _route_standard_logging(handler, threshold)


def _build_formatter(fields: Sequence[Processor], *, for_people: bool) -> logging.Formatter:
    rendering: list[Processor] = (
        [_escape_control_characters, structlog.dev.ConsoleRenderer(timestamp_key="time")]
        if for_people
        else [structlog.processors.JSONRenderer()]
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=fields,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            _redact,
            *rendering,
        ],
    )


def _route_standard_logging(handler: logging.Handler, level: int) -> None:
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers = []
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
    logging.getLogger("uvicorn.error").filters = [_is_not_websocket_chatter]
    access = logging.getLogger("uvicorn.access")
    access.filters = [_AccessLogFilter(level)]
    for name in _VERBOSE_LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)


def _is_not_websocket_chatter(record: logging.LogRecord) -> bool:
    """Drops uvicorn's lines about WebSockets below warnings: connections, and every frame when debugging."""
    return record.levelno >= logging.WARNING or "websockets" not in record.pathname


class _AccessLogFilter(logging.Filter):
    """Turns uvicorn's access lines into fields, and those of health checks into debug lines."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self._level = level

    def filter(self, record: logging.LogRecord) -> bool:
        if not isinstance(record.args, tuple) or len(record.args) != 5:
            return True
        client, method, path, _, status = record.args
        record.msg, record.args = "request", ()
        record.__dict__.update(client=client, method=method, path=path, status=status)
        if str(path).partition("?")[0] in _HEALTH_PATHS:
            record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        return record.levelno >= self._level
