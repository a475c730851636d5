"""A policy's stream is closed, whatever becomes of who asked for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.types import Message

from app.features.play.routes import PolicyResponse, stop_with_client
from app.ports.play import Chunk, ReplyStream


class CountedStream(ReplyStream):
    def __init__(self) -> None:
        self.closed = 0

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        yield {}

    async def close(self) -> None:
        self.closed += 1


async def close(stream: CountedStream) -> None:
    await stream.close()


def build_client(*messages: Message) -> Request:
    left = list(messages)

    async def receive() -> Message:
        if not left:
            await asyncio.sleep(3600)
        return left.pop(0)

    return Request({"type": "http"}, receive)


async def fail(message: Message) -> None:
    raise OSError("the client is gone")


def test_a_reply_that_never_began_is_closed() -> None:
    async def write_events() -> AsyncIterator[bytes]:
        yield b"never sent"

    async def scenario() -> None:
        stream = CountedStream()
        scope = {"type": "http", "asgi": {"spec_version": "2.4"}}
        with pytest.raises(Exception, match=r"^$|gone"):
            await PolicyResponse(write_events(), stream, {})(scope, build_client().receive, fail)
        assert stream.closed == 1

    asyncio.run(scenario())


def test_a_stream_that_opens_although_nobody_waits_any_more_is_closed() -> None:
    async def open_late(stream: CountedStream, began: asyncio.Event) -> CountedStream:
        began.set()
        with suppress(asyncio.CancelledError):  # the stream was open already
            await asyncio.sleep(3600)
        return stream

    async def scenario() -> None:
        left, cancelled = CountedStream(), CountedStream()
        with pytest.raises(HTTPException):
            await stop_with_client(build_client({"type": "http.disconnect"}), open_late(left, asyncio.Event()), close)
        began = asyncio.Event()
        asking = asyncio.ensure_future(stop_with_client(build_client(), open_late(cancelled, began), close))
        await began.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (left.closed, cancelled.closed) == (1, 1)

    asyncio.run(scenario())
