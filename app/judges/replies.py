"""What a chat server sends back, read without trust in its form."""

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
"""Of a server that asks to be left alone for longer it is found out after this time whether it still means it."""

_LONGEST_WORDS: Final = 200
_MOST_TOKENS: Final = 10**9


@dataclass(frozen=True)
class ChatReply:
    """`text` is the refusal where the model refused. Token counts are None where the server does not count."""

    text: str
    cut_off: bool
    refused: bool
    """By the API's own fields: what a text says is for the parser."""
    input_tokens: int | None
    output_tokens: int | None
    tokens: tuple[Token, ...] = ()
    """With their probabilities, where these were asked for and the server knows them."""


def read_reply(body: bytes) -> ChatReply:
    """CallFailed when there is no message in `body`."""
    try:
        value: object = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise CallFailed("the judge's server sent something that is not JSON", status=200) from None
    choice = _first(_field(value, "choices"))
    message = _field(choice, "message")
    if not isinstance(message, dict):
        raise CallFailed("the judge's server sent JSON without a message in it", status=200)
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
    """Seconds that the server asks to wait, LONGEST_WAIT_SECONDS at most; 0 when it does not say, or says it in a way
    nobody understands."""
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
    """What the server says of a refused request; nothing of one about keys, which such messages like to repeat."""
    if status in (401, 403):
        return ""
    error = _field(body, "error")
    words = _text(_field(error, "message")) or _text(error) or _text(_field(body, "message")) or _text(body)
    return encodable(f": {' '.join(words.split())[:_LONGEST_WORDS]}") if words.strip() else ""


def error_code(body: object) -> str:
    """The machine's word for a refused request, where the server has one."""
    return _text(_field(_field(body, "error"), "code"))


def _field(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None


def _first(value: object) -> object:
    return value[0] if isinstance(value, list) and value else None


def _text(value: object) -> str:
    """Some servers send the content as a list of parts."""
    if isinstance(value, list):
        texts = (_field(part, "text") for part in value)
        return "".join(text for text in texts if isinstance(text, str))
    return value if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        return None
    return min(value, _MOST_TOKENS)
