"""A load generator that costs little: requests encoded beforehand, sent over a few connections that stay open."""

import asyncio
import json
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import JsonValue


@dataclass(frozen=True)
class Load:
    seconds: float
    answers: tuple[bytes, ...]
    latencies: tuple[float, ...]

    def percentile(self, share: float) -> float:
        """Seconds that this share of the requests took at most."""
        return sorted(self.latencies)[min(len(self.latencies) - 1, int(share * len(self.latencies)))]


def post(path: str, body: JsonValue) -> bytes:
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


def send_all(url: str, requests: Sequence[bytes], connections: int, pause: float = 0.0) -> Load:
    """Every request once, each connection taking the next one `pause` seconds after it has its answer. RuntimeError for
    an answer other than 200."""
    return asyncio.run(_send_all(url, requests, connections, pause))


async def _send_all(url: str, requests: Sequence[bytes], connections: int, pause: float) -> Load:
    waiting = deque(enumerate(requests))
    answers: list[bytes] = [b""] * len(requests)
    latencies: list[float] = [0.0] * len(requests)
    address = urlsplit(url)

    async def work() -> None:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        while waiting:
            number, request = waiting.popleft()
            began = time.perf_counter()
            writer.write(request)
            answers[number] = await _answer(reader)
            latencies[number] = time.perf_counter() - began
            await asyncio.sleep(pause)
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(connections)))
    return Load(time.perf_counter() - began, tuple(answers), tuple(latencies))


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next(int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-length:"))
    body = await reader.readexactly(length)
    if " 200 " not in head.split("\r\n")[0]:
        raise RuntimeError(f"{head.splitlines()[0]}: {body[:300]!r}")
    return body
