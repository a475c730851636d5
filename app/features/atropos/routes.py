"""The endpoints of Atropos 0.4.0, below a path that names the run, since the protocol has no field for it.

The two endpoints that receive groups stand directly on ASGI: they are called for every group that is trained on, and
FastAPI's overhead per call costs as much as parsing 100 kB of numbers. The middleware still applies.
"""

import asyncio
import re
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app.domain.errors import InvalidRequest, NotFound
from app.features.atropos.model import EnvRegistration, PackedGroup, TrainerRegistration
from app.features.atropos.service import AtroposQueue, OutgoingBatch, compute_env_status
from app.features.atropos.wire import (
    GZIP_FROM,
    NOT_GZIP,
    BatchExplanation,
    EnvIdentifier,
    EnvJoined,
    EnvStatus,
    Failure,
    Info,
    NotGzip,
    Received,
    ReceivedList,
    Root,
    Status,
    Success,
    TrainerRegistered,
    WaitForTrainer,
    WandbInfo,
    compress_text,
    create_gzip_route,
    inflate,
    is_gzip,
    read_group,
    read_groups,
)
from app.http.compat.one_sample import Delivery
from app.http.web.api_keys import declare_access
from app.http.web.openapi import document_problems

PREFIX = "/compat/atropos"
_DEFAULT_RUN = "default"

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_ENDPOINTS = frozenset(
    {
        *("register", "register-env", "disconnect-env", "wandb_info", "info", "batch", "latest_example"),
        *("scored_data", "scored_data_list", "status", "status-env", "reset_data", "why"),
    }
)


def _parse_run_name(name: str | None) -> str:
    """Validates a run name; None is the default run. Raises InvalidRequest for an invalid name and for an
    endpoint's."""
    if name is None:
        return _DEFAULT_RUN
    if name in _ENDPOINTS or not _NAME.fullmatch(name):
        raise InvalidRequest(
            "invalid run name: use lowercase letters, digits, - and _, and no endpoint's name", field="run"
        )
    return name


# The endpoints of Atropos 0.4.0 except those that receive groups, and one that explains why there is no batch.

_UNREGISTERED = b'{"status":"error","message":"Trainer not registered. Call /register first.","batch":[]}'
_NOTHING = b'{"batch":null}'
_NO_EXAMPLE = (
    b'{"tokens":[],"masks":[],"scores":[],"advantages":[],"ref_logprobs":[],"generation_params":[],'
    b'"inference_logprobs":[],"messages":[],"images":[]}'
)


async def _read_run_name(request: Request) -> str:
    return _parse_run_name(request.path_params.get("run"))


_Run = Annotated[str, Depends(_read_run_name)]


def create_atropos_router(atropos_queue: AtroposQueue, max_body_bytes: int) -> APIRouter:
    """`/compat/atropos` for the run `default`, `/compat/atropos/{run}` for others. `max_body_bytes` applies to bodies
    before and after decompression."""
    router = APIRouter(tags=["atropos"], route_class=create_gzip_route(max_body_bytes))
    for prefix in (PREFIX, PREFIX + "/{run}"):
        _add_trainer_routes(router, prefix, atropos_queue)
        _add_environment_routes(router, prefix, atropos_queue)
        _add_status_routes(router, prefix, atropos_queue)
        _add_explanation_route(router, prefix, atropos_queue)
    declare_access(router.routes, "train", "run")
    return router


def _add_trainer_routes(router: APIRouter, prefix: str, atropos_queue: AtroposQueue) -> None:
    @router.post(prefix + "/register", include_in_schema=False)
    async def register(run: _Run, registration: TrainerRegistration) -> TrainerRegistered:
        await atropos_queue.queue.register(run, registration)
        return TrainerRegistered(uuid=uuid.uuid4().int)

    @router.get(prefix + "/batch", response_class=Response, include_in_schema=False)
    async def batch(run: _Run, request: Request) -> Response:
        taken = await atropos_queue.take_batch(run)
        if isinstance(taken, OutgoingBatch):
            return await _build_delivery(request, taken)
        return Response(_UNREGISTERED if taken is None else _NOTHING, media_type="application/json")

    @router.get(prefix + "/reset_data", response_class=PlainTextResponse, include_in_schema=False)
    async def reset_data(run: _Run) -> PlainTextResponse:
        await atropos_queue.reset_run(run)
        return PlainTextResponse("Reset successful")


async def _build_delivery(request: Request, batch: OutgoingBatch) -> Response:
    try:
        content, headers = await _encode_text(request, batch.text)
    except BaseException:
        await batch.settle(False)
        raise
    return Delivery(content, headers, batch.settle)


async def _encode_text(request: Request, text: bytes) -> tuple[bytes, dict[str, str]]:
    if len(text) < GZIP_FROM or "gzip" not in request.headers.get("accept-encoding", ""):
        return text, {"Vary": "Accept-Encoding"}
    content = await asyncio.to_thread(compress_text, text)
    return content, {"Vary": "Accept-Encoding", "Content-Encoding": "gzip"}


def _add_environment_routes(router: APIRouter, prefix: str, atropos_queue: AtroposQueue) -> None:
    @router.post(prefix + "/register-env", include_in_schema=False)
    async def register_env(run: _Run, joining: EnvRegistration) -> EnvJoined | WaitForTrainer:
        client = await atropos_queue.queue.join(run, joining)
        state = await atropos_queue.read_run(run)
        if client is None or state.registration is None:
            return WaitForTrainer()
        return EnvJoined(
            env_id=client.env_id,
            wandb_name=client.name,
            checkpoint_dir=state.registration.checkpoint_dir,
            starting_step=state.step,
            checkpoint_interval=state.registration.save_checkpoint_interval,
            num_steps=state.registration.num_steps,
        )

    @router.post(prefix + "/disconnect-env", include_in_schema=False)
    async def disconnect_env(run: _Run, env: EnvIdentifier) -> Success | Failure:
        known = await atropos_queue.queue.leave(run, env.env_id)
        return Success() if known else Failure(error=f"there is no environment {env.env_id}")

    @router.get(prefix + "/status-env", include_in_schema=False)
    async def status_env(run: _Run, env: EnvIdentifier) -> EnvStatus:
        await atropos_queue.record_heartbeat(run, env.env_id)
        status = compute_env_status(await atropos_queue.read_run(run), env.env_id, atropos_queue.read_clock())
        if status is None:
            raise NotFound(f"environment {env.env_id} is not registered with run {run}: POST /register-env first")
        return status


def _add_status_routes(router: APIRouter, prefix: str, atropos_queue: AtroposQueue) -> None:
    @router.get(prefix, include_in_schema=False)
    @router.get(prefix + "/", include_in_schema=False)
    async def root(_: _Run) -> Root:
        return Root()

    @router.get(prefix + "/wandb_info", include_in_schema=False)
    async def wandb_info(run: _Run) -> WandbInfo:
        registration = (await atropos_queue.read_run(run)).registration
        return WandbInfo(
            group=registration and registration.wandb_group, project=registration and registration.wandb_project
        )

    @router.get(prefix + "/info", include_in_schema=False)
    async def info(run: _Run) -> Info:
        registration = (await atropos_queue.read_run(run)).registration
        return Info(
            batch_size=registration.batch_size if registration else -1,
            max_token_len=registration.max_token_len if registration else -1,
        )

    @router.get(prefix + "/status", include_in_schema=False)
    async def status(run: _Run) -> Status:
        state = await atropos_queue.read_run(run)
        return Status(current_step=state.step, queue_size=state.groups)

    @router.get(prefix + "/latest_example", response_class=Response, include_in_schema=False)
    async def latest_example(run: _Run, request: Request) -> Response:
        content, headers = await _encode_text(request, await atropos_queue.read_latest_group(run) or _NO_EXAMPLE)
        return Response(content, headers=headers, media_type="application/json")


def _add_explanation_route(router: APIRouter, prefix: str, atropos_queue: AtroposQueue) -> None:
    @router.get(
        prefix + "/why",
        summary="Why an Atropos trainer gets no batch yet",
        responses=document_problems(401, 422),
        include_in_schema=prefix == PREFIX,
    )
    async def why(run: _Run) -> BatchExplanation:
        status = await atropos_queue.explain_run(run)
        return BatchExplanation(
            run=run,
            ready=status.ready,
            why=status.reason,
            notes=status.notes,
            current_step=status.state.step,
            queue_size=status.state.groups,
            sequences=status.state.sequences,
            mean_lag=status.lag.mean,
            max_lag=status.lag.largest,
            older_policy=status.lag.older_policy,
        )


# The endpoints that receive groups.


class _GroupPostEndpoint:
    """`path` is the route template for request metrics."""

    def __init__(
        self,
        path: str,
        atropos_queue: AtroposQueue,
        read: Callable[[bytes], Sequence[PackedGroup]],
        reply: Callable[[int], BaseModel],
        limit: int,
    ) -> None:
        self.path = path
        self._atropos_queue = atropos_queue
        self._read = read
        self._reply = reply
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self
        run = _parse_run_name(scope["path_params"].get("run"))
        body = await _receive_body(receive)
        if body is None:
            return
        read = partial(self._read_inflated, body) if is_gzip(Headers(scope=scope)) else partial(self._read, body)
        try:
            count = await self._atropos_queue.add_groups(run, read, len(body))
        except NotGzip:
            response: Response = PlainTextResponse(NOT_GZIP, status_code=400)
        else:
            response = Response(self._reply(count).model_dump_json(), media_type="application/json")
        await response(scope, receive, send)

    def _read_inflated(self, body: bytes) -> Sequence[PackedGroup]:
        return self._read(inflate(body, self._limit))


async def _receive_body(receive: Receive) -> bytes | None:
    """The whole body; None if the client disconnected before its end."""
    parts: list[bytes] = []
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


def create_post_routes(atropos_queue: AtroposQueue, limit: int) -> list[Route]:
    """Must be registered before other routes. `limit` applies to decompressed bodies."""
    routes = [
        Route(
            path, _GroupPostEndpoint(path, atropos_queue, read, reply, limit), methods=["POST"], include_in_schema=False
        )
        for prefix in (PREFIX, PREFIX + "/{run}")
        for path, read, reply in (
            (f"{prefix}/scored_data", read_group, lambda _: Received()),
            (f"{prefix}/scored_data_list", read_groups, lambda count: ReceivedList(groups_processed=count)),
        )
    ]
    declare_access(routes, "train", "run")
    return routes
