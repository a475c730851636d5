"""Messages and tools of exports, in OpenAI's chat format."""

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field, JsonValue

from app.domain.digests import canonical_json
from app.domain.tasks import Message, ToolSpec
from app.domain.values import Frozen, is_absent, is_encodable


class ExportedFunctionCall(Frozen):
    name: str
    arguments: str
    """Arguments as a JSON string, since different functions share no columns."""


class ExportedToolCall(Frozen):
    id: str | None = None
    type: str = "function"
    function: ExportedFunctionCall


class ExportedMessage(Frozen):
    """A message in OpenAI's chat format. Absent fields are omitted in JSON lines and null in Parquet."""

    role: str
    content: str
    name: Annotated[str | None, Field(exclude_if=is_absent)] = None
    tool_calls: Annotated[tuple[ExportedToolCall, ...], Field(exclude_if=is_absent)] = ()
    tool_call_id: Annotated[str | None, Field(exclude_if=is_absent)] = None
    reasoning_content: Annotated[str | None, Field(exclude_if=is_absent)] = None


def encode_tools(tools: Iterable[ToolSpec]) -> str:
    return canonical_json([tool.model_dump(mode="json") for tool in tools])


def export_messages(messages: Iterable[Message]) -> tuple[ExportedMessage, ...]:
    return tuple(_export_message(message) for message in messages)


def _export_message(message: Message) -> ExportedMessage:
    calls = [
        ExportedToolCall(
            id=call.id,
            function=ExportedFunctionCall(
                name=call.function.name, arguments=_encode_arguments(call.function.arguments)
            ),
        )
        for call in message.tool_calls
    ]
    return ExportedMessage(
        role=message.role,
        content=replace_lone_surrogates(message.content or ""),
        name=message.name,
        tool_calls=tuple(calls),
        tool_call_id=message.tool_call_id,
        reasoning_content=None
        if message.reasoning_content is None
        else replace_lone_surrogates(message.reasoning_content),
    )


def _encode_arguments(given: JsonValue) -> str:
    return replace_lone_surrogates(given) if isinstance(given, str) else canonical_json(given)


def replace_lone_surrogates(text: str) -> str:
    """Replaces lone surrogates, which files cannot hold, with the replacement character."""
    return text if is_encodable(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
