"""Recovers the model's message from a client's action.

Clients build actions differently. Some choose their own key for the model's text. Some decode text that happens to be
JSON, so that `42` arrives as a number and `{"name": "Ada"}` as the action itself. Nothing that a model can write is
refused: an unknown action counts as the JSON text that it was.
"""

import json
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from app.domain.tasks import Completion, Message, ToolCall
from app.domain.values import Frozen

TEXTS: Final = ("text", "message", "content")
"""Keys that may hold the model's text; `message` may also be a whole message in OpenAI's format."""

_EMPTY: Final[tuple[JsonValue, ...]] = (None, [], {})


class OpenEnvAction(Frozen):
    """One message of the model: its text under one of three keys, its tool calls, or both."""

    model_config = ConfigDict(title="Action")  # the name that OpenEnv's `/schema` shows

    text: str | None = None
    message: str | Message | None = None
    """The same as `text`, or a whole message in OpenAI's format with `role`, `content` and `tool_calls`."""
    content: str | None = None
    """The same as `text`."""
    tool_calls: tuple[ToolCall, ...] = ()
    """In OpenAI's format."""
    finish_reason: Annotated[str | None, Field(max_length=100)] = None
    """From the inference server. `length` marks a truncated message, which ends the episode."""
    reasoning_content: str | None = None
    """The model's reasoning, if the server separates it from the answer. Stored, never scored."""


@dataclass(frozen=True)
class ParsedAction:
    message: Message
    finish_reason: str | None = None
    as_json: bool = False
    """Whether the action was unknown, so that its JSON counts as the text."""

    def to_completion(self, before: tuple[Message, ...], *, multi_turn: bool) -> Completion:
        """The completion with this message; plain text if that is enough."""
        if multi_turn or self.message.tool_calls or self.message.reasoning_content is not None:
            return Completion(messages=(*before, self.message), finish_reason=self.finish_reason)
        return Completion(text=self.message.content or "", finish_reason=self.finish_reason)


def parse_action(data: dict[str, JsonValue]) -> ParsedAction:
    """Parses any JSON object as an action."""
    named = [name for name in TEXTS if data.get(name) is not None]
    if len(named) > 1 or not (data.get("tool_calls") or any(name in data for name in TEXTS)):
        return _take_as_json(data)
    given: dict[str, JsonValue] = {
        name: value for name, value in data.items() if value not in _EMPTY and name != "metadata"
    }
    for name in named:
        given[name] = _to_text_or_message(data[name], whole=name == "message")
    try:
        action = OpenEnvAction.model_validate(_make_encodable(given))
    except (ValidationError, RecursionError):
        return _take_as_json(data)
    return ParsedAction(_build_message(action), action.finish_reason)


def _build_message(action: OpenEnvAction) -> Message:
    if isinstance(action.message, Message) and not action.tool_calls:
        return action.message.model_copy(update={"role": "assistant"})
    text = next((text for text in (action.text, action.message, action.content) if isinstance(text, str)), None)
    return Message(
        role="assistant",
        content=text if text is not None or action.tool_calls else "",
        tool_calls=action.tool_calls,
        reasoning_content=action.reasoning_content,
    )


def _to_text_or_message(value: JsonValue, *, whole: bool) -> JsonValue:
    if whole and isinstance(value, dict) and value.get("role") == "assistant":
        return value
    return value if isinstance(value, str) else _write_json(value)


def _take_as_json(data: dict[str, JsonValue]) -> ParsedAction:
    return ParsedAction(Message(role="assistant", content=_repair_surrogates(_write_json(data))), as_json=True)


def _write_json(value: JsonValue) -> str:
    """JSON text as a model most likely wrote it."""
    return json.dumps(value, ensure_ascii=False)


def _make_encodable(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return _repair_surrogates(value)
    if isinstance(value, list):
        return [_make_encodable(item) for item in value]
    if isinstance(value, dict):
        return {_repair_surrogates(name): _make_encodable(item) for name, item in value.items()}
    return value


def _repair_surrogates(text: str) -> str:
    """Replaces lone surrogates, which cannot be stored, by the replacement character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
