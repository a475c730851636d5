"""Resources servers as NeMo Gym 0.7.0 has them: one with tools and a state, or one with turns."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from aiohttp import web

Object = dict[str, Any]
COOKIE = "Counter___counter"


@dataclass(frozen=True)
class Given:
    """What a route answers in place of its own."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class ResourcesServer:
    """A counter, whose rows have `initial_count` and `expected_count`; or a game, whose rows have the `secret` that
    three guesses may find."""

    routes: Mapping[str, Callable[["ResourcesServer", str, Object], Object]]
    needs: Mapping[str, list[str]]
    """The columns of a row, by route."""
    mode: str = "unknown"
    given: dict[str, Given] = field(default_factory=dict)
    sets_cookies: bool = True
    deals: bool = False
    """Whether no two resets are alike."""
    ends_connections: bool = False
    """Whether each answer is the last of its connection, and says so."""
    version: str = "0.1.0"
    port: int = 0
    sessions: dict[str, Object] = field(default_factory=dict)
    received: list[tuple[str, Object]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    """What stood in `authorization`, by request."""
    awake: asyncio.Event = field(default_factory=asyncio.Event)
    """Until then it answers nothing but what it is."""
    numbers: "count[int]" = field(default_factory=count)
    runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self.awake.set()
        app = web.Application()
        app.router.add_get("/openapi.json", self.describe)
        app.router.add_get("/reverify_mode", self.tell_mode)
        app.router.add_post("/{route}", self.answer)
        app.on_response_prepare.append(self.prepare)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self.runner.addresses[0][1]

    async def stop(self) -> None:
        assert self.runner is not None
        await self.runner.cleanup()

    async def restart(self) -> None:
        """Its sessions lived in the process."""
        await self.stop()
        self.sessions.clear()
        await self.start()

    async def describe(self, _: web.Request) -> web.Response:
        paths: Object = {"/reverify_mode": {"get": {}}} if "verify" in self.routes else {}
        schemas: Object = {}
        for route in self.routes:
            schema = {"$ref": f"#/components/schemas/{route}"}
            paths[f"/{route}"] = {"post": {"requestBody": {"content": {"application/json": {"schema": schema}}}}}
            schemas[route] = {"required": [*self.needs.get(route, ()), "responses_create_params"]}
        info = {"title": "FastAPI", "version": self.version}
        return web.json_response({"info": info, "paths": paths, "components": {"schemas": schemas}})

    async def prepare(self, _: web.Request, response: web.StreamResponse) -> None:
        if self.ends_connections:
            response.force_close()
            response.headers["connection"] = "close"

    async def tell_mode(self, _: web.Request) -> web.Response:
        return web.json_response(self.mode)

    async def answer(self, request: web.Request) -> web.Response:
        route, body = request.match_info["route"], await request.json()
        self.received.append((route, body))
        self.keys.append(request.headers.get("authorization", ""))
        await self.awake.wait()
        session = self._find_session(request)
        if (given := self.given.get(route)) is not None:
            response = web.Response(status=given.status, body=given.body, headers=dict(given.headers))
        elif route not in self.routes:
            response = web.json_response({"detail": "Not Found"}, status=404)
        elif lacking := [name for name in self.needs.get(route, ()) if name not in body]:
            detail = [{"type": "missing", "loc": ["body", name], "msg": "Field required"} for name in lacking]
            response = web.json_response({"detail": detail}, status=422)
        else:
            response = web.json_response(self.routes[route](self, session, body))
        if self.sets_cookies and "set-cookie" not in response.headers:
            held = base64.b64encode(json.dumps({"session_id": session}).encode()).decode()
            response.headers.add("set-cookie", f"{COOKIE}={held}.time.signature; path=/; httponly")
        return response

    def _find_session(self, request: web.Request) -> str:
        held = request.cookies.get(COOKIE)
        if held is None:
            return f"session-{next(self.numbers)}"
        return str(json.loads(base64.b64decode(held.partition(".")[0]))["session_id"])


def _seed(server: ResourcesServer, session: str, row: Object) -> Object:
    server.sessions[session] = {"count": row["initial_count"]}
    return {}


def _increment(server: ResourcesServer, session: str, body: Object) -> Object:
    server.sessions.setdefault(session, {"count": 0})["count"] += body["count"]
    return {"success": True}


def _verify(server: ResourcesServer, session: str, row: Object) -> Object:
    """As NeMo Gym's own counter: 0 for a session that it does not know."""
    reward = float(session in server.sessions and server.sessions[session]["count"] == row["expected_count"])
    return {**row, "reward": reward, "mask_sample": False, "failure_kind": None, "reward_components": {"count": reward}}


def _reset(server: ResourcesServer, session: str, row: Object) -> Object:
    server.sessions[session] = {"guesses": 0}
    dealt = f" Round {next(server.numbers)}." if server.deals else ""
    return {"observation": f"Guess a letter.{dealt}", "info": {"secret": row["secret"]}}


def _step(server: ResourcesServer, session: str, row: Object) -> Object:
    items = row["response"]["output"]
    said = "".join(part["text"] for item in items if item["type"] == "message" for part in item["content"])
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    state = server.sessions.setdefault(session, {"guesses": 0})
    state["guesses"] += 1
    right = said == row["secret"]
    return {
        "observation": f"Not {said}.",
        "reward": 1.0 if right else -0.25,
        "terminated": right,
        "truncated": state["guesses"] == 3,
        "info": {"tool_outputs": [{"call_id": one, "output": "no hints"} for one in calls]},
    }


def make_counter(**more: Any) -> ResourcesServer:
    routes = {"seed_session": _seed, "increment_counter": _increment, "verify": _verify}
    needs = {
        "seed_session": ["initial_count"],
        "increment_counter": ["count"],
        "verify": ["expected_count", "response"],
    }
    return ResourcesServer(routes, needs, **more)


def make_guess(**more: Any) -> ResourcesServer:
    return ResourcesServer({"reset": _reset, "step": _step}, {"reset": ["secret"], "step": ["response"]}, **more)


@asynccontextmanager
async def serving(server: ResourcesServer) -> AsyncIterator[ResourcesServer]:
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
