"""Route to preview a draft without storing anything."""

from typing import cast

from fastapi import APIRouter
from pydantic import BaseModel, create_model

from app.http.web.bodies import JsonRoute
from app.http.web.openapi import document_problems
from app.ports.environment import Environment
from app.service.gateway import Gateway
from app.service.previews import PreviewOptions, PreviewResult


def create_preview_router(environment: type[Environment], gateway: Gateway) -> APIRouter:
    """`POST /envs/{name}/try`, for environments with drafts."""
    name = environment.name
    router = APIRouter(prefix=f"/envs/{name}", tags=[name], route_class=JsonRoute)
    if environment.Draft is None:
        return router

    async def try_out(request: PreviewOptions) -> PreviewResult:
        await gateway.quotas.require_judging()
        return await gateway.previews.preview(name, _read_draft(request), request)

    try_out.__annotations__["request"] = _build_preview_model(environment, environment.Draft)
    router.add_api_route(
        "/try",
        try_out,
        methods=["POST"],
        summary="Preview a draft: prompt, gates, verdicts and cost; nothing is stored",
        responses=document_problems(400, 401, 404, 408, 413, 415, 422, 429, 503),
    )
    return router


def _build_preview_model(environment: type[Environment], draft: type[BaseModel]) -> type[PreviewOptions]:
    camel = "".join(part.capitalize() for part in environment.name.split("_"))
    return cast(type[PreviewOptions], create_model(f"{camel}Try", __base__=PreviewOptions, draft=(draft, ...)))


def _read_draft(request: PreviewOptions) -> BaseModel:
    return cast(BaseModel, dict(request)["draft"])
