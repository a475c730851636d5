"""Chat completions as servers send them, whole or streamed, with the token ids and log probabilities that some add.

Where these are, as of vLLM 0.20 and SGLang 0.5:

    requested by             prompt                          completion
    return_token_ids         prompt_token_ids (vLLM: of the  choices[].token_ids
                             answer, SGLang: of the choice)
    return_tokens_as_token_ids with logprobs (older vLLM)    choices[].logprobs.content[].token = "token_id:<id>"
    return_prompt_token_ids, choices[].prompt_token_ids      choices[].meta_info.output_token_logprobs
    return_meta_info (older SGLang)                          = [logprob, id, text] of each token
    logprobs                                                 choices[].logprobs.content[].logprob
                                                             llama.cpp: choices[].logprobs.content[].id too
"""

import codecs
import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field, JsonValue, TypeAdapter, ValidationError
from pydantic_core import from_json

from app.domain.tasks import FunctionCall, Message, ToolCall, is_broken_off, is_due_to_prompt
from app.domain.values import replace_in_json
from app.inference.connection import NoReply, ServerError, parse_server_error, tells_error

Extension = Literal["token_ids", "logprobs"]

EXTENSIONS: Final[tuple[tuple[Extension, ...], ...]] = (("token_ids", "logprobs"), ("logprobs",), ())
"""Extensions of the standard to request, tried in this order until the server accepts one."""

ASKED_BY: Final[dict[Extension, dict[str, JsonValue]]] = {
    "token_ids": {
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "return_prompt_token_ids": True,
        "return_meta_info": True,
    },
    "logprobs": {"logprobs": True},
}

_ID_PREFIX = "token_id:"

Ids = tuple[int, ...]


class _ResponseFunction(BaseModel):
    name: str
    arguments: str | dict[str, JsonValue] | None = None


class _ResponseToolCall(BaseModel):
    id: str | None = None
    function: _ResponseFunction


class _ResponseMessage(BaseModel):
    content: str | None = None
    tool_calls: list[_ResponseToolCall] | None = None


class _TokenLogprob(BaseModel):
    """The fields without a type are llama.cpp's. Whatever else a server has under these names is not read."""

    token: str = ""
    logprob: float | None
    id: object = None
    bytes: object = None
    top_logprobs: object = None

    @property
    def is_one_token(self) -> bool:
        """False where it may stand for several: llama.cpp holds back the tokens that begin a character, and tells the
        last of them alone, with the bytes of all. Among the alternatives, that token has its own bytes."""
        if self.token.isascii():
            return True
        others = self.top_logprobs if isinstance(self.top_logprobs, list) else ()
        return {"id": self.id, "bytes": self.bytes} in (
            {name: other.get(name) for name in ("id", "bytes")} for other in others if isinstance(other, dict)
        )

    @property
    def most_tokens(self) -> int:
        return 1 if self.is_one_token else len(self.token.encode("utf-8", "replace"))


class _ChoiceLogprobs(BaseModel):
    content: list[_TokenLogprob] | None = None


class _ChoiceMetaInfo(BaseModel):
    output_token_logprobs: list[tuple[float | None, int, str | None]] | None = None


class _ResponseChoice(BaseModel):
    message: _ResponseMessage
    finish_reason: str | None = None
    logprobs: _ChoiceLogprobs | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    meta_info: _ChoiceMetaInfo | None = None


class Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
        )


class _ResponseBody(BaseModel):
    choices: Annotated[list[_ResponseChoice], Field(min_length=1)]
    prompt_token_ids: list[int] | None = None
    usage: Usage | None = None


class _ListedModel(BaseModel):
    id: str


class _ModelList(BaseModel):
    data: list[_ListedModel]


_MODELS_ADAPTER = TypeAdapter(_ModelList)


@dataclass(frozen=True)
class SampledMessage:
    """One model message. Ids are None when the server sent none, `logprobs` also when they do not match the ids one to
    one."""

    message: Message
    finish_reason: str | None
    prompt_ids: Ids | None = None
    ids: Ids | None = None
    logprobs: tuple[float, ...] | None = None

    @property
    def broken_off(self) -> bool:
        return is_broken_off(self.finish_reason, says_nothing=self.message.says_nothing)

    @property
    def has_tokens(self) -> bool:
        return self.prompt_ids is not None and self.ids is not None


@dataclass(frozen=True)
class ChatCompletion:
    said: tuple[SampledMessage, ...]
    usage: Usage


def parse_completion(body: object) -> ChatCompletion:
    """Of a body that `read_answer` has read. ValueError when it is not a chat completion."""
    answer = _ResponseBody.model_validate(body)
    told = answer.usage or Usage()
    counted = told.completion_tokens if len(answer.choices) == 1 else None
    said = tuple(_build_sampled_message(choice, answer.prompt_token_ids, counted) for choice in answer.choices)
    return ChatCompletion(said, _count_all_choices(told, answer.choices))


def _count_all_choices(told: Usage, choices: Sequence[_ResponseChoice]) -> Usage:
    """llama.cpp counts one of several choices. Where the choices hold more tokens than the server tells, theirs are
    counted, and too many rather than too few."""
    entries = [tokens for choice in choices for tokens in _list_most_tokens(choice)]
    if told.completion_tokens >= len(entries):
        return told
    return Usage(prompt_tokens=told.prompt_tokens, completion_tokens=sum(entries))


def _list_most_tokens(choice: _ResponseChoice) -> list[int]:
    """By entry, the most tokens that it can stand for."""
    if choice.token_ids is not None:
        return [1] * len(choice.token_ids)
    if choice.meta_info is not None and choice.meta_info.output_token_logprobs is not None:
        return [1] * len(choice.meta_info.output_token_logprobs)
    content = None if choice.logprobs is None else choice.logprobs.content
    return [entry.most_tokens for entry in content or ()]


def parse_models(body: bytes) -> tuple[str, ...] | None:
    """The names in a response of `GET /models`; None for anything else."""
    try:
        return tuple(model.id for model in _MODELS_ADAPTER.validate_json(body).data)
    except ValidationError:
        return None


def _build_sampled_message(
    choice: _ResponseChoice, prompt_ids: list[int] | None, counted: int | None
) -> SampledMessage:
    ids, logprobs = _extract_tokens(choice, counted)
    fitting = ids is not None and logprobs is not None and len(ids) == len(logprobs)
    own_prompt = choice.prompt_token_ids or prompt_ids
    return SampledMessage(
        message=_build_message(choice.message),
        finish_reason=choice.finish_reason,
        prompt_ids=tuple(own_prompt) if own_prompt else None,
        ids=ids,
        logprobs=logprobs if fitting and all(map(math.isfinite, logprobs or ())) else None,
    )


def _extract_tokens(choice: _ResponseChoice, counted: int | None) -> tuple[Ids | None, tuple[float, ...] | None]:
    content = None if choice.logprobs is None else choice.logprobs.content
    logprobs = None if content is None else tuple(_read_logprob(token.logprob) for token in content)
    if choice.token_ids is not None:
        return tuple(choice.token_ids), logprobs
    meta = None if choice.meta_info is None else choice.meta_info.output_token_logprobs
    if meta is not None:
        values = tuple(_read_logprob(value) for value, _, _ in meta)
        return tuple(token_id for _, token_id, _ in meta), values
    if content is None:
        return None, None
    named = _parse_named_ids(content)
    return (_read_own_ids(content, counted) if named is None else named), logprobs


def _read_own_ids(content: Sequence[_TokenLogprob], counted: int | None) -> Ids | None:
    """None unless every entry has one and is one token. So are all where there are as many as the server `counted`;
    None there where it counted several choices."""
    ids = [entry.id for entry in content if type(entry.id) is int]
    whole = len(content) == counted or all(entry.is_one_token for entry in content)
    return tuple(ids) if whole and len(ids) == len(content) else None


def _read_logprob(value: float | None) -> float:
    return math.nan if value is None else value


def _parse_named_ids(content: Sequence[_TokenLogprob]) -> Ids | None:
    """Ids from tokens of the form `token_id:<id>`; None unless all have it."""
    names = [token.token.removeprefix(_ID_PREFIX) for token in content if token.token.startswith(_ID_PREFIX)]
    if len(names) != len(content) or not all(name.isascii() and name.isdigit() for name in names):
        return None
    return tuple(map(int, names))


def _build_message(spoken: _ResponseMessage) -> Message:
    calls = tuple(
        ToolCall(id=call.id, function=FunctionCall(name=call.function.name, arguments=call.function.arguments or "{}"))
        for call in spoken.tool_calls or ()
    )
    return Message(role="assistant", content=spoken.content if calls else spoken.content or "", tool_calls=calls)


# What servers send, in the form of the API.

_BOM: Final = codecs.BOM_UTF8
_UNPROCESSABLE: Final = 422
"""The status of a reply that may well break off again."""
BAD_CALL: Final = "bad_call"
"""The type of its error."""


def read_json(body: bytes) -> object:
    """None for what is not JSON. A byte order mark, NaN and Infinity are read; half a character, and bytes that are no
    UTF-8, are read as U+FFFD. Never raises."""
    body = body.removeprefix(_BOM)
    try:
        value: object = from_json(body)
    except ValueError:
        return _read_json_with_faults(body)
    return value


def _read_json_with_faults(body: bytes) -> object:
    """What Python's parser alone accepts. It takes twice as long."""
    try:
        value: JsonValue = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    try:
        return replace_in_json(value)
    except RecursionError:
        return value  # no server nests what matters so deeply


def read_answer(body: bytes) -> object:
    """A chat completion, streamed or not, in the form of one that was not streamed; an error as it came; None for
    anything else. Of a stream the first choice is read. Never raises."""
    if is_event_stream(body):
        return join_event_stream(body)
    value = read_json(body)
    return normalize_answer(value, "message") if isinstance(value, dict) else value


def normalize_answer(answer: Mapping[str, object], slot: Literal["message", "delta"]) -> dict[str, object]:
    """With what each choice says under `slot`, wherever it stood (`message`, `delta`, `text`), as a text, and thoughts
    beside it. What cannot be read of a message is left as it is, so that it is not taken for an empty text."""
    choices = answer.get("choices")
    if not isinstance(choices, list):
        return {**answer}
    return {**answer, "choices": [_normalize_choice(one, slot) for one in choices if isinstance(one, dict)]}


def _normalize_choice(choice: Mapping[str, object], slot: str) -> dict[str, object]:
    rest = {name: value for name, value in choice.items() if name not in ("message", "delta", "text")}
    places = (choice.get(slot), choice.get("delta" if slot == "message" else "message"))
    said = next((place for place in places if isinstance(place, dict) and place), None)
    text = choice.get("text")
    if said is None and isinstance(text, str):
        said = {"role": "assistant", "content": text}
    if said is None:
        # An event of a stream may hold nothing.
        return {**rest, slot: {} if slot == "delta" else choice[slot]} if slot in choice else rest
    content = said.get("content")
    if isinstance(content, list) and (slot == "delta" or said.get("tool_calls") or _is_readable(content)):
        thought, spoken = split_parts(content)
        is_new = thought and not (said.get("reasoning_content") or said.get("reasoning"))
        said = {**said, "content": spoken, **({"reasoning_content": thought} if is_new else {})}
    if slot == "message" and (said.get("tool_calls") or said.get("function_call")):
        calls = CallJoiner()
        calls.add(said)
        said = {**{name: said[name] for name in said if name != "function_call"}, "tool_calls": calls.build()}
    return {**rest, slot: said}


_MOST_CALLS: Final = 64
_MOST_CALL_CHARACTERS: Final = 1_000_000
"""Of all calls of a reply together. What comes behind is not read, so that the last call cannot be read either."""
_MOST_TRIED: Final = 10_000
"""Characters of arguments of which it is found out whether they are whole."""


@dataclass
class _JoinedCall:
    id: str
    name: str
    texts: list[str] = field(default_factory=list)
    characters: int = 0
    value: dict[str, object] | None = None
    """Arguments that came as an object."""

    def is_followed_by(self, call_id: str, name: str) -> bool:
        """Whether these begin another call. Some servers repeat them with every fragment."""
        if call_id:
            return call_id != self.id and (self.id != "" or name != "")
        if name in ("", self.name):
            return name != "" and self._is_whole()
        return True

    def _is_whole(self) -> bool:
        """Long arguments are never tried: each fragment that repeats the name would read them all again."""
        if self.value is not None or self.characters > _MOST_TRIED:
            return self.value is not None
        text = "".join(self.texts).strip()
        return text.endswith("}") and isinstance(read_json(text.encode()), dict)

    def build(self) -> dict[str, object]:
        arguments = self.value if self.value is not None else "".join(self.texts) or "{}"
        return {
            **({"id": self.id} if self.id else {}),
            "type": "function",
            "function": {"name": self.name, "arguments": arguments},
        }


class CallJoiner:
    """Puts the calls of one choice together, out of deltas or of a whole message. Servers send them in many ways:
    without `index`, with index 0 for each, arguments as an object or none at all, fragments of an earlier call behind
    a later one. A call is found by its index, else by its id, else by its place in the list; another id, or a name
    behind whole arguments, begins another call."""

    def __init__(self) -> None:
        self._calls: list[_JoinedCall] = []
        self._open: dict[int | str, _JoinedCall] = {}
        """By index or place, and by id."""
        self._characters = 0

    def add(self, said: Mapping[str, object]) -> None:
        listed = said.get("tool_calls") or said.get("function_call")
        for place, entry in enumerate(listed if isinstance(listed, list) else [listed]):
            if isinstance(entry, dict):
                self._add_entry(place, entry)

    def build(self) -> list[dict[str, object]]:
        """In the form of the API. Names and arguments are as the model wrote them, or the server left them."""
        return [call.build() for call in self._calls]

    def _add_entry(self, place: int, entry: Mapping[str, object]) -> None:
        function = entry.get("function")
        told: Mapping[str, object] = function if isinstance(function, dict) else entry
        if not {"name", "arguments"} & told.keys():
            return
        name, call_id = _read_text(told.get("name")), _read_text(entry.get("id"))
        index = entry.get("index")
        number = index if type(index) is int else place
        call = self._open.get(number) if type(index) is int else self._open.get(call_id) or self._open.get(number)
        if call is None or call.is_followed_by(call_id, name):
            if len(self._calls) == _MOST_CALLS:
                return
            call = _JoinedCall(call_id, name)
            self._calls.append(call)
            self._open[number] = call
            if call_id:
                self._open[call_id] = call
        call.id, call.name = call.id or call_id, call.name or name
        self._add_arguments(call, told.get("arguments"))

    def _add_arguments(self, call: _JoinedCall, arguments: object) -> None:
        if isinstance(arguments, dict):
            call.value = arguments
        elif isinstance(arguments, str) and self._characters < _MOST_CALL_CHARACTERS:
            self._characters += len(arguments)
            call.characters += len(arguments)
            call.texts.append(arguments)


def _read_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def find_error(answer: object) -> ServerError | None:
    """The error that an answer with status 200 tells, as a whole or of a choice; None where it tells none. Of several
    choices one that may pass goes first."""
    choices = _list_choices(answer)
    # Beside a reply that ended it says nothing of that.
    ended = any(
        isinstance(one, dict) and one.get("finish_reason") and not _find_error_of_choice(one) for one in choices
    )
    if tells_error(answer) or (isinstance(answer, dict) and answer.get("error") and not ended):
        return parse_server_error(answer)
    told = list_errors_of_choices(answer)
    return next((error for error in told if error.may_pass), told[0] if told else None)


def list_errors_of_choices(answer: object) -> list[ServerError]:
    return list(filter(None, map(_find_error_of_choice, _list_choices(answer))))


def drop_broken_choices(answer: object) -> object:
    """With the choices alone that tell no error, where there are some."""
    whole = [choice for choice in _list_choices(answer) if _find_error_of_choice(choice) is None]
    return {**answer, "choices": whole} if isinstance(answer, dict) and whole else answer


def measure_broken_choices(answer: object) -> list[int]:
    """The characters that came of each choice that tells an error."""
    messages = [
        choice.get("message")
        for choice in _list_choices(answer)
        if isinstance(choice, dict) and _find_error_of_choice(choice) is not None
    ]
    said = [message.get("content") if isinstance(message, dict) else None for message in messages]
    return [len(text) if isinstance(text, str) else 0 for text in said]


def _list_choices(answer: object) -> list[object]:
    choices = answer.get("choices") if isinstance(answer, dict) else None
    return choices if isinstance(choices, list) else []


def _find_error_of_choice(choice: object) -> ServerError | None:
    if not isinstance(choice, dict):
        return None
    if error := choice.get("error"):
        return parse_server_error({"error": error})
    reason = choice.get("finish_reason")
    # Of an event of a stream it is not known here whether anything was said before.
    if not isinstance(reason, str) or not is_broken_off(reason, says_nothing=False):
        return None
    status = {"code": _UNPROCESSABLE, "type": BAD_CALL} if is_due_to_prompt(reason) else {}
    return parse_server_error({"error": {"message": f"the reply broke off ({reason})", **status}})


def holds_messages(answer: object) -> bool:
    """Whether there are choices, and each holds a message that can be read."""
    messages = [choice.get("message") if isinstance(choice, dict) else None for choice in _list_choices(answer)]
    return bool(messages) and all(
        isinstance(said, dict) and isinstance(said.get("content"), str | None) for said in messages
    )


def make_finite(value: JsonValue) -> JsonValue:
    """With null for numbers that JSON has no form for. RecursionError for what is nested too deeply to be passed on."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [make_finite(item) for item in value]
    return {name: make_finite(item) for name, item in value.items()} if isinstance(value, dict) else value


# Streams of events: put together again, or passed on as they come.

_DONE: Final = b"[DONE]"
_TEXT_FIELDS: Final = ("content", "refusal", "reasoning_content", "reasoning")
_NAME_FIELDS: Final = ("model", "system_fingerprint")


def is_event_stream(body: bytes) -> bool:
    head = body.removeprefix(_BOM).lstrip()
    return head.startswith((b"data:", b"event:", b"id:", b":"))


def join_event_stream(body: bytes) -> dict[str, object] | None:
    """The first choice and the usage in the form of an answer that was not streamed, or the error that ended the
    stream. None for a stream that broke off. Never raises."""
    joined = _JoinedStream()
    ended = False
    for data in _iterate_data(body):
        if data == _DONE:
            ended = True
            break
        event = _parse_event(data)
        if event is None:
            continue
        if event.get("error") or tells_error(event):
            return event
        joined.add_event(event)
    return joined.build_completion() if joined.finish_reason or (ended and joined.has_choice) else None


@dataclass
class _JoinedStream:
    has_choice: bool = False
    names: dict[str, object] = field(default_factory=dict)
    finish_reason: str | None = None
    usage: object = None
    error: object = None
    texts: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in _TEXT_FIELDS})
    tokens: list[object] = field(default_factory=list)
    calls: CallJoiner = field(default_factory=CallJoiner)

    def add_event(self, event: Mapping[str, object]) -> None:
        self.usage = event.get("usage") or self.usage
        self.names |= {name: event[name] for name in _NAME_FIELDS if event.get(name)}
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
        self.has_choice = True
        self.error = choice.get("error") or self.error
        reason = choice.get("finish_reason")
        self.finish_reason = reason if isinstance(reason, str) and reason else self.finish_reason
        delta = choice.get("delta")
        if isinstance(delta, dict):
            for name, parts in self.texts.items():
                parts.append(extract_text(delta.get(name)))
            self.calls.add(delta)
        logprobs = choice.get("logprobs")
        listed = logprobs.get("content") if isinstance(logprobs, dict) else None
        self.tokens += listed if isinstance(listed, list) else []

    def build_completion(self) -> dict[str, object]:
        message: dict[str, object] = {name: text for name, parts in self.texts.items() if (text := "".join(parts))}
        if calls := self.calls.build():
            message["tool_calls"] = calls
        choice: dict[str, object] = {"message": message, "finish_reason": self.finish_reason, "error": self.error}
        if self.tokens:
            choice["logprobs"] = {"content": self.tokens}
        return {"choices": [choice], "usage": self.usage, **self.names}


def _iterate_data(body: bytes) -> Iterator[bytes]:
    """The data of each event, which is one line here. Comments and other fields are passed over."""
    for line in body.removeprefix(_BOM).splitlines():
        if line.startswith(b"data:"):
            yield line.removeprefix(b"data:").strip()


def _parse_event(data: bytes) -> dict[str, object] | None:
    value = read_json(data)
    return normalize_answer(value, "delta") if isinstance(value, dict) else None


_MOST_NESTED_PARTS: Final = 4
_THOUGHT_PARTS: Final = frozenset({"thinking", "reasoning", "redacted_thinking", "thought"})


def split_parts(value: object, between: str = "") -> tuple[str, str]:
    """The thought, and the text, of a content that is a text, or a list of parts as some servers and clients send it.
    A part that holds no text, such as a picture or null, is nothing."""
    thoughts: list[str] = []
    texts: list[str] = []
    for part in value if isinstance(value, list) else (value,) if isinstance(value, str) else ():
        kind = _find_thought_kind(part)
        text = _extract_part(part, kind or "text")
        if text is not None:
            (thoughts if kind else texts).append(text)
    return between.join(thoughts), between.join(texts)


def _find_thought_kind(part: object) -> str | None:
    kind = part.get("type") if isinstance(part, dict) else None
    return kind if isinstance(kind, str) and kind in _THOUGHT_PARTS else None


def _is_readable(parts: list[object]) -> bool:
    """Whether it is empty, or one of the parts is a text or a thought, be it an empty one."""
    return not parts or any(_find_thought_kind(part) or _extract_part(part, "text") is not None for part in parts)


def _extract_part(part: object, name: str, depth: int = 0) -> str | None:
    """A part is a text, an object that holds one under `name` or `text`, or a list of such."""
    if isinstance(part, str):
        return part
    if depth == _MOST_NESTED_PARTS:
        return None
    if isinstance(part, list):
        texts = [_extract_part(one, "text", depth + 1) for one in part]
        return "".join(text for text in texts if text is not None)
    if not isinstance(part, dict):
        return None
    held = next((part[key] for key in (name, "text", "value") if part.get(key) is not None), None)
    return _extract_part(held, "text", depth + 1)


def extract_text(value: object) -> str:
    return split_parts(value)[1]


async def iterate_events(body: AsyncIterator[bytes]) -> AsyncGenerator[dict[str, object], None]:
    """The events of a stream, as they come, up to `[DONE]`. A whole chat completion, of a server that cannot stream, is
    one event, and so is an error. NoReply where the stream ends before its end was told, or says nothing."""
    waiting, plain, searched = bytearray(), None, 0
    ends = _StreamEnds()
    async for part in body:
        waiting += part
        if plain is None:
            if _BOM.startswith(waiting):
                continue  # the rest of the mark may follow
            waiting = waiting.removeprefix(_BOM).lstrip()
            plain = waiting.startswith((b"{", b"[")) if waiting else None
        # A long line may come in many parts: each is searched once.
        end = -1 if plain else waiting.rfind(b"\n", searched)
        searched = len(waiting)
        if end < 0:
            continue
        lines = bytes(waiting[:end]).split(b"\n")
        del waiting[: end + 1]
        searched = len(waiting)
        for data in (line[5:].strip() for line in lines if line.startswith(b"data:")):
            if data == _DONE:
                ends.require_choices()
                return
            event = _parse_event(data)
            if event is not None:
                ends.add_event(event)
                yield event
    if plain:
        yield _read_whole(bytes(waiting))
    else:
        ends.require_finished()


@dataclass
class _StreamEnds:
    """Which choices of a stream have ended, by index."""

    ended: dict[int, bool] = field(default_factory=dict)

    def add_event(self, event: Mapping[str, object]) -> None:
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                number = index if isinstance(index := choice.get("index"), int) else 0
                self.ended[number] = self.ended.get(number, False) or bool(choice.get("finish_reason"))

    def require_choices(self) -> None:
        if not self.ended:
            raise NoReply("broken", "the stream holds no choices")

    def require_finished(self) -> None:
        if not self.ended or not all(self.ended.values()):
            raise NoReply("broken", "the stream ended before the reply")


def _read_whole(body: bytes) -> dict[str, object]:
    value = read_json(body)
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(first, dict) and find_error(first) is not None:
        return first
    whole = normalize_answer(first, "message") if isinstance(first, dict) else {}
    if not holds_messages(whole):
        raise NoReply("broken", "the server did not return a chat completion")
    return normalize_answer(whole, "delta")
