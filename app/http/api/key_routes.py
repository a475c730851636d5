"""Routes for admins: keys, and the audit of what was done to them."""

from typing import Annotated

from fastapi import APIRouter, Body, Query, Request
from fastapi.openapi.models import Example

from app.domain.access import AccessKey, AdminAction, Caller, KeyOptions
from app.domain.quotas import KeyQuotas, KeyUsage, QuotaUse
from app.domain.values import Frozen, Name
from app.http.web.api_keys import find_caller
from app.http.web.bodies import JsonRoute
from app.http.web.openapi import document_problems
from app.service.key_admin import GraceSeconds, KeyAdmin, NewSecret
from app.service.quotas import QuotaService

KEY_EXAMPLES = {"trainer": Example(summary="A trainer", value={"name": "ada", "scopes": ["read", "train"]})}
ROTATION_EXAMPLES = {"hour": Example(summary="Both work for an hour", value={"grace_seconds": 3600})}


QUOTA_EXAMPLES = {"day": Example(summary="Five dollars a day", value={"judge_usd_per_day": 5.0, "leases": 512})}


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
        request: Request, options: Annotated[KeyOptions, Body(openapi_examples=KEY_EXAMPLES)]
    ) -> NewSecret:
        return await admin.create(options, _name_caller(request))

    @router.post("/keys/{key}/rotate", summary="Give a key a new secret, shown this once", responses=refusals)
    async def rotate(
        request: Request, key: Name, rotation: Annotated[Rotation, Body(openapi_examples=ROTATION_EXAMPLES)]
    ) -> NewSecret:
        return await admin.rotate(key, rotation.grace_seconds, _name_caller(request))

    @router.post("/keys/{key}/revoke", summary="End a key for good", responses=refusals)
    async def revoke(request: Request, key: Name, _: Revocation) -> AccessKey:
        return await admin.revoke(key, _name_caller(request))

    @router.put("/keys/{key}/quotas", summary="Replace the quotas of a key", responses=refusals)
    async def limit(
        request: Request, key: Name, quotas: Annotated[KeyQuotas, Body(openapi_examples=QUOTA_EXAMPLES)]
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

    return router


def _name_caller(request: Request) -> str:
    caller = find_caller(request.scope)
    return "" if caller is None else caller.name  # nobody comes here without a key
