"""The endpoints of Atropos 0.4.0, except the two that receive groups, and one that explains why there is no batch."""

import asyncio
import uuid
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import PlainTextResponse

from app.domain.errors import NotFound
from app.domain.trajectories import EnvRegistration, TrainerRegistration
from app.http.compat.atropos.addresses import PREFIX, parse_run_name
from app.http.compat.atropos.batch_encoding import GZIP_FROM, compress_text
from app.http.compat.atropos.decompression import create_gzip_route
from app.http.compat.atropos.queue import AtroposQueue, OutgoingBatch
from app.http.compat.atropos.status import compute_env_status
from app.http.compat.atropos.wire import (
    BatchExplanation,
    EnvIdentifier,
    EnvJoined,
    EnvStatus,
    Failure,
    Info,
    Root,
    Status,
    Success,
    TrainerRegistered,
    WaitForTrainer,
    WandbInfo,
)
from app.http.compat.delivery import Delivery
from app.http.web.openapi import document_problems

_UNREGISTERED = b'{"status":"error","message":"Trainer not registered. Call /register first.","batch":[]}'
_NOTHING = b'{"batch":null}'
_NO_EXAMPLE = (
    b'{"tokens":[],"masks":[],"scores":[],"advantages":[],"ref_logprobs":[],"generation_params":[],'
    b'"inference_logprobs":[],"messages":[],"images":[]}'
)


async def read_run_name(request: Request) -> str:
    return parse_run_name(request.path_params.get("run"))


Run = Annotated[str, Depends(read_run_name)]


def create_atropos_router(atropos_queue: AtroposQueue, max_body_bytes: int) -> APIRouter:
    """`/compat/atropos` for the run `default`, `/compat/atropos/{run}` for others. `max_body_bytes` applies to bodies
    before and after decompression."""
    router = APIRouter(tags=["atropos"], route_class=create_gzip_route(max_body_bytes))
    for prefix in (PREFIX, PREFIX + "/{run}"):
        _add_trainer_routes(router, prefix, atropos_queue)
        _add_environment_routes(router, prefix, atropos_queue)
        _add_status_routes(router, prefix, atropos_queue)
        _add_explanation_route(router, prefix, atropos_queue)
    return router


def _add_trainer_routes(router: APIRouter, prefix: str, atropos_queue: AtroposQueue) -> None:
    @router.post(prefix + "/register", include_in_schema=False)
    async def register(run: Run, registration: TrainerRegistration) -> TrainerRegistered:
        await atropos_queue.queue.register(run, registration)
        return TrainerRegistered(uuid=uuid.uuid4().int)

    @router.get(prefix + "/batch", response_class=Response, include_in_schema=False)
    async def batch(run: Run, request: Request) -> Response:
        taken = await atropos_queue.take_batch(run)
        if isinstance(taken, OutgoingBatch):
            return await _build_delivery(request, taken)
        return Response(_UNREGISTERED if taken is None else _NOTHING, media_type="application/json")

    @router.get(prefix + "/reset_data", response_class=PlainTextResponse, include_in_schema=False)
    async def reset_data(run: Run) -> PlainTextResponse:
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
    async def register_env(run: Run, joining: EnvRegistration) -> EnvJoined | WaitForTrainer:
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
    async def disconnect_env(run: Run, env: EnvIdentifier) -> Success | Failure:
        known = await atropos_queue.queue.leave(run, env.env_id)
        return Success() if known else Failure(error=f"there is no environment {env.env_id}")

    @router.get(prefix + "/status-env", include_in_schema=False)
    async def status_env(run: Run, env: EnvIdentifier) -> EnvStatus:
        await atropos_queue.record_heartbeat(run, env.env_id)
        status = compute_env_status(await atropos_queue.read_run(run), env.env_id, atropos_queue.read_clock())
        if status is None:
            raise NotFound(f"environment {env.env_id} is not registered with run {run}: POST /register-env first")
        return status


def _add_status_routes(router: APIRouter, prefix: str, atropos_queue: AtroposQueue) -> None:
    @router.get(prefix, include_in_schema=False)
    @router.get(prefix + "/", include_in_schema=False)
    async def root(_: Run) -> Root:
        return Root()

    @router.get(prefix + "/wandb_info", include_in_schema=False)
    async def wandb_info(run: Run) -> WandbInfo:
        registration = (await atropos_queue.read_run(run)).registration
        return WandbInfo(
            group=registration and registration.wandb_group, project=registration and registration.wandb_project
        )

    @router.get(prefix + "/info", include_in_schema=False)
    async def info(run: Run) -> Info:
        registration = (await atropos_queue.read_run(run)).registration
        return Info(
            batch_size=registration.batch_size if registration else -1,
            max_token_len=registration.max_token_len if registration else -1,
        )

    @router.get(prefix + "/status", include_in_schema=False)
    async def status(run: Run) -> Status:
        state = await atropos_queue.read_run(run)
        return Status(current_step=state.step, queue_size=state.groups)

    @router.get(prefix + "/latest_example", response_class=Response, include_in_schema=False)
    async def latest_example(run: Run, request: Request) -> Response:
        content, headers = await _encode_text(request, await atropos_queue.read_latest_group(run) or _NO_EXAMPLE)
        return Response(content, headers=headers, media_type="application/json")


def _add_explanation_route(router: APIRouter, prefix: str, atropos_queue: AtroposQueue) -> None:
    @router.get(
        prefix + "/why",
        summary="Why an Atropos trainer gets no batch yet",
        responses=document_problems(401, 422),
        include_in_schema=prefix == PREFIX,
    )
    async def why(run: Run) -> BatchExplanation:
        told = await atropos_queue.explain_run(run)
        return BatchExplanation(
            run=run,
            ready=told.ready,
            why=told.reason,
            notes=told.notes,
            current_step=told.state.step,
            queue_size=told.state.groups,
            sequences=told.state.sequences,
            mean_lag=told.lag.mean,
            max_lag=told.lag.largest,
            older_policy=told.lag.older_policy,
        )
