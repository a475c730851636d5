"""Parses chat completion responses without trusting their form."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from pydantic_core import from_json

from app.domain.tasks import is_truncated
from app.inference.endpoint import ServerReply
from app.inference.event_streams import is_event_stream, join_event_stream
from app.inference.server_errors import parse_server_error, tells_error
from app.judges.configuration import JsonMode
from app.judges.expected_scores import Token, parse_tokens
from app.judges.failures import CallFailed
from app.judges.text_normalisation import replace_surrogates, strip_thoughts
from app.judges.token_usage import NOT_COUNTED, TokenUsage, parse_usage

LONGEST_NAME: Final = 200
"""Characters of what a server calls itself that are kept."""
LONGEST_WAIT_SECONDS: Final = 3600.0
"""Longest `retry-after` that is honoured. After this time the server is tried again."""


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
    lacks_room: bool = False
    """The model's thought used up the tokens of the answer."""
    model: str = ""
    """What the server says answered; empty where it does not say, as `system_fingerprint`."""
    system_fingerprint: str = ""
    asked: JsonMode = "off"
    """The format that the server was to see to."""


def require_success(reply: ServerReply) -> bytes:
    """The body of a reply with a status below 300. CallFailed for any other."""
    if reply.status < 300:
        return reply.body
    error = parse_server_error(_parse_json(reply.body))
    raise CallFailed(
        f"the judge's server answered {reply.status}",
        status=reply.status,
        error=error,
        retry_after=parse_retry_after(reply.headers) or min(error.wait_seconds, LONGEST_WAIT_SECONDS),
    )


def parse_response(body: bytes) -> ChatResponse:
    """The body of a reply with a status below 300, streamed or not. CallFailed when it holds no message, or an
    error."""
    streamed = is_event_stream(body)
    value = join_event_stream(body) if streamed else _parse_json(body)
    if value is None and streamed:
        raise CallFailed("the judge's server broke off its stream")
    if value is None:
        raise CallFailed("the judge's server sent something that is not JSON", status=200)
    choice = _get_first(_get_field(value, "choices"))
    if tells_error(value) or _get_field(choice, "error") or _get_field(choice, "finish_reason") == "error":
        raise _build_hidden_failure(value, choice)
    message = _get_field(choice, "message")
    if not isinstance(message, dict):
        raise CallFailed("the judge's server sent JSON without a message", status=200)
    return _build_response(value, choice, message)


def _extract_name(value: object, name: str) -> str:
    found = _get_field(value, name)
    return replace_surrogates(found[:LONGEST_NAME]) if isinstance(found, str) else ""


def _build_response(value: object, choice: object, message: Mapping[str, object]) -> ChatResponse:
    usage = parse_usage(_get_field(value, "usage"))
    content, refusal = _extract_text(message.get("content")), _extract_text(message.get("refusal"))
    thought = _extract_text(message.get("reasoning_content")) or _extract_text(message.get("reasoning"))
    cut_off = is_truncated(str(_get_field(choice, "finish_reason") or ""))
    text = content if content.strip() else refusal
    if not text and not cut_off:
        text = thought  # servers with a parser of thoughts may take a whole answer for one
    return ChatResponse(
        text=replace_surrogates(text),
        refused=_get_field(choice, "finish_reason") == "content_filter" or (bool(refusal) and not content),
        cut_off=cut_off,
        usage=usage,
        tokens=parse_tokens(choice),
        lacks_room=cut_off
        and (
            _is_all_thought(content)
            or len(thought) > len(content)
            or 2 * usage.reasoning_tokens > (usage.output_tokens or 0)
        ),
        model=_extract_name(value, "model"),
        system_fingerprint=_extract_name(value, "system_fingerprint"),
    )


def _is_all_thought(content: str) -> bool:
    """Nothing at all is a thought that is not shown. Blank space without end is none."""
    return not content or (bool(content.strip()) and not strip_thoughts(content))


def _build_hidden_failure(value: object, choice: object) -> CallFailed:
    """For an error in a reply with status 200."""
    error = parse_server_error(value if tells_error(value) else {"error": _get_field(choice, "error")})
    status = error.status or 200
    return CallFailed(
        f"the judge's server answered 200 with an error{f' {status}' if status != 200 else ''}",
        status=status,
        error=error,
        retry_after=min(error.wait_seconds, LONGEST_WAIT_SECONDS),
        ran=choice is not None,
    )


def parse_retry_after(headers: Mapping[str, str]) -> float:
    """Seconds from `retry-after`, at most LONGEST_WAIT_SECONDS; 0 when the header is missing or invalid."""
    milliseconds = headers.get("retry-after-ms", "").strip()
    if milliseconds.isascii() and milliseconds.isdigit():
        return min(int(milliseconds[:9]) / 1000, LONGEST_WAIT_SECONDS)
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


def _parse_json(body: bytes) -> object:
    try:
        value: object = from_json(body)
    except ValueError:
        return _parse_json_with_faults(body)
    return value


def _parse_json_with_faults(body: bytes) -> object:
    """What Python's parser alone accepts: lone surrogates, and bytes that are no UTF-8. It takes twice as long."""
    try:
        value: object = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return value


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
