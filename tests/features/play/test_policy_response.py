"""A policy's stream is closed, whatever becomes of who asked for it, and is never silent for long before it begins."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.types import Message

from app.features.play.routes import ComingReply, PolicyResponse, fill_silence
from app.ports.play import Chunk, ReplyStream


class CountedStream(ReplyStream):
    def __init__(self) -> None:
        self.closed = 0

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        yield {}

    async def close(self) -> None:
        self.closed += 1


def build_client(*messages: Message) -> Request:
    left = list(messages)

    async def receive() -> Message:
        if not left:
            await asyncio.sleep(3600)
        return left.pop(0)

    return Request({"type": "http"}, receive)


async def fail(message: Message) -> None:
    raise OSError("the client is gone")


async def open_late(stream: CountedStream, began: asyncio.Event) -> CountedStream:
    began.set()
    with suppress(asyncio.CancelledError):  # the stream was open already
        await asyncio.sleep(3600)
    return stream


async def test_a_reply_that_never_began_is_closed() -> None:
    async def write_events() -> AsyncIterator[bytes]:
        yield b"never sent"

    stream, began = CountedStream(), asyncio.Event()
    scope = {"type": "http", "asgi": {"spec_version": "2.4"}}
    coming = ComingReply(open_late(stream, began))
    await began.wait()
    with pytest.raises(Exception, match=r"^$|gone"):
        await PolicyResponse(write_events(), coming, {})(scope, build_client().receive, fail)
    assert stream.closed == 1


async def test_a_stream_that_opens_although_nobody_waits_any_more_is_closed() -> None:
    left, cancelled, began = CountedStream(), CountedStream(), asyncio.Event()
    with pytest.raises(HTTPException):
        await ComingReply(open_late(left, asyncio.Event())).wait(build_client({"type": "http.disconnect"}), 60)
    asking = asyncio.ensure_future(ComingReply(open_late(cancelled, began)).wait(build_client(), 60))
    await began.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (left.closed, cancelled.closed) == (1, 1)


@pytest.mark.parametrize("comments", [0, 1, 3])
async def test_comments_come_until_the_reply_begins(comments: int) -> None:
    async def write_after(begun: asyncio.Event) -> AsyncIterator[bytes]:
        await begun.wait()
        for text in ("Aye", "."):
            yield f"data: {text}\n\n".encode()

    events, reply_begins = list[str](), asyncio.Event()
    if not comments:
        reply_begins.set()
    async for event in fill_silence(write_after(reply_begins), 0.05):
        events.append(event.decode())
        if len(events) == comments:
            reply_begins.set()
    assert [one.partition(" ")[0] for one in events] == [*[":"] * comments, "data:", "data:"]
