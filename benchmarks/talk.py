"""The time before the first word of a streamed reply: through `/play/v1` in a world with events and a lorebook, beside
asking the policy's server directly with the same prompt. `python -m benchmarks.talk [EVENTS] [--record]` takes less
than a minute.
"""

import asyncio
import contextlib
import json
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import httpx

from benchmarks.chronicles import Chronicle
from benchmarks.game_context import WORLD, build_moment, fill
from benchmarks.results import BenchmarkFigure, read_arguments, run, tell_progress
from benchmarks.retrieval import percentile
from tests.support.serving import serving

EVENTS: Final = 10_000
MOMENTS: Final = 300
ROUNDS: Final = 3
"""Portions of the moments."""
WARM_UP: Final = 30
LIMIT_MILLISECONDS: Final = 50
"""What may be ours before the first word, of 95 replies in 100."""
_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass(frozen=True)
class Measured:
    """Seconds before the first word."""

    direct: Sequence[float]
    through: Sequence[float]


def measure_words(folder: Path, events: int = EVENTS) -> Measured:
    url = f"sqlite:///{folder / 'gateway.db'}"
    tell_progress(f"telling {events:,} events, then {MOMENTS} replies")
    asyncio.run(fill(url, events))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        policy = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        settings = {
            "ATROPOS_ENVS_DATABASE_URL": url,
            "ATROPOS_ENVS_POLICIES__WARM__BASE_URL": policy,
            "ATROPOS_ENVS_POLICIES__WARM__MODEL": "warm",
        }
        with serving(folder, python=sys.executable, settings=settings) as gateway:
            return asyncio.run(_measure(gateway.url, policy, listener))


async def _measure(gateway: str, policy: str, listener: socket.socket) -> Measured:
    server = await asyncio.start_server(_speak, sock=listener)
    async with server, httpx.AsyncClient(timeout=60) as client:
        listed = (await client.get(f"{gateway}/characters")).raise_for_status().json()
        chronicle = Chronicle(2)
        names = [one["id"] for one in listed["characters"]]
        direct: list[float] = []
        through: list[float] = []
        for number in range(WARM_UP + MOMENTS):
            moment = build_moment(chronicle, names, number)
            context = (await client.post(f"{gateway}/worlds/{WORLD}/context", json=moment)).raise_for_status()
            plain = {"model": "warm", "stream": True, "messages": context.json()["messages"]}
            direct.append(await _wait_for_word(client, f"{policy}/chat/completions", plain))
            through.append(await _wait_for_word(client, f"{gateway}/play/v1/chat/completions", _ask(moment)))
    return Measured(direct[WARM_UP:], through[WARM_UP:])


def _ask(moment: dict[str, object]) -> dict[str, object]:
    play = {name: value for name, value in moment.items() if name not in {"character", "conversation"}}
    model = f"{moment['character']}/{WORLD}@warm"
    return {"model": model, "stream": True, "messages": moment["conversation"], "play": play}


async def _wait_for_word(client: httpx.AsyncClient, url: str, body: dict[str, object]) -> float:
    began = time.perf_counter()
    first = 0.0
    async with client.stream("POST", url, json=body) as answer:
        async for line in answer.aiter_lines():
            if not first and "Aye" in line:
                first = time.perf_counter() - began
    return first


async def _speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A policy that answers at once."""
    choices: list[dict[str, object]] = [
        {"index": 0, "delta": {"role": "assistant", "content": "Aye."}, "finish_reason": None},
        {"index": 0, "delta": {}, "finish_reason": "stop"},
    ]
    events = [f"data: {json.dumps({'id': 'a', 'choices': [choice]})}\n\n" for choice in choices]
    body = "".join([*events, "data: [DONE]\n\n"]).encode()
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            await reader.readexactly(int(head.partition("content-length:")[2].split()[0]))
            writer.write(_HEAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
            await writer.drain()


def measure(events: int = EVENTS) -> list[BenchmarkFigure]:
    with tempfile.TemporaryDirectory() as folder:
        found = measure_words(Path(folder), events)
    return list(_list_figures([_cut(found, number) for number in range(ROUNDS)]))


def _cut(found: Measured, number: int) -> Measured:
    """Every so many moments, beginning with that one."""
    return Measured(found.direct[number::ROUNDS], found.through[number::ROUNDS])


def _list_figures(rounds: Sequence[Measured]) -> Iterator[BenchmarkFigure]:
    for name, attribute in (("from the policy's server", "direct"), ("through the service", "through")):
        for share in (0.5, 0.95):
            waits = [percentile(getattr(one, attribute), share) * 1e3 for one in rounds]
            yield BenchmarkFigure.of(f"first word of a reply, {name}, p{share * 100:.0f}", waits, "ms")
    ours = [(percentile(one.through, 0.95) - percentile(one.direct, 0.95)) * 1e3 for one in rounds]
    yield BenchmarkFigure.of("of that ours, at p95", ours, "ms", at_most=LIMIT_MILLISECONDS)


def main() -> None:
    words = read_arguments()
    events = next((word for word in words if word.isdigit()), str(EVENTS))
    run("talk", partial(measure, int(events)), words, "" if events == str(EVENTS) else events)


if __name__ == "__main__":
    main()
