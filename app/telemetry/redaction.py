"""Redacts secrets in log events."""

import re
from collections.abc import Mapping, MutableMapping
from typing import Any

REDACTED = "[redacted]"

_SECRET_NAME = re.compile(r"authorization|api[-_]?key|passw(or)?d|secret|credential|cookie", re.IGNORECASE)

_SECRET_TEXT = re.compile(
    r"""(?P<before>bearer\s+|basic\s+(?=[^\s]{16}))[A-Za-z0-9+/=._~-]{6,}  # an Authorization header
      | (?P<scheme>://)[^\s/@"']+@                                # user and password of a URL
      | (?P<name>(?:api[-_]?key|password|passwd|secret)["']?\s{0,3}[=:]\s{0,3}["']?)[^\s"'&,;]+
      | \b(?:gw_|sk-)[A-Za-z0-9_-]{16,}                           # a key of ours, a key of most model services
    """,
    re.IGNORECASE | re.VERBOSE,
)

_MAX_DEPTH = 6


def redact(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor. Runs after exceptions are formatted, because tracebacks quote URLs and headers."""
    for name, value in event.items():
        event[name] = _redact_value(name, value, 0)
    return event


def redact_text(text: str) -> str:
    return _SECRET_TEXT.sub(_keep_context, text)


def _keep_context(match: re.Match[str]) -> str:
    if match["scheme"]:
        return f"{match['scheme']}{REDACTED}@"
    return f"{match['before'] or match['name'] or ''}{REDACTED}"


def _redact_value(name: str, value: object, depth: int) -> object:
    if _SECRET_NAME.search(name):
        return REDACTED
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return redact_text(value)
    if depth < _MAX_DEPTH and isinstance(value, Mapping):
        return {str(key): _redact_value(str(key), item, depth + 1) for key, item in value.items()}
    if depth < _MAX_DEPTH and isinstance(value, list | tuple):
        return [_redact_value("", item, depth + 1) for item in value]
    return redact_text(str(value))
