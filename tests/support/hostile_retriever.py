"""A retriever's server that goes wrong as its path says: `python -m tests.support.hostile_retriever`.

It prints its port. `GET` tells which paths were posted to how often, and how many bytes each was sent; `PUT` mends a
path that waits for it.
"""

import contextlib
import gzip
import json
import socketserver
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

import httpx

from tests.support.serving import ROOT

Step = bytes | float
"""Bytes to send, or seconds to wait."""

MIB = 1024 * 1024


@dataclass(frozen=True)
class Posted:
    """`before`: how often the path was posted to before; `mended`: whether the test has said so."""

    before: int
    mended: bool
    query: Mapping[str, object]
    headers: Mapping[str, str]


def answer(body: bytes | object, status: str = "200 OK", **headers: str) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = {"content-type": "application/json", "content-length": str(len(content)), "connection": "close"}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + content


def passages(*texts: str, **more: object) -> dict[str, object]:
    return {"passages": [{"id": f"p{place}", "text": text} for place, text in enumerate(texts)], **more}


def good(posted: Posted) -> Iterator[Step]:
    yield answer(passages(f"News for {posted.query['character']}."))


def slow_headers(posted: Posted) -> Iterator[Step]:
    yield b"HTTP/1.1 200 OK\r\n"
    for number in range(120):
        yield 0.05
        yield f"x-{number}: wait\r\n".encode()
    yield 60.0


def slow_drip(posted: Posted) -> Iterator[Step]:
    whole = answer(passages("x" * 4000))
    for place in range(len(whole)):
        yield whole[place : place + 1]
        yield 0.02


def hang(posted: Posted) -> Iterator[Step]:
    yield 60.0


def huge(posted: Posted) -> Iterator[Step]:
    yield b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
    for _ in range(1024):
        yield b" " * MIB


@cache
def compressed() -> bytes:
    return gzip.compress(b" " * (256 * MIB), 1)


def bomb(posted: Posted) -> Iterator[Step]:
    yield answer(compressed(), content_encoding="gzip")


def many(posted: Posted) -> Iterator[Step]:
    yield answer(passages(*map(str, range(65))))


def failing_twice(posted: Posted) -> Iterator[Step]:
    yield answer({}, "500 Internal Server Error") if posted.before < 2 else answer(passages("News at last."))


def busy_twice(posted: Posted) -> Iterator[Step]:
    yield answer({}, "429 Too Many Requests", retry_after="0") if posted.before < 2 else answer(passages("Back."))


def echo(posted: Posted) -> Iterator[Step]:
    """What it was sent, key included, as the reason of a refusal."""
    yield answer({"error": posted.headers}, "403 Forbidden", x_key=posted.headers.get("authorization", ""))


def future(posted: Posted) -> Iterator[Step]:
    told = [
        {"id": "past", "text": "It rained.", "time": "2031-04-03T09:00:00Z"},
        {"id": "to-come", "text": "The bridge will fall.", "time": "2031-04-03T12:00:01+01:00"},
    ]
    yield answer({"passages": told, "as_of": "2031-04-03T11:00:00Z"})


def until_mended(posted: Posted) -> Iterator[Step]:
    if posted.mended:
        yield from good(posted)


def key(posted: Posted) -> Iterator[Step]:
    yield answer(passages(posted.headers.get("authorization", "")))


def always(*steps: Step) -> Callable[[Posted], Iterator[Step]]:
    return lambda posted: iter(steps)


BEHAVIOURS: Mapping[str, Callable[[Posted], Iterator[Step]]] = {
    "good": good,
    "slow-headers": slow_headers,
    "slow-drip": slow_drip,
    "hang": hang,
    "huge": huge,
    "bomb": bomb,
    "many": many,
    "failing-twice": failing_twice,
    "busy-twice": busy_twice,
    "echo": echo,
    "future": future,
    "until-mended": until_mended,
    "key": key,
    "silent": always(),
    "half": always(answer(passages("News."))[:-10]),
    "not-http": always(b"SSH-2.0-server\r\n"),
    "endless-head": always(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000),
    "failing": always(answer({}, "500 Internal Server Error")),
    "busy": always(answer({}, "429 Too Many Requests", retry_after="60")),
    "not-found": always(answer(b"<html>", "404 Not Found")),
    "unknown-world": always(answer({"error": "unknown_world"}, "404 Not Found")),
    "to-private": always(answer({}, "307 Temporary Redirect", location="http://169.254.169.254/latest")),
    "to-loopback": always(answer({}, "302 Found", location="/good")),
    "malformed": always(answer(b'{"passages": [{"id": "p"')),
    "long": always(answer(passages("x" * 8001))),
}


@dataclass
class Seen:
    posts: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    mended: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)


SEEN = Seen()


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        method, path, _ = self.rfile.readline().decode().split(" ")
        headers = {}
        while line := self.rfile.readline().decode().strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if method == "PUT":
            SEEN.mended.add(path)
        if method != "POST":
            self.wfile.write(answer({"posts": SEEN.posts, "sent": SEEN.sent}))
            return
        body = json.loads(self.rfile.read(int(headers["content-length"])))
        with SEEN.lock:
            posted = Posted(SEEN.posts[path], path in SEEN.mended, body["query"], headers)
            SEEN.posts[path] += 1
        with contextlib.suppress(OSError):
            for step in BEHAVIOURS[path.split("/")[1]](posted):
                if isinstance(step, float):
                    time.sleep(step)
                else:
                    self.wfile.write(step)
                    SEEN.sent[path] += len(step)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128


@dataclass(frozen=True)
class Hostile:
    port: int

    def url(self, behaviour: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}/{behaviour}"

    def posts(self, path: str) -> int:
        return int(self._seen()["posts"].get(f"/{path}", 0))

    def sent(self, path: str) -> int:
        return int(self._seen()["sent"].get(f"/{path}", 0))

    def mend(self, path: str) -> None:
        httpx.put(self.url(path), timeout=10)

    def _seen(self) -> dict[str, dict[str, int]]:
        seen: dict[str, dict[str, int]] = httpx.get(f"http://127.0.0.1:{self.port}/seen", timeout=10).json()
        return seen


@contextlib.contextmanager
def hostile_retriever() -> Iterator[Hostile]:
    command = [sys.executable, "-m", "tests.support.hostile_retriever"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Hostile(int(process.stdout.readline()))
        finally:
            process.kill()


if __name__ == "__main__":
    compressed()
    with _Server(("127.0.0.1", 0), _Handler) as server:
        sys.stdout.write(f"{server.server_address[1]}\n")
        sys.stdout.flush()
        server.serve_forever()
