"""Replies as streams of events, which are kept alive while the work goes on."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from fastapi import Response
from fastapi.responses import StreamingResponse

from app.domain.errors import GatewayError
from app.domain.values import Frozen

CHUNK: Final = 4096
"""Characters of an event: clients read lines of a limited length."""

PING_SECONDS: Final = 10
"""Clients take a stream that is silent for 30 seconds for lost."""


@dataclass(frozen=True)
class StreamResult:
    """What ends a stream, and what to do once it was sent or was not."""

    body: Frozen
    settle: Callable[[bool], Awaitable[None]] | None = None


def stream_result(task_id: str, work: Callable[[], Awaitable[StreamResult]]) -> Response:
    async def write() -> AsyncIterator[bytes]:
        yield write_event("task_id", task_id)
        job = asyncio.ensure_future(work())
        sent = False
        try:
            while not (await asyncio.wait((job,), timeout=PING_SECONDS))[0]:
                yield b": ping\n\n"
            for event in _write_end(job):
                yield event
            sent = True
        finally:
            await _settle(job, sent)

    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(write(), media_type="text/event-stream", headers=headers)


def _write_end(job: "asyncio.Future[StreamResult]") -> list[bytes]:
    try:
        return write_result(job.result().body)
    except GatewayError as error:
        return [write_event("error", " ".join(error.detail.split()))]


async def _settle(job: "asyncio.Future[StreamResult]", sent: bool) -> None:
    job.cancel()
    if job.done() and not job.cancelled() and job.exception() is None and (settle := job.result().settle) is not None:
        await settle(sent)


def write_event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {data}\n\n".encode()


def write_result(result: Frozen) -> list[bytes]:
    """The last events of a stream. No piece begins with a space, which clients would take off."""
    text = json.dumps(result.model_dump(mode="json"), separators=(",", ":"))
    pieces: list[str] = []
    while len(text) > CHUNK:
        cut = next((place for place in range(CHUNK, len(text)) if text[place] != " "), len(text))
        pieces.append(text[:cut])
        text = text[cut:]
    return [*(write_event("chunk", one) for one in pieces), write_event("end", text)]
