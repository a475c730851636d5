"""`/compat/openenv/{env}`: a server like OpenEnv's own for each environment, over a web socket and over HTTP.

A web socket is one session, with one answer per frame. HTTP requests are stateless: the caller keeps the episode and
sends the whole of it with every step. MCP lists a task's tools; the model calls them in a step.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from copy import copy
from functools import cache, cached_property
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Request, Response
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from starlette.websockets import WebSocket, WebSocketDisconnect

from app.domain.access import Caller
from app.domain.errors import GatewayError, InvalidRequest, NotFound, RequestRefused, Unavailable
from app.domain.faults import make_printable
from app.domain.tasks import Message, ToolSpec
from app.domain.values import Described, FiniteJson, Frozen, suggest
from app.http.compat.kept_sessions import (
    SPLITS,
    SplitEntry,
    SplitReference,
    TaskCount,
    TaskLister,
    TaskListing,
    TaskRange,
    TaskReference,
    TaskReply,
    require_size,
)
from app.http.compat.one_sample import CLIENT_CLOSED_REQUEST, Delivery, wait_while_connected
from app.http.compat.openenv.sessions import (
    DroppedEpisodes,
    Frame,
    FrameRefused,
    NotScored,
    Observation,
    OpenEnvAction,
    OpenEnvEpisode,
    OpenEnvSession,
    Reset,
    SessionContext,
    State,
    StepResult,
    asks_for_tools,
    build_error_frame,
    build_listing_frame,
    build_observation_frame,
    build_rpc_frame,
    build_state_frame,
    read_any_frame,
    read_reset,
    write_tool_listing,
)
from app.http.web.api_keys import declare_access, find_caller
from app.http.web.problems import MAX_DETAIL, RefusedBody
from app.http.web.routes import JsonRoute, LazyRoute
from app.ports.environment import Environment

# MCP.

_INVALID_REQUEST: Final = -32600
_METHOD_NOT_FOUND: Final = -32601
_PARSE_ERROR: Final = -32700

_NOT_A_REQUEST = 'expected {"jsonrpc": "2.0", "method": …, "id": …}'
_NO_METHOD = "only tools/list is supported; the model calls tools in a step"


def _answer_rpc(request: JsonValue, tools: Sequence[ToolSpec]) -> str:
    """Answers a JSON-RPC 2.0 request. `tools` are those of the current task, if there is one."""
    if not isinstance(request, dict) or request.get("jsonrpc") != "2.0" or not isinstance(request.get("method"), str):
        return _build_rpc_error(None, _INVALID_REQUEST, _NOT_A_REQUEST)
    request_id = request.get("id")
    identity = request_id if isinstance(request_id, str | int) else None
    if request["method"] != "tools/list":
        return _build_rpc_error(identity, _METHOD_NOT_FOUND, _NO_METHOD)
    listed = [
        {"name": tool.function.name, "description": tool.function.description, "inputSchema": tool.function.parameters}
        for tool in tools
    ]
    return json.dumps({"jsonrpc": "2.0", "id": identity, "result": {"tools": listed}})


def _build_rpc_error(identity: JsonValue, code: int, message: str) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": identity, "error": {"code": code, "message": message}})


# HTTP: facts, tasks, and episodes that the caller keeps.

_API_VERSION: Final = "1.0.0"
"""Of OpenEnv's HTTP interface."""

_DOCUMENT: Final = "/openapi.json"


class Healthy(Frozen):
    status: Literal["healthy"] = "healthy"


class ServerMetadata(Frozen):
    name: str
    description: str
    version: str
    readme_content: str | None = None
    author: str | None = None
    documentation_url: str | None = None


class Schemas(Frozen):
    action: dict[str, JsonValue]
    observation: dict[str, JsonValue]
    reset_observation: dict[str, JsonValue]
    state: dict[str, JsonValue]
    reset: dict[str, JsonValue]


class ResetBody(BaseModel):
    """The fields of a reset."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, FiniteJson]


class StepBody(Described):
    """HTTP requests are stateless: `task_id` and `messages` carry the whole episode so far. Other fields are those of a
    reset."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, FiniteJson]

    action: dict[str, JsonValue]
    messages: Annotated[tuple[Message, ...], Field(max_length=1000)] = ()
    """All messages after the prompt, observations included, without the action."""
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Not used."""
    request_id: Annotated[str, Field(max_length=255)] | None = None
    """Not used: equal steps get equal answers."""


class _PlainHttpRoutes:
    """The routes of all environments under a prefix that ends in `{env}`."""

    def __init__(self, prefix: str, context: SessionContext, describe: Callable[[type[Environment]], str]) -> None:
        self.router = APIRouter(prefix=prefix, route_class=JsonRoute, include_in_schema=False)
        self._prefix = prefix
        self._context = context
        self._catalogue = context.catalogue
        self._describe = describe
        self._lister = TaskLister(context.catalogue)
        for add in (self._add_facts, self._add_episodes, self._add_listing, self._add_tasks):
            add(self.router)
        self.router.add_api_route(_DOCUMENT, self._serve_openapi)

    async def _serve_openapi(self, env: str) -> Response:
        self._catalogue.require_known(env)
        document = {**self._document, "info": {"title": f"{env} over OpenEnv's interface", "version": _API_VERSION}}
        return Response(json.dumps(document), media_type="application/json")

    @cached_property
    def _document(self) -> dict[str, Any]:
        """The OpenAPI document of one environment's server, without the prefix and the `env` parameter. No other
        document shows these routes."""
        listed = [one for one in self.router.routes if isinstance(one, LazyRoute)]
        for route in listed:
            route.build()
        shown = [copy(route) for route in listed if route.path != self._prefix + _DOCUMENT]
        for route in shown:
            route.include_in_schema = True
        document = get_openapi(title="", version=_API_VERSION, routes=shown)
        document["paths"] = {path.removeprefix(self._prefix): item for path, item in document["paths"].items()}
        for operation in (operation for item in document["paths"].values() for operation in item.values()):
            operation["parameters"] = [one for one in operation.get("parameters", ()) if one["name"] != "env"]
        return document

    def _add_facts(self, router: APIRouter) -> None:
        @router.get("/health")
        async def health(env: str) -> Healthy:
            self._catalogue.get_environment_or_current(env)
            return Healthy()

        @router.get("/metadata")
        async def metadata(env: str) -> ServerMetadata:
            self._catalogue.require_known(env)
            environment = self._catalogue.classes[env]
            return ServerMetadata(name=env, description=self._describe(environment), version=environment.version)

        @router.get("/schema")
        async def schema(env: str) -> Schemas:
            self._catalogue.require_known(env)
            return _build_schemas()

        @router.post("/mcp")
        async def mcp(env: str, request: Request) -> Response:
            self._catalogue.require_known(env)
            try:
                answer = _answer_rpc(await request.json(), ())
            except RefusedBody:
                answer = _build_rpc_error(None, _PARSE_ERROR, "invalid JSON")
            return Response(answer, media_type="application/json")

    def _add_episodes(self, router: APIRouter) -> None:
        @router.post("/reset")
        async def reset(env: str, request: Request, body: ResetBody) -> StepResult:
            self._catalogue.require_known(env)
            try:
                caller = find_caller(request.scope)
                return await OpenEnvSession(env, self._context, caller=caller).reset(body.model_extra or {})
            except FrameRefused as refused:
                raise _to_gateway_error(refused) from None

        @router.post("/step", response_model=StepResult)
        async def step(env: str, request: Request, body: StepBody) -> Response:
            self._catalogue.require_known(env)
            wants_tools = asks_for_tools(body.action)
            try:
                bare, caller = wants_tools and not body.model_extra, find_caller(request.scope)
                episode = None if bare else await _restore_episode(env, body, self._context, caller)
                session = OpenEnvSession(env, self._context, episode)
                if wants_tools:
                    return Response(write_tool_listing(session.tools), media_type="application/json")
                return await _deliver_step(session, body.action, request)
            except FrameRefused as refused:
                raise _to_gateway_error(refused) from None

        @router.get("/state")
        async def state(env: str) -> State:
            self._catalogue.require_known(env)
            return OpenEnvSession(env, self._context).state

    def _add_listing(self, router: APIRouter) -> None:
        @router.get("/list_environments")
        async def list_environments(env: str) -> list[str]:
            self._catalogue.require_known(env)
            return [env]

        @router.get("/{name}/splits")
        async def splits(env: str, name: str) -> list[SplitEntry]:
            self._require_same(env, name)
            return SPLITS

        @router.post("/{name}/num_tasks")
        async def num_tasks(env: str, name: str, body: SplitReference) -> TaskCount:
            self._require_same(env, name)
            return TaskCount(num_tasks=require_size(self._lister.count_tasks(env, body.split, {})))

    def _add_tasks(self, router: APIRouter) -> None:
        """Tasks are named by split and index, which a reset accepts."""

        @router.post("/{name}/tasks")
        async def tasks(env: str, name: str, body: SplitReference) -> TaskListing:
            self._require_same(env, name)
            return self._lister.list_tasks(env, TaskRange(split=body.split), {})

        @router.post("/{name}/task")
        async def task(env: str, name: str, body: TaskReference) -> TaskReply:
            self._require_same(env, name)
            return self._lister.get_task(env, body, {})

        @router.post("/{name}/task_range")
        async def task_range(env: str, name: str, body: TaskRange) -> TaskListing:
            self._require_same(env, name)
            return self._lister.list_tasks(env, body, {})

    def _require_same(self, environment: str, name: str) -> None:
        self._catalogue.require_known(environment)
        if name != environment:
            raise NotFound(f"this URL serves {environment}, not {name!r}")


@cache
def _build_schemas() -> Schemas:
    return Schemas(
        action=OpenEnvAction.model_json_schema(),
        observation=Observation.model_json_schema(),
        reset_observation=Observation.model_json_schema(),
        state=State.model_json_schema(),
        reset=Reset.model_json_schema(),
    )


async def _deliver_step(session: OpenEnvSession, action: dict[str, JsonValue], request: Request) -> Response:
    """Sends the step's result. The step counts as answered once it was sent in full; a client that disconnects before
    has left."""
    held = AsyncExitStack()

    async def settle(sent: bool) -> None:
        with suppress(ConnectionError):
            if not sent:  # an error in the session's context leaves the episode as it was
                held.callback(_raise_client_left)
            await held.aclose()

    stepping = asyncio.ensure_future(held.enter_async_context(session.step(action)))
    try:
        stepped = await wait_while_connected(stepping, request)
    except BaseException:  # cancelled too
        await settle(False)
        raise
    if stepped is None:
        await settle(False)
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    return Delivery(stepped.model_dump_json().encode(), {}, settle)


def _raise_client_left() -> None:
    raise ConnectionError("the client left")


async def _restore_episode(env: str, body: StepBody, context: SessionContext, caller: Caller | None) -> OpenEnvEpisode:
    reset = read_reset(body.model_extra or {})
    if reset.task_id is None:
        raise InvalidRequest(
            "HTTP requests are stateless: send `task_id` and, in `messages`, the episode so far; or use the web socket",
            field="body.task_id",
        )
    task = await context.assigner.assign_task(env, reset, caller)
    steps = sum(message.role == "assistant" for message in body.messages)
    if steps >= task.max_turns:
        raise InvalidRequest("the episode has no turns left", field="body.messages")
    return OpenEnvEpisode(task, reset, reset.episode_id or "", body.messages, steps)


def _to_gateway_error(refused: FrameRefused) -> GatewayError:
    if isinstance(refused, NotScored):
        return Unavailable(refused.message)
    return RequestRefused(refused.message) if refused.code == "EXECUTION_ERROR" else InvalidRequest(refused.message)


# Web sockets.

log = logging.getLogger(__name__)

_AWAY, _TRY_LATER, _RESTARTING = 1001, 1013, 1012
"""Codes that close a web socket."""
_FAULT: Final = "internal error; the service's log has the details"


class SessionServer:
    """One per process. A session needs about as much memory as its transcript, so thousands at once are fine."""

    def __init__(self, context: SessionContext, most: int, idle_seconds: float) -> None:
        self.context = context
        self._most = most
        self._idle = idle_seconds
        self._dropped = DroppedEpisodes(most, idle_seconds)
        self.open = 0

    async def serve_socket(self, socket: WebSocket) -> None:
        await socket.accept()
        with contextlib.suppress(WebSocketDisconnect):
            await self._admit(socket, str(socket.path_params["env"]))

    async def _admit(self, socket: WebSocket, environment: str) -> None:
        environments = self.context.catalogue.classes
        if environment not in environments:
            message = f"there is no environment {make_printable(environment)!r}{suggest(environment, environments)}"
            await _send_text(socket, build_error_frame("FACTORY_ERROR", message))
            await socket.close()
            return
        if self.open >= self._most:
            message = f"{self.open} sessions are open, the maximum"
            refusal = build_error_frame("CAPACITY_REACHED", message, active_sessions=self.open, max_sessions=self._most)
            await _send_text(socket, refusal)
            await socket.close(_TRY_LATER)
            return
        self.open += 1
        try:
            await self._serve_session(
                socket,
                OpenEnvSession(environment, self.context, dropped=self._dropped, caller=find_caller(socket.scope)),
            )
        finally:
            self.open -= 1

    async def _serve_session(self, socket: WebSocket, session: OpenEnvSession) -> None:
        inbox = _Inbox(socket)
        try:
            while True:
                text = await inbox.receive_next(self._idle)
                if text is None:
                    await socket.close(_AWAY, "idle timeout")
                    return
                try:
                    frame = await read_any_frame(text)
                except FrameRefused as refused:
                    await _send_text(socket, build_error_frame(refused.code, refused.message))
                    continue
                if frame.type == "close":
                    session.drop_episode(lost=False)
                    await socket.close()
                    return
                await inbox.run_while_connected(_answer_frame(socket, session, frame))
        finally:
            session.drop_episode(lost=True)
            await inbox.stop()


async def _answer_frame(socket: WebSocket, session: OpenEnvSession, frame: Frame) -> None:
    """Sends exactly one frame, also on failures."""
    try:
        if frame.type == "step" and not asks_for_tools(frame.data):
            async with session.step(frame.data) as stepped:
                await _send_text(socket, build_observation_frame(stepped))
            return
        if frame.type == "reset":
            answer = build_observation_frame(await session.reset(frame.data))
        elif frame.type == "step":
            answer = build_listing_frame(session.tools)
        elif frame.type == "mcp":
            answer = build_rpc_frame(_answer_rpc(frame.data, session.tools))
        else:
            answer = build_state_frame(session.state)
    except WebSocketDisconnect:
        raise
    except Exception as error:
        answer = _build_refusal(error)
    await _send_text(socket, answer)


async def _send_text(socket: WebSocket, text: str) -> None:
    """Raises WebSocketDisconnect if the socket is closed."""
    try:
        await socket.send_text(text)
    except RuntimeError:  # what Starlette raises for a send after the close
        raise WebSocketDisconnect(1006) from None


def _build_refusal(error: Exception) -> str:
    if isinstance(error, FrameRefused):
        return build_error_frame(error.code, error.message)
    if isinstance(error, GatewayError):
        prefix = "" if error.field is None else f"{error.field}: "
        mendable = isinstance(error, InvalidRequest | NotFound)
        return build_error_frame(
            "VALIDATION_ERROR" if mendable else "EXECUTION_ERROR", make_printable(f"{prefix}{error.detail}", MAX_DETAIL)
        )
    log.error("a frame could not be answered", exc_info=error)
    return build_error_frame("EXECUTION_ERROR", _FAULT)


class _Inbox:
    """Incoming frames. They are also received while the last one is answered, so that a disconnect is noticed."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._reading: asyncio.Task[str | bytes] | None = None

    async def receive_next(self, seconds: float) -> str | bytes | None:
        """The next frame; None after `seconds` without one. Raises WebSocketDisconnect if the client disconnected."""
        reading = self._start_receiving()
        done, _ = await asyncio.wait({reading}, timeout=seconds)
        if not done:
            return None
        self._reading = None
        return reading.result()

    async def run_while_connected(self, answer: Coroutine[None, None, None]) -> None:
        """Awaits `answer`, and cancels it if the client disconnects; but not if the service is stopping."""
        answering, reading = asyncio.create_task(answer), self._start_receiving()
        try:
            await asyncio.wait({answering, reading}, return_when=asyncio.FIRST_COMPLETED)
            if not _has_left(reading):
                await asyncio.wait({answering})
        finally:
            answering.cancel()
            await asyncio.wait({answering})
        if not answering.cancelled():
            answering.result()

    def _start_receiving(self) -> "asyncio.Task[str | bytes]":
        if self._reading is None:
            self._reading = asyncio.create_task(self._receive())
        return self._reading

    async def _receive(self) -> str | bytes:
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1000))
        text: str | bytes | None = message.get("text")
        return text if text is not None else bytes(message.get("bytes") or b"")

    async def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)


def _has_left(reading: "asyncio.Task[str | bytes]") -> bool:
    error = reading.exception() if reading.done() and not reading.cancelled() else None
    return isinstance(error, WebSocketDisconnect) and error.code != _RESTARTING


# The router.

_PREFIX = "/compat/openenv/{env}"


def create_openenv_router(sessions: SessionServer, describe: Callable[[type[Environment]], str]) -> APIRouter:
    """The web socket at `{env}/ws` and the HTTP routes. These have their own OpenAPI document and are not in the
    service's."""
    plain = _PlainHttpRoutes(_PREFIX, sessions.context, describe)
    router = APIRouter()
    router.add_api_websocket_route(f"{_PREFIX}/ws", sessions.serve_socket)
    router.routes.extend(plain.router.routes)
    declare_access(router.routes, "train", "handler")
    return router
