"""Messages, tools, tasks, completions and retrieved passages."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, model_validator

from app.domain.digests import digest, digest_in_pieces
from app.domain.values import FiniteJson, FiniteNumber, Frozen, Split, WholeNumber, is_absent

Role = Literal["system", "user", "assistant", "tool"]


class FunctionCall(Frozen):
    name: str
    arguments: FiniteJson
    """A JSON string, as in OpenAI's API, or the object itself, as in chat templates. Anything else is a malformed
    call."""


class ToolCall(Frozen):
    id: Annotated[str | None, Field(exclude_if=is_absent)] = None
    type: Literal["function"] = "function"
    function: FunctionCall

    @model_validator(mode="before")
    @classmethod
    def _drop_index(cls, given: Any) -> Any:
        """Drops `index`, which some servers leave over from streaming."""
        return {name: value for name, value in given.items() if name != "index"} if isinstance(given, dict) else given


class Message(Frozen):
    """One message in OpenAI's chat format. Empty fields are omitted, because chat templates fail on nulls. Nulls and
    empty lists in a request count as omitted."""

    role: Role
    content: str | None = None
    name: Annotated[str | None, Field(exclude_if=is_absent)] = None
    tool_calls: Annotated[tuple[ToolCall, ...], Field(exclude_if=is_absent)] = ()
    tool_call_id: Annotated[str | None, Field(exclude_if=is_absent)] = None
    reasoning_content: Annotated[str | None, Field(exclude_if=is_absent)] = None
    """The model's thinking, as separated by the server; also accepted as `reasoning`. Stored, never scored."""

    @model_validator(mode="before")
    @classmethod
    def _drop_absent_parts(cls, given: Any) -> Any:
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
    """A piece of retrieved text with its source. `lore` is timeless; an `event` has a time."""

    id: str
    text: str
    source: str
    """`events`, `lorebook/<name>`, or whatever a custom retriever reports."""
    time: datetime | None = None
    kind: Annotated[Literal["event", "lore"], Field(exclude_if=lambda kind: kind == "event")] = "event"


class Withheld(Frozen):
    """Text that the character cannot know; for judges and the log only."""

    id: str
    reason: str
    text: Annotated[str, Field(exclude_if=lambda text: not text)] = ""
    leak_terms: tuple[str, ...] = ()
    """Any of these terms in a reply shows knowledge that the character cannot have."""


class ContextQuery(Frozen):
    """A retrieval query for a task. `as_of` is game time; None means the time of the newest event."""

    text: str
    """The last thing that was said."""
    character: str
    world: str
    as_of: datetime | None = None
    circles: tuple[str, ...] = ()
    """Groups to which the character belongs (factions, households, places); an event's visibility may name them."""
    conversation: tuple[str, ...] = ()
    """The whole conversation, including `text`, newest last."""
    seed: str = ""
    """Random seed: the same for every completion of a task, different between tasks."""
    budget_tokens: int = 600
    """Approximate token budget of all passages together."""


class Context(Frozen):
    """Retrieved passages in prompt order, and withheld ones, which are for judges and the log only."""

    passages: tuple[Passage, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    as_of: Annotated[datetime | None, Field(exclude_if=is_absent)] = None
    """Game time of the retrieval."""
    failure: Annotated[str | None, Field(exclude_if=is_absent)] = None
    """Why retrieval failed, when the settings allow tasks without passages."""


class TaskKey(Frozen):
    """Everything that a task is made from. Equal keys always mean the same task and the same scoring rule."""

    environment: str
    version: str
    data_digest: str
    split: Split
    index: int
    params: dict[str, JsonValue]
    context: Context | None = None


class Task(Frozen):
    """A task as the environment makes it. `reference` is hidden: no reply, page or log shows it."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_turns: int = 1
    metadata: dict[str, JsonValue] = {}
    reference: JsonValue = None


class Turn(Frozen):
    """The environment's answer to one step: the next observation, or the end of the episode."""

    messages: tuple[Message, ...]
    done: bool


class KeptEpisode(Frozen):
    """An episode so far, of a client that sends no history."""

    task_id: str
    messages: tuple[Message, ...] = ()
    """All after the prompt, observations included."""
    revision: int = 0
    """Counted up with every change."""
    last: str = ""
    """Digest of the request that brought the model's last message."""
    closed: bool = False

    def change(self, **values: Any) -> "KeptEpisode":
        return self.model_copy(update={**values, "revision": self.revision + 1})


_TEXT_OR_MESSAGES: dict[str, JsonValue] = {
    "oneOf": [
        {"required": ["text"], "properties": {"text": {"type": "string"}, "messages": {"type": "null"}}},
        {"required": ["messages"], "properties": {"text": {"type": "null"}, "messages": {"type": "array"}}},
    ]
}


TokenId = Annotated[WholeNumber, Field(ge=0, lt=2**32)]

TRUNCATED_REASONS: Final = frozenset({"length", "max_tokens", "max_length", "model_length", "max_output_tokens"})
"""What inference servers report for a completion that was cut off by a limit: OpenAI and vLLM, Anthropic and Gemini,
TGI, Mistral, and OpenAI's Responses API."""


def is_truncated(finish_reason: str | None) -> bool:
    """In any case: `LENGTH` and `MAX_TOKENS` are reported too."""
    return (finish_reason or "").lower() in TRUNCATED_REASONS


LARGE_TEXT: Final = 64 * 1024
"""Characters from which on a text is worked on in a thread."""


class Completion(Frozen):
    """The output of the trainer's model: `text`, or for multi-turn tasks and tool calls `messages` (everything after
    the prompt, observations included)."""

    model_config = ConfigDict(json_schema_extra=_TEXT_OR_MESSAGES)

    text: str | None = None
    messages: tuple[Message, ...] | None = None
    finish_reason: str | None = None
    """As reported by the inference server; `length` and `max_tokens` mark a truncated completion."""
    token_ids: tuple[TokenId, ...] | None = None
    logprobs: tuple[FiniteNumber, ...] | None = None
    """One per token of `token_ids`, in nats."""
    # Not `= {}`, which pydantic copies with `deepcopy` for every completion.
    extra: dict[str, FiniteJson] = Field(default_factory=dict, json_schema_extra={"default": {}})
    """Any data to store with the rollout. Scorers never read it."""

    @model_validator(mode="after")
    def _require_one_form(self) -> Self:
        if (self.text is None) == (self.messages is None):
            raise ValueError("give exactly one of text and messages")
        if self.logprobs is not None and len(self.logprobs) != len(self.token_ids or ()):
            raise ValueError("logprobs must have one entry per token of token_ids")
        return self

    @property
    def identity(self) -> list[JsonValue]:
        """The content that identifies a completion, as JSON."""
        if self.text is not None:
            return [self.text, self.finish_reason]
        return [[message.model_dump(mode="json") for message in self.messages or ()], self.finish_reason]

    @property
    def identity_digest(self) -> str:
        return (digest_in_pieces if are_large([self]) else digest)(self.identity)

    @property
    def truncated(self) -> bool:
        return self.finish_reason is not None and is_truncated(self.finish_reason)

    @property
    def answer(self) -> str:
        """The text that is scored: `text`, or the content of the last assistant message."""
        if self.text is not None:
            return self.text
        spoken = [message.content or "" for message in self.messages or () if message.role == "assistant"]
        return spoken[-1] if spoken else ""


def are_large(completions: Sequence[Completion]) -> bool:
    """Whether work on them belongs in a thread: they would hold up everything else. Messages are always sent there,
    because their sizes are not known without a look at each."""
    total = 0
    for one in completions:
        total += LARGE_TEXT if one.text is None else len(one.text)
    return total >= LARGE_TEXT
