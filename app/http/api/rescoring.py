"""Scoring stored groups anew."""

from typing import Annotated

from fastapi import APIRouter, Body
from fastapi.openapi.models import Example

from app.http.web.bodies import JsonRoute
from app.http.web.problems import problem_responses
from app.service.gateway import Gateway
from app.service.requests import GroupId
from app.service.rescoring import Rescored, RescoreRequest

EXAMPLES = {
    "now": Example(summary="As the run is scored, under what the environment is now", value={}),
    "judge": Example(
        summary="By another judge, on absolute alone", value={"judges": ["offline"], "relative_weight": 0.0}
    ),
}


def rescoring_router(gateway: Gateway) -> APIRouter:
    router = APIRouter(tags=["records"], route_class=JsonRoute)
    refusals = problem_responses(400, 401, 404, 413, 415, 422, 503)

    @router.post(
        "/groups/{group_id}/rescore", summary="Score a group anew, beside what its trainer was told", responses=refusals
    )
    async def rescore(
        group_id: GroupId, request: Annotated[RescoreRequest, Body(openapi_examples=EXAMPLES)]
    ) -> Rescored:
        return await gateway.rescorer.rescore(group_id, request)

    return router
