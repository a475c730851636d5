"""A scripted server of OpenEnv's on a loopback socket, in a thread of this process and without their package.

Its episodes have three steps. What it shows and what it rewards are functions of the seed and of the words that were
sent, so a test computes what an episode earns (`count_reward`) and compares.
"""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from aiohttp import web

STEPS: Final = 3
"""Of an episode."""
_ACTION: Final = {"title": "Say", "properties": {"message": {"type": "string"}}, "required": ["message"]}


def show(seed: int, step: int, text: str = "") -> str:
    return f"Game {seed}: say something." if step == 0 else f"Game {seed}, step {step}: {text[::-1]}"


def find_reward(seed: int, step: int, text: str) -> float:
    """Of one step: a quarter or more, and as often below 0 as above 1."""
    return ((seed * 7 + step * 3 + len(text)) % 13 - 5) / 4


def count_reward(seed: int, texts: Sequence[str]) -> float:
    return sum(find_reward(seed, step, text) for step, text in enumerate(texts[:STEPS], start=1))


@dataclass
class Behaviour:
    """What the server does at one step of its episodes in place of the honest answer."""

    fault: str = ""
    """A name of `FAULTS`; none by default."""
    at: int = 2
    """The step; 0 for the reset."""
    times: float = float("inf")
    """How often; then it is honest."""
    seconds: float = 0.0
    """Each step takes so long."""
    places: int = 1000
    """Sessions at once; whoever comes when all are taken is told CAPACITY_REACHED."""
    handshake: int = 0
    """The status that sockets are refused with, while it is not 0."""
    ignores_seed: bool = False
    rewards_nothing: bool = False
    """Every reward is null."""
    pays: Callable[[Mapping[str, Any], str], float] | None = None
    """What a reply earns, by what the reset was given; its episodes have one step then."""


@dataclass
class ScriptedServer:
    url: str
    behaviour: Behaviour
    opened: int = 0
    """Sockets, ever."""
    live: int = 0
    most_live: int = 0
    steps: list[tuple[int, int, str]] = field(default_factory=list)
    """Seed, number and words of each step that came, in order."""


@dataclass
class _Episode:
    """One socket."""

    server: ScriptedServer
    socket: web.WebSocketResponse
    request: web.Request
    seed: int = 0
    step: int = 0
    given: Mapping[str, Any] = field(default_factory=dict)

    async def answer(self, frame: Mapping[str, Any]) -> None:
        data = frame.get("data", {})
        if frame["type"] == "reset":
            self.step, text, reward = 0, "", None
            self.seed = self.server.opened if self.server.behaviour.ignores_seed else data.get("seed", 0)
            self.given = data
        elif not isinstance(data.get("message"), str):
            return await self.refuse("VALIDATION_ERROR")
        else:
            self.step += 1
            text = data["message"]
            reward = self._find_reward(text)
            self.server.steps.append((self.seed, self.step, text))
            await asyncio.sleep(self.server.behaviour.seconds)
        shown = (
            {"prompt": show(self.seed, self.step, text), "messages": []}
            if self.step == 0
            else {"text": show(self.seed, self.step, text)}
        )
        reward = None if self.server.behaviour.rewards_nothing else reward
        await self._send({"observation": shown, "reward": reward, "done": self.step >= self._steps})

    @property
    def _steps(self) -> int:
        return STEPS if self.server.behaviour.pays is None else 1

    def _find_reward(self, text: str) -> float:
        pays = self.server.behaviour.pays
        return (
            find_reward(self.seed, self.step, text) if pays is None or "seed" in self.given else pays(self.given, text)
        )

    async def _send(self, data: dict[str, Any]) -> None:
        behaviour = self.server.behaviour
        if behaviour.fault and behaviour.at == self.step and behaviour.times > 0:
            behaviour.times -= 1
            await FAULTS[behaviour.fault](self, data)
        else:
            await self.observe(data)

    async def observe(self, data: Mapping[str, Any]) -> None:
        await self.socket.send_str(json.dumps({"type": "observation", "data": data}))  # NaN too, as Python writes it

    async def refuse(self, code: str) -> None:
        await self.socket.send_str(json.dumps({"type": "error", "data": {"code": code, "message": "no"}}))


_Fault = Callable[[_Episode, dict[str, Any]], Awaitable[None]]


async def _cut(episode: _Episode, _: dict[str, Any]) -> None:
    assert episode.request.transport is not None
    episode.request.transport.abort()


async def _be_late(episode: _Episode, data: dict[str, Any]) -> None:
    await asyncio.sleep(60)  # the gateway leaves before
    await episode.observe(data)


def _give(**wrong: Any) -> _Fault:
    return lambda episode, data: episode.observe(data | wrong)


def _say(text: str) -> _Fault:
    return lambda episode, _: episode.socket.send_str(text)


FAULTS: Final[Mapping[str, _Fault]] = MappingProxyType(
    {
        "cut": _cut,
        "late": _be_late,
        "broken": lambda episode, _: episode.refuse("EXECUTION_ERROR"),
        "refused": lambda episode, _: episode.refuse("VALIDATION_ERROR"),
        "session error": lambda episode, _: episode.refuse("SESSION_ERROR"),
        "garbage": _say("<html>502 Bad Gateway</html>"),
        "a list": _say("[]"),
        "no observation": _say('{"type": "observation", "data": null}'),
        "bytes": lambda episode, _: episode.socket.send_bytes(b"\xff\x00"),
        "too long": lambda episode, data: episode.observe(data | {"observation": {"text": "a" * 2**19}}),
        "nan": _give(reward=float("nan")),
        "infinity": _give(reward=float("inf")),
        "huge": _give(reward=1e300),
        "text": _give(reward="0.5"),
        "object": _give(reward={"score": 1}),
        "true": _give(reward=True),
        "null": _give(reward=None),
    }
)


async def _talk(server: ScriptedServer, request: web.Request) -> web.StreamResponse:
    if server.behaviour.handshake:
        return web.Response(status=server.behaviour.handshake, text="no")
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    episode = _Episode(server, socket, request)
    if server.live >= server.behaviour.places:
        await episode.refuse("CAPACITY_REACHED")
        await socket.close()
        return socket
    server.opened += 1
    server.live += 1
    server.most_live = max(server.live, server.most_live)
    try:
        async for message in socket:
            frame = json.loads(message.data)
            if frame["type"] == "close":
                break
            await episode.answer(frame)
    finally:
        server.live -= 1
    return socket


@contextmanager
def start(behaviour: Behaviour | None = None, port: int = 0, version: str = "1") -> Iterator[ScriptedServer]:
    """Until the context is left, which cuts every socket. With the same port, one comes after another."""
    server = ScriptedServer("", behaviour or Behaviour())
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(_serve(server, port, version), loop).result(30)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _serve(server: ScriptedServer, port: int, version: str) -> web.AppRunner:
    async def tell_metadata(_: web.Request) -> web.Response:
        return web.json_response({"name": "Scripted", "version": version})

    async def tell_schema(_: web.Request) -> web.Response:
        return web.json_response({"action": _ACTION, "observation": {}})

    async def talk(request: web.Request) -> web.StreamResponse:
        return await _talk(server, request)

    app = web.Application()
    app.add_routes([web.get("/metadata", tell_metadata), web.get("/schema", tell_schema), web.get("/ws", talk)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, backlog=2048)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    return runner
