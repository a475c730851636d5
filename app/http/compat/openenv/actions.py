"""Recovers the model's message from a client's action.

Clients build actions differently. Some choose their own key for the model's text. Some decode text that happens to be
JSON, so that `42` arrives as a number and `{"name": "Ada"}` as the action itself. So an unknown object counts as the
JSON text that it was. An action that says nothing, and tool calls that cannot be read, count as silence: as a text they
could earn a reward that no reply earned, and an error would let a model do without a score by writing `{}`.
"""

import json
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from app.domain.tasks import Completion, Message, ToolCall
from app.domain.values import Frozen
from app.http.compat.openenv.resets import describe_faults

TEXTS: Final = ("text", "message", "content")
"""Keys that may hold the model's text; `message` may also be a whole message in OpenAI's format."""

_BESIDE: Final = {"tool_calls", "finish_reason", "reasoning_content", "metadata"}
"""Keys that may stand beside the text."""

_EMPTY: Final[tuple[JsonValue, ...]] = (None, [], {})


class OpenEnvAction(Frozen):
    """One message of the model. Generic clients fill the only required field."""

    # Clients take a server whose action is titled `Action` or `CallToolAction` for one that offers MCP tools.
    model_config = ConfigDict(title="ModelMessage")

    text: str
    """What the model said; empty if it only called tools."""
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
    read_as: Literal["json", "nothing"] | None = None
    """`json` if the action was unknown, so that its JSON counts as the text; `nothing` if it counts as silence."""
    fault: str = ""
    """Why it counts as silence, naming the field."""

    def to_completion(self, before: tuple[Message, ...], *, multi_turn: bool) -> Completion:
        """The completion with this message; plain text if that is enough."""
        if multi_turn or self.message.tool_calls or self.message.reasoning_content is not None:
            return Completion(messages=(*before, self.message), finish_reason=self.finish_reason)
        return Completion(text=self.message.content or "", finish_reason=self.finish_reason)


def parse_action(data: dict[str, JsonValue]) -> ParsedAction:
    """Parses a JSON object as an action. Never raises: the object may be what a model wrote."""
    message = data.get("message")
    whole = message if isinstance(message, dict) and message.get("role") == "assistant" else {}
    calls = any(one.get("tool_calls") not in _EMPTY for one in (data, whole))
    if not calls and not set(data) - _BESIDE:
        return _take_as_silence('text: missing; an action is {"text": "what the model said"}')
    named = [name for name in TEXTS if data.get(name) is not None]
    if calls and len(named) > 1:
        return _take_as_silence(f"{named[1]}: give the text once, as text, message or content")
    if not calls and (len(named) > 1 or not any(name in data for name in TEXTS)):
        return _take_as_json(data)
    try:
        return _read_message(data, named, whole)
    except (ValidationError, RecursionError) as error:
        if calls:
            return _take_as_silence(describe_faults(error))
        return _take_as_json(data)


def _read_message(data: dict[str, JsonValue], named: list[str], whole: dict[str, JsonValue]) -> ParsedAction:
    said = None if not named or whole else data[named[0]]
    beside = {name: value for name, value in data.items() if value not in _EMPTY and name != "metadata"}
    for name in named:
        beside.pop(name, None)
    text = "" if said is None else said if isinstance(said, str) else _write_json(said)
    action = OpenEnvAction.model_validate(_make_encodable({**beside, "text": text}))
    if whole:
        message = Message.model_validate(_make_encodable(whole))
        update = {"tool_calls": action.tool_calls} if action.tool_calls else {}
        return ParsedAction(message.model_copy(update=update), action.finish_reason)
    return ParsedAction(_build_message(action, silent=said is None), action.finish_reason)


def _build_message(action: OpenEnvAction, *, silent: bool) -> Message:
    return Message(
        role="assistant",
        content=None if silent and action.tool_calls else action.text,
        tool_calls=action.tool_calls,
        reasoning_content=action.reasoning_content,
    )


def _take_as_json(data: dict[str, JsonValue]) -> ParsedAction:
    return ParsedAction(Message(role="assistant", content=_repair_surrogates(_write_json(data))), read_as="json")


def _take_as_silence(fault: str) -> ParsedAction:
    return ParsedAction(Message(role="assistant", content=""), read_as="nothing", fault=fault)


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
