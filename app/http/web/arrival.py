"""Limits of requests while they arrive: size, encoding and time."""

import asyncio
from functools import partial
from typing import Any, cast

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.http.web.bodies import DEFAULT_MAX_BYTES
from app.http.web.problems import RefusedBody, build_problem_response

DEFAULT_SECONDS = 60.0


class BodyLimits:
    """Answers 413 to bodies over `max_bytes`, announced or streamed. Answers 415 to any `Content-Encoding`, because a
    few kilobytes can expand to gigabytes; paths that start with `inflating` decompress gzip themselves, within the
    limit. Answers 408 to bodies that have not arrived after `seconds`."""

    def __init__(
        self,
        app: ASGIApp,
        max_bytes: int = DEFAULT_MAX_BYTES,
        inflating: tuple[str, ...] = (),
        seconds: float = DEFAULT_SECONDS,
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._inflating = inflating
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding != "identity" and not (encoding == "gzip" and scope["path"].startswith(self._inflating)):
            detail = "Send the body uncompressed: Content-Encoding is not accepted."
            await build_problem_response(scope, 415, detail, headers={"Accept-Encoding": "identity"})(
                scope, receive, send
            )
            return
        announced = headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > self._max_bytes:
            await build_problem_response(scope, 413, self._detail)(scope, receive, send)
            return
        scope.setdefault("state", {})["max_body_bytes"] = self._max_bytes
        received, arriving, late = 0, True, False
        due = asyncio.get_running_loop().time() + self._seconds

        async def receive_limited() -> Message:
            nonlocal received, arriving, late
            if not arriving:
                return await receive()  # that the client has left
            try:
                async with asyncio.timeout_at(due):
                    message = await receive()
            except TimeoutError:
                late = True
                raise RefusedBody(408, self._late) from None
            received += len(message.get("body", b""))
            arriving = bool(message.get("more_body", False))
            if received > self._max_bytes:
                raise RefusedBody(413, self._detail)
            return message

        async def send_last(message: Message) -> None:
            if late and message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        await self._app(scope, receive_limited, send_last)

    @property
    def _detail(self) -> str:
        return f"The body is larger than {self._max_bytes} bytes (the setting `max_body_bytes`)."

    @property
    def _late(self) -> str:
        return f"The body did not arrive within {self._seconds:g} s (the setting `request_seconds`)."


_LATE_HEADERS = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b"
)


class TimedProtocol(HttpToolsProtocol):
    """Closes a connection whose headers, or the body that nobody reads any more, take longer than `seconds` to arrive.
    uvicorn waits for them without end."""

    _timer: asyncio.TimerHandle | None = None
    _answers_headers = False

    def __init__(self, *given: Any, seconds: float = DEFAULT_SECONDS, **named: Any) -> None:
        super().__init__(*given, **named)
        self.seconds = seconds

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._start_timer()  # even blank lines before a request keep a connection open
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._start_timer()
        self._answers_headers = True

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._start_timer()
        self._answers_headers = False

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._stop_timer()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(self.seconds, self._expire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._start_timer()  # it is being answered: BodyLimits measures its body
            return
        if self._answers_headers:
            detail = b"The headers did not arrive within %g s (the setting `request_seconds`)." % self.seconds
            self.transport.write(_LATE_HEADERS % (len(detail), detail))
        self.transport.close()


def create_timed_protocol(seconds: float) -> type[TimedProtocol]:
    """For uvicorn, which makes one for each connection itself, maybe in another process."""
    return cast(type[TimedProtocol], partial(TimedProtocol, seconds=seconds))
