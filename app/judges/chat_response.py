"""Parses chat completion responses without trusting their form."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from app.domain.tasks import is_truncated
from app.judges.expected_scores import Token, parse_tokens
from app.judges.failures import CallFailed
from app.judges.text_normalisation import replace_surrogates
from app.judges.token_usage import NOT_COUNTED, TokenUsage, parse_usage

LONGEST_WAIT_SECONDS: Final = 3600.0
"""Longest `retry-after` that is honoured. After this time the server is tried again."""

_LONGEST_ERROR_MESSAGE: Final = 200


@dataclass(frozen=True)
class ChatResponse:
    """`text` is the refusal where the model refused."""

    text: str
    cut_off: bool
    refused: bool
    """According to the API's fields. Refusals in the text are detected elsewhere."""
    usage: TokenUsage = NOT_COUNTED
    tokens: tuple[Token, ...] = ()
    """Tokens with their probabilities, where requested and supported."""


def parse_response(body: bytes) -> ChatResponse:
    """CallFailed when `body` holds no message."""
    try:
        value: object = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise CallFailed("the judge's server sent something that is not JSON", status=200) from None
    choice = _get_first(_get_field(value, "choices"))
    message = _get_field(choice, "message")
    if not isinstance(message, dict):
        raise CallFailed("the judge's server sent JSON without a message", status=200)
    content, refusal = _extract_text(message.get("content")), _extract_text(message.get("refusal"))
    return ChatResponse(
        text=replace_surrogates(content or refusal),
        refused=_get_field(choice, "finish_reason") == "content_filter" or (bool(refusal) and not content),
        cut_off=is_truncated(str(_get_field(choice, "finish_reason") or "")),
        usage=parse_usage(_get_field(value, "usage")),
        tokens=parse_tokens(choice),
    )


def parse_retry_after(headers: Mapping[str, str]) -> float:
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


def extract_error_message(status: int, body: object) -> str:
    """The server's error message. Empty for errors about keys, since such messages may quote the key."""
    if status in (401, 403):
        return ""
    error = _get_field(body, "error")
    words = (
        _extract_text(_get_field(error, "message"))
        or _extract_text(error)
        or _extract_text(_get_field(body, "message"))
        or _extract_text(body)
    )
    return replace_surrogates(f": {' '.join(words.split())[:_LONGEST_ERROR_MESSAGE]}") if words.strip() else ""


def extract_error_code(body: object) -> str:
    """The server's error code, if it has one."""
    return _extract_text(_get_field(_get_field(body, "error"), "code"))


def _get_field(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None


def _get_first(value: object) -> object:
    return value[0] if isinstance(value, list) and value else None


def _extract_text(value: object) -> str:
    """Text of a content field. Some servers send a list of parts."""
    if isinstance(value, list):
        texts = (_get_field(part, "text") for part in value)
        return "".join(text for text in texts if isinstance(text, str))
    return value if isinstance(value, str) else ""
