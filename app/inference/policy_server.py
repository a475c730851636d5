"""A policy that people talk to, behind an OpenAI-compatible URL: whole replies, and streams that pass through."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Final, cast

from pydantic import JsonValue

from app.domain.errors import GatewayError, InvalidRequest, Unavailable
from app.inference.connection import Connection
from app.inference.endpoint import NoReply, OpenReply
from app.inference.event_streams import iterate_events
from app.inference.server_errors import parse_server_error, tells_error
from app.ports.playing import ChatBody, Chunk, PolicyServer, ReplyStream

_LONGEST_WORDS: Final = 300
_END_SECONDS: Final = 0.2
_TOKEN_LIMITS: Final = ("max_tokens", "max_completion_tokens")
_REQUEST_FAULTS: Final = frozenset({400, 413, 422})
"""Statuses that are about the request; all others are between this service and the policy's server."""


class ChatPolicyServer(PolicyServer):
    def __init__(
        self,
        name: str,
        model: str,
        connection: Connection,
        *,
        temperature: float,
        max_output_tokens: int,
        deadline_seconds: float,
        extra_body: Mapping[str, JsonValue],
        continue_body: Mapping[str, JsonValue],
        max_concurrency: int,
    ) -> None:
        self._name = name
        self._model = model
        self._connection = connection
        self._temperature = temperature
        self._most_tokens = max_output_tokens
        self._seconds = deadline_seconds
        self._extra = extra_body
        self._continue = continue_body
        self._line = asyncio.Semaphore(max_concurrency)
        self._opening: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def model(self) -> str:
        return self._model

    async def open(self) -> None:
        """The client is imported beside the start, so that nobody who talks waits for it."""
        self._opening = asyncio.create_task(self._connection.prepare())

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        await self._connection.aclose()

    async def ask(self, body: ChatBody, *, continues: bool = False) -> Chunk:
        try:
            async with asyncio.timeout(self._seconds), self._line:
                reply = await self._connection.post(self._complete(body, continues))
        except TimeoutError:
            raise self.fail(f"does not answer within {self._seconds:g} s") from None
        except NoReply as error:
            raise self.fail(f"does not answer: {error.reason}") from None
        if reply.status >= 300:
            raise self._refuse(reply.status, reply.body)
        answer = _decode(reply.body)
        if tells_error(answer):
            raise self.fail(self._describe(answer))
        choices = answer.get("choices") if isinstance(answer, dict) else None
        if not isinstance(choices, list) or not any(isinstance(choice, dict) for choice in choices):
            raise self.fail("did not return a chat completion")
        return cast(Chunk, answer)

    async def stream(self, body: ChatBody, *, continues: bool = False) -> ReplyStream:
        asked = self._complete({**body, "stream": True}, continues)
        try:
            async with AsyncExitStack() as held:
                async with asyncio.timeout(self._seconds):
                    await self._line.acquire()
                    held.callback(self._line.release)
                    reply = await self._connection.open(asked)
                    held.pop_all()
                    stream = PolicyReplyStream(self, reply, self._line, self._seconds)
                    held.push_async_callback(stream.close)
                    if reply.status >= 300:
                        raise self._refuse(reply.status, await _read_start(reply))
                    await stream.read_first()
                held.pop_all()
        except TimeoutError:
            raise self.fail(f"does not answer within {self._seconds:g} s") from None
        except NoReply as error:
            raise self.fail(f"does not answer: {error.reason}") from None
        return stream

    def _complete(self, body: ChatBody, continues: bool) -> dict[str, JsonValue]:
        asked = [number for name in _TOKEN_LIMITS if type(number := body.get(name)) is int and number > 0]
        most = min([self._most_tokens, *asked])
        limit = next((name for name in _TOKEN_LIMITS if name in body), _TOKEN_LIMITS[0])
        kept = {name: value for name, value in body.items() if name not in _TOKEN_LIMITS and value is not None}
        more = self._continue if continues else {}
        return {"temperature": self._temperature, **kept, limit: most, **self._extra, **more, "model": self._model}

    def _refuse(self, status: int, body: bytes) -> GatewayError:
        words = f"answers {status}: {self._describe(_decode(body))}"
        return InvalidRequest(f"the policy {words}") if status in _REQUEST_FAULTS else self.fail(words)

    def _describe(self, answer: object) -> str:
        words = self._connection.endpoint.credentials.redact(parse_server_error(answer).message)
        return words[:_LONGEST_WORDS] or "without a reason"

    def fail(self, words: str) -> Unavailable:
        """Without the server's address, which is not for players."""
        return Unavailable(f"the policy {self._name} {words}")

    def check_event(self, event: Chunk) -> Chunk:
        """Unavailable for one that tells of an error."""
        if event.get("error") or tells_error(event):
            raise self.fail(f"reports an error: {self._describe(event)}")
        return event


class PolicyReplyStream(ReplyStream):
    """Holds a place of its server's line until it is closed."""

    def __init__(self, server: ChatPolicyServer, reply: OpenReply, line: asyncio.Semaphore, seconds: float) -> None:
        self._server = server
        self._reply = reply
        self._line = line
        self._seconds = seconds
        self._events = iterate_events(reply.body)
        self._first: Chunk | None = None
        self._ended = self._closed = False

    async def read_first(self) -> None:
        first = await anext(self._events, None)
        if first is None:
            raise self._server.fail("ended its reply before it began")
        self._first = self._server.check_event(cast(Chunk, first))

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        if self._first is not None:
            yield self._first
        while True:
            try:
                async with asyncio.timeout(self._seconds):
                    event = await anext(self._events, None)
            except TimeoutError:
                raise self._server.fail(f"was silent for {self._seconds:g} s") from None
            except NoReply as error:
                raise self._server.fail(f"broke off: {error.reason}") from None
            if event is None:
                self._ended = True
                return
            yield self._server.check_event(cast(Chunk, event))

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._line.release()
            try:
                await self._events.aclose()
                if self._ended:
                    await self._read_end()
            finally:
                await self._reply.close()

    async def _read_end(self) -> None:
        """What a server sends behind the last event, so that the connection serves the next reply too."""
        with suppress(TimeoutError, NoReply):
            async with asyncio.timeout(_END_SECONDS):
                async for _ in self._reply.body:
                    pass


async def _read_start(reply: OpenReply) -> bytes:
    """Enough of an error to say what it is."""
    body = b""
    async for part in reply.body:
        body += part
        if len(body) > 64 * 1024:
            break
    return body


def _decode(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")[:_LONGEST_WORDS]
