"""Web sockets of OpenEnv's clients: one session each, with one answer per frame."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Final

from starlette.websockets import WebSocket, WebSocketDisconnect

from app.domain.errors import GatewayError, InvalidRequest, NotFound
from app.http.compat.openenv.frames import (
    Frame,
    FrameRefused,
    error_frame,
    observation_frame,
    read_frame,
    rpc_frame,
    state_frame,
)
from app.http.compat.openenv.rpc import answer_rpc
from app.http.compat.openenv.sessions import Playing, Session
from app.http.web.problems import MAX_DETAIL, shown

log = logging.getLogger(__name__)

_AWAY, _TRY_LATER, _RESTARTING = 1001, 1013, 1012
_FAULT: Final = "internal error; the service's log has the details"


class Conversations:
    """One per process. A session needs about as much memory as its transcript, so thousands at once are fine."""

    def __init__(self, playing: Playing, most: int, idle_seconds: float) -> None:
        self.playing = playing
        self._most = most
        self._idle = idle_seconds
        self.open = 0

    async def hold(self, socket: WebSocket) -> None:
        await socket.accept()
        with contextlib.suppress(WebSocketDisconnect):
            await self._admitted(socket, str(socket.path_params["env"]))

    async def _admitted(self, socket: WebSocket, environment: str) -> None:
        if environment not in self.playing.gateway.catalogue.classes:
            await _send(socket, error_frame("FACTORY_ERROR", f"there is no environment {shown(environment)!r}"))
            await socket.close()
            return
        if self.open >= self._most:
            message = f"{self.open} sessions are open, the maximum"
            refusal = error_frame("CAPACITY_REACHED", message, active_sessions=self.open, max_sessions=self._most)
            await _send(socket, refusal)
            await socket.close(_TRY_LATER)
            return
        self.open += 1
        try:
            await self._converse(socket, Session(environment, self.playing))
        finally:
            self.open -= 1

    async def _converse(self, socket: WebSocket, session: Session) -> None:
        mail = _Mail(socket)
        try:
            while True:
                text = await mail.next(self._idle)
                if text is None:
                    await socket.close(_AWAY, "idle timeout")
                    return
                try:
                    frame = read_frame(text)
                except FrameRefused as refused:
                    await _send(socket, error_frame(refused.code, refused.message))
                    continue
                if frame.type == "close":
                    await socket.close()
                    return
                await mail.unless_gone(_answer(socket, session, frame))
        finally:
            await mail.stop()


async def _answer(socket: WebSocket, session: Session, frame: Frame) -> None:
    """Sends exactly one frame, also on failures."""
    try:
        if frame.type == "step":
            async with session.stepped(frame.data) as stepped:
                await _send(socket, observation_frame(stepped))
            return
        if frame.type == "reset":
            answer = observation_frame(await session.reset(frame.data))
        elif frame.type == "mcp":
            answer = rpc_frame(answer_rpc(frame.data, session.tools))
        else:
            answer = state_frame(session.state)
    except WebSocketDisconnect:
        raise
    except Exception as error:
        answer = _refusal(error)
    await _send(socket, answer)


async def _send(socket: WebSocket, text: str) -> None:
    """Raises WebSocketDisconnect if the socket is closed."""
    try:
        await socket.send_text(text)
    except RuntimeError:
        raise WebSocketDisconnect(1006) from None


def _refusal(error: Exception) -> str:
    if isinstance(error, FrameRefused):
        return error_frame(error.code, error.message)
    if isinstance(error, GatewayError):
        place = "" if error.field is None else f"{error.field}: "
        mendable = isinstance(error, InvalidRequest | NotFound)
        return error_frame(
            "VALIDATION_ERROR" if mendable else "EXECUTION_ERROR", shown(f"{place}{error.detail}", MAX_DETAIL)
        )
    log.error("a frame could not be answered", exc_info=error)
    return error_frame("EXECUTION_ERROR", _FAULT)


class _Mail:
    """Incoming frames. They are also received while the last one is answered, so that a disconnect is noticed."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._reading: asyncio.Task[str | bytes] | None = None

    async def next(self, seconds: float) -> str | bytes | None:
        """The next frame; None after `seconds` without one. Raises WebSocketDisconnect if the client disconnected."""
        reading = self._read()
        done, _ = await asyncio.wait({reading}, timeout=seconds)
        if not done:
            return None
        self._reading = None
        return reading.result()

    async def unless_gone(self, answer: Coroutine[None, None, None]) -> None:
        """Awaits `answer`, and cancels it if the client disconnects; but not if the service is stopping."""
        answering, reading = asyncio.create_task(answer), self._read()
        try:
            await asyncio.wait({answering, reading}, return_when=asyncio.FIRST_COMPLETED)
            if not _went_away(reading):
                await asyncio.wait({answering})
        finally:
            answering.cancel()
            await asyncio.wait({answering})
        if not answering.cancelled():
            answering.result()

    def _read(self) -> "asyncio.Task[str | bytes]":
        if self._reading is None:
            self._reading = asyncio.create_task(self._received())
        return self._reading

    async def _received(self) -> str | bytes:
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1000))
        text: str | bytes | None = message.get("text")
        return text if text is not None else bytes(message.get("bytes") or b"")

    async def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)


def _went_away(reading: "asyncio.Task[str | bytes]") -> bool:
    error = reading.exception() if reading.done() and not reading.cancelled() else None
    return isinstance(error, WebSocketDisconnect) and error.code != _RESTARTING
