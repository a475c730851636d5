"""What is handed out, and what comes back: messages, tools, tasks, completions, retrieved text."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, model_validator

from app.domain.values import FiniteJson, FiniteNumber, Frozen, Split, WholeNumber

Role = Literal["system", "user", "assistant", "tool"]


def _absent(value: object) -> bool:
    return value is None or value == ()


class FunctionCall(Frozen):
    name: str
    arguments: FiniteJson
    """A JSON string, as OpenAI sends it, or the object itself, as chat templates hold it. Whatever else stands here the
    model wrote: a malformed call."""


class ToolCall(Frozen):
    id: Annotated[str | None, Field(exclude_if=_absent)] = None
    type: Literal["function"] = "function"
    function: FunctionCall

    @model_validator(mode="before")
    @classmethod
    def _without_place(cls, given: Any) -> Any:
        """`index` is of streamed answers: servers leave it where the parts have been put together."""
        return {name: value for name, value in given.items() if name != "index"} if isinstance(given, dict) else given


class Message(Frozen):
    """One message in OpenAI's chat format. Absent parts are left out, since chat templates trip over nulls. A null or
    an empty list that comes in is an absent part too: clients of OpenAI's API write one for whatever a message does not
    have."""

    role: Role
    content: str | None = None
    name: Annotated[str | None, Field(exclude_if=_absent)] = None
    tool_calls: Annotated[tuple[ToolCall, ...], Field(exclude_if=_absent)] = ()
    tool_call_id: Annotated[str | None, Field(exclude_if=_absent)] = None
    reasoning_content: Annotated[str | None, Field(exclude_if=_absent)] = None
    """What a server took out of the answer as the model's thinking; also read from `reasoning`. Kept, never scored."""

    @model_validator(mode="before")
    @classmethod
    def _without_absent_parts(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        said = {name: value for name, value in given.items() if value is not None and value != []}
        if "reasoning" in said and said.get("reasoning_content", said["reasoning"]) == said["reasoning"]:
            said["reasoning_content"] = said.pop("reasoning")
        return said


class FunctionSpec(Frozen):
    name: str
    description: str = ""
    parameters: dict[str, FiniteJson] = {}
    """JSON Schema of the arguments."""


class ToolSpec(Frozen):
    type: Literal["function"] = "function"
    function: FunctionSpec


class Passage(Frozen):
    """A piece of retrieved text with its source. `lore` holds at all times, an `event` happened at one."""

    id: str
    text: str
    source: str
    """`events`, `lorebook/<name>`, or what a retriever of the operator's says."""
    time: datetime | None = None
    kind: Annotated[Literal["event", "lore"], Field(exclude_if=lambda kind: kind == "event")] = "event"


class Withheld(Frozen):
    """What the character cannot know; for the judge and the log only."""

    id: str
    reason: str
    text: Annotated[str, Field(exclude_if=lambda text: not text)] = ""
    leak_terms: tuple[str, ...] = ()
    """Any of these in a reply shows that the character knows what it cannot know."""


class ContextQuery(Frozen):
    """What an environment wants retrieved for a task. `as_of` is game time; None means the newest event."""

    text: str
    """The last thing that was said."""
    character: str
    world: str
    as_of: datetime | None = None
    circles: tuple[str, ...] = ()
    """Names besides `character` by which an event's visibility may mean whoever asks: factions, households, places."""
    conversation: tuple[str, ...] = ()
    """All that was said, `text` included, the newest last."""
    seed: str = ""
    """Of what is left to chance: equal for every completion of a task, different between tasks."""
    budget_tokens: int = 600
    """About as many tokens as all passages together may take."""


class Context(Frozen):
    """What was retrieved, in prompt order, and what was held back: the latter is for the judge and the log only."""

    passages: tuple[Passage, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    as_of: Annotated[datetime | None, Field(exclude_if=_absent)] = None
    """Game time of what was retrieved."""
    failure: Annotated[str | None, Field(exclude_if=_absent)] = None
    """Why there is nothing although something was asked for: the retriever failed and the settings let tasks go out
    without."""


class TaskKey(Frozen):
    """Everything a task is made from. Equal keys are the same task under the same rule, for ever."""

    environment: str
    version: str
    data_digest: str
    split: Split
    index: int
    params: dict[str, JsonValue]
    context: Context | None = None


class Task(Frozen):
    """One thing to do, as an environment makes it. `reference` is hidden: no reply, page or log shows it."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_turns: int = 1
    metadata: dict[str, JsonValue] = {}
    reference: JsonValue = None


class Turn(Frozen):
    """The environment's answer to one step: what the model sees next, or that the episode is over."""

    messages: tuple[Message, ...]
    done: bool


_TEXT_OR_MESSAGES: dict[str, JsonValue] = {
    "oneOf": [
        {"required": ["text"], "properties": {"text": {"type": "string"}, "messages": {"type": "null"}}},
        {"required": ["messages"], "properties": {"text": {"type": "null"}, "messages": {"type": "array"}}},
    ]
}


class Completion(Frozen):
    """What the trainer's model produced: `text`, or for multi-turn and tool calls `messages` (all that followed
    the prompt, observations included)."""

    model_config = ConfigDict(json_schema_extra=_TEXT_OR_MESSAGES)

    text: str | None = None
    messages: tuple[Message, ...] | None = None
    finish_reason: str | None = None
    """As the inference server said it; `length` marks a truncated completion."""
    token_ids: tuple[WholeNumber, ...] | None = None
    logprobs: tuple[FiniteNumber, ...] | None = None
    """One per token of `token_ids`, in nats."""
    extra: dict[str, FiniteJson] = {}
    """Anything the trainer wants kept beside the rollout; never read by a scorer."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.text is None) == (self.messages is None):
            raise ValueError("give exactly one of text and messages")
        if self.logprobs is not None and len(self.logprobs) != len(self.token_ids or ()):
            raise ValueError("logprobs must have one entry per token of token_ids")
        return self

    @property
    def said(self) -> list[JsonValue]:
        """All by which completions are told apart, as JSON."""
        if self.text is not None:
            return [self.text, self.finish_reason]
        return [[message.model_dump(mode="json") for message in self.messages or ()], self.finish_reason]

    @property
    def truncated(self) -> bool:
        return self.finish_reason == "length"

    @property
    def answer(self) -> str:
        """The text that is scored: `text`, or the content of the last assistant message."""
        if self.text is not None:
            return self.text
        spoken = [message.content or "" for message in self.messages or () if message.role == "assistant"]
        return spoken[-1] if spoken else ""
