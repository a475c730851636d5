"""What OpenEnv's servers answer over plain HTTP: what there is, and episodes of which the caller keeps the state."""

import json
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Request, Response
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from starlette.exceptions import HTTPException

from app.compat.openenv.actions import Action
from app.compat.openenv.frames import FrameRefused, Observation, State, Stepped
from app.compat.openenv.resets import Reset, read_reset
from app.compat.openenv.rpc import PARSE_ERROR, answer_rpc, rpc_error
from app.compat.openenv.sessions import Episode, NotScored, Playing, Session
from app.domain.tasks import Message
from app.domain.values import FiniteJson, Frozen, Split, WholeNumber
from app.errors import GatewayError, InvalidRequest, RequestRefused, Unavailable
from app.ports import Environment
from app.web.bodies import JsonRoute

API_VERSION: Final = "1.0.0"
"""Of OpenEnv's HTTP interface."""

MOST_LISTED: Final = 10_000


class Healthy(Frozen):
    status: Literal["healthy"] = "healthy"


class About(Frozen):
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


class StepBody(BaseModel):
    """Over HTTP nothing is kept between two requests: with `task_id` and `messages` goes the whole episode so far.
    Further fields are those of a reset."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)
    __pydantic_extra__: dict[str, FiniteJson]

    action: dict[str, JsonValue]
    messages: Annotated[tuple[Message, ...], Field(max_length=1000)] = ()
    """Everything after the prompt so far, observations included, without the action."""
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Not used."""
    request_id: Annotated[str, Field(max_length=255)] | None = None
    """Not used: an equal step gets an equal answer anyway."""


class SplitNamed(Frozen):
    split: Split


class Listed(Frozen):
    name: Split
    type: Split


class TaskNamed(SplitNamed):
    index: Annotated[WholeNumber, Field(ge=0, le=2**40)]


class TaskRange(SplitNamed):
    start: Annotated[WholeNumber, Field(ge=0, le=2**40)] | None = None
    stop: Annotated[WholeNumber, Field(ge=0, le=2**40)] | None = None


class Tasks(Frozen):
    """Each is what a reset takes."""

    tasks: tuple[TaskNamed, ...]
    env_name: str


class OneTask(Frozen):
    task: TaskNamed


class Count(Frozen):
    num_tasks: int


def plain_router(environment: type[Environment], description: str, playing: Playing) -> APIRouter:
    """Without a prefix, so that it also describes itself as a server of one environment."""
    router = APIRouter(route_class=JsonRoute)
    about = About(name=environment.name, description=description, version=environment.version)
    _add_facts(router, about, playing)
    _add_episodes(router, environment.name, playing)
    _add_tasks(router, environment.name, playing)
    document = get_openapi(
        title=f"{environment.name} over OpenEnv's interface", version=API_VERSION, routes=router.routes
    )

    async def openapi() -> Response:
        return Response(json.dumps(document), media_type="application/json")

    router.add_api_route("/openapi.json", openapi, include_in_schema=False)
    return router


def _add_facts(router: APIRouter, about: About, playing: Playing) -> None:
    schemas = Schemas(
        action=Action.model_json_schema(),
        observation=Observation.model_json_schema(),
        reset_observation=Observation.model_json_schema(),
        state=State.model_json_schema(),
        reset=Reset.model_json_schema(),
    )

    @router.get("/health")
    async def health() -> Healthy:
        playing.gateway.catalogue.hosted(about.name)
        return Healthy()

    @router.get("/metadata")
    async def metadata() -> About:
        return about

    @router.get("/schema")
    async def schema() -> Schemas:
        return schemas

    @router.post("/mcp")
    async def mcp(request: Request) -> Response:
        try:
            answer = answer_rpc(json.loads(await request.body()), ())
        except (ValueError, RecursionError):
            answer = rpc_error(None, PARSE_ERROR, "this is not JSON")
        return Response(answer, media_type="application/json")


def _add_episodes(router: APIRouter, name: str, playing: Playing) -> None:
    @router.post("/reset")
    async def reset(body: ResetBody) -> Stepped:
        try:
            return await Session(name, playing).reset(body.model_extra or {})
        except FrameRefused as refused:
            raise _problem(refused) from None

    @router.post("/step")
    async def step(body: StepBody) -> Stepped:
        try:
            session = Session(name, playing, await _episode(name, body, playing))
            async with session.stepped(body.action) as stepped:
                return stepped
        except FrameRefused as refused:
            raise _problem(refused) from None

    @router.get("/state")
    async def state() -> State:
        return Session(name, playing).state


async def _episode(environment: str, body: StepBody, playing: Playing) -> Episode:
    reset = read_reset(body.model_extra or {})
    if reset.task_id is None:
        raise InvalidRequest(
            "over HTTP nothing is kept between requests: say which task, and with `messages` what was said so far; or "
            "use the web socket",
            field="body.task_id",
        )
    task = await playing.dealer.task(environment, reset)
    steps = sum(message.role == "assistant" for message in body.messages)
    if steps >= task.max_turns:
        raise InvalidRequest("the episode has no turn left", field="body.messages")
    return Episode(task, reset, reset.episode_id or "", body.messages, steps)


class _Listing:
    """A task is named by its split and index, which a reset takes as they are."""

    def __init__(self, environment: str, playing: Playing) -> None:
        self._environment = environment
        self._catalogue = playing.gateway.catalogue

    def end(self, split: Split) -> int | None:
        hosted = self._catalogue.hosted(self._environment)
        return hosted.environment.size(split, hosted.params({}))

    def one(self, task: TaskNamed) -> OneTask:
        end = self.end(task.split)
        if end is not None and task.index >= end:
            raise InvalidRequest(f"this split ends before {end}", field="body.index")
        return OneTask(task=task)

    def between(self, wanted: TaskRange) -> Tasks:
        ends = [end for end in (self.end(wanted.split), wanted.stop) if end is not None]
        start, stop = wanted.start or 0, _counted(min(ends, default=None))
        if stop - start > MOST_LISTED:
            raise InvalidRequest(f"at most {MOST_LISTED} tasks are listed at once", field="body.stop")
        listed = tuple(TaskNamed(split=wanted.split, index=index) for index in range(start, stop))
        return Tasks(tasks=listed, env_name=self._environment)


def _add_tasks(router: APIRouter, name: str, playing: Playing) -> None:
    listing = _Listing(name, playing)

    @router.get("/list_environments")
    async def list_environments() -> list[str]:
        return [name]

    @router.get(f"/{name}/splits")
    async def splits() -> list[Listed]:
        return [Listed(name="train", type="train"), Listed(name="test", type="test")]

    @router.post(f"/{name}/num_tasks")
    async def num_tasks(body: SplitNamed) -> Count:
        return Count(num_tasks=_counted(listing.end(body.split)))

    @router.post(f"/{name}/tasks")
    async def tasks(body: SplitNamed) -> Tasks:
        return listing.between(TaskRange(split=body.split))

    @router.post(f"/{name}/task")
    async def task(body: TaskNamed) -> OneTask:
        return listing.one(body)

    @router.post(f"/{name}/task_range")
    async def task_range(body: TaskRange) -> Tasks:
        return listing.between(body)


def _counted(size: int | None) -> int:
    if size is None:
        raise HTTPException(501, "this split is endless: any index is a task")
    return size


def _problem(refused: FrameRefused) -> GatewayError:
    if isinstance(refused, NotScored):
        return Unavailable(refused.message)
    return RequestRefused(refused.message) if refused.code == "EXECUTION_ERROR" else InvalidRequest(refused.message)
