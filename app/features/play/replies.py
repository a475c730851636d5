"""What a policy says, as it comes and whole: words, thoughts and calls told apart, in OpenAI's form.

Words are told as they come. Calls are told at the end, behind the words: only then is it known whether they can be read
and fit the tools that were offered. One that does not never reaches the client. It is left out, and the reply says why.
"""

import re
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from pydantic import JsonValue, ValidationError

from app.characters.actions import DoneCall, read_reply
from app.characters.schema import drop_unsafe_keywords
from app.domain.tasks import Completion, Message, ToolCall, ToolSpec
from app.domain.values import canonical_json
from app.inference.wire import CallJoiner, Usage
from app.ports.play import Chunk
from app.toolkit.thoughts import ThoughtSplitter, split_thoughts
from app.toolkit.tool_calls.calls import ParsedCall, describe_schema_fault
from app.toolkit.tool_calls.formats import FORMATS

# Calls of a reply, and the words beside them.


@dataclass(frozen=True)
class OfferedTools:
    """What the policy may call, `most` times in a reply."""

    tools: tuple[ToolSpec, ...] = ()
    most: int = 64

    @property
    def checked_tools(self) -> tuple[ToolSpec, ...]:
        """With the schemas that calls are checked against."""
        return tuple(
            tool.model_copy(
                update={
                    "function": tool.function.model_copy(
                        update={"parameters": drop_unsafe_keywords(tool.function.parameters)}
                    )
                }
            )
            for tool in self.tools
        )

    @property
    def names(self) -> frozenset[str]:
        return frozenset(tool.function.name for tool in self.tools)

    def build_body(self, choice: JsonValue = None) -> dict[str, JsonValue]:
        """What a request holds of them."""
        if not self.tools:
            return {}
        listed: list[JsonValue] = [tool.model_dump(mode="json") for tool in self.tools]
        return {"tools": listed, **({} if choice is None else {"tool_choice": choice})}


NO_TOOLS: Final = OfferedTools()


@dataclass(frozen=True)
class PolicyAnswer:
    """What a policy said, before anything is known of it."""

    text: str
    finish_reason: str | None = None
    seconds: float | None = None
    calls: tuple[DoneCall, ...] = ()
    left_out: tuple[str, ...] = ()
    """Why a call was left out, one text for each."""
    first_token_seconds: float | None = None
    """Until the first word or call came; None where nothing was streamed. Thoughts do not count."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True)
class _ReplyReading:
    """Words and calls of a reply."""

    text: str
    calls: tuple[DoneCall, ...] = ()
    left_out: tuple[str, ...] = ()

    def choose_reason(self, told: str | None) -> str | None:
        """As the policy's server told it, but for what it says of calls."""
        if self.calls:
            return "tool_calls"
        return "stop" if told in {"tool_calls", "function_call"} else told


def _read_text(text: str, native: Sequence[JsonValue], offered: OfferedTools) -> _ReplyReading:
    """`native`: the calls that the server told apart from the text. Without tools calls in a text are text."""
    converted, faults = _convert_calls(native)
    words = split_thoughts(text)[1]
    # Harmony's calls stand in channels, as its thoughts do.
    searched = text if FORMATS["harmony"].marks(text) else words
    message = Message(role="assistant", content=searched if offered.tools else None, tool_calls=converted)
    tools = offered.checked_tools
    read = read_reply(Completion(messages=(message,)), tools)
    calls, left_out = _choose_calls(read.calls, tools, offered.most)
    if offered.tools:
        said = read.line
        # Of a call that cannot be read, all is told that stands before it, in a stream too.
        words = max(said, CallHolder(offered.names).feed(words).strip(), key=len) if read.malformed else said
    return _ReplyReading(words, calls, (*faults, *read.malformed, *left_out))


def _choose_calls(
    calls: Sequence[ParsedCall], tools: Sequence[ToolSpec], most: int
) -> tuple[tuple[DoneCall, ...], list[str]]:
    """Those that fit the tools, and why the others do not."""
    made: list[DoneCall] = []
    faults: list[str] = []
    for call in calls:
        fault = describe_schema_fault(call, tools)
        if fault or len(made) == most:
            faults.append(fault or f"{call.name}: the character may make {most} calls in a reply")
            continue
        try:
            made.append(DoneCall(name=call.name, arguments=call.arguments))
        except ValidationError:
            faults.append(f"{call.name}: the arguments are too long")
    return tuple(made), faults


def _convert_calls(native: Sequence[JsonValue]) -> tuple[tuple[ToolCall, ...], list[str]]:
    calls: list[ToolCall] = []
    faults: list[str] = []
    for call in native:
        try:
            calls.append(ToolCall.model_validate(call))
        except ValidationError:
            faults.append("a call cannot be read")
    return tuple(calls), faults


def read_usage(answer: Mapping[str, JsonValue]) -> Usage | None:
    """What a policy's server counted; None where it told nothing that can be read."""
    try:
        return Usage.model_validate(answer["usage"]) if isinstance(answer.get("usage"), dict) else None
    except ValidationError:
        return None


def read_whole(answer: Chunk, seconds: float, offered: OfferedTools = NO_TOOLS) -> list[PolicyAnswer]:
    """What each choice of a chat completion says, without its thoughts; empty where it has nothing."""
    choices = answer.get("choices")
    listed = choices if isinstance(choices, list) else []
    usage = read_usage(answer)
    return [_read_choice(choice, seconds, offered, usage, len(listed)) for choice in listed]


def _read_choice(
    choice: JsonValue, seconds: float, offered: OfferedTools, usage: Usage | None, count: int
) -> PolicyAnswer:
    message = choice.get("message") if isinstance(choice, dict) else None
    said = message if isinstance(message, dict) else {}
    content, native = said.get("content"), said.get("tool_calls")
    text = content if isinstance(content, str) else ""
    read = _read_text(text, native if isinstance(native, list) else [], offered)
    reason = choice.get("finish_reason") if isinstance(choice, dict) else None
    return _build_answer(read, reason if isinstance(reason, str) else None, seconds, usage, count)


def _build_answer(
    read: _ReplyReading,
    reason: str | None,
    seconds: float,
    usage: Usage | None,
    count: int,
    first_token_seconds: float | None = None,
) -> PolicyAnswer:
    """The server counts the tokens of all choices together."""
    return PolicyAnswer(
        read.text,
        read.choose_reason(reason),
        round(seconds, 3),
        calls=read.calls,
        left_out=read.left_out,
        first_token_seconds=None if first_token_seconds is None else round(first_token_seconds, 3),
        prompt_tokens=None if usage is None else usage.prompt_tokens,
        completion_tokens=usage.completion_tokens if usage is not None and count == 1 else None,
    )


# Words as they come.

_OPENERS: Final = (
    *(
        "<tool_call",
        "</tool_call",
        "<function",
        "</function",
        "<invoke",
        "</invoke",
        "<parameter",
        "<antml:",
        "</antml:",
    ),
    *("<|python_tag|>", "<|tool_call", "<\uff5ctool\u2581call", "<|channel|>", "<|start|>", "<|message|>"),
    *("[TOOL_CALLS]", "[ARGS]"),
)
"""What a call in a text begins with, in any format that is read. A thought's tags were taken away before."""
_SIGN: Final = re.compile(r"[<\[{]|(?<![\w.-])(?:(?:ACTION|Action)[ *]{0,4}:|(?P<called>[a-z0-9][a-z0-9_-]{0,63})\()")
_BEGUN_WORD: Final = re.compile(r"(?<![\w.-])([A-Za-z0-9][A-Za-z0-9_-]{0,63})[ *]{0,4}\Z")
_ANNOUNCED: Final = ("ACTION", "Action")
_LONGEST_OPENER: Final = 80
_BRACKETED: Final = re.compile(r"\[ ?([a-z][a-z0-9_]{0,63}) ?\]")
_FILLED: Final = re.compile(r"\[ ?([a-z0-9][a-z0-9_-]{0,63})[: (]")
_BEGUN_BRACKET: Final = re.compile(r"\[ ?([a-z0-9_]{0,64}) ?\]?\Z")
_BARE: Final = re.compile(r"\{|```|\[\s{0,20}(?:\{|\w[\w.-]{0,64}\()")
"""What a reply begins with that is nothing but calls."""
_BEGUN_BARE: Final = re.compile(r"`{1,2}\Z|\[\s{0,20}(?:\w[\w.-]{0,64})?\Z")


class CallHolder:
    """Holds back from the words of a reply what may begin a call: a few characters, until it is known. Behind the
    beginning of a call nothing more is told before the whole reply can be read."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._held = ""
        self._told: list[str] = []
        self._has_begun = False
        self._is_call = False

    @property
    def told_words(self) -> str:
        return "".join(self._told)

    def feed(self, text: str) -> str:
        """The words that may be told now."""
        if self._is_call:
            return ""
        self._held += text
        if not self._has_begun and not self._find_beginning():
            return ""
        words = "".join(self._take_words())
        self._told.append(words)
        return words

    def _find_beginning(self) -> bool:
        """Whether the reply begins with words."""
        begun = self._held.lstrip()
        named = begun.partition("{")[0]
        if _BARE.match(begun) or ("{" in begun and named in self._names):
            self._is_call = True
        elif begun and not _BEGUN_BARE.match(begun) and not any(name.startswith(begun) for name in self._names):
            self._has_begun = True
        return self._has_begun

    def _take_words(self) -> list[str]:
        words: list[str] = []
        done = position = 0
        while (sign := _SIGN.search(self._held, position)) is not None:
            rest = self._held[sign.start() : sign.start() + _LONGEST_OPENER]
            action = _BRACKETED.match(rest)
            if self._begins_call(sign, rest):
                words.append(self._held[done : sign.start()])
                self._is_call, self._held = True, ""
                return words
            if (
                action is not None
                and action[1] in self._names
                and rest[action.end() : action.end() + 1] not in ("", "(")
            ):
                words.append(self._held[done : sign.start()])
                done = position = sign.start() + action.end()
            elif self._may_become_call(rest):
                break
            else:
                position = sign.end()
        end = self._find_begun_word(done) if sign is None else sign.start()
        words.append(self._held[done:end])
        self._held = self._held[end:]
        return words

    def _begins_call(self, sign: re.Match[str], rest: str) -> bool:
        filled = _FILLED.match(rest)
        if (name := sign["called"]) is not None:
            return name in self._names
        return rest.startswith(_OPENERS) or rest[0] not in "<[" or (filled is not None and filled[1] in self._names)

    def _find_begun_word(self, start: int) -> int:
        """Where the words end of which nothing may become a call."""
        begun = _BEGUN_WORD.search(self._held, max(start, len(self._held) - _LONGEST_OPENER))
        if begun is None:
            return len(self._held)
        may_call = any(word.startswith(begun[1]) for word in (*_ANNOUNCED, *self._names))
        return begun.start() if may_call else len(self._held)

    def _may_become_call(self, rest: str) -> bool:
        bracket = _BEGUN_BRACKET.match(rest)
        return any(opener.startswith(rest) for opener in _OPENERS) or (
            bracket is not None and any(name.startswith(bracket[1]) for name in self._names)
        )


def _find_rest(told: str, text: str) -> str:
    """What of the text was not told yet. White space where a call was taken out is written anew."""
    position = 0
    for character in told:
        if character.isspace():
            continue
        while position < len(text) and text[position].isspace():
            position += 1
        if not text.startswith(character, position):
            return ""
        position += 1
    return text[position:].lstrip() if told[-1:].isspace() else text[position:]


# Replies in OpenAI's form, whole and as events.

_PASSED_BACK: Final = ("usage", "system_fingerprint")
"""Fields that clients get as the policy's server sent them."""
_CALL_FIELDS: Final = frozenset({"tool_calls", "function_call"})


@dataclass
class _ChoiceState:
    """What came of one choice."""

    holder: CallHolder | None
    splitter: ThoughtSplitter = field(default_factory=ThoughtSplitter)
    calls: CallJoiner = field(default_factory=CallJoiner)
    reason: str | None = None
    first_at: float | None = None
    read: _ReplyReading | None = None
    """Once it has ended."""

    def read_whole(self, offered: OfferedTools) -> _ReplyReading:
        """Without thoughts, also where they were told as words: a closing tag alone says too late what they were."""
        if self.read is None:
            native = cast("list[JsonValue]", self.calls.build())
            self.read = _read_text(self.splitter.text, native, offered)
        return self.read


@dataclass
class ReplyWriter:
    """Renames what a policy sends, and remembers it. One id, time and model for all events of a reply."""

    model: str
    reply_id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))
    offered: OfferedTools = NO_TOOLS
    passes_usage: bool = True
    """Whether the client asked for it."""
    read_seconds: Callable[[], float] = time.monotonic
    states: dict[int, _ChoiceState] = field(default_factory=dict)
    held: list[Chunk] = field(default_factory=list)
    """Events that end a choice, and all behind them that hold no text: they wait for the gates."""
    usage: Usage | None = None

    def __post_init__(self) -> None:
        self._began = self.read_seconds()

    def take(self, event: Chunk) -> Chunk | None:
        """What is sent at once; None for what is held back."""
        choices = event.get("choices")
        valid = [one for one in choices if isinstance(one, dict)] if isinstance(choices, list) else []
        self.usage = read_usage(event) or self.usage
        listed = [self._read(one) for one in valid]
        chunk = self._rename(event, "chat.completion.chunk", listed)
        if any(choice.get("finish_reason") for choice in listed) or (not listed and chunk.get("usage")):
            texts = [self._split_text(choice) for choice in listed]
            self.held.append(self._rename(event, "chat.completion.chunk", [rest for _, rest in texts]))
            spoken = [choice for choice, _ in texts if choice is not None]
            return self._rename({}, "chat.completion.chunk", spoken) if spoken else None
        return chunk if listed else None

    def finish(self, noticed: JsonValue) -> list[Chunk]:
        """The last events, with what was noticed in the last that ends a choice."""
        last = max((index for index, one in enumerate(self.held) if one["choices"]), default=None)
        if last is None:
            # The policy told none.
            choice: JsonValue = {"index": 0, "delta": {}, "finish_reason": None}
            self.held.insert(0, self._rename({}, "chat.completion.chunk", [choice]))
            last = 0
        self.held[last] = {**self.held[last], "play": noticed}
        return [*self._end_texts(), *self._write_calls(), *map(self._correct_reasons, self.held)]

    def complete(self, answer: Chunk, said: Sequence[PolicyAnswer], noticed: JsonValue) -> Chunk:
        """A whole reply. `said` is what was read of each choice."""
        choices = answer.get("choices")
        listed = choices if isinstance(choices, list) else []
        made = [self._complete_choice(choice, one) for choice, one in zip(listed, said, strict=True)]
        return {**self._rename(answer, "chat.completion", made), "play": noticed}

    def list_spoken(self, seconds: float) -> list[PolicyAnswer]:
        """What was said, by choice."""
        return [
            _build_answer(
                state.read_whole(self.offered),
                state.reason,
                seconds,
                self.usage,
                len(self.states),
                None if state.first_at is None else state.first_at - self._began,
            )
            for _, state in sorted(self.states.items())
        ]

    def _read(self, choice: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Remembers what is said, and moves thoughts to where clients look for them."""
        index, delta, reason = choice.get("index"), choice.get("delta"), choice.get("finish_reason")
        state = self._find_state(index if isinstance(index, int) else 0)
        told = delta if isinstance(delta, dict) else {}
        state.calls.add(told)
        former = {name: value for name, value in told.items() if name not in _CALL_FIELDS}
        content = former.get("content")
        thought, text = "", ""
        if isinstance(content, str):
            thought, text = state.splitter.feed(content)
        if isinstance(reason, str) and reason:  # some servers send an empty one until the end
            state.reason = reason
            more, rest = state.splitter.end()
            thought, text = thought + more, text + rest
        if state.holder is not None:
            text = state.holder.feed(text)
        if state.first_at is None and (text or len(former) < len(told)):
            state.first_at = self.read_seconds()
        if text == (content or "") and not thought:
            return choice if len(former) == len(told) else {**choice, "delta": former}
        # Once the turn has ended, probabilities would be of tokens that nobody is shown.
        hides = state.splitter.has_ended or state.holder is not None
        rest_of_it = {name: value for name, value in choice.items() if name != "logprobs" or not hides}
        return {**rest_of_it, "delta": {**former, **_build_delta(thought, text)}}

    def _find_state(self, number: int) -> _ChoiceState:
        if number not in self.states:
            self.states[number] = _ChoiceState(CallHolder(self.offered.names) if self.offered.tools else None)
        return self.states[number]

    def _end_texts(self) -> list[Chunk]:
        """What was held back: of choices whose end nobody told, and what was no call."""
        choices: list[JsonValue] = []
        for number, state in self.states.items():
            thought, text = state.splitter.end()
            if state.holder is not None:
                state.holder.feed(text)
                text = _find_rest(state.holder.told_words, state.read_whole(self.offered).text)
            if thought or text:
                choices.append({"index": number, "delta": _build_delta(thought, text), "finish_reason": None})
        return [self._rename({}, "chat.completion.chunk", choices)] if choices else []

    def _write_calls(self) -> list[Chunk]:
        """Each call begins with its id and name; its arguments follow."""
        deltas: list[JsonValue] = []
        for number, state in self.states.items():
            for place, call in enumerate(state.read_whole(self.offered).calls):
                begun = _write_call(call, "")
                parts: list[JsonValue] = [{"index": place, **begun}]
                parts.append({"index": place, "function": {"arguments": canonical_json(call.arguments)}})
                deltas += [{"index": number, "delta": {"tool_calls": [part]}, "finish_reason": None} for part in parts]
        return [self._rename({}, "chat.completion.chunk", [delta]) for delta in deltas]

    def _correct_reasons(self, event: Chunk) -> Chunk:
        """By what came, whatever the server says."""
        choices = event["choices"]
        if not isinstance(choices, list) or not choices:
            return event
        return {**event, "choices": [self._correct_reason(one) for one in choices if isinstance(one, dict)]}

    def _correct_reason(self, choice: dict[str, JsonValue]) -> dict[str, JsonValue]:
        index, reason = choice.get("index"), choice.get("finish_reason")
        state = self.states.get(index if isinstance(index, int) else 0)
        told = reason if isinstance(reason, str) else None
        read = _ReplyReading("") if state is None else state.read_whole(self.offered)
        chosen = read.choose_reason(told)
        return choice if chosen == told else {**choice, "finish_reason": chosen}

    def _split_text(self, choice: dict[str, JsonValue]) -> tuple[JsonValue | None, JsonValue]:
        """A text that comes with the end of its choice is not held back."""
        delta = choice.get("delta")
        if not isinstance(delta, dict) or not (delta.get("content") or delta.get("reasoning_content")):
            return None, choice
        return {**choice, "finish_reason": None}, {
            "index": choice.get("index", 0),
            "delta": {},
            "finish_reason": choice.get("finish_reason"),
        }

    def _complete_choice(self, choice: JsonValue, said: PolicyAnswer) -> JsonValue:
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(choice, dict) or not isinstance(message, dict):
            return choice
        content = message.get("content")
        thought = split_thoughts(content)[0] if isinstance(content, str) else ""
        kept = {name: value for name, value in message.items() if name not in _CALL_FIELDS}
        calls: list[JsonValue] = [_write_call(call, canonical_json(call.arguments)) for call in said.calls]
        made: dict[str, JsonValue] = {"tool_calls": calls} if calls else {}
        text: JsonValue = said.text or (None if calls or content is None else "")
        spoken: dict[str, JsonValue] = {**kept, **_build_delta(thought, said.text), "content": text, **made}
        return {**choice, "message": spoken, "finish_reason": said.finish_reason}

    def _rename(self, event: Chunk, kind: str, choices: Sequence[JsonValue]) -> Chunk:
        names = [name for name in _PASSED_BACK if name != "usage" or self.passes_usage or kind == "chat.completion"]
        passed: Chunk = {name: event[name] for name in names if name in event}
        head: Chunk = {"id": self.reply_id, "object": kind, "created": self.created, "model": self.model}
        return {**head, "choices": [*choices], **passed}


def _write_call(call: DoneCall, arguments: str) -> dict[str, JsonValue]:
    function: JsonValue = {"name": call.name, "arguments": arguments}
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}


def _build_delta(thought: str, text: str) -> dict[str, JsonValue]:
    return {"content": text, **({"reasoning_content": thought} if thought else {})}
