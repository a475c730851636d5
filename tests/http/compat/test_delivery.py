"""When a batch counts as having gone out in full."""

import asyncio

import pytest
from starlette.types import Message

from app.http.compat.one_sample import Delivery

BODY = b"x" * 200_000


class Client:
    """Of an ASGI server: closes its connection once it has `leaves_after` bytes."""

    def __init__(self, leaves_after: int) -> None:
        self._leaves_after = leaves_after
        self.got = b""
        self.settled: list[bool] = []

    async def receive(self) -> Message:
        if len(self.got) < self._leaves_after:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if len(self.got) < self._leaves_after:
            self.got += message.get("body", b"")
        await asyncio.sleep(0)

    async def settle(self, sent: bool) -> None:
        self.settled.append(sent)


@pytest.mark.parametrize(
    ("body", "leaves_after", "sent"),
    [
        (BODY, len(BODY), True),
        (BODY, 100_000, False),
        (BODY, 0, False),
        (b'{"batch":null}', len(b'{"batch":null}'), True),
        (b'{"batch":null}', 0, False),
    ],
)
def test_who_leaves_with_everything_has_got_it(body: bytes, leaves_after: int, sent: bool) -> None:
    client = Client(leaves_after)
    asyncio.run(Delivery(body, {}, client.settle)({"type": "http"}, client.receive, client.send))
    assert (client.settled, client.got == body) == ([sent], sent)
