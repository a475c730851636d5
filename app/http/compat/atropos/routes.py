"""The endpoints of Atropos 0.4.0, except the two that receive groups, and one that explains why there is no batch."""

import asyncio
import uuid
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import PlainTextResponse

from app.domain.errors import NotFound
from app.domain.trajectories import Joining, Registration
from app.http.compat.atropos.addresses import PREFIX, run_named
from app.http.compat.atropos.desk import Batch, Desk
from app.http.compat.atropos.inflating import inflating_route
from app.http.compat.atropos.replies import GZIP_FROM, compressed
from app.http.compat.atropos.standing import env_status
from app.http.compat.atropos.wire import (
    EnvIdentifier,
    EnvStatus,
    Failure,
    Info,
    Joined,
    Registered,
    Root,
    Status,
    Success,
    WaitForTrainer,
    WandbInfo,
    Why,
)
from app.http.compat.delivery import Delivery
from app.http.web.problems import problem_responses

_UNREGISTERED = b'{"status":"error","message":"Trainer not registered. Call /register first.","batch":[]}'
_NOTHING = b'{"batch":null}'
_NO_EXAMPLE = (
    b'{"tokens":[],"masks":[],"scores":[],"advantages":[],"ref_logprobs":[],"generation_params":[],'
    b'"inference_logprobs":[],"messages":[],"images":[]}'
)


async def run_of(request: Request) -> str:
    return run_named(request.path_params.get("run"))


Run = Annotated[str, Depends(run_of)]


def atropos_router(desk: Desk, max_body_bytes: int) -> APIRouter:
    """`/compat/atropos` for the run `default`, `/compat/atropos/{run}` for others. `max_body_bytes` applies to bodies
    before and after decompression."""
    router = APIRouter(tags=["atropos"], route_class=inflating_route(max_body_bytes))
    for prefix in (PREFIX, PREFIX + "/{run}"):
        _add_trainers(router, prefix, desk)
        _add_environments(router, prefix, desk)
        _add_looking(router, prefix, desk)
        _add_explaining(router, prefix, desk)
    return router


def _add_trainers(router: APIRouter, prefix: str, desk: Desk) -> None:
    @router.post(prefix + "/register", include_in_schema=False)
    async def register(run: Run, registration: Registration) -> Registered:
        await desk.queue.register(run, registration)
        return Registered(uuid=uuid.uuid4().int)

    @router.get(prefix + "/batch", response_class=Response, include_in_schema=False)
    async def batch(run: Run, request: Request) -> Response:
        taken = await desk.take(run)
        if isinstance(taken, Batch):
            return await _delivery(request, taken)
        return Response(_UNREGISTERED if taken is None else _NOTHING, media_type="application/json")

    @router.get(prefix + "/reset_data", response_class=PlainTextResponse, include_in_schema=False)
    async def reset_data(run: Run) -> PlainTextResponse:
        await desk.reset(run)
        return PlainTextResponse("Reset successful")


async def _delivery(request: Request, batch: Batch) -> Response:
    try:
        content, headers = await _encoded(request, batch.text)
    except BaseException:
        await batch.settle(False)
        raise
    return Delivery(content, headers, batch.settle)


async def _encoded(request: Request, text: bytes) -> tuple[bytes, dict[str, str]]:
    if len(text) < GZIP_FROM or "gzip" not in request.headers.get("accept-encoding", ""):
        return text, {"Vary": "Accept-Encoding"}
    content = await asyncio.to_thread(compressed, text)
    return content, {"Vary": "Accept-Encoding", "Content-Encoding": "gzip"}


def _add_environments(router: APIRouter, prefix: str, desk: Desk) -> None:
    @router.post(prefix + "/register-env", include_in_schema=False)
    async def register_env(run: Run, joining: Joining) -> Joined | WaitForTrainer:
        feeder = await desk.queue.join(run, joining)
        standing = await desk.look(run)
        if feeder is None or standing.registration is None:
            return WaitForTrainer()
        return Joined(
            env_id=feeder.env_id,
            wandb_name=feeder.name,
            checkpoint_dir=standing.registration.checkpoint_dir,
            starting_step=standing.step,
            checkpoint_interval=standing.registration.save_checkpoint_interval,
            num_steps=standing.registration.num_steps,
        )

    @router.post(prefix + "/disconnect-env", include_in_schema=False)
    async def disconnect_env(run: Run, env: EnvIdentifier) -> Success | Failure:
        known = await desk.queue.leave(run, env.env_id)
        return Success() if known else Failure(error=f"there is no environment {env.env_id}")

    @router.get(prefix + "/status-env", include_in_schema=False)
    async def status_env(run: Run, env: EnvIdentifier) -> EnvStatus:
        await desk.heard(run, env.env_id)
        status = env_status(await desk.look(run), env.env_id, desk.now())
        if status is None:
            raise NotFound(f"environment {env.env_id} is not registered with run {run}: POST /register-env first")
        return status


def _add_looking(router: APIRouter, prefix: str, desk: Desk) -> None:
    @router.get(prefix, include_in_schema=False)
    @router.get(prefix + "/", include_in_schema=False)
    async def root(_: Run) -> Root:
        return Root()

    @router.get(prefix + "/wandb_info", include_in_schema=False)
    async def wandb_info(run: Run) -> WandbInfo:
        said = (await desk.look(run)).registration
        return WandbInfo(group=said and said.wandb_group, project=said and said.wandb_project)

    @router.get(prefix + "/info", include_in_schema=False)
    async def info(run: Run) -> Info:
        said = (await desk.look(run)).registration
        return Info(batch_size=said.batch_size if said else -1, max_token_len=said.max_token_len if said else -1)

    @router.get(prefix + "/status", include_in_schema=False)
    async def status(run: Run) -> Status:
        standing = await desk.look(run)
        return Status(current_step=standing.step, queue_size=standing.groups)

    @router.get(prefix + "/latest_example", response_class=Response, include_in_schema=False)
    async def latest_example(run: Run, request: Request) -> Response:
        content, headers = await _encoded(request, await desk.latest(run) or _NO_EXAMPLE)
        return Response(content, headers=headers, media_type="application/json")


def _add_explaining(router: APIRouter, prefix: str, desk: Desk) -> None:
    @router.get(
        prefix + "/why",
        summary="Why an Atropos trainer gets no batch yet",
        responses=problem_responses(401, 422),
        include_in_schema=prefix == PREFIX,
    )
    async def why(run: Run) -> Why:
        told = await desk.explain(run)
        return Why(
            run=run,
            ready=told.ready,
            why=told.reason,
            notes=told.notes,
            current_step=told.standing.step,
            queue_size=told.standing.groups,
            sequences=told.standing.sequences,
        )
