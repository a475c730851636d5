"""Routes for who runs the service: quotas, keys and their audit, health, metrics, and previews of drafts."""

from collections.abc import Callable
from typing import Annotated, cast

from fastapi import APIRouter, Body, Query, Request, Response
from fastapi.openapi.models import Example
from pydantic import BaseModel, create_model

from app.domain.access import AccessKey, AdminAction, Caller, KeyOptions, KeyScopes
from app.domain.budgets import KeyQuotas, KeyUsage, QuotaUse
from app.domain.errors import StillStarting
from app.domain.values import Frozen, Name
from app.http.api.models import ServiceHealth, ServiceReadiness
from app.http.web.api_keys import declare_access, find_caller, needs, open_to_all
from app.http.web.openapi import document_problems
from app.http.web.routes import JsonRoute, LazyRoute
from app.ports.environment import Clock, Environment
from app.service.access import GraceSeconds, KeyAdmin, NewSecret, QuotaService
from app.service.catalogue import Catalogue
from app.service.retrieval import PreviewOptions, PreviewResult, PreviewService
from app.store.migration import HealthCheck

_KEY_EXAMPLES = {"trainer": Example(summary="A trainer", value={"name": "ada", "scopes": ["read", "train"]})}
_ROTATION_EXAMPLES = {"hour": Example(summary="Both work for an hour", value={"grace_seconds": 3600})}
_SCOPE_EXAMPLES = {"game": Example(summary="A game", value={"scopes": ["talk", "play"]})}
_QUOTA_EXAMPLES = {"day": Example(summary="Five dollars a day", value={"judge_usd_per_day": 5.0, "leases": 512})}


class KeyList(Frozen):
    keys: tuple[AccessKey, ...]


class Rotation(Frozen):
    grace_seconds: GraceSeconds = 0.0


class Revocation(Frozen):
    """Takes no fields."""


class AdminActionPage(Frozen):
    """Newest first. Pass `next_before` as `before` for the next page; null on the last page."""

    actions: tuple[AdminAction, ...]
    next_before: int | None


class QuotaReport(Frozen):
    """What the key of this request has used today and holds now. `quotas` has a line for each of its limits."""

    key: str
    usage: KeyUsage
    quotas: tuple[QuotaUse, ...]


def create_quota_router(service: QuotaService) -> APIRouter:
    router = APIRouter(tags=["admin"], route_class=JsonRoute)

    @router.get("/quotas", summary="What this key has used of its quotas", responses=document_problems(401, 403, 503))
    @needs("train", "shared")
    async def quotas(request: Request) -> QuotaReport:
        caller = find_caller(request.scope) or Caller("", frozenset())
        usage = await service.load_usage(caller)
        return QuotaReport(key=caller.name, usage=usage, quotas=usage.list_uses(caller.quotas))

    return router


def create_key_router(admin: KeyAdmin) -> APIRouter:
    router = APIRouter(prefix="/admin", tags=["admin"], route_class=JsonRoute)
    refusals = document_problems(400, 401, 403, 404, 408, 409, 413, 415, 422, 503)
    looks = document_problems(401, 403, 422, 503)

    @router.get("/keys", summary="Every named key, without its secret", responses=looks)
    async def keys() -> KeyList:
        return KeyList(keys=await admin.list_keys())

    @router.post("/keys", summary="Make a key; its secret is shown this once", responses=refusals)
    async def create(
        request: Request, options: Annotated[KeyOptions, Body(openapi_examples=_KEY_EXAMPLES)]
    ) -> NewSecret:
        return await admin.create(options, _name_caller(request))

    @router.post("/keys/{key}/rotate", summary="Give a key a new secret, shown this once", responses=refusals)
    async def rotate(
        request: Request, key: Name, rotation: Annotated[Rotation, Body(openapi_examples=_ROTATION_EXAMPLES)]
    ) -> NewSecret:
        return await admin.rotate(key, rotation.grace_seconds, _name_caller(request))

    @router.post("/keys/{key}/revoke", summary="End a key for good", responses=refusals)
    async def revoke(request: Request, key: Name, _: Revocation) -> AccessKey:
        return await admin.revoke(key, _name_caller(request))

    @router.put("/keys/{key}/scopes", summary="Replace the scopes of a key", responses=refusals)
    async def open_scopes(
        request: Request, key: Name, opened: Annotated[KeyScopes, Body(openapi_examples=_SCOPE_EXAMPLES)]
    ) -> AccessKey:
        return await admin.open(key, opened.scopes, _name_caller(request))

    @router.put("/keys/{key}/quotas", summary="Replace the quotas of a key", responses=refusals)
    async def limit(
        request: Request, key: Name, quotas: Annotated[KeyQuotas, Body(openapi_examples=_QUOTA_EXAMPLES)]
    ) -> AccessKey:
        return await admin.limit(key, quotas, _name_caller(request))

    @router.get("/audit", summary="What was done to keys, and by whom", responses=looks)
    async def audit(
        before: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 100,
    ) -> AdminActionPage:
        page = await admin.list_actions(before, limit)
        following = page[-1][0] if len(page) == limit else None
        return AdminActionPage(actions=tuple(action for _, action in page), next_before=following)

    declare_access(router.routes, "admin", "closed")
    return router


def _name_caller(request: Request) -> str:
    caller = find_caller(request.scope)
    return "" if caller is None else caller.name  # nobody comes here without a key


# Health and metrics, for orchestrators and Prometheus.

_Exposition = Callable[[], tuple[bytes, str]]
"""The metrics and their content type."""


def create_health_router(
    *,
    catalogue: Catalogue,
    health: HealthCheck,
    version: str,
    clock: Clock,
    exposition: _Exposition,
    offline_judge: tuple[str, ...],
    list_down: Callable[[], tuple[str, ...]],
) -> APIRouter:
    """`offline_judge`: the environments that the offline judge scores by default. `list_down`: those whose own servers
    are down."""
    router = APIRouter(tags=["health"], route_class=LazyRoute)

    @router.get("/livez", summary="Liveness: the process responds")
    @open_to_all
    async def livez() -> ServiceHealth:
        return ServiceHealth(status="ok", version=version, time=clock())

    @router.get(
        "/readyz",
        summary="Readiness: the store accepts writes and the environments are loaded",
        responses=document_problems(503),
    )
    @open_to_all
    async def readyz() -> ServiceReadiness:
        if not catalogue.ready:
            raise StillStarting("the environments' data is still loading")
        await health.check()
        return ServiceReadiness(
            status="ok", version=version, time=clock(), offline_judge=offline_judge, down=list_down()
        )

    @router.get("/metrics", summary="Metrics for Prometheus", response_class=Response, responses=document_problems(401))
    @needs("metrics", "closed")
    async def metrics() -> Response:
        body, content_type = exposition()
        return Response(body, media_type=content_type)

    return router


# Previews of drafts: nothing is stored.


def create_preview_router(environment: type[Environment], previews: PreviewService, quotas: QuotaService) -> APIRouter:
    """`POST /envs/{name}/try`, for environments with drafts."""
    name = environment.name
    router = APIRouter(prefix=f"/envs/{name}", tags=[name], route_class=JsonRoute)
    if environment.Draft is None:
        return router

    @needs("author", "closed")
    async def try_out(request: PreviewOptions) -> PreviewResult:
        draft, texts = _read_draft(request), [one.model_dump_json() for one in request.completions]
        if request.own_draft:
            # Before the bound: judges read its text.
            draft = await previews.fill_in(name, draft)
        # Without completions no judge is asked.
        judged = quotas.bound_unknown(name, request.options, [draft.model_dump_json(), *texts]) if texts else None
        async with quotas.hold_judging(judged):
            return await previews.preview(name, draft, request)

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
