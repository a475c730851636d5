"""What servers say about requests that they do not answer. They say it in many forms."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_MOST_NESTED: Final = 4
_LONGEST_MESSAGE: Final = 4_000
_FILTER_MARKS: Final = frozenset(("flagged_input", "content_filter_result", "content_filter_results"))
"""Fields of an error that come from a content filter."""
_NO_MONEY_CODES: Final = frozenset(
    (
        "insufficient_quota",
        "insufficient_user_quota",
        "insufficient_balance",
        "insufficient_credits",
        "billing_hard_limit_reached",
        "billing_not_active",
    )
)
_NO_MONEY_WORDS: Final = re.compile(
    r"insufficient (?:account )?(?:balance|credits?|funds|quota)|credit balance is too low", re.I
)
_WAIT: Final = re.compile(r"(?:try again|retry|retrying) (?:in|after) ((?:[0-9][0-9.]* ?[a-z]+[ ,]*){1,4})", re.I)
_SPAN: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(ms|millisec|h|m|s)", re.I)
_SECONDS_BY_UNIT: Final = {"ms": 0.001, "millisec": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class ServerError:
    """`codes` holds codes and types, `fields` what the error names of the request."""

    message: str = ""
    codes: frozenset[str] = frozenset()
    fields: frozenset[str] = frozenset()
    filtered: bool = False
    """A content filter stopped the request."""

    @property
    def status(self) -> int | None:
        """The HTTP status that stands in the body."""
        numbers = [int(code) for code in self.codes if code.isascii() and code.isdigit() and len(code) == 3]
        return next((number for number in numbers if 400 <= number < 600), None)

    @property
    def lacks_money(self) -> bool:
        """No request is answered until somebody pays."""
        return bool(self.codes & _NO_MONEY_CODES) or _NO_MONEY_WORDS.search(self.message) is not None

    @property
    def wait_seconds(self) -> float:
        """How long to wait, where the words say so; 0 where they do not."""
        told = _WAIT.search(self.message)
        spans = _SPAN.findall(told[1]) if told is not None else ()
        return sum(float(number) * _SECONDS_BY_UNIT[unit.lower()] for number, unit in spans)


NO_ERROR: Final = ServerError()


def parse_server_error(value: object) -> ServerError:
    """Reads a decoded body. Empty where `value` tells of no error. Never raises."""
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(first, str):
        return ServerError(message=_shorten(first))
    if not isinstance(first, dict):
        return NO_ERROR
    parts = list(_iterate_parts(first, 0))
    messages = [message for part in parts for message in _extract_messages(part)]
    return ServerError(
        message=_shorten(": ".join(dict.fromkeys(filter(None, messages)))),
        codes=frozenset(code for part in parts for code in _extract_codes(part)),
        fields=frozenset(field for part in parts for field in _extract_fields(part)),
        filtered=any(not _FILTER_MARKS.isdisjoint(part) for part in parts),
    )


def tells_error(value: object) -> bool:
    """Whether a body with status 200 is an error."""
    first = value[0] if isinstance(value, list) and value else value
    if not isinstance(first, dict) or first.get("choices"):
        return False
    return bool(first.get("error")) or first.get("object") == "error" or "detail" in first


def _iterate_parts(value: dict[str, object], depth: int) -> Iterator[dict[str, object]]:
    """The error, and the errors that it quotes: of another server, or as JSON within a text."""
    error = value.get("error")
    own = error if isinstance(error, dict) else value
    yield own
    if own is not value and "error_type" in value:
        yield {"type": value["error_type"]}
    if depth == _MOST_NESTED:
        return
    metadata = own.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if isinstance(metadata, dict):
        yield {**metadata, "message": raw if isinstance(raw, str) and not _decode(raw) else None}
    details = own.get("details")
    inner = [own.get("innererror"), *(details if isinstance(details, list) else ())]
    for quoted in (*map(_decode, (own.get("message"), own.get("error"), raw)), *inner):
        if isinstance(quoted, dict):
            yield from _iterate_parts(quoted, depth + 1)


def _extract_messages(part: dict[str, object]) -> Iterator[str]:
    for name in ("message", "error", "detail", "msg"):
        value = part.get(name)
        if isinstance(value, str) and not _decode(value):
            yield value
        elif isinstance(value, list):
            yield from (message for item in value if isinstance(item, dict) for message in _extract_messages(item))
        elif isinstance(value, dict) and name == "message":
            yield from _extract_messages(value)
    delay = part.get("retryDelay")
    if isinstance(delay, str):
        yield f"retry after {delay}"


def _extract_codes(part: dict[str, object]) -> Iterator[str]:
    for name in ("code", "type", "error_type", "status", "reason"):
        value = part.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool):
            yield str(value).casefold()


def _extract_fields(part: dict[str, object]) -> Iterator[str]:
    named = part.get("param")
    if isinstance(named, str):
        yield named
    message = part.get("message")
    for listed in (part.get("detail"), message.get("detail") if isinstance(message, dict) else message):
        for item in listed if isinstance(listed, list) else ():
            where = item.get("loc") if isinstance(item, dict) else None
            yield from (str(step) for step in where if step != "body") if isinstance(where, list) else ()


def _decode(value: object) -> dict[str, object] | None:
    """The JSON object that a text is, if it is one."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return None
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    first = found[0] if isinstance(found, list) and found else found
    return first if isinstance(first, dict) else None


def _shorten(words: str) -> str:
    return " ".join(words[:_LONGEST_MESSAGE].split())
