"""Web sockets of OpenEnv's clients: one session each, with one answer per frame."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Final

from starlette.websockets import WebSocket, WebSocketDisconnect

from app.domain.errors import GatewayError, InvalidRequest, NotFound
from app.domain.suggestions import suggest
from app.http.compat.openenv.episodes import DroppedEpisodes
from app.http.compat.openenv.frames import (
    Frame,
    FrameRefused,
    asks_for_tools,
    build_error_frame,
    build_listing_frame,
    build_observation_frame,
    build_rpc_frame,
    build_state_frame,
    read_frame,
)
from app.http.compat.openenv.rpc import answer_rpc
from app.http.compat.openenv.sessions import OpenEnvSession, SessionContext
from app.http.web.api_keys import find_caller
from app.http.web.problems import MAX_DETAIL, make_printable

log = logging.getLogger(__name__)

_AWAY, _TRY_LATER, _RESTARTING = 1001, 1013, 1012
_FAULT: Final = "internal error; the service's log has the details"


class SessionServer:
    """One per process. A session needs about as much memory as its transcript, so thousands at once are fine."""

    def __init__(self, playing: SessionContext, most: int, idle_seconds: float) -> None:
        self.playing = playing
        self._most = most
        self._idle = idle_seconds
        self._dropped = DroppedEpisodes(most, idle_seconds)
        self.open = 0

    async def serve_socket(self, socket: WebSocket) -> None:
        await socket.accept()
        with contextlib.suppress(WebSocketDisconnect):
            await self._admit(socket, str(socket.path_params["env"]))

    async def _admit(self, socket: WebSocket, environment: str) -> None:
        known = self.playing.gateway.catalogue.classes
        if environment not in known:
            message = f"there is no environment {make_printable(environment)!r}{suggest(environment, known)}"
            await _send_text(socket, build_error_frame("FACTORY_ERROR", message))
            await socket.close()
            return
        if self.open >= self._most:
            message = f"{self.open} sessions are open, the maximum"
            refusal = build_error_frame("CAPACITY_REACHED", message, active_sessions=self.open, max_sessions=self._most)
            await _send_text(socket, refusal)
            await socket.close(_TRY_LATER)
            return
        self.open += 1
        try:
            await self._serve_session(
                socket,
                OpenEnvSession(environment, self.playing, dropped=self._dropped, caller=find_caller(socket.scope)),
            )
        finally:
            self.open -= 1

    async def _serve_session(self, socket: WebSocket, session: OpenEnvSession) -> None:
        mail = _Inbox(socket)
        try:
            while True:
                text = await mail.receive_next(self._idle)
                if text is None:
                    await socket.close(_AWAY, "idle timeout")
                    return
                try:
                    frame = read_frame(text)
                except FrameRefused as refused:
                    await _send_text(socket, build_error_frame(refused.code, refused.message))
                    continue
                if frame.type == "close":
                    session.drop_episode(lost=False)
                    await socket.close()
                    return
                await mail.run_while_connected(_answer_frame(socket, session, frame))
        finally:
            session.drop_episode(lost=True)
            await mail.stop()


async def _answer_frame(socket: WebSocket, session: OpenEnvSession, frame: Frame) -> None:
    """Sends exactly one frame, also on failures."""
    try:
        if frame.type == "step" and not asks_for_tools(frame.data):
            async with session.step(frame.data) as stepped:
                await _send_text(socket, build_observation_frame(stepped))
            return
        if frame.type == "reset":
            answer = build_observation_frame(await session.reset(frame.data))
        elif frame.type == "step":
            answer = build_listing_frame(session.tools)
        elif frame.type == "mcp":
            answer = build_rpc_frame(answer_rpc(frame.data, session.tools))
        else:
            answer = build_state_frame(session.state)
    except WebSocketDisconnect:
        raise
    except Exception as error:
        answer = _build_refusal(error)
    await _send_text(socket, answer)


async def _send_text(socket: WebSocket, text: str) -> None:
    """Raises WebSocketDisconnect if the socket is closed."""
    try:
        await socket.send_text(text)
    except RuntimeError:
        raise WebSocketDisconnect(1006) from None


def _build_refusal(error: Exception) -> str:
    if isinstance(error, FrameRefused):
        return build_error_frame(error.code, error.message)
    if isinstance(error, GatewayError):
        place = "" if error.field is None else f"{error.field}: "
        mendable = isinstance(error, InvalidRequest | NotFound)
        return build_error_frame(
            "VALIDATION_ERROR" if mendable else "EXECUTION_ERROR", make_printable(f"{place}{error.detail}", MAX_DETAIL)
        )
    log.error("a frame could not be answered", exc_info=error)
    return build_error_frame("EXECUTION_ERROR", _FAULT)


class _Inbox:
    """Incoming frames. They are also received while the last one is answered, so that a disconnect is noticed."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._reading: asyncio.Task[str | bytes] | None = None

    async def receive_next(self, seconds: float) -> str | bytes | None:
        """The next frame; None after `seconds` without one. Raises WebSocketDisconnect if the client disconnected."""
        reading = self._start_receiving()
        done, _ = await asyncio.wait({reading}, timeout=seconds)
        if not done:
            return None
        self._reading = None
        return reading.result()

    async def run_while_connected(self, answer: Coroutine[None, None, None]) -> None:
        """Awaits `answer`, and cancels it if the client disconnects; but not if the service is stopping."""
        answering, reading = asyncio.create_task(answer), self._start_receiving()
        try:
            await asyncio.wait({answering, reading}, return_when=asyncio.FIRST_COMPLETED)
            if not _has_left(reading):
                await asyncio.wait({answering})
        finally:
            answering.cancel()
            await asyncio.wait({answering})
        if not answering.cancelled():
            answering.result()

    def _start_receiving(self) -> "asyncio.Task[str | bytes]":
        if self._reading is None:
            self._reading = asyncio.create_task(self._receive())
        return self._reading

    async def _receive(self) -> str | bytes:
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1000))
        text: str | bytes | None = message.get("text")
        return text if text is not None else bytes(message.get("bytes") or b"")

    async def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)


def _has_left(reading: "asyncio.Task[str | bytes]") -> bool:
    error = reading.exception() if reading.done() and not reading.cancelled() else None
    return isinstance(error, WebSocketDisconnect) and error.code != _RESTARTING
