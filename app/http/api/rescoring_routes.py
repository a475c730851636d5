"""Route to rescore stored groups."""

from typing import Annotated

from fastapi import APIRouter, Body
from fastapi.openapi.models import Example

from app.http.web.bodies import JsonRoute
from app.http.web.openapi import document_problems
from app.service.gateway import Gateway
from app.service.request_models import GroupId
from app.service.rescoring import RescoreEstimate, RescoreReply, RescoreRequest

EXAMPLES = {
    "now": Example(summary="With the run's options and the environment's current version", value={}),
    "judge": Example(
        summary="By another judge, absolute scores only", value={"judges": ["offline"], "relative_weight": 0.0}
    ),
}


def create_rescoring_router(gateway: Gateway) -> APIRouter:
    router = APIRouter(tags=["records"], route_class=JsonRoute)
    refusals = document_problems(400, 401, 404, 408, 410, 413, 415, 422, 429, 503)

    @router.post(
        "/groups/{group_id}/rescore", summary="Rescore a group; the original scores are kept", responses=refusals
    )
    async def rescore(
        group_id: GroupId, request: Annotated[RescoreRequest, Body(openapi_examples=EXAMPLES)]
    ) -> RescoreReply:
        await gateway.quotas.require_judging()
        return await gateway.rescorer.rescore(group_id, request)

    @router.post(
        "/groups/{group_id}/rescore/estimate",
        summary="What rescoring a group would cost at most; nothing is asked",
        responses=refusals,
    )
    async def estimate(
        group_id: GroupId, request: Annotated[RescoreRequest, Body(openapi_examples=EXAMPLES)]
    ) -> RescoreEstimate:
        return await gateway.rescorer.estimate(group_id, request)

    return router
