"""Requests that arrive slowly: a real server and raw sockets."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn
from fastapi import FastAPI, Request

from app.http.web.api_keys import KeyRing
from app.http.web.middleware import MiddlewareOptions, create_timed_protocol, install_middleware
from tests.support.gateways import Gateways
from tests.support.serving import free_port

SECONDS = 0.4
POST = b"POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
UNREAD = POST.replace(b"/length", b"/nowhere")
SLOW = b"POST /slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


LARGE = b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = LARGE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
BUSY_SECONDS = 0.02
"""What a large reply takes of the loop."""


class Passes:
    """How often the loop turned between two large replies."""

    def __init__(self) -> None:
        self.count = 0
        self.between: list[int] = []

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.count += 1

    def note(self) -> None:
        self.between.append(self.count)
        self.count = 0


PASSES = Passes()


def create_app() -> FastAPI:
    app = FastAPI()

    @app.get("/large")
    async def write() -> str:
        counting = getattr(app.state, "counting", None)
        if counting is None:
            app.state.counting = asyncio.create_task(PASSES.run())
        PASSES.note()
        time.sleep(BUSY_SECONDS)  # noqa: ASYNC251  # as the writing of a large reply, which awaits nothing
        return "x" * 500_000

    @app.post("/length")
    async def count(request: Request) -> int:
        return len(await request.body())

    @app.post("/slow")
    async def wait(request: Request) -> int:
        length = len(await request.body())
        await asyncio.sleep(2 * SECONDS)
        return length

    install_middleware(app, MiddlewareOptions(KeyRing((), anonymous=True), request_seconds=SECONDS))
    return app


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    chosen = free_port()
    config = uvicorn.Config(create_app(), port=chosen, log_config=None, http=create_timed_protocol(SECONDS))
    server = uvicorn.Server(config)
    running = threading.Thread(target=server.run)
    running.start()
    while not server.started:
        time.sleep(0.01)
    yield chosen
    server.should_exit = True
    running.join()


def talk(port: int, first: bytes, trickle: bytes = b"") -> tuple[list[int], bool]:
    """The statuses of the answers until the server closed the connection, and whether it closed in time. `trickle` is
    sent over and over."""
    began = time.monotonic()
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=0.05) as connection:
        connection.sendall(first)
        while time.monotonic() - began < 10 * SECONDS:
            try:
                if not (part := connection.recv(65_536)):
                    break
                received += part
            except TimeoutError:
                if trickle:
                    connection.sendall(trickle)
            except ConnectionError:
                break
    statuses = [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]]
    return statuses, time.monotonic() - began < 5 * SECONDS


@pytest.mark.parametrize(
    ("first", "trickle", "statuses"),
    [
        (b"", b"", []),
        (b"", b"\r\n", []),
        (b"POST /length HTTP/1.1\r\nHost: loc", b"", [408]),
        (b"POST /length HTTP/1.1\r\nHost: loc", b"a", [408]),
        (POST, b"", [408]),
        (POST.replace(b" 9", b" 900"), b"a", [408]),
        (POST + b"123456789" + POST + b"1", b"", [200, 408]),
        (UNREAD.replace(b" 9", b" 900"), b"a", [404]),
        (SLOW, b"", [200]),
    ],
)
def test_what_arrives_late_is_refused_and_its_connection_closed(
    port: int, first: bytes, trickle: bytes, statuses: list[int]
) -> None:
    assert talk(port, first, trickle) == (statuses, True)


def test_the_limit_is_a_setting_that_the_refusal_names(gateways: Gateways) -> None:
    told = []
    url = gateways.of(ATROPOS_ENVS_REQUEST_SECONDS=str(SECONDS)).url
    for begun in (b"GET /livez HTTP/1.1\r\n", POST.replace(b"/length", b"/envs/countdown/score")):
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        with socket.create_connection(address, timeout=20) as connection, connection.makefile("rb") as answer:
            connection.sendall(begun)
            told.append(answer.read())
    assert [(b" 408 " in one, b"`request_seconds`" in one) for one in told] == [(True, True)] * 2


def test_large_replies_on_one_connection_leave_the_loop_to_others(port: int) -> None:
    """Requests that are sent without waiting for replies. A probe on another connection needs some turns of the loop:
    one of each was a large reply."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(LARGE * 19 + LAST)
        received = 0
        while part := connection.recv(1_000_000):
            received += len(part)
    assert (received > 20 * 500_000, len(PASSES.between), min(PASSES.between[2:]) > 50) == (True, 20, True)
