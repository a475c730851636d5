"""Route to preview a draft without storing anything."""

from typing import cast

from fastapi import APIRouter
from pydantic import BaseModel, create_model

from app.http.web.bodies import JsonRoute
from app.http.web.problems import problem_responses
from app.ports.environment import Environment
from app.service.gateway import Gateway
from app.service.trying import Trial, TryOptions


def trying_router(environment: type[Environment], gateway: Gateway) -> APIRouter:
    """`POST /envs/{name}/try`, for environments with drafts."""
    name = environment.name
    router = APIRouter(prefix=f"/envs/{name}", tags=[name], route_class=JsonRoute)
    if environment.Draft is None:
        return router

    async def try_out(request: TryOptions) -> Trial:
        return await gateway.trier.try_out(name, _draft_of(request), request)

    try_out.__annotations__["request"] = _request_type(environment, environment.Draft)
    router.add_api_route(
        "/try",
        try_out,
        methods=["POST"],
        summary="Preview a draft: prompt, gates, verdicts and cost; nothing is stored",
        responses=problem_responses(400, 401, 404, 413, 415, 422, 503),
    )
    return router


def _request_type(environment: type[Environment], draft: type[BaseModel]) -> type[TryOptions]:
    camel = "".join(part.capitalize() for part in environment.name.split("_"))
    return cast(type[TryOptions], create_model(f"{camel}Try", __base__=TryOptions, draft=(draft, ...)))


def _draft_of(request: TryOptions) -> BaseModel:
    return cast(BaseModel, dict(request)["draft"])
