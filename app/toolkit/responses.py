"""Chat messages in the form of OpenAI's Responses API: as items, which NeMo Gym's agents and servers exchange."""

import json
from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from app.domain.tasks import FunctionCall, FunctionSpec, Message, Opening, ToolCall, ToolSpec
from app.domain.values import FiniteJson, ModelWords


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    text: JsonValue = None
    refusal: JsonValue = None


class OutputItem(BaseModel):
    """A message, a thought, a call or a result. Other kinds are skipped."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: JsonValue = "message"
    role: JsonValue = None
    content: Annotated[JsonValue, ModelWords()] = None
    summary: Annotated[JsonValue, ModelWords()] = None
    name: Annotated[JsonValue, ModelWords()] = None
    arguments: Annotated[JsonValue, ModelWords()] = None
    call_id: JsonValue = None
    output: Annotated[JsonValue, ModelWords()] = None


def read_messages(items: Sequence[OutputItem]) -> tuple[Message, ...]:
    """Thought, text and calls that follow one another are one message of the model."""
    messages: list[Message] = []
    turn: list[OutputItem] = []
    for item in items:
        if item.type in {"reasoning", "function_call"} or (item.type == "message" and item.role in {"assistant", None}):
            turn.append(item)
            continue
        answer = read_observation(item)
        if answer is not None:
            messages += join_items(turn)
            messages.append(answer)
            turn = []
    return (*messages, *join_items(turn))


def read_observation(item: OutputItem) -> Message | None:
    if item.type == "function_call_output":
        call = item.call_id if isinstance(item.call_id, str) else None
        return Message(role="tool", content=_read_text(item.output), tool_call_id=call)
    if item.type == "message" and item.role in {"user", "developer", "system"}:
        return Message(role="user" if item.role == "user" else "system", content=_read_text(item.content))
    return None


def join_items(turn: Sequence[OutputItem]) -> list[Message]:
    if not turn:
        return []
    thoughts = [_read_text(one.summary) or _read_text(one.content) for one in turn if one.type == "reasoning"]
    texts = [_read_text(one.content) for one in turn if one.type == "message"]
    calls = tuple(_read_call(one) for one in turn if one.type == "function_call")
    return [
        Message(
            role="assistant",
            content=None if calls and not texts else "".join(texts),
            tool_calls=calls,
            reasoning_content="\n\n".join(filter(None, thoughts)) or None,
        )
    ]


def _read_call(item: OutputItem) -> ToolCall:
    name = item.name if isinstance(item.name, str) else ""
    return ToolCall(
        id=item.call_id if isinstance(item.call_id, str) else None,
        function=FunctionCall(name=name, arguments=item.arguments),
    )


def _read_text(content: JsonValue) -> str:
    """A text, or the texts of a list of parts; what a model refused with counts as said."""
    if isinstance(content, str):
        return content
    parts = [_Part.model_validate(one) for one in content if isinstance(one, dict)] if isinstance(content, list) else []
    return "".join(text for part in parts for text in (part.text, part.refusal) if isinstance(text, str))


def write_items(message: Message, name: str, call_ids: Sequence[str]) -> list[JsonValue]:
    """What the model said in one message, without its thoughts. `name` is the id of its text, `call_ids` are those of
    its calls in turn."""
    items: list[JsonValue] = []
    if message.content or not message.tool_calls:
        part: JsonValue = {"type": "output_text", "text": message.content or "", "annotations": []}
        items.append({"id": name, "type": "message", "role": "assistant", "status": "completed", "content": [part]})
    for call, call_id in zip(message.tool_calls, call_ids, strict=True):
        arguments = call.function.arguments
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        items.append({"type": "function_call", "call_id": call_id, "name": call.function.name, "arguments": text})
    return items


# Prompts


class _PromptItem(OutputItem):
    @model_validator(mode="after")
    def _require_text(self) -> Self:
        if self.type not in ("message", "function_call", "function_call_output", "reasoning"):
            raise ValueError("it is no message, call, output of a call or thought")
        if self.type == "message" and self.role not in ("system", "developer", "user", "assistant"):
            raise ValueError("its role is not system, developer, user or assistant")
        for content in (self.content, self.output):
            parts = content if isinstance(content, list) else ()
            if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
                raise ValueError("it holds what is no text, such as an image")
        return self


class _Tool(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    type: Literal["function"]
    name: Annotated[str, Field(min_length=1, max_length=200)]
    description: str | None = None
    parameters: dict[str, FiniteJson] | None = None


def _as_items(value: object) -> object:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


class PromptParams(BaseModel):
    """What a request for a response says of the prompt. How it is sampled is ignored."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, FiniteJson]

    input: Annotated[tuple[_PromptItem, ...], BeforeValidator(_as_items)]
    instructions: str | None = None
    tools: tuple[_Tool, ...] | None = None

    @property
    def opening(self) -> Opening:
        first = (Message(role="system", content=self.instructions),) if self.instructions else ()
        tools = [
            FunctionSpec(name=tool.name, description=tool.description or "", parameters=tool.parameters or {})
            for tool in self.tools or ()
        ]
        return Opening(
            messages=(*first, *read_messages(self.input)), tools=tuple(ToolSpec(function=tool) for tool in tools)
        )
