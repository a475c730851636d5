"""Routes below `/play/v1`: an OpenAI-compatible API whose models are characters, and the turns that were kept.

POST /play/v1/chat/completions
{"model": "hob_tarrant/shore@policy-42", "messages": [{"role": "user", "content": "Is the ferry running?"}]}

Clients send a prompt of their own as system messages, about 5 to 12 of them. The prompt of training stands in their
place. A few say what to do, and are honoured: SillyTavern's, which stand last, and a narrator's, between lines.
Requests that are no turn of a character, such as a client's wish for a title of the chat, are passed on as they are.
Fields that are not known are ignored: clients send all kinds of fields. What the gates notice stands in the field
`play` of the last choice.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from fastapi import APIRouter, Query, Request
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from app.characters.actions import DONE, MOST_RESULT, DoneCall, GameTool
from app.characters.casting import Staging
from app.characters.scenes import Scene
from app.domain.errors import GatewayError, InvalidRequest
from app.domain.faults import build_refusal
from app.domain.scores import Score
from app.domain.tasks import ToolCall
from app.domain.values import FiniteJson, Frozen, is_absent, is_encodable
from app.domain.worlds import EventsAdded, TalkMemory
from app.features.play.memories import PlayMemories, PostedTalk
from app.features.play.model import MEASURES, Forgotten, PlayReply, PlayTurn
from app.features.play.replies import OfferedTools, PolicyAnswer, ReplyWriter, read_whole
from app.features.play.service import (
    MOST_LISTED,
    KeptAs,
    PlayCaller,
    PlayedModel,
    PlayFields,
    PlayService,
    PlayTurns,
    PreparedTurn,
)
from app.features.worlds.service import ConversationTurn, Moment, WorldService, list_worlds_within
from app.http.web.api_keys import CallerBounds, find_caller, needs
from app.http.web.openapi import document_problems
from app.http.web.routes import DirectRoute, JsonRoute
from app.inference.wire import CallJoiner, split_parts
from app.ports.play import ChatBody, Chunk, ReplyStream
from app.toolkit.thoughts import split_thoughts
from app.toolkit.tool_calls.calls import MalformedCall
from app.toolkit.tool_calls.replies import convert_call

# Requests of clients, in OpenAI's chat format.

_MOST_CHOICES: Final = 8
_PASSED_ON: Final = (
    *("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("max_tokens", "max_completion_tokens", "stop", "seed", "logit_bias", "logprobs", "top_logprobs", "n"),
    *("response_format", "stream_options", "parallel_tool_calls"),
)
"""Fields that policies get as they are."""


_ROLES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("user", "human", "player"), "user"),
    **dict.fromkeys(("assistant", "model", "ai", "bot", "char", "character", "npc"), "assistant"),
    **dict.fromkeys(("system", "developer", "narrator"), "system"),
    **dict.fromkeys(("tool", "tool_result", "function", "ipython", "observation"), "tool"),
}
"""What clients call who speaks. What tools answer is said by nobody: it stands beside the calls of the character."""
_MOST_TOOLS: Final = 64


def _read_role(role: str) -> str:
    known = _ROLES.get(role.strip().casefold())
    if known is None:
        # To take it for the player's or the character's words would be a guess.
        raise ValueError(f"the role is none of {', '.join(_ROLES)}")
    return known


def _join_parts(content: Any) -> Any:
    """Clients send texts, or lists of parts; pictures and thoughts are left out."""
    return split_parts(content, "\n")[1] if content is None or isinstance(content, list) else content


def _read_user(user: Any) -> Any:
    return user if isinstance(user, str) and is_encodable(user) else ""


_PASSED_PARTS: Final = ("name", "tool_calls", "tool_call_id")


def _read_tool(tool: Any) -> Any:
    """OpenAI's form, or that of a function alone, as clients register it, under any name that its schema has."""
    function = tool.get("function", tool) if isinstance(tool, dict) else None
    if not isinstance(function, dict) or tool.get("type", "function") != "function":
        return tool
    schema: Any = next((function[name] for name in _SCHEMAS if function.get(name)), {})
    return {
        "function": {
            "name": function.get("name"),
            "description": function.get("description") or "",
            "parameters": schema,
        }
    }


_SCHEMAS: Final = ("parameters", "input_schema", "inputSchema")


class ClientMessage(BaseModel):
    model_config = ConfigDict(frozen=True)

    role: Annotated[str, Field(max_length=40), AfterValidator(_read_role)]
    content: Annotated[str, BeforeValidator(_join_parts)] = ""
    name: str | None = None
    tool_calls: FiniteJson = None
    tool_call_id: str | None = None
    _calls: tuple[DoneCall, ...] = PrivateAttr(())

    @property
    def calls(self) -> tuple[DoneCall, ...]:
        """Of the character, with what later messages say of their results."""
        return self._calls

    def answer_calls(self, results: Sequence["ClientMessage"]) -> None:
        """Results are found by the ids of their calls, else by their order. Calls that cannot be read are left out."""
        listed = self.tool_calls if isinstance(self.tool_calls, list) else []
        by_id = {one.tool_call_id: one.content for one in results if one.tool_call_id}
        unnamed = iter([one.content for one in results if not one.tool_call_id])
        joined = CallJoiner()
        joined.add({"tool_calls": listed})
        made: list[DoneCall] = []
        for call in joined.build():
            call_id = call.get("id")
            result = by_id.get(call_id, DONE) if isinstance(call_id, str) and by_id else next(unnamed, DONE)
            if len(result) > MOST_RESULT:
                raise ValueError(f"messages: the result of a call has more than {MOST_RESULT} characters")
            with suppress(MalformedCall, ValidationError):
                read = convert_call(ToolCall.model_validate(call))
                made.append(DoneCall(name=read.name, arguments=read.arguments, result=result or DONE))
        self._calls = tuple(made)

    @property
    def is_system(self) -> bool:
        return self.role == "system"

    @property
    def spoken_text(self) -> str:
        """Without thoughts, which some clients send back as a part of what the character said."""
        return split_thoughts(self.content)[1] if self.role == "assistant" else self.content

    @property
    def is_line(self) -> bool:
        """Whether somebody says something here."""
        return self.role != "tool" and bool(self.spoken_text.strip() or self.calls)


class ChatRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, FiniteJson]

    model: Annotated[str, Field(max_length=300)] = ""
    messages: Annotated[tuple[ClientMessage, ...], Field(max_length=5000)]
    stream: bool | None = False
    n: Annotated[int, Field(ge=1, le=_MOST_CHOICES)] | None = None
    store: bool | None = None
    """False keeps nothing of the conversation."""
    user: Annotated[str, BeforeValidator(_read_user), Field(max_length=200)] = ""
    play: PlayFields = PlayFields()
    tools: Annotated[
        tuple[Annotated[GameTool, BeforeValidator(_read_tool)], ...] | None, Field(max_length=_MOST_TOOLS)
    ] = None
    """Beside the actions of the sheet, and in place of those of the same name. An empty list: words only."""
    tool_choice: FiniteJson = None

    @model_validator(mode="after")
    def _answer_calls(self) -> Self:
        results: list[ClientMessage] = []
        for message in reversed(self.messages):
            if message.role == "tool":
                results.append(message)
                continue
            if message.role == "assistant" and message.tool_calls:
                message.answer_calls(results[::-1])
            results = []
        return self

    @property
    def words_only(self) -> bool:
        return self.tools == () or self.tool_choice == "none"

    @property
    def sampling(self) -> ChatBody:
        fields = {**self.__pydantic_extra__, "n": self.n if (self.n or 1) > 1 else None}
        return {name: fields[name] for name in _PASSED_ON if fields.get(name) not in (None, {}, [])}

    @property
    def asks_usage(self) -> bool:
        """Of a stream: whole replies always tell it."""
        options = self.__pydantic_extra__.get("stream_options")
        return isinstance(options, dict) and options.get("include_usage") is True

    @property
    def wants_json(self) -> bool:
        return "response_format" in self.__pydantic_extra__

    @property
    def raw_messages(self) -> list[JsonValue]:
        """As the client sent them but for thoughts, for what is no turn."""
        return [
            {
                "role": one.role,
                "content": one.spoken_text,
                **{name: told for name in _PASSED_PARTS if (told := getattr(one, name)) not in (None, [])},
            }
            for one in self.messages
        ]


# What was said, and what the client wants.

_Wish = Literal["turn", "continue", "impersonate", "quiet", "helper", "raw"]
"""What is wanted. All but the first two are passed on as they are: they are no turns of a character."""
_MOST_LINES: Final = 200
"""As many as a moment may have."""
_HISTORY: Final = re.compile(r"^\[Start a new (?:group )?chat", re.I)
_EXAMPLES: Final = re.compile(r"^\[(?:Start a new|Example) chat", re.I)
_CONTINUE: Final = re.compile(r"^\[Continue (?:the following|your last) message", re.I)
_IMPERSONATE: Final = re.compile(r"^\[?Write your next reply from the point of view of ", re.I)
_GROUP: Final = re.compile(r"^\[Write the next reply only as (?P<name>[^\]]{1,120}?)\.?\]$", re.I)
_HELPER: Final = re.compile(
    r"^### Task:|\bRespond with ONLY\b|^(?:Generate|Create|Provide) a (?:concise|short)[^.]{0,80}\btitle\b", re.I
)
_QUOTED: Final = "original message: "
_PREFIX: Final = re.compile(r"^(?P<name>[^:\n]{1,60}): ")


@dataclass(frozen=True)
class ClientConversation:
    """`lines` alternate, the player first. `beginning` is the reply that is to be continued."""

    wish: _Wish
    lines: tuple[ConversationTurn, ...] = ()
    event: str | None = None
    speaker: str | None = None
    """The id of the character whom a group is to hear next."""
    beginning: str | None = None
    begun: ConversationTurn | None = None
    """Calls that the character has already made in answer, with what it said."""
    dropped: int = 0
    """System messages that nobody was shown."""


@dataclass(frozen=True)
class _SaidLine:
    role: Literal["user", "assistant"]
    text: str
    calls: tuple[DoneCall, ...] = ()

    @property
    def turn(self) -> ConversationTurn:
        said = {"content": self.text} if self.text or not self.calls else {}
        return ConversationTurn(role=self.role, **said, calls=self.calls)


def read_conversation(request: ChatRequest, names: Mapping[str, str]) -> ClientConversation:
    """`names` are ids of characters by what they are called, in lower case. InvalidRequest for messages in which nobody
    says anything, and for a group's member who is not served."""
    is_raw = request.play.kind == "raw"
    messages = [one for one in request.messages if (one.content.strip() if is_raw else one.is_line)]
    if not messages and request.play.event is None:
        raise InvalidRequest("nobody says anything", field="messages")
    if is_raw:
        return ClientConversation("raw")
    history, trailing = _split(messages)
    wish = _read_wish(request, messages, trailing)
    if wish not in {"turn", "continue"}:
        return ClientConversation(wish)
    return _read_turn(request, wish, history, trailing, names, sum(one.is_system for one in messages))


def _split(messages: Sequence[ClientMessage]) -> tuple[list[ClientMessage], list[ClientMessage]]:
    """The history, from its first line on, and the system messages behind its last line."""
    marks = [index for index, one in enumerate(messages) if one.is_system and _HISTORY.match(one.content)]
    start = marks[-1] + 1 if marks else 0
    while start < len(messages) and messages[start].is_system:
        start += 1
    end = len(messages)
    while end > start and messages[end - 1].is_system:
        end -= 1
    own = [one for one in messages[start:end] if not (one.name or "").startswith("example_")]
    return [one for one in own if not _EXAMPLES.match(one.content)], list(messages[end:])


def _read_wish(request: ChatRequest, messages: Sequence[ClientMessage], trailing: Sequence[ClientMessage]) -> _Wish:
    texts = [one.content.strip() for one in trailing]
    if any(map(_CONTINUE.match, texts)) and request.play.kind is None:
        return "continue"
    if request.play.kind == "turn":
        return "turn"
    if any(map(_IMPERSONATE.match, texts)):
        return "impersonate"
    last = messages[-1].content.strip() if messages else ""
    if not request.stream and (request.wants_json or _HELPER.search(last[:2000])):
        return "helper"
    unknown = [text for text in texts if not _GROUP.match(text)]
    if unknown and not request.stream:
        return "quiet"
    if messages and all(one.is_system for one in messages):
        return "quiet" if not request.stream else "turn"
    begins = bool(messages) and messages[-1].role == "assistant" and not messages[-1].calls
    return "continue" if request.play.event is None and begins else "turn"


def _read_turn(
    request: ChatRequest,
    wish: _Wish,
    history: Sequence[ClientMessage],
    trailing: Sequence[ClientMessage],
    names: Mapping[str, str],
    systems: int,
) -> ClientConversation:
    speaker = _find_speaker(trailing, names)
    narrated = [one for one in history if one.is_system]
    lines = _merge(
        _read_line(one, speaker, names) for one in reversed(history) if not one.is_system or request.play.narrator
    )
    event, used = request.play.event, len(narrated) if request.play.narrator else 0
    rest = [text for one in trailing if not _is_order(text := one.content.strip())]
    if rest and event is None and wish == "turn" and lines and lines[-1].role == "assistant" and request.play.narrator:
        event, used = "\n".join(rest), used + len(rest)
    read = ClientConversation(wish, speaker=speaker, event=event, dropped=systems - used - (len(trailing) - len(rest)))
    if wish == "continue":
        quoted = (_read_quoted(one.content.strip()) for one in trailing)
        return _take_beginning(read, lines, next(filter(None, quoted), ""))
    if event is None and len(lines) > 1 and lines[-1].calls:
        read, lines = replace(read, begun=lines[-1].turn), lines[:-1]
    if event is None and (not lines or lines[-1].role != "user"):
        raise InvalidRequest(
            "the conversation must end with what the player says, or `play.event` be set", field="messages"
        )
    return replace(read, lines=_cut(lines, ends_with="user" if event is None else "assistant"))


def _is_order(text: str) -> bool:
    return _CONTINUE.match(text) is not None or _GROUP.match(text) is not None


def _read_quoted(text: str) -> str:
    """The beginning of a reply that an order to continue it quotes."""
    _, mark, quotation = text.partition(_QUOTED)
    return quotation[:-1] if mark and quotation.endswith("]") else ""


def _take_beginning(read: ClientConversation, merged: Sequence[_SaidLine], quoted: str) -> ClientConversation:
    """The reply stands last in the history, or in the order to continue it alone."""
    if quoted and merged and merged[-1].role == "user":
        merged = [*merged, _SaidLine("assistant", quoted)]
    if len(merged) < 2 or merged[-1].role != "assistant":
        raise InvalidRequest("there is no reply to continue", field="messages")
    last = merged[-1]
    begun = ConversationTurn(role="assistant", calls=last.calls) if last.calls else None
    return replace(read, lines=_cut(merged[:-1], ends_with="user"), beginning=last.text, begun=begun)


def _cut(merged: Sequence[_SaidLine], ends_with: str) -> tuple[ConversationTurn, ...]:
    """The newest lines, the player's first. A greeting is part of the prompt."""
    lines = list(merged)
    if ends_with == "assistant" and lines and lines[-1].role == "user":
        raise InvalidRequest("with an event the conversation ends with the character's line", field="messages")
    most = _MOST_LINES - (1 if ends_with == "user" else 0)
    lines = lines[-most:] if len(lines) > most else lines
    if lines and lines[0].role == "assistant":
        lines = lines[1:]
    return tuple(one.turn for one in lines)


def _find_speaker(trailing: Sequence[ClientMessage], names: Mapping[str, str]) -> str | None:
    called = [match["name"].strip() for one in trailing if (match := _GROUP.match(one.content.strip()))]
    if not called:
        return None
    character = names.get(called[-1].casefold())
    if character is None:
        raise InvalidRequest(f"no served character is called {called[-1]!r}", field="messages")
    return character


def _read_line(message: ClientMessage, speaker: str | None, names: Mapping[str, str]) -> _SaidLine:
    """A narrator's line, and one of another character in a group, stand between or behind brackets, as in training."""
    text = message.spoken_text.strip()
    if message.is_system:
        return _SaidLine("user", f"[{text}]")
    if speaker is None:
        return _SaidLine("assistant" if message.role == "assistant" else "user", text, message.calls)
    match = _PREFIX.match(text)
    said = text[match.end() :] if match else text
    if message.role != "assistant":
        return _SaidLine("user", said or text)
    whose = None if match is None else match["name"].strip()
    if whose is not None and names.get(whose.casefold()) != speaker:
        return _SaidLine("user", f"[{whose}] {said}")
    return _SaidLine("assistant", said, message.calls)


def _merge(newest_first: Iterable[_SaidLine]) -> list[_SaidLine]:
    """The newest, in order; older ones are not read. Neighbours of one role are one line: chat templates of several
    models take turns alone."""
    merged: list[list[_SaidLine]] = []
    for line in newest_first:
        if merged and merged[-1][0].role == line.role:
            merged[-1].append(line)
        elif len(merged) > _MOST_LINES:
            break
        else:
            merged.append([line])
    return [_join_lines(lines[::-1]) for lines in reversed(merged)]


def _join_lines(lines: Sequence[_SaidLine]) -> _SaidLine:
    calls = tuple(call for line in lines for call in line.calls)
    return _SaidLine(lines[0].role, "\n".join(line.text for line in lines if line.text), calls)


# Events and errors in OpenAI's form.

_DONE: Final = b"data: [DONE]\n\n"


def _write_event(event: JsonValue) -> bytes:
    """One line of ASCII: no character is split, and clients that cut at line ends find one event."""
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"


def _describe_error(error: GatewayError) -> dict[str, JsonValue]:
    """As clients of OpenAI's read it. Never with the type `insufficient_quota`, at which they speak of credits."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    message = error.detail if error.field is None else f"{error.field}: {error.detail}"
    return {"error": {"message": message, "type": kind, "code": error.code, "param": error.field}}


# Chat completions: what is wanted is read, the policy asked, its words passed on, and the turn kept.

_EVENT_STREAM: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class _PlayExchange:
    """What a policy is asked. Without a `turn` the client's own messages are passed on, and nothing is kept."""

    played: PlayedModel
    read: ClientConversation
    body: ChatBody
    turn: PreparedTurn | None
    offered: OfferedTools
    player: str
    stores: bool
    name: str
    """The model, as the client named it."""
    passes_usage: bool

    @property
    def headers(self) -> dict[str, str]:
        return {"X-Play-Kind": self.read.wish, "X-Play-Dropped-System-Messages": str(self.read.dropped)}


_PATIENCE_SECONDS: Final = 0.5
"""An error that comes within this time has a status of its own. A later one stands in the stream."""
_COMMENT_SECONDS: Final = 5.0
"""Clients and proxies take a connection for dead that says nothing for long, some after 15 seconds; a long prompt or
thought takes minutes."""
_COMMENT: Final = b": the reply has not begun\n\n"


class ComingReply:
    """A policy's stream from the moment that it is asked for. Whoever has it closes it."""

    def __init__(self, asked: Coroutine[Any, Any, ReplyStream]) -> None:
        self._opening = asyncio.ensure_future(asked)

    async def wait(self, client: Request, seconds: float) -> None:
        """Closed if the client leaves, or if an error is known in this time, which is raised."""
        try:
            done, _ = await stop_with_client(client, asyncio.wait({self._opening}, timeout=seconds))
            for one in done:
                one.result()
        except BaseException:
            await self.close()
            raise

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        async for event in await self._opening:
            yield event

    async def close(self) -> None:
        self._opening.cancel()
        (made,) = await asyncio.gather(self._opening, return_exceptions=True)
        if not isinstance(made, BaseException):
            await made.close()


async def fill_silence(events: AsyncIterator[bytes], seconds: float = _COMMENT_SECONDS) -> AsyncIterator[bytes]:
    """With a comment at once if there is no event yet, and then each time after so many seconds until there is one."""
    first = asyncio.ensure_future(anext(events, None))
    try:
        waited = 0.0
        while not (await asyncio.wait({first}, timeout=waited))[0]:
            yield _COMMENT
            waited = seconds
        event = first.result()
    finally:
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
    if event is not None:
        yield event
        async for event in events:
            yield event


class PolicyResponse(StreamingResponse):
    """Closes the policy's stream at its end, also where nothing of it was ever asked for."""

    def __init__(self, events: AsyncIterator[bytes], coming: ComingReply, headers: dict[str, str]) -> None:
        super().__init__(fill_silence(events), media_type="text/event-stream", headers={**headers, **_EVENT_STREAM})
        self._coming = coming

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._coming.close()


class _ChatCompletions:
    def __init__(self, service: PlayService, turns: PlayTurns) -> None:
        self._service = service
        self._turns = turns

    async def answer(self, request: ChatRequest, client: Request) -> Response:
        exchange = await self._read(request, client)
        await self._service.quotas.count_request()
        policy = self._service.get_policy(exchange.played, exchange.turn)
        continues = exchange.read.beginning is not None
        began = asyncio.get_running_loop().time()
        writer = ReplyWriter(exchange.name, offered=exchange.offered, passes_usage=exchange.passes_usage)
        if request.stream:
            coming = ComingReply(policy.stream(exchange.body, continues=continues))
            await coming.wait(client, _PATIENCE_SECONDS)
            return PolicyResponse(self._write_events(exchange, writer, coming, began), coming, exchange.headers)
        answer = await stop_with_client(client, policy.ask(exchange.body, continues=continues))
        seconds = asyncio.get_running_loop().time() - began
        spoken = read_whole(answer, seconds, exchange.offered)
        noticed = await self._settle(exchange, spoken)
        reply = {**writer.complete(answer, spoken, noticed), **self._service.disclosure}
        return JSONResponse(reply, headers=exchange.headers)

    async def _read(self, request: ChatRequest, client: Request) -> _PlayExchange:
        caller = await self._turns.identify(find_caller(client.scope), request.user)
        fields = request.play
        sheets = self._service.list_sheets()
        names = {one.casefold(): sheet.id for sheet in sheets for one in (sheet.id, sheet.identity.name)}
        try:
            read = read_conversation(request, names)
        except ValidationError as error:
            raise build_refusal(error, None, "messages") from None
        # A group names who speaks next in a message, and one model for all its members: the message counts.
        if read.speaker is not None:
            fields = fields.model_copy(update={"character": None})
        played = self._service.read_model(request.model, fields)
        if played.world is not None:
            caller.bounds.require_world(played.world, "model")
        if read.speaker is not None:
            played = PlayedModel(read.speaker, played.policy, played.world, played.as_of, played.as_of_text)
        is_turn = read.wish in {"turn", "continue"}
        turn = await self._prepare(played, read, request, caller.player) if is_turn else None
        messages = request.raw_messages if turn is None else turn.messages
        if read.beginning is not None:
            messages = [*messages, {"role": "assistant", "content": read.beginning}]
        offered = OfferedTools(request.tools or ()) if turn is None else turn.offered
        body = {**request.sampling, **offered.build_body(request.tool_choice), "messages": messages}
        return _PlayExchange(
            played,
            read,
            body,
            turn,
            offered,
            player=caller.player,
            stores=request.store is not False,
            name=request.model or played.name,
            passes_usage=request.asks_usage,
        )

    async def _prepare(
        self, played: PlayedModel, read: ClientConversation, request: ChatRequest, player: str
    ) -> PreparedTurn:
        staged = {name: getattr(request.play, name) for name in Staging.model_fields}
        said: dict[str, object] = {"conversation": read.lines, "event": read.event, "begun": read.begun}
        offers = not request.words_only and (request.tools or self._service.takes_tools(played.policy))
        said |= {"tools": (request.tools or ()) if offers else None}
        try:
            moment = Moment(**{**staged, "as_of": played.as_of, "character": played.character, **said})
        except ValidationError as error:
            raise build_refusal(error, Moment, "messages") from None
        return await self._service.prepare(played, moment, player)

    async def _write_events(
        self, exchange: _PlayExchange, writer: ReplyWriter, coming: ComingReply, began: float
    ) -> AsyncIterator[bytes]:
        first = self._service.disclosure
        try:
            async for event in coming:
                chunk = writer.take(event)
                if chunk is not None:
                    yield _write_event({**chunk, **first})
                    first = {}
            spoken = writer.list_spoken(asyncio.get_running_loop().time() - began)
            noticed = await self._settle(exchange, spoken)
            for chunk in writer.finish(noticed):
                yield _write_event({**chunk, **first})
                first = {}
            yield _DONE
        except GatewayError as error:
            yield _write_event(_describe_error(error)) + _DONE

    async def _settle(self, exchange: _PlayExchange, spoken: Sequence[PolicyAnswer]) -> JsonValue:
        """Checks the replies and keeps them. What it returns is told with the end of the reply."""
        notice: dict[str, JsonValue] = {"kind": exchange.read.wish, "dropped_system_messages": exchange.read.dropped}
        turn = exchange.turn
        if turn is None:
            left_out = [fault for one in spoken for fault in one.left_out]
            return {**notice, "left_out": [*left_out]} if left_out else notice
        beginning = exchange.read.beginning or ""
        whole = [replace(one, text=beginning + one.text) for one in spoken]
        checked = [await self._service.make_reply(turn, one) for one in whole if one.text.strip() or one.calls]
        turn_id = None
        if exchange.stores and checked:
            try:
                turn_id = await self._turns.add(turn, exchange.player, checked)
            except GatewayError as error:  # the player has read the reply already
                notice["not_kept"] = error.detail
        return {
            **notice,
            "character": turn.played.character,
            "world": turn.played.world,
            "policy": turn.played.policy,
            "turn": turn_id,
            "replies": [_describe_reply(one, turn_id is not None) for one in checked],
            **({} if turn.retrieval_failure is None else {"retrieval_failure": turn.retrieval_failure}),
            **({"replaced_actions": [*turn.replaced]} if turn.replaced else {}),
        }


def _describe_reply(reply: PlayReply, is_kept: bool) -> dict[str, JsonValue]:
    told = {name: getattr(reply, name) for name in ("unchecked", "left_out", *MEASURES)}
    return {
        "id": reply.reply_id if is_kept else None,
        "flags": [*reply.flags],
        **{
            name: [*value] if isinstance(value, tuple) else value
            for name, value in told.items()
            if not is_absent(value)
        },
    }


async def stop_with_client(client: Request, work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """The result. As soon as the client is gone, the work is broken off."""
    working = asyncio.ensure_future(work)
    listening = asyncio.ensure_future(_wait_until_gone(client))
    try:
        await asyncio.wait({working, listening}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise HTTPException(400, "The client is gone.")  # nobody reads it
        return working.result()
    finally:
        listening.cancel()
        working.cancel()
        await asyncio.gather(working, listening, return_exceptions=True)


async def _wait_until_gone(client: Request) -> None:
    while (await client.receive())["type"] != "http.disconnect":
        pass


# Routes.

_PlayUser = Annotated[str, Query(max_length=200, description="The `user` of the requests, where they named one.")]


class PlayModel(Frozen):
    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "atropos-environments"
    ai: Annotated[bool | None, Field(exclude_if=is_absent)] = None
    """True where the settings say that clients are told that an AI answers."""


class PlayModels(Frozen):
    object: str = "list"
    data: tuple[PlayModel, ...]
    notice: Annotated[str | None, Field(exclude_if=is_absent)] = None
    """A sentence for people, from the settings."""


class BetterReply(Frozen):
    reply: str
    """Id of the reply that is better than the others of its turn."""
    consent: bool = False
    """Whether the choice may be used for training: it is a label then, and exported."""


class KeptMoment(Frozen):
    kept_as: KeptAs = Field(default="scene", alias="as")
    reply: str | None = None
    """Id of the reply; an example needs one."""
    consent: bool = False
    """Whether what the character remembered of its player may stand in the scene, and be used for training."""


class KeptScene(Frozen):
    scene: Scene


class JudgedReplies(Frozen):
    scores: tuple[Score, ...]


class RemovedTurns(Frozen):
    removed: int


def create_play_router(service: PlayService, turns: PlayTurns, worlds: WorldService) -> APIRouter:
    router = APIRouter(prefix="/play/v1", tags=["play"], route_class=JsonRoute)
    router.routes.extend(_create_completions_router(_ChatCompletions(service, turns)).routes)

    @router.get("/models", summary="Characters with each policy, and in each world", responses=_document(401))
    @needs("talk", "handler")
    async def models(bounds: CallerBounds) -> PlayModels:
        """`model` may also name a moment: `character/world/1312-04-03T09:15:00Z@policy`."""
        named = await list_worlds_within(worlds, bounds, MOST_LISTED)
        listed = service.list_models([world.name for world in named])
        told = service.disclosure
        models = [{"id": name, **({"ai": True} if told else {})} for name in listed]
        return PlayModels.model_validate({"data": models, "notice": told.get("notice")})

    @router.get("/turns/{turn_id}", summary="A turn of yours, with its replies", responses=_document(401, 403, 404))
    @needs("talk", "handler")
    async def turn(turn_id: str, client: Request, user: _PlayUser = "") -> PlayTurn:
        return await turns.get(await _identify(turns, client, user), turn_id)

    @router.post(
        "/turns/{turn_id}/better",
        summary="Say which reply is the better one",
        responses=_document(400, 401, 403, 404, 408, 409, 413, 415),
    )
    @needs("talk", "handler")
    async def better(turn_id: str, said: BetterReply, client: Request, user: _PlayUser = "") -> PlayTurn:
        """An earlier label of the turn is withdrawn, also where this choice may not be used for training."""
        caller = await _identify(turns, client, user)
        return await turns.mark_better(caller, turn_id, said.reply, consent=said.consent)

    @router.post(
        "/turns/{turn_id}/keep",
        summary="Keep the moment of a turn as a scene, with a reply as an example of a good one",
        responses=_document(400, 401, 403, 404, 408, 409, 413, 415),
    )
    @needs("author", "closed")
    async def keep(turn_id: str, said: KeptMoment, client: Request, user: _PlayUser = "") -> KeptScene:
        caller = await _identify(turns, client, user)
        return KeptScene(scene=await turns.keep(caller, turn_id, said.kept_as, said.reply, consent=said.consent))

    @router.post(
        "/turns/{turn_id}/judge", summary="Scores of a turn's replies", responses=_document(401, 403, 404, 409, 429)
    )
    @needs("author", "closed")
    async def judge(turn_id: str, client: Request, user: _PlayUser = "") -> JudgedReplies:
        """By the judges of training, as one group, in the order of the replies. Nothing is stored."""
        return JudgedReplies(scores=await turns.judge(await _identify(turns, client, user), turn_id))

    @router.delete("/turns/{turn_id}", summary="Remove a turn of yours", responses=_document(401))
    @needs("talk", "handler")
    async def remove(turn_id: str, client: Request, user: _PlayUser = "") -> RemovedTurns:
        return RemovedTurns(removed=await turns.remove(await _identify(turns, client, user), turn_id))

    @router.delete("/turns", summary="Remove all turns of yours", responses=_document(401))
    @needs("talk", "handler")
    async def remove_all(client: Request, user: _PlayUser = "") -> RemovedTurns:
        return RemovedTurns(removed=await turns.remove(await _identify(turns, client, user)))

    return router


# Memories of earlier talk.

_Before = Annotated[int | None, Query(ge=1, description="`next_before` of the previous page.")]


class MemoryPage(Frozen):
    """Newest first. Pass `next_before` as `before` for the next page; null on the last page."""

    memories: tuple[TalkMemory, ...]
    next_before: int | None


def create_memories_router(memories: PlayMemories, turns: PlayTurns) -> APIRouter:
    router = APIRouter(prefix="/play/v1/memories", tags=["play"], route_class=JsonRoute)

    @router.get("", summary="What characters remember of you", responses=_document(401))
    @needs("talk", "handler")
    async def listed(
        client: Request,
        user: _PlayUser = "",
        before: _Before = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
    ) -> MemoryPage:
        """Of worlds whose `memory` is set and that your key reaches."""
        caller = await _identify(turns, client, user)
        found, next_before = await memories.list_own(caller.player, limit, before)
        reached = tuple(memory for memory in found if caller.bounds.allows_world(memory.world))
        return MemoryPage(memories=reached, next_before=next_before)

    @router.post(
        "",
        summary="Tell what a player and characters said to each other",
        responses=_document(400, 401, 403, 404, 408, 409, 413, 415, 429),
    )
    @needs("play", "handler")
    async def post(posted: PostedTalk, client: Request, user: _PlayUser = "") -> EventsAdded:
        """For talk that a game kept elsewhere. Each character in `heard_by` remembers it, of the player whom your key
        and `user` name in chat completions too. Repeated talk is `known`."""
        caller = await _identify(turns, client, user)
        caller.bounds.require_world(posted.world, "body.world")
        return await memories.post(caller.player, posted)

    @router.delete(
        "", summary="Forget you: your memories, and the turns that hold their words", responses=_document(401)
    )
    @needs("talk", "handler")
    async def forget(client: Request, user: _PlayUser = "") -> Forgotten:
        """Also of worlds that your key does not reach any more."""
        return await turns.forget(await _identify(turns, client, user))

    return router


def _create_completions_router(completions: _ChatCompletions) -> APIRouter:
    router = APIRouter(prefix="/play/v1", tags=["play"], route_class=DirectRoute)

    @router.post(
        "/chat/completions",
        summary="Talk to a character with the prompt of training",
        responses=_document(400, 401, 404, 408, 413, 415, 429),
        response_model=None,
    )
    @needs("talk", "handler")
    async def complete(request: ChatRequest, client: Request) -> Response:
        return await completions.answer(request, client)

    return router


async def _identify(turns: PlayTurns, client: Request, user: str) -> PlayCaller:
    return await turns.identify(find_caller(client.scope), user)


def _document(*statuses: int) -> dict[int | str, dict[str, object]]:
    return document_problems(*{*statuses, 422, 503})
