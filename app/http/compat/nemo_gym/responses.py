"""Reads the chat messages out of an OpenAI Responses object, as NeMo Gym's agents put it together."""

import json
from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict, JsonValue

from app.domain.tasks import Completion, FunctionCall, Message, ToolCall

CUT_OFF: Final = "max_output_tokens"
"""The reason of a response that was cut off, where it names none."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    text: JsonValue = None
    refusal: JsonValue = None


class OutputItem(BaseModel):
    """A message, a thought, a call or a result. Other kinds are skipped."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: JsonValue = "message"
    role: JsonValue = None
    content: JsonValue = None
    summary: JsonValue = None
    name: JsonValue = None
    arguments: JsonValue = None
    call_id: JsonValue = None
    output: JsonValue = None


class IncompleteDetails(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    reason: str | None = None


class ResponsesObject(BaseModel):
    """What is read of a response. All of it is echoed."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    output: tuple[OutputItem, ...]
    status: str | None = None
    incomplete_details: IncompleteDetails | None = None
    metadata: dict[str, JsonValue] | None = None

    @property
    def finish_reason(self) -> str:
        """In the words of inference servers. NeMo Gym calls a reply incomplete that ended by itself without an answer:
        that was not cut off."""
        if self.incomplete_details is not None:
            return self.incomplete_details.reason or CUT_OFF
        ended_by_itself = "ng_termination_reason" in (self.metadata or {})
        return CUT_OFF if self.status == "incomplete" and not ended_by_itself else "stop"


def build_reply_completion(response: ResponsesObject) -> Completion:
    """The completion of a task that one reply answers: whatever follows the result of a call is beyond it."""
    first = read_reply(response)
    if first.tool_calls or first.reasoning_content is not None:
        return Completion(messages=(first,), finish_reason=response.finish_reason)
    return Completion(text=first.content or "", finish_reason=response.finish_reason)


def build_tool_transcript(response: ResponsesObject) -> Completion:
    """The completion of a task of several calls, one at a time, as they were carried out. A call whose arguments are no
    JSON was answered by the agent and never reached us."""
    outputs = {item.call_id: item for item in response.output if item.type == "function_call_output"}
    messages: list[Message] = []
    said: list[OutputItem] = []
    for item in response.output:
        if item.type == "function_call_output" or (item.type == "function_call" and not _is_callable(item)):
            continue
        said.append(item)
        if item.type == "function_call":
            messages += _join_items(said)
            said = []
            answer = None if item.call_id not in outputs else _read_observation(outputs[item.call_id])
            messages += [] if answer is None else [answer]
    messages += _join_items(said)
    return Completion(
        messages=tuple(messages) or (Message(role="assistant", content=""),), finish_reason=response.finish_reason
    )


def read_reply(response: ResponsesObject) -> Message:
    """The model's one message in a response that holds no more."""
    messages = read_messages(response.output)
    return next((one for one in messages if one.role == "assistant"), Message(role="assistant", content=""))


def _is_callable(item: OutputItem) -> bool:
    try:
        json.loads(item.arguments if isinstance(item.arguments, str) else "")
    except (ValueError, RecursionError):
        return False
    return isinstance(item.call_id, str)


def read_messages(items: Sequence[OutputItem]) -> tuple[Message, ...]:
    """Thought, text and calls that follow one another are one message of the model."""
    messages: list[Message] = []
    said: list[OutputItem] = []
    for item in items:
        if item.type in {"reasoning", "function_call"} or (item.type == "message" and item.role in {"assistant", None}):
            said.append(item)
            continue
        answer = _read_observation(item)
        if answer is not None:
            messages += _join_items(said)
            messages.append(answer)
            said = []
    return (*messages, *_join_items(said))


def _read_observation(item: OutputItem) -> Message | None:
    if item.type == "function_call_output":
        call = item.call_id if isinstance(item.call_id, str) else None
        return Message(role="tool", content=_read_text(item.output), tool_call_id=call)
    if item.type == "message" and item.role in {"user", "developer", "system"}:
        return Message(role="user" if item.role == "user" else "system", content=_read_text(item.content))
    return None


def _join_items(said: Sequence[OutputItem]) -> list[Message]:
    if not said:
        return []
    thoughts = [_read_text(one.summary) or _read_text(one.content) for one in said if one.type == "reasoning"]
    texts = [_read_text(one.content) for one in said if one.type == "message"]
    calls = tuple(_read_call(one) for one in said if one.type == "function_call")
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
