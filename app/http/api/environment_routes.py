"""The routes of one environment: next-batch, step, score."""

import asyncio
import json
from functools import cache
from typing import Annotated, Any, cast

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from app.domain.access import find_bounds
from app.domain.digests import canonical_json, digest_of_text
from app.domain.errors import InvalidRequest
from app.domain.tasks import Turn
from app.domain.values import Name, Split
from app.http.web.api_keys import CallerBounds, find_caller
from app.http.web.bodies import JsonRoute
from app.http.web.direct_routes import DirectRoute
from app.http.web.openapi import document_problems
from app.ports.environment import Environment
from app.ports.store import IdempotencyKey
from app.ports.tracing import note_work
from app.service.dealt_batch import DealtBatch
from app.service.gateway import Gateway
from app.service.key_bounds import check_hand_out, scope_idempotency
from app.service.request_models import BatchOptions, NextBatch, ScoreRequest, ScoreResponse, StepRequest, TaskBatch

IdempotencyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="A repeat with the same key and body gets the same response; with another body it is refused.",
    ),
]


class BatchQuery(BaseModel):
    """The query parameters of `GET next-batch`, the same as `POST` for use with curl."""

    model_config = ConfigDict(extra="forbid")

    batch_size: Annotated[int, Field(ge=1, le=1024)] = 8
    split: Split = "train"
    run: Name | None = None
    params: Annotated[str, Field(max_length=2_000, description="A JSON object, such as `{}`.")] = "{}"
    lease_seconds: Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)] = 600.0
    purpose: Annotated[str, Field(pattern="^(train|eval)$")] = "train"
    cursor: Annotated[int, Field(ge=0, le=2**40)] | None = None
    step: Annotated[int, Field(ge=0, lt=2**53, description="`policy.step` of `POST`.")] | None = None
    wait_seconds: Annotated[float, Field(ge=0, le=600, allow_inf_nan=False)] = 10.0


def create_environment_router(environment: type[Environment], gateway: Gateway) -> APIRouter:
    """`POST` and `GET /envs/{name}/next-batch`, `POST …/step` for multi-turn environments, `POST …/score`."""
    name = environment.name
    router = APIRouter(prefix=f"/envs/{name}", tags=[name], route_class=JsonRoute)
    request_type = _build_request_model(name, environment.Params)

    async def next_batch(request: BatchOptions, client: Request) -> Response:
        return await hand_out(_to_next_batch(request), client)

    async def next_batch_by_query(query: Annotated[BatchQuery, Query()], client: Request) -> Response:
        return await hand_out(_parse_query(query), client)

    async def hand_out(request: NextBatch, client: Request) -> Response:
        note_work(name, request.run)
        check_hand_out(find_bounds(find_caller(client.scope)), name, request.run, request.params)
        return build_batch_response(await gateway.dispatcher.deal_batch(name, request, client.is_disconnected))

    async def step(request: StepRequest, bounds: CallerBounds) -> Turn:
        note_work(name)
        await gateway.bounds.require_tasks(bounds, [request.task_id], "task_id")
        return await gateway.stepper.step(name, request)

    async def score(request: ScoreRequest, client: Request, key: IdempotencyHeader = None) -> Response:
        return await score_in_bounds(gateway, request, name, client, key)

    next_batch.__annotations__["request"] = request_type
    refusals = document_problems(400, 401, 404, 408, 409, 413, 415, 422, 429, 503)
    add = router.add_api_route
    batch: dict[str, Any] = {"response_model": TaskBatch, "responses": refusals}
    summary = f"Hand out {name} tasks"
    add("/next-batch", next_batch, methods=["POST"], summary=summary, route_class_override=DirectRoute, **batch)
    add("/next-batch", next_batch_by_query, methods=["GET"], summary="The same, for curl", **batch)
    if environment.multi_turn:
        add("/step", step, methods=["POST"], summary="The next observation of an episode", responses=refusals)
    summary = f"Score groups of {name} completions"
    scores: dict[str, Any] = {"response_model": ScoreResponse, "responses": refusals}
    add("/score", score, methods=["POST"], summary=summary, route_class_override=DirectRoute, **scores)
    return router


def build_batch_response(batch: DealtBatch) -> Response:
    """Made here: FastAPI would build a model of every task to write it."""
    return Response(batch.to_json(), media_type="application/json")


async def score_in_bounds(
    gateway: Gateway, request: ScoreRequest, environment: str | None, client: Request, key: str | None
) -> Response:
    caller = find_caller(client.scope)
    await gateway.bounds.check_score(find_bounds(caller), request)
    repeat = scope_idempotency(caller, await _build_idempotency_key(key, request))
    scored = await gateway.scoring.score(request, environment, repeat)
    return Response(scored.to_json(), media_type="application/json")


async def _build_idempotency_key(key: str | None, request: ScoreRequest) -> IdempotencyKey | None:
    return (
        None if key is None else IdempotencyKey(key=key, body_digest=await asyncio.to_thread(digest_request, request))
    )


def digest_request(request: ScoreRequest) -> str:
    """The digest of the model, made completion by completion: in one call a large one would hold up everything else.
    `completions` and `groups` are the first of their sorted keys."""
    groups = (
        f'{{"completions":[{",".join(canonical_json(one.model_dump(mode="json")) for one in group.completions)}],'
        f"{canonical_json(group.model_dump(mode='json', exclude={'completions'}))[1:]}"
        for group in request.groups
    )
    rest = canonical_json(request.model_dump(mode="json", exclude={"groups"}))
    return digest_of_text(f'{{"groups":[{",".join(groups)}],{rest[1:]}')


@cache
def _build_request_model(environment: str, params: type[BaseModel]) -> type[BatchOptions]:
    """Builds NextBatch with the environment's own params, so that they are validated and documented."""
    camel = "".join(part.capitalize() for part in environment.split("_"))
    own = (params, Field(default_factory=params))
    return cast(type[BatchOptions], create_model(f"{camel}NextBatch", __base__=NextBatch, params=own))


def _to_next_batch(request: BatchOptions) -> NextBatch:
    """Converts the validated request to the service's, with params as JSON."""
    given = dict(request)
    given["params"] = cast(BaseModel, given["params"]).model_dump(mode="json")
    return NextBatch.model_construct(**given)


def _parse_query(query: BatchQuery) -> NextBatch:
    try:
        params = json.loads(query.params)
        given = query.model_dump(exclude={"step"}) | {"policy": None if query.step is None else {"step": query.step}}
        return NextBatch.model_validate({**given, "params": params})
    except (ValidationError, ValueError, RecursionError) as error:
        raise InvalidRequest("params must be a JSON object of finite values", field="query.params") from error
