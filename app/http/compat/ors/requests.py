"""What clients of the Open Reward Standard send, as `openreward/environments/types.py` of 0.1.167 has it."""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError, model_validator

from app.domain.errors import InvalidRequest
from app.domain.tasks import Completion, FunctionCall, Message, ToolCall
from app.domain.values import FiniteJson, Split, WholeNumber
from app.http.compat.one_sample.options import GATHER_DESCRIPTION, SampleOptions
from app.http.compat.ors.replies import ANSWER, REPLY
from app.http.compat.task_listing import TaskReference

_DAY: Final = 86_400
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


class ToolCallRequest(_Sent):
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


class CandidateTurn(_Sent):
    role: Literal["system", "user", "assistant"]
    blocks: tuple[Block, ...]


class GroupCandidate(_Sent):
    messages: Annotated[tuple[CandidateTurn, ...], Field(min_length=1, max_length=1000)]


class GroupRequest(_Sent):
    candidates: Annotated[tuple[GroupCandidate, ...], Field(min_length=1, max_length=256)]
    task_id: str | None = None
    """Not used: a group that is sent again has the scores that are stored."""

    @model_validator(mode="after")
    def _require_replies(self) -> "GroupRequest":
        for place, one in enumerate(self.candidates):
            if not any(turn.role == "assistant" for turn in one.messages):
                raise ValueError(f"candidate {place} has no message of the model")
        return self


def read_call(asked: ToolCallRequest) -> Message:
    """What the model said by a call. InvalidRequest for a reply without a text."""
    if asked.name not in {REPLY, ANSWER}:
        call = ToolCall(id=asked.task_id, function=FunctionCall(name=asked.name, arguments=asked.input))
        return Message(role="assistant", tool_calls=(call,))
    text = asked.input.get("text")
    if not isinstance(text, str):
        raise InvalidRequest(f"`{asked.name}` takes a `text`", field="input.text")
    return Message(role="assistant", content=text)


def read_candidate(candidate: GroupCandidate, single_reply: bool) -> Completion:
    """The last message of the model, or for several turns everything from its first one on."""
    messages = [message for turn in candidate.messages for message in _read_turn(turn)]
    own = [place for place, one in enumerate(messages) if one.role == "assistant"]
    return Completion(messages=tuple(messages[own[-1] : own[-1] + 1] if single_reply else messages[own[0] :]))


def _read_turn(turn: CandidateTurn) -> list[Message]:
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
