"""Answers chat completions: reads what is wanted, asks the policy, passes its words on, and keeps the turn."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from fastapi import Request
from pydantic import JsonValue, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from app.characters.casting import Staging
from app.domain.errors import GatewayError, InvalidRequest
from app.domain.playing import PlayReply
from app.http.compat.play.chat_events import DONE, ReplyWriter, describe_error, write_event
from app.http.compat.play.chat_request import ChatRequest
from app.http.compat.play.client_conversation import ClientConversation, read_conversation
from app.http.web.api_keys import find_caller
from app.ports.playing import ChatBody, ReplyStream
from app.service.play.play_service import PlayService, PolicyAnswer, PreparedTurn, read_choice
from app.service.play.play_turns import PlayTurns
from app.service.play.played_models import PlayedModel
from app.service.world_requests import Moment

_EVENT_STREAM: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class PlayExchange:
    """What a policy is asked. Without a `turn` the client's own messages are passed on, and nothing is kept."""

    played: PlayedModel
    read: ClientConversation
    body: ChatBody
    turn: PreparedTurn | None
    player: str
    stores: bool
    name: str
    """The model, as the client named it."""

    @property
    def headers(self) -> dict[str, str]:
        return {"X-Play-Kind": self.read.wish, "X-Play-Dropped-System-Messages": str(self.read.dropped)}


class PolicyResponse(StreamingResponse):
    """Closes the policy's stream at its end, also where nothing of it was ever asked for."""

    def __init__(self, events: AsyncIterator[bytes], stream: ReplyStream, headers: dict[str, str]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={**headers, **_EVENT_STREAM})
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._stream.close()


class ChatCompletions:
    def __init__(self, service: PlayService, turns: PlayTurns) -> None:
        self._service = service
        self._turns = turns

    async def answer(self, request: ChatRequest, client: Request) -> Response:
        exchange = await self._read(request, client)
        policy = self._service.get_policy(exchange.played.policy)
        continues = exchange.read.beginning is not None
        began = asyncio.get_running_loop().time()
        writer = ReplyWriter(exchange.name)
        if request.stream:
            stream = await stop_with_client(client, policy.stream(exchange.body, continues=continues), _close)
            return PolicyResponse(self._write_events(exchange, writer, stream, began), stream, exchange.headers)
        answer = await stop_with_client(client, policy.ask(exchange.body, continues=continues))
        seconds = asyncio.get_running_loop().time() - began
        choices = answer["choices"]
        spoken = [read_choice(choice, seconds) for choice in choices] if isinstance(choices, list) else []
        noticed = await self._settle(exchange, spoken)
        return JSONResponse(writer.complete(answer, noticed), headers=exchange.headers)

    async def _read(self, request: ChatRequest, client: Request) -> PlayExchange:
        caller = await self._turns.identify(find_caller(client.scope), request.user)
        fields = request.play
        names = {one.casefold(): key for key, name in self._service.list_names().items() for one in (key, name)}
        try:
            read = read_conversation(request, names)
        except ValidationError as error:
            raise build_refusal(error) from None
        if read.speaker is not None:
            fields = fields.model_copy(update={"character": None})
        played = self._service.read_model(request.model, fields)
        if played.world is not None:
            caller.bounds.require_world(played.world, "model")
        if read.speaker is not None:
            played = PlayedModel(read.speaker, played.policy, played.world, played.as_of, played.as_of_text)
        turn = None if read.wish not in {"turn", "continue"} else await self._prepare(played, read, request)
        messages = request.raw_messages if turn is None else turn.messages
        if read.beginning is not None:
            messages = [*messages, {"role": "assistant", "content": read.beginning}]
        body = {**request.sampling, "messages": messages}
        return PlayExchange(
            played, read, body, turn, caller.player, request.store is not False, request.model or played.name
        )

    async def _prepare(self, played: PlayedModel, read: ClientConversation, request: ChatRequest) -> PreparedTurn:
        staged = {name: getattr(request.play, name) for name in Staging.model_fields}
        said = {"conversation": read.lines, "event": read.event}
        try:
            moment = Moment(**{**staged, "as_of": played.as_of, "character": played.character, **said})
        except ValidationError as error:
            raise build_refusal(error) from None
        return await self._service.prepare(played, moment)

    async def _write_events(
        self, exchange: PlayExchange, writer: ReplyWriter, stream: ReplyStream, began: float
    ) -> AsyncIterator[bytes]:
        try:
            async for event in stream:
                chunk = writer.take(event)
                if chunk is not None:
                    yield write_event(chunk)
            spoken = writer.list_spoken(asyncio.get_running_loop().time() - began)
            noticed = await self._settle(exchange, spoken)
            for chunk in writer.finish(noticed):
                yield write_event(chunk)
            yield DONE
        except GatewayError as error:
            yield write_event(describe_error(error)) + DONE

    async def _settle(self, exchange: PlayExchange, spoken: Sequence[PolicyAnswer]) -> JsonValue:
        """Checks the replies and keeps them. What it returns is told with the end of the reply."""
        told: dict[str, JsonValue] = {"kind": exchange.read.wish, "dropped_system_messages": exchange.read.dropped}
        turn = exchange.turn
        if turn is None:
            return told
        beginning = exchange.read.beginning or ""
        whole = [PolicyAnswer(beginning + one.text, one.finish_reason, one.seconds) for one in spoken]
        said = [one for one in whole if one.text.strip()]
        checked = [await self._service.make_reply(turn, one) for one in said]
        kept = None
        if exchange.stores and checked:
            try:
                kept = await self._turns.add(turn, exchange.player, checked)
            except GatewayError as error:  # the player has read the reply already
                told["not_kept"] = error.detail
        return {
            **told,
            "character": turn.played.character,
            "world": turn.played.world,
            "policy": turn.played.policy,
            "turn": kept,
            "replies": [_tell_reply(one, kept is not None) for one in checked],
            **({} if turn.retrieval_failure is None else {"retrieval_failure": turn.retrieval_failure}),
        }


def _tell_reply(reply: PlayReply, is_kept: bool) -> dict[str, JsonValue]:
    told: dict[str, JsonValue] = {"id": reply.reply_id if is_kept else None, "flags": [*reply.flags]}
    return told if reply.unchecked is None else {**told, "unchecked": reply.unchecked}


async def stop_with_client(
    client: Request,
    work: Coroutine[Any, Any, ResultT],
    discard: Callable[[ResultT], Awaitable[None]] | None = None,
) -> ResultT:
    """The result. As soon as the client is gone, the work is broken off; `discard` gets a result that nobody takes."""
    working = asyncio.ensure_future(work)
    listening = asyncio.ensure_future(_wait_until_gone(client))
    taken = False
    try:
        await asyncio.wait({working, listening}, return_when=asyncio.FIRST_COMPLETED)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        if not working.done():
            raise HTTPException(400, "The client is gone.")  # nobody reads it
        taken = True
        return working.result()
    finally:
        if not taken:
            listening.cancel()
            working.cancel()
            made, _ = await asyncio.gather(working, listening, return_exceptions=True)
            if discard is not None and not isinstance(made, BaseException):
                await discard(made)


async def _close(stream: ReplyStream) -> None:
    await stream.close()


async def _wait_until_gone(client: Request) -> None:
    while (await client.receive())["type"] != "http.disconnect":
        pass


def build_refusal(error: ValidationError) -> InvalidRequest:
    """Names the message's fault, such as a line that is too long."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return InvalidRequest(str(first["msg"]), field=".".join(["messages", *map(str, first["loc"])]))
