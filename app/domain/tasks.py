"""Tasks and what they are made of: messages, tools, retrieved passages, completions, data sets and programs.

Equal keys of tasks always mean the same task: a task is stored under the digest of its key, so every field that is
added to one of these models is left out of its JSON while it is absent.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import not_
from pathlib import Path
from typing import Annotated, Any, Final, Generic, Literal, Self, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from app.domain.values import (
    FiniteJson,
    FiniteNumber,
    Frozen,
    ModelWords,
    Name,
    Split,
    WholeNumber,
    digest,
    digest_in_pieces,
    is_absent,
)

Role = Literal["system", "user", "assistant", "tool"]


class FunctionCall(Frozen):
    name: Annotated[str, ModelWords()]
    arguments: Annotated[FiniteJson, ModelWords()]
    """A JSON string, as in OpenAI's API, or the object itself, as in chat templates. Anything else is a malformed
    call."""


class ToolCall(Frozen):
    id: Annotated[str | None, Field(exclude_if=is_absent)] = None
    type: Literal["function"] = "function"
    function: FunctionCall

    @model_validator(mode="before")
    @classmethod
    def _drop_index(cls, call: Any) -> Any:
        """Drops `index`, which some servers leave over from streaming."""
        return {name: value for name, value in call.items() if name != "index"} if isinstance(call, dict) else call


class Message(Frozen):
    """One message in OpenAI's chat format. Empty fields are omitted, because chat templates fail on nulls. Nulls and
    empty lists in a request count as omitted."""

    role: Role
    content: Annotated[str | None, ModelWords()] = None
    name: Annotated[str | None, Field(exclude_if=is_absent)] = None
    tool_calls: Annotated[tuple[ToolCall, ...], Field(exclude_if=is_absent)] = ()
    tool_call_id: Annotated[str | None, Field(exclude_if=is_absent)] = None
    reasoning_content: Annotated[str | None, ModelWords(also="reasoning"), Field(exclude_if=is_absent)] = None
    """The model's thinking, as separated by the server; also accepted as `reasoning`. Stored, never scored."""

    @model_validator(mode="before")
    @classmethod
    def _drop_absent_parts(cls, message: Any) -> Any:
        if not isinstance(message, dict):
            return message
        parts = {name: value for name, value in message.items() if value is not None and value != []}
        # Two names of one thing. Where they differ `reasoning` stays, and is refused as an unknown field.
        if "reasoning" in parts and parts.get("reasoning_content", parts["reasoning"]) == parts["reasoning"]:
            parts["reasoning_content"] = parts.pop("reasoning")
        return parts

    @property
    def says_nothing(self) -> bool:
        return not self.tool_calls and not (self.content or "").strip()


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


class Opening(Frozen):
    """What an episode begins with that runs on another's server: the prompt, and what is offered beside it."""

    messages: tuple[Message, ...]
    tools: Annotated[tuple[ToolSpec, ...], Field(exclude_if=is_absent)] = ()
    metadata: Annotated[dict[str, JsonValue], Field(exclude_if=not_)] = {}
    """Public."""


class Context(Frozen):
    """Retrieved passages in prompt order, and withheld ones, which are for judges and the log only."""

    passages: tuple[Passage, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    as_of: Annotated[datetime | None, Field(exclude_if=is_absent)] = None
    """Game time of the retrieval."""
    failure: Annotated[str | None, Field(exclude_if=is_absent)] = None
    """Why retrieval failed, when the settings allow tasks without passages."""
    opening: Annotated[Opening | None, Field(exclude_if=is_absent)] = None
    """The prompt of a task whose episode runs on another's server."""


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
    reward: Annotated[FiniteNumber | None, Field(exclude_if=is_absent)] = None
    """What the model's last message adds to the reward, in a run with `turn_rewards`. Left out where that is not known
    before the episode is scored, as it is for the last message."""


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


_TokenId = Annotated[WholeNumber, Field(ge=0, lt=2**32)]

# Reasons to end, as inference servers report them, each in its own spelling, are of three classes: *ended* (the model
# said all that it had to say), *cut off* (by a limit or a filter; what is there is the model's) and *broken off* (what
# the model would have said is not known: no sample, and no score).

_LIMITS: Final = frozenset(
    (
        *("length", "max_tokens", "max_length", "model_length", "max_output_tokens"),
        *("model_context_window_exceeded", "context_length_exceeded", "context_window_exceeded"),
    )
)
"""OpenAI and vLLM, Anthropic and Gemini, TGI, Mistral, and OpenAI's Responses API; then contexts that are full."""
_FILTERS: Final = frozenset(
    ("content_filter", "safety", "recitation", "blocklist", "prohibited_content", "spii", "guardrail_intervened")
)
"""The server took the rest away, for what the model wrote."""
_BREAKS: Final = frozenset(
    (
        *("error", "abort", "aborted", "cancelled", "canceled", "failed", "interrupted", "preempted", "timeout"),
        *("network_error", "server_error", "internal_error", "insufficient_system_resource", "in_progress"),
    )
)
_ENDS: Final = frozenset(
    (
        *("", "stop", "stop_sequence", "end_turn", "eos", "eos_token", "end", "done", "finished", "complete"),
        *("completed", "tool_calls", "tool_use", "function_call", "refusal"),
        "s",  # `</s>`
    )
)
_FILTER_WORDS: Final = ("filter", "safety", "toxic", "sensitive")
_LONGEST_REASON: Final = 200
_NO_WORD: Final = re.compile("[^a-z0-9]+")
_ENUM: Final = re.compile(r"(?:[a-z_]+\.)+(?=[a-z_]+\Z)")
"""What stands before a constant, as in `FinishReason.STOP`."""
_LIMIT_KIND: Final = re.compile(r"max_(?:[a-z0-9]+_)*(?:tokens?|length)|error_limit")
_BREAK_WORDS: Final = re.compile(
    r"(?:\A|_)(?:error|abort|cancel|fail|timeout|timed_out|interrupt|preempt|disconnect|shutdown|killed|overload|crash)"
)
_EndKind = Literal["filter", "limit", "bad call", "break", "end", "unknown"]
"""`bad call`: the model wrote a call that the server could not read, and kept to itself."""


def _classify_end(finish_reason: str | None) -> _EndKind:
    spelled = (finish_reason or "")[:_LONGEST_REASON].strip().lower()
    reason = _NO_WORD.sub("_", _ENUM.sub("", spelled, count=1)).strip("_")
    if reason in _FILTERS or any(word in reason for word in _FILTER_WORDS):
        return "filter"
    if reason in _LIMITS or _LIMIT_KIND.fullmatch(reason):
        return "limit"
    if reason == "unexpected_tool_call" or reason.startswith("malformed"):
        return "bad call"
    if reason in _BREAKS or _BREAK_WORDS.search(reason):  # before ends: `stopped_by_error`
        return "break"
    return "end" if reason in _ENDS or reason.startswith(("stop", "eos")) else "unknown"


def is_cut_by_filter(finish_reason: str | None) -> bool:
    return _classify_end(finish_reason) == "filter"


def is_truncated(finish_reason: str | None) -> bool:
    """Whether a completion was cut off."""
    return _classify_end(finish_reason) in {"filter", "limit"}


def is_broken_off(finish_reason: str | None, *, says_nothing: bool) -> bool:
    """A reason that is not known counts as an end where there is a text, and so does a filter as what cut it off."""
    kind = _classify_end(finish_reason)
    return kind in {"bad call", "break"} or (says_nothing and kind in {"filter", "unknown"})


def is_due_to_prompt(finish_reason: str | None) -> bool:
    """Whether a reply that broke off would most likely break off again."""
    return _classify_end(finish_reason) in {"filter", "bad call"}


_NO_TEXT: Final = "\ufffd"


def _holds_no_text(value: JsonValue) -> bool:
    if isinstance(value, str):
        return _NO_TEXT in value
    if isinstance(value, list):
        return any(map(_holds_no_text, value))
    return isinstance(value, dict) and (
        any(_NO_TEXT in key for key in value) or any(map(_holds_no_text, value.values()))
    )


LARGE_TEXT: Final = 64 * 1024
"""Characters from which on a text is worked on in a thread."""


class Completion(Frozen):
    """The output of the trainer's model: `text`, or for multi-turn tasks and tool calls `messages` (everything after
    the prompt, observations included)."""

    model_config = ConfigDict(json_schema_extra=_TEXT_OR_MESSAGES)

    text: Annotated[str | None, ModelWords()] = None
    messages: tuple[Message, ...] | None = None
    finish_reason: str | None = None
    """As reported by the inference server; `length` and `max_tokens` mark a truncated completion."""
    token_ids: tuple[_TokenId, ...] | None = None
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
        return self.finish_reason is not None and is_truncated(self.finish_reason) and not self.broken_off

    @property
    def broken_off(self) -> bool:
        """Whether what the model would have said is not known."""
        return self.finish_reason is not None and is_broken_off(self.finish_reason, says_nothing=self._says_nothing)

    @property
    def _says_nothing(self) -> bool:
        replies = (message for message in reversed(self.messages or ()) if message.role == "assistant")
        last = next(replies, None)
        return not (self.text or "").strip() if last is None else last.says_nothing

    @property
    def is_malformed(self) -> bool:
        """Whether the model's words hold U+FFFD, which stands for what was no text: a lone surrogate in a request, or
        bytes that the trainer's tokenizer could not decode."""
        if self.text is not None:
            return _NO_TEXT in self.text
        return any(
            _NO_TEXT in (message.content or "")
            or _NO_TEXT in (message.reasoning_content or "")
            or any(
                _NO_TEXT in call.function.name or _holds_no_text(call.function.arguments) for call in message.tool_calls
            )
            for message in self.messages or ()
            if message.role == "assistant"
        )

    @property
    def answer(self) -> str:
        """The text that is scored: `text`, or the content of the last assistant message."""
        if self.text is not None:
            return self.text
        replies = [message.content or "" for message in self.messages or () if message.role == "assistant"]
        return replies[-1] if replies else ""


def are_large(completions: Sequence[Completion]) -> bool:
    """Whether work on them belongs in a thread: they would hold up everything else. Messages are always sent there,
    because their sizes are not known without a look at each."""
    total = 0
    for one in completions:
        total += LARGE_TEXT if one.text is None else len(one.text)
    return total >= LARGE_TEXT


# Data sets: where they lie, and the rows from which an environment makes tasks

RowT = TypeVar("RowT")

LEFT_OUT: Final = "left_out"
"""Type of the errors that leave a row out."""

CHECKED: Final[Mapping[str, bool]] = {"checked": True}
"""The context in which a row is read again that was checked before. Validators may then leave out what takes long."""

DEFAULT: Final = "default"
"""Name of the only data set of an environment, where the operator gives none."""

BUILT_IN: Final = "built-in"
"""Stands for the tasks that an environment has without a data set."""

Text = Annotated[str, Field(min_length=1)]


def _wrap_text(value: object) -> object:
    return (value,) if isinstance(value, str) else value


_SplitNames = Annotated[tuple[Text, ...], BeforeValidator(_wrap_text), Field(min_length=1)]


class DatasetSource(Frozen):
    """A data set of an environment. A text alone is its `source`."""

    source: Text
    """A folder, a file (JSON lines, a JSON list, CSV or Parquet), or an id on the hub. What is on disk comes first."""
    subset: Text | None = None
    """The hub's configuration name; in a folder, the folder within it."""
    revision: Text | None = None
    """The hub's revision: a commit, a tag or a branch. A commit makes sure that the rows never change."""
    splits: dict[Split, _SplitNames] = {}
    """Which splits of the data set serve as `train` and `test`: a name each, or a list of them. Without it those that
    are called so. In a folder a split is the file of that name."""
    hold_out: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of the rows of `train` that serve as `test` instead. The text of a row decides, so equal rows stay
    together."""
    columns: dict[Text, Text] = {}
    """Columns that are called otherwise: the environment's name, and that of the data set. A dot leads into a column
    with parts: `answer: reward_model.ground_truth`."""
    values: dict[Text, JsonValue] = {}
    """Values of columns that the data set has not, or that are empty in a row: `kind: number`."""
    files: Path | None = None
    """Folder of the files that rows name, such as databases; the folder of the data set by default."""

    @model_validator(mode="before")
    @classmethod
    def _read_text(cls, value: object) -> object:
        return {"source": value.strip()} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_hold_out(self) -> Self:
        if self.hold_out is not None and "test" in self.splits:
            raise ValueError("`hold_out` makes the split `test`: leave `test` out of `splits`")
        return self


def _name_lone_source(value: object) -> object:
    if isinstance(value, str):
        return {DEFAULT: value} if value.strip() else {}
    if isinstance(value, Mapping) and BUILT_IN in value:
        raise ValueError(f"{BUILT_IN!r} stands for the tasks that need no data set: choose another name")
    return value


DatasetSources = Annotated[dict[Name, DatasetSource], BeforeValidator(_name_lone_source)]
"""The data sets of an environment by name, or the only one. The first serves where `params.dataset` chooses none."""


@dataclass(frozen=True)
class Dataset(Generic[RowT]):
    """Validated rows by split, read when they are asked for. `name` is the operator's, `origin` is shown in the
    catalogue, and `digest` changes when any row does. A split that the data set has not is absent. Rows may name files,
    such as databases: those lie in `folder`."""

    name: str
    origin: str
    digest: str
    splits: Mapping[Split, Sequence[RowT]]
    folder: Path | None = None


def leave_out(reason: str) -> PydanticCustomError:
    """What a validator of a row raises for a row that is sound but makes no task, such as one without an answer. The
    row is left out and counted. A ValueError says that the row is broken: then the whole data set is refused."""
    return PydanticCustomError(LEFT_OUT, "{reason}", {"reason": reason})


# Programs written by models, and how well they are isolated


class ProgramLimits(Frozen):
    """Limits of one program, for all of its calls together."""

    seconds: Annotated[float, Field(gt=0, le=600)] = 10.0
    """Wall-clock time. Generous, because a busy machine is not the program's fault."""
    idle_seconds: Annotated[float, Field(gt=0, le=600)] = 1.0
    """Time in which it neither uses a processor nor waits for one: it sleeps, or waits for what never comes."""
    cpu_seconds: Annotated[float, Field(gt=0, le=600)] = 2.0
    """CPU time, counted in whole seconds. The program is killed less than one second after the limit."""
    memory_mb: Annotated[int, Field(ge=16, le=4096)] = 128
    """Address space beyond what an empty interpreter holds."""
    output_bytes: Annotated[int, Field(ge=16, le=16 * 1024 * 1024)] = 256 * 1024
    """Total size of the results of its calls, as JSON. Printed output is discarded."""
    file_bytes: Annotated[int, Field(ge=0, le=1024 * 1024 * 1024)] = 1024 * 1024
    """Total size of files in its working directory, which starts empty and is deleted afterwards."""


class Program(Frozen):
    """Python source that defines `function`, and the arguments of the calls to make, in order and in one process. It
    never sees the expected results."""

    source: str
    function: str
    calls: tuple[tuple[FiniteJson, ...], ...]
    limits: ProgramLimits = ProgramLimits()


class CallResult(Frozen):
    """The result of one call. `value` if it returned JSON; otherwise `fault` says whether it raised or gave no JSON."""

    value: FiniteJson = None
    fault: Literal["", "raised", "no_json"] = ""


Ending = Literal[
    "finished", "no_function", "seconds", "idle_seconds", "cpu_seconds", "memory_mb", "output_bytes", "died"
]
"""`no_function`: the source does not compile, raises on import, or does not define the function. `died`: the process
exited, was killed for a forbidden action, or sent unreadable output."""


class Execution(Frozen):
    """The outcome of a program. `returned` lists the completed calls in order: all of them if it `finished`."""

    ending: Ending
    returned: tuple[CallResult, ...] = ()


Threat = Literal["network", "files", "processes", "memory", "time", "service"]
"""What a program must not access or exhaust. `service`: the gateway's own process, variables and database."""


class Protection(Frozen):
    against: Threat
    held: bool
    by: str
    """The mechanism that protects on this machine, or what is missing, in words."""


class Isolation(Frozen):
    """The isolation measured once at start."""

    protections: tuple[Protection, ...]

    @property
    def strong(self) -> bool:
        """Whether every threat is blocked."""
        return bool(self.protections) and all(protection.held for protection in self.protections)

    @property
    def weaknesses(self) -> str:
        """The threats that are not blocked, with reasons, on one line."""
        weak = (f"{one.against} ({one.by})" for one in self.protections if not one.held)
        return ", ".join(weak) or "nothing was tried"


# Limits of calls in workers

Limit = Literal["seconds", "cpu_seconds", "memory_mb", "output_bytes"]
"""The fields of `Limits`."""


class Limits(Frozen):
    """Limits of one call. Waiting for a worker, starting it and importing the module do not count."""

    seconds: Annotated[float, Field(gt=0, le=600)] = 10.0
    """Wall-clock time. Generous, because a busy machine is not the text's fault."""
    cpu_seconds: Annotated[float, Field(gt=0, le=600)] = 2.0
    """CPU time, counted in whole seconds. The call is killed less than one second after the limit."""
    memory_mb: Annotated[int, Field(ge=16, le=4096)] = 256
    """Address space beyond what the worker already uses."""
    output_bytes: Annotated[int, Field(ge=16, le=16 * 1024 * 1024)] = 64 * 1024
    """Size of the result as JSON."""
    tries: Annotated[int, Field(ge=1, le=2)] = 2
    """How many calls must exceed a limit before the text is blamed. One is enough where somebody can send it again."""


DEFAULT_LIMITS: Final = Limits()
