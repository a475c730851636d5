"""What clients of the Open Reward Standard send and get, as `openreward/environments/types.py` of 0.1.167 has it."""

import json
from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError, model_validator

from app.domain.errors import InvalidRequest
from app.domain.tasks import Completion, FunctionCall, Message, ToolCall, ToolSpec
from app.domain.values import FiniteJson, FiniteNumber, Frozen, Split, WholeNumber
from app.http.compat.one_sample.options import GATHER_DESCRIPTION, SampleOptions
from app.http.compat.task_listing import TaskReference

_DAY: Final = 86_400
CHUNK: Final = 4096
"""Characters of an event: clients read lines of a limited length."""
REPLY: Final = "reply"
ANSWER: Final = "answer"
"""The tool that a harness calls with the model's plain message, which ends the episode."""
_PARAMS: Final = TypeAdapter(dict[str, FiniteJson])


class OrsOptions(SampleOptions):
    contract: ClassVar[str] = "ors"

    gather_seconds: Annotated[float, Field(ge=0, le=_DAY, allow_inf_nan=False, description=GATHER_DESCRIPTION)] = 300.0
    wait_seconds: Annotated[
        float,
        Field(
            gt=0,
            le=_DAY,
            allow_inf_nan=False,
            description="Maximum seconds until a last call is answered. Until then the stream is kept alive.",
        ),
    ] = 900.0
    params: Annotated[
        str, Field(max_length=20_000, description="The environment's params, as a JSON object.", examples=["{}"])
    ] = "{}"

    def read_params(self) -> dict[str, JsonValue]:
        """InvalidRequest."""
        try:
            return _PARAMS.validate_json(self.params)
        except ValidationError:
            raise InvalidRequest("not a JSON object", field="params") from None


class _Sent(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class CreateRequest(_Sent):
    """A task by its place, or as it was listed."""

    env_name: str | None = None
    task_spec: TaskReference | None = None
    split: Split | None = None
    index: Annotated[WholeNumber, Field(ge=0, le=2**40)] | None = None

    def find_place(self) -> TaskReference:
        """InvalidRequest naming the field."""
        if self.task_spec is not None:
            return self.task_spec
        if self.split is None or self.index is None:
            raise InvalidRequest("name a task by `split` and `index`, or by `task_spec`", field="task_spec")
        return TaskReference(split=self.split, index=self.index)


class CallRequest(_Sent):
    name: Annotated[str, Field(max_length=200)]
    input: dict[str, JsonValue] = {}
    task_id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Of a call whose stream was lost: it is answered as it was."""


class Block(_Sent):
    type: Literal["text", "image", "reasoning", "tool_call", "tool_result"]
    text: str = ""
    id: str | None = None
    name: str = ""
    input: JsonValue = None
    tool_call_id: str | None = None
    blocks: tuple["Block", ...] = ()


class Turn(_Sent):
    role: Literal["system", "user", "assistant"]
    blocks: tuple[Block, ...]


class Candidate(_Sent):
    messages: Annotated[tuple[Turn, ...], Field(min_length=1, max_length=1000)]


class GroupRequest(_Sent):
    candidates: Annotated[tuple[Candidate, ...], Field(min_length=1, max_length=256)]
    task_id: str | None = None
    """Not used: a group that is sent again has the scores that are stored."""

    @model_validator(mode="after")
    def _require_replies(self) -> "GroupRequest":
        for place, one in enumerate(self.candidates):
            if not any(turn.role == "assistant" for turn in one.messages):
                raise ValueError(f"candidate {place} has no message of the model")
        return self


class TextBlock(Frozen):
    text: str
    type: Literal["text"] = "text"


class ToolDescription(Frozen):
    name: str
    description: str
    input_schema: dict[str, JsonValue]


class TerminalTool(Frozen):
    name: str = ANSWER
    arg: str = "text"
    description: str = "Says the last word: the episode ends and is scored."


class ToolListing(Frozen):
    tools: tuple[ToolDescription, ...]
    terminal_tool: TerminalTool = TerminalTool()
    supports_score_group: bool = True
    message_block_types: tuple[str, ...] = ("text", "reasoning", "tool_call", "tool_result")


class ShownMessage(Frozen):
    role: Literal["system", "user", "assistant"]
    blocks: tuple[TextBlock, ...]


class ToolOutput(Frozen):
    blocks: tuple[TextBlock, ...]
    reward: FiniteNumber | None = None
    """Null while the episode goes on, and where there is no score."""
    finished: bool = False
    metadata: dict[str, JsonValue] | None = None


class CallReply(Frozen):
    ok: Literal[True] = True
    output: ToolOutput


class CallError(Frozen):
    ok: Literal[False] = False
    error: str
    reason: Literal["not_found", "input_validation", "episode_finished"] | None = None


class CandidateScore(Frozen):
    reward: FiniteNumber | None
    metadata: dict[str, JsonValue]


class GroupReply(Frozen):
    scores: tuple[CandidateScore, ...]


REPLY_TOOL: Final = ToolDescription(
    name=REPLY,
    description="Says something and returns the answer to it.",
    input_schema={
        "type": "object",
        "properties": {"text": {"type": "string", "description": "All that is said."}},
        "required": ["text"],
    },
)


def describe_tools(tools: Sequence[ToolSpec]) -> ToolListing:
    """A task's own, and `reply`."""
    own = tuple(
        ToolDescription(
            name=one.function.name, description=one.function.description, input_schema=dict(one.function.parameters)
        )
        for one in tools
    )
    return ToolListing(tools=(*own, REPLY_TOOL))


def show_messages(messages: Sequence[Message]) -> list[ShownMessage]:
    return [
        ShownMessage(
            role=one.role if one.role in {"system", "assistant"} else "user",
            blocks=(TextBlock(text=one.content or ""),),
        )
        for one in messages
    ]


def show_observation(observed: Sequence[Message]) -> tuple[TextBlock, ...]:
    return tuple(TextBlock(text=one.content or "") for one in observed)


def read_call(asked: CallRequest) -> Message:
    """What the model said by a call. InvalidRequest for a reply without a text."""
    if asked.name not in {REPLY, ANSWER}:
        call = ToolCall(id=asked.task_id, function=FunctionCall(name=asked.name, arguments=asked.input))
        return Message(role="assistant", tool_calls=(call,))
    text = asked.input.get("text")
    if not isinstance(text, str):
        raise InvalidRequest(f"`{asked.name}` takes a `text`", field="input.text")
    return Message(role="assistant", content=text)


def read_candidate(candidate: Candidate, single_reply: bool) -> Completion:
    """The last message of the model, or for several turns everything from its first one on."""
    messages = [message for turn in candidate.messages for message in _read_turn(turn)]
    own = [place for place, one in enumerate(messages) if one.role == "assistant"]
    return Completion(messages=tuple(messages[own[-1] : own[-1] + 1] if single_reply else messages[own[0] :]))


def _read_turn(turn: Turn) -> list[Message]:
    texts = "".join(one.text for one in turn.blocks if one.type == "text")
    if turn.role == "system":
        return [Message(role="system", content=texts)]
    if turn.role == "user":
        results = [
            Message(role="tool", content="".join(inner.text for inner in one.blocks), tool_call_id=one.tool_call_id)
            for one in turn.blocks
            if one.type == "tool_result"
        ]
        return results + ([Message(role="user", content=texts)] if texts or not results else [])
    calls = tuple(
        ToolCall(id=one.id, function=FunctionCall(name=one.name, arguments=one.input))
        for one in turn.blocks
        if one.type == "tool_call"
    )
    thought = "\n\n".join(one.text for one in turn.blocks if one.type == "reasoning")
    content = None if calls and not texts else texts
    return [Message(role="assistant", content=content, tool_calls=calls, reasoning_content=thought or None)]


def write_event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {data}\n\n".encode()


def write_result(result: Frozen) -> list[bytes]:
    """The last events of a stream. No piece begins with a space, which clients would take off."""
    text = json.dumps(result.model_dump(mode="json"), separators=(",", ":"))
    pieces: list[str] = []
    while len(text) > CHUNK:
        cut = next((place for place in range(CHUNK, len(text)) if text[place] != " "), len(text))
        pieces.append(text[:cut])
        text = text[cut:]
    return [*(write_event("chunk", one) for one in pieces), write_event("end", text)]
