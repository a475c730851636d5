"""OpenEnv's HTTP routes: metadata, tasks, and episodes whose state the caller keeps."""

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from copy import copy
from functools import cache, cached_property
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Request, Response
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from app.domain.access import Caller
from app.domain.errors import GatewayError, InvalidRequest, NotFound, RequestRefused, Unavailable
from app.domain.tasks import Message
from app.domain.values import Described, FiniteJson, Frozen
from app.http.compat.delivery import Delivery, wait_while_connected
from app.http.compat.one_sample.reward_service import CLIENT_CLOSED_REQUEST
from app.http.compat.openenv.actions import OpenEnvAction
from app.http.compat.openenv.episodes import OpenEnvEpisode
from app.http.compat.openenv.frames import (
    FrameRefused,
    Observation,
    State,
    StepResult,
    asks_for_tools,
    write_tool_listing,
)
from app.http.compat.openenv.resets import Reset, read_reset
from app.http.compat.openenv.rpc import PARSE_ERROR, answer_rpc, build_rpc_error
from app.http.compat.openenv.sessions import NotScored, OpenEnvSession, SessionContext
from app.http.compat.task_listing import (
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
from app.http.web.api_keys import find_caller
from app.http.web.bodies import JsonRoute
from app.http.web.lazy_routes import LazyRoute
from app.ports.environment import Environment

API_VERSION: Final = "1.0.0"
"""Of OpenEnv's HTTP interface."""

DOCUMENT: Final = "/openapi.json"


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


class PlainHttpRoutes:
    """The routes of all environments under a prefix that ends in `{env}`."""

    def __init__(self, prefix: str, playing: SessionContext, describe: Callable[[type[Environment]], str]) -> None:
        self.router = APIRouter(prefix=prefix, route_class=JsonRoute, include_in_schema=False)
        self._prefix = prefix
        self._playing = playing
        self._catalogue = playing.gateway.catalogue
        self._describe = describe
        self._lister = TaskLister(playing.gateway.catalogue)
        for add in (self._add_facts, self._add_episodes, self._add_listing, self._add_tasks):
            add(self.router)
        self.router.add_api_route(DOCUMENT, self._serve_openapi)

    async def _serve_openapi(self, env: str) -> Response:
        self._catalogue.require_known(env)
        document = {**self._document, "info": {"title": f"{env} over OpenEnv's interface", "version": API_VERSION}}
        return Response(json.dumps(document), media_type="application/json")

    @cached_property
    def _document(self) -> dict[str, Any]:
        """The OpenAPI document of one environment's server, without the prefix and the `env` parameter. No other
        document shows these routes."""
        listed = [one for one in self.router.routes if isinstance(one, LazyRoute)]
        for route in listed:
            route.build()
        shown = [copy(route) for route in listed if route.path != self._prefix + DOCUMENT]
        for route in shown:
            route.include_in_schema = True
        document = get_openapi(title="", version=API_VERSION, routes=shown)
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
                answer = answer_rpc(json.loads(await request.body()), ())
            except (ValueError, RecursionError):
                answer = build_rpc_error(None, PARSE_ERROR, "invalid JSON")
            return Response(answer, media_type="application/json")

    def _add_episodes(self, router: APIRouter) -> None:
        @router.post("/reset")
        async def reset(env: str, request: Request, body: ResetBody) -> StepResult:
            self._catalogue.require_known(env)
            try:
                caller = find_caller(request.scope)
                return await OpenEnvSession(env, self._playing, caller=caller).reset(body.model_extra or {})
            except FrameRefused as refused:
                raise _to_gateway_error(refused) from None

        @router.post("/step", response_model=StepResult)
        async def step(env: str, request: Request, body: StepBody) -> Response:
            self._catalogue.require_known(env)
            asked = asks_for_tools(body.action)
            try:
                bare, caller = asked and not body.model_extra, find_caller(request.scope)
                episode = None if bare else await _restore_episode(env, body, self._playing, caller)
                session = OpenEnvSession(env, self._playing, episode)
                if asked:
                    return Response(write_tool_listing(session.tools), media_type="application/json")
                return await _deliver_step(session, body.action, request)
            except FrameRefused as refused:
                raise _to_gateway_error(refused) from None

        @router.get("/state")
        async def state(env: str) -> State:
            self._catalogue.require_known(env)
            return OpenEnvSession(env, self._playing).state

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
            if not sent:
                held.callback(_raise_client_left)
            await held.aclose()

    stepping = asyncio.ensure_future(held.enter_async_context(session.step(action)))
    try:
        stepped = await wait_while_connected(stepping, request)
    except BaseException:
        await settle(False)
        raise
    if stepped is None:
        await settle(False)
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    return Delivery(stepped.model_dump_json().encode(), {}, settle)


def _raise_client_left() -> None:
    raise ConnectionError("the client left")


async def _restore_episode(env: str, body: StepBody, playing: SessionContext, by: Caller | None) -> OpenEnvEpisode:
    reset = read_reset(body.model_extra or {})
    if reset.task_id is None:
        raise InvalidRequest(
            "HTTP requests are stateless: send `task_id` and, in `messages`, the episode so far; or use the web socket",
            field="body.task_id",
        )
    task = await playing.dealer.assign_task(env, reset, by)
    steps = sum(message.role == "assistant" for message in body.messages)
    if steps >= task.max_turns:
        raise InvalidRequest("the episode has no turns left", field="body.messages")
    return OpenEnvEpisode(task, reset, reset.episode_id or "", body.messages, steps)


def _to_gateway_error(refused: FrameRefused) -> GatewayError:
    if isinstance(refused, NotScored):
        return Unavailable(refused.message)
    return RequestRefused(refused.message) if refused.code == "EXECUTION_ERROR" else InvalidRequest(refused.message)
