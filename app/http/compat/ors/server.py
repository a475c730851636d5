"""The Open Reward Standard, as `openreward/environments/server.py` of 0.1.167 serves it: every environment is a server.

POST /compat/ors/{env}/call
{"name": "reply", "input": {"text": "Good evening."}}
event: end
data: {"ok":true,"output":{"blocks":[],"reward":0.7,"finished":true,"metadata":{…}}}
"""

import uuid
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from starlette.exceptions import HTTPException

from app.domain.errors import EnvironmentUnavailable, InvalidRequest, NotFound
from app.domain.groups import TaskRecord
from app.http.compat.kept_sessions import KeptSessions
from app.http.compat.one_sample.reward_service import RewardService
from app.http.compat.ors.episodes import OrsEpisodes, name_session
from app.http.compat.ors.event_stream import stream_result, write_event
from app.http.compat.ors.replies import (
    NamedTask,
    ServerStatus,
    ServerVersion,
    SessionReply,
    ShownMessage,
    TextBlock,
    ToolListing,
    describe_tools,
    show_messages,
)
from app.http.compat.ors.requests import CreateRequest, GroupRequest, OrsOptions, ToolCallRequest
from app.http.compat.task_listing import (
    SPLITS,
    SplitEntry,
    SplitReference,
    TaskCount,
    TaskLister,
    TaskListing,
    TaskRange,
    TaskReference,
)
from app.http.web.api_keys import get_bounds
from app.http.web.bodies import JsonRoute
from app.service.gateway import Gateway
from app.service.key_bounds import check_hand_out
from app.service.request_models import NextBatch

PREFIX: Final = "/compat/ors"
ENDLESS: Final = 1_000_000
"""How many tasks a split without end is said to have, since clients ask for a number."""


def read_options(options: Annotated[OrsOptions, Query()]) -> OrsOptions:
    """All routes take them: those of a port stand in each of its requests."""
    return options


Options = Annotated[OrsOptions, Depends(read_options)]
SessionId = Annotated[str, Header(alias="X-Session-ID", min_length=1, max_length=200)]


class _OrsRoute(JsonRoute):
    """An environment that is still starting is known by a header, which clients wait for."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[None, None, Response]]:
        handle = super().get_route_handler()

        async def handle_starting(request: Request) -> Response:
            try:
                return await handle(request)
            except EnvironmentUnavailable as error:
                headers = {"Retry-After": str(error.retry_after), "X-Backend-State": "starting"}
                raise HTTPException(503, error.detail, headers) from error

        return handle_starting


class OrsServer:
    """The routes of all environments. Each is a server of its own; its name may stand before a path once more."""

    def __init__(self, gateway: Gateway, sessions: KeptSessions, reward_service: RewardService) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self._reward_service = reward_service
        self._episodes = OrsEpisodes(gateway, sessions, reward_service)
        self._lister = TaskLister(gateway.catalogue)
        self.router = APIRouter(
            prefix=f"{PREFIX}/{{env}}",
            tags=["ors"],
            route_class=_OrsRoute,
            dependencies=[Depends(read_options)],
            include_in_schema=False,
        )
        add, named = self._add, self._add_named
        add("GET", "/health", self.tell_health, "Whether an ORS server runs")
        add("GET", "/version", self.tell_version, "The version of an ORS server")
        add("GET", "/list_environments", self.list_environments, "The environment of an ORS server")
        add("POST", "/create_session", self.open_session, "Name a session of ORS")
        add("POST", "/create", self.create, "Begin an episode of ORS")
        add("POST", "/ping", self.ping, "Whether a session of ORS is there")
        add("POST", "/delete", self.delete, "End an episode of ORS")
        add("POST", "/delete_session", self.forget, "Forget the name of a session of ORS")
        named("GET", "/splits", self.list_splits, "Splits of ORS")
        named("POST", "/num_tasks", self.count_tasks, "How many tasks a split of ORS has")
        named("POST", "/tasks", self.list_tasks, "Tasks of a split of ORS")
        named("POST", "/task_range", self.list_tasks, "Some tasks of a split of ORS")
        named("POST", "/task", self.get_task, "A task of ORS")
        named("GET", "/tools", self.list_tools, "Tools that all tasks of ORS have")
        named("GET", "/task_tools", self.list_task_tools, "Tools of a session of ORS")
        named("GET", "/prompt", self.show_prompt, "The prompt of a session of ORS")
        named("GET", "/messages", self.show_conversation, "The prompt of a session of ORS, by messages")
        named("POST", "/call", self.call, "Call a tool of ORS")
        named("POST", "/score_group", self.score_group, "Scores of a group of ORS")

    def _add(self, method: str, path: str, answer: Callable[..., Any], summary: str) -> None:
        self.router.add_api_route(path, answer, methods=[method], summary=summary)

    def _add_named(self, method: str, path: str, answer: Callable[..., Any], summary: str) -> None:
        self._add(method, path, answer, summary)
        self.router.add_api_route(f"/{{name}}{path}", answer, methods=[method])

    async def tell_health(self, env: str) -> ServerStatus:
        self._reward_service.require_environment(env)
        return ServerStatus()

    async def list_environments(self, env: str) -> list[str]:
        self._reward_service.require_environment(env)
        return [env]

    async def list_splits(self, env: str) -> list[SplitEntry]:
        self._reward_service.require_environment(env)
        return SPLITS

    async def tell_version(self, env: str) -> ServerVersion:
        self._reward_service.require_environment(env)
        return ServerVersion()

    async def count_tasks(self, env: str, asked: SplitReference, options: Options) -> TaskCount:
        """A number beyond every use for a split without end: each index is a task."""
        counted = self._lister.count_tasks(env, asked.split, options.read_params())
        return TaskCount(num_tasks=ENDLESS if counted is None else counted)

    async def list_tasks(self, env: str, asked: TaskRange, options: Options) -> TaskListing:
        return self._lister.list_tasks(env, asked, options.read_params())

    async def get_task(self, env: str, asked: TaskReference, options: Options) -> NamedTask:
        found = self._lister.get_task(env, asked, options.read_params())
        return NamedTask(task=found.task, env_name=env)

    async def list_tools(self, env: str) -> ToolListing:
        """Those of a task are told by its session."""
        self._reward_service.require_environment(env)
        return describe_tools(())

    async def open_session(self, env: str) -> Response:
        """The name is chosen here; the session begins with `/create`."""
        self._reward_service.require_environment(env)
        events = write_event("task_id", str(uuid.uuid4())) + write_event("end", "")
        return Response(events, media_type="text/event-stream")

    async def create(
        self, env: str, request: Request, asked: CreateRequest, options: Options, session: SessionId
    ) -> SessionReply:
        """Takes the task at a place of a split. The same again is the same session."""
        self._reward_service.require_environment(env)
        place, params, bounds = asked.find_place(), options.read_params(), await get_bounds(request)
        check_hand_out(bounds, env, options.run, params)
        wanted = NextBatch(batch_size=1, run=options.run, split=place.split, params=params, cursor=place.index)
        batch = await self._gateway.dispatcher.next_batch(env, wanted)
        if not batch.tasks:
            raise InvalidRequest("the split has no such task", field="index")
        await self._sessions.begin(name_session(session), batch.tasks[0].task_id)
        return SessionReply(sid=session)

    async def ping(self, env: str, request: Request, options: Options, session: SessionId) -> ServerStatus:
        await self._find_task(env, request, options, session)
        return ServerStatus()

    async def delete(self, env: str, request: Request, options: Options, session: SessionId) -> SessionReply:
        """Also a session that is unknown or has ended."""
        self._reward_service.require_environment(env)
        (await get_bounds(request)).require_run(options.run)
        await self._sessions.close(name_session(session))
        return SessionReply(sid=session)

    async def forget(self, env: str, session: SessionId) -> SessionReply:
        self._reward_service.require_environment(env)
        return SessionReply(sid=session)

    async def list_task_tools(self, env: str, request: Request, options: Options, session: SessionId) -> ToolListing:
        return describe_tools((await self._find_task(env, request, options, session)).prompt.tools)

    async def show_prompt(self, env: str, request: Request, options: Options, session: SessionId) -> list[TextBlock]:
        prompt = (await self._find_task(env, request, options, session)).prompt
        return [block for message in show_messages(prompt.messages) for block in message.blocks]

    async def show_conversation(
        self, env: str, request: Request, options: Options, session: SessionId
    ) -> list[ShownMessage]:
        return show_messages((await self._find_task(env, request, options, session)).prompt.messages)

    async def call(
        self, env: str, request: Request, asked: ToolCallRequest, options: Options, session: SessionId
    ) -> Response:
        """Plays a turn. The last one is answered with the reward of the episode; null where there is none. A call whose
        stream was lost is sent again with its `task_id`, and answered as it was."""
        record = await self._find_task(env, request, options, session)
        named = _give_id(asked)
        return stream_result(named.task_id or "", lambda: self._episodes.play(record, named, options, session))

    async def score_group(
        self, env: str, request: Request, asked: GroupRequest, options: Options, session: SessionId
    ) -> Response:
        """Scores replies to the session's task as one group, in their order; null where there is no score."""
        record = await self._find_task(env, request, options, session)
        return stream_result(str(uuid.uuid4()), lambda: self._episodes.score_candidates(record, asked, options))

    async def _find_task(self, env: str, request: Request, options: OrsOptions, session: str) -> TaskRecord:
        """Of a session. NotFound; Forbidden beyond the caller's bounds."""
        self._reward_service.require_environment(env)
        bounds = await get_bounds(request)
        bounds.require_run(options.run)
        task_id = (await self._sessions.find(name_session(session))).task_id
        await self._reward_service.bounds.require_tasks(bounds, [task_id], "X-Session-ID")
        record = (await self._gateway.task_cache.get([task_id])).get(task_id)
        if record is None or record.key.environment != env:
            raise NotFound(f"there is no such session of {env}", field="X-Session-ID")
        return record


def _give_id(asked: ToolCallRequest) -> ToolCallRequest:
    return asked if asked.task_id is not None else asked.model_copy(update={"task_id": uuid.uuid4().hex})
