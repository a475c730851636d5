"""Parses chat completion responses without trusting their form."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from app.judges.expected import Token, tokens_of
from app.judges.failures import CallFailed
from app.judges.reading import encodable

LONGEST_WAIT_SECONDS: Final = 3600.0
"""Longest `retry-after` that is honoured. After this time the server is tried again."""

_LONGEST_WORDS: Final = 200
_MOST_TOKENS: Final = 10**9


@dataclass(frozen=True)
class ChatReply:
    """`text` is the refusal where the model refused. Token counts are None where the server does not count."""

    text: str
    cut_off: bool
    refused: bool
    """According to the API's fields. Refusals in the text are detected elsewhere."""
    input_tokens: int | None
    output_tokens: int | None
    tokens: tuple[Token, ...] = ()
    """Tokens with their probabilities, where requested and supported."""


def read_reply(body: bytes) -> ChatReply:
    """CallFailed when `body` holds no message."""
    try:
        value: object = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise CallFailed("the judge's server sent something that is not JSON", status=200) from None
    choice = _first(_field(value, "choices"))
    message = _field(choice, "message")
    if not isinstance(message, dict):
        raise CallFailed("the judge's server sent JSON without a message", status=200)
    usage = _field(value, "usage")
    content, refusal = _text(message.get("content")), _text(message.get("refusal"))
    return ChatReply(
        text=encodable(content or refusal),
        refused=_field(choice, "finish_reason") == "content_filter" or (bool(refusal) and not content),
        cut_off=_field(choice, "finish_reason") == "length",
        input_tokens=_count(_field(usage, "prompt_tokens")),
        output_tokens=_count(_field(usage, "completion_tokens")),
        tokens=tokens_of(choice),
    )


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds from `retry-after`, at most LONGEST_WAIT_SECONDS; 0 when the header is missing or invalid."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return 0.0
        moment = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
        seconds = (moment - datetime.now(UTC)).total_seconds()
    return min(max(0.0, seconds), LONGEST_WAIT_SECONDS) if math.isfinite(seconds) else 0.0


def told_by_server(status: int, body: object) -> str:
    """The server's error message. Empty for errors about keys, since such messages may quote the key."""
    if status in (401, 403):
        return ""
    error = _field(body, "error")
    words = _text(_field(error, "message")) or _text(error) or _text(_field(body, "message")) or _text(body)
    return encodable(f": {' '.join(words.split())[:_LONGEST_WORDS]}") if words.strip() else ""


def error_code(body: object) -> str:
    """The server's error code, if it has one."""
    return _text(_field(_field(body, "error"), "code"))


def _field(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None


def _first(value: object) -> object:
    return value[0] if isinstance(value, list) and value else None


def _text(value: object) -> str:
    """Text of a content field. Some servers send a list of parts."""
    if isinstance(value, list):
        texts = (_field(part, "text") for part in value)
        return "".join(text for text in texts if isinstance(text, str))
    return value if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        return None
    return min(value, _MOST_TOKENS)
