"""Logging: one JSON object per line on stderr, or coloured lines on a terminal."""

import logging
import os
import sys
from collections.abc import MutableMapping, Sequence
from typing import Any, Final, Literal, TextIO

import structlog
from structlog.types import Processor

from app.ports.tracing import find_identity
from app.telemetry.log_handler import NonBlockingHandler, escape_control_characters
from app.telemetry.redaction import redact

Level = Literal["debug", "info", "warning", "error"]
Form = Literal["auto", "json", "console"]
"""`auto` is `console` on a terminal, else `json`."""

HEALTH_PATHS = frozenset({"/livez", "/readyz", "/metrics"})


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
    level: Level = "info", form: Form = "auto", stream: TextIO | None = None, *, name_process: bool = False
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
        [escape_control_characters, structlog.dev.ConsoleRenderer(timestamp_key="time")]
        if for_people
        else [structlog.processors.JSONRenderer()]
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=fields,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            redact,
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
        if str(path).partition("?")[0] in HEALTH_PATHS:
            record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        return record.levelno >= self._level
