"""Routes by which people label replies, blind until their label is sent."""

from typing import Annotated, Final

from fastapi import APIRouter, Body, Path, Query
from fastapi.openapi.models import Example

from app.domain.labels import GroupLabelRequest, LabellerName, ReplyLabelRequest
from app.http.web.bodies import JsonRoute
from app.http.web.openapi import document_problems
from app.service.gateway import Gateway
from app.service.label_models import ItemRequest, LabelReceipt, LeaseSeconds, NextItem, SkipRequest, WithdrawnLabel
from app.service.request_models import GroupId

LABEL_ROUTES: Final = (
    ("POST", "/labels/next"),
    ("POST", "/labels/skip"),
    ("DELETE", "/labels/{label_id}"),
    ("POST", "/groups/{group_id}/labels"),
    ("POST", "/rollouts/{rollout_id}/labels"),
)
"""All that somebody who may label only can reach. None shows a score of an item that waits for a label."""

RolloutPath = Annotated[str, Path(pattern=r"^group_[0-9a-f]{32}-[0-9]{1,4}$")]
_ONE, _TWO = (f"group_{'0' * 31}1-{place}" for place in (0, 1))
_LEASE: Final = f"item_{'0' * 31}1"
ITEM_EXAMPLES = {
    "any": Example(summary="Of any judged environment", value={"labeller": "ada"}),
    "run": Example(summary="Of one run", value={"labeller": "ada", "environment": "npc_arena", "run": "my-run"}),
}
GROUP_EXAMPLES = {
    "pair": Example(
        summary="The better one of two",
        value={"labeller": "ada", "pair": {"better": _ONE, "worse": _TWO}, "seconds": 21.5},
    ),
    "queue": Example(
        summary="An item of the queue, with a tie, levels and a defect",
        value={
            "labeller": "ada",
            "lease_id": _LEASE,
            "order": [[_ONE, _TWO]],
            "replies": {_ONE: {"levels": {"in_character": 3}, "defect": False}, _TWO: {"defect": True}},
            "show_judge": True,
        },
    ),
}
REPLY_EXAMPLES = {
    "defect": Example(summary="One reply", value={"labeller": "ada", "levels": {"in_character": 4}, "defect": False})
}
SKIP_EXAMPLES = {"item": Example(summary="An item", value={"labeller": "ada", "lease_id": _LEASE})}


def create_label_router(gateway: Gateway) -> APIRouter:
    router = APIRouter(tags=["labels"], route_class=JsonRoute)
    refusals = document_problems(400, 401, 404, 408, 409, 413, 415, 422, 503)

    @router.post("/labels/next", summary="The next group to label, without its scores", responses=refusals)
    async def next_item(request: Annotated[ItemRequest, Body(openapi_examples=ITEM_EXAMPLES)]) -> NextItem:
        return await gateway.labelling.next_item(request)

    @router.post("/labels/skip", summary="Give an item back; others may get it", responses=refusals)
    async def skip(request: Annotated[SkipRequest, Body(openapi_examples=SKIP_EXAMPLES)]) -> NextItem:
        return await gateway.labelling.skip(request)

    @router.delete("/labels/{label_id}", summary="Take one's own label back", responses=refusals)
    async def withdraw(
        label_id: Annotated[str, Path(max_length=64)],
        labeller: Annotated[LabellerName, Query()],
        lease_seconds: Annotated[LeaseSeconds, Query()] = 1800.0,
    ) -> WithdrawnLabel:
        return await gateway.labelling.withdraw(label_id, labeller, lease_seconds)

    @router.post(
        "/groups/{group_id}/labels", summary="Label a group: an order or a pair, levels, defects", responses=refusals
    )
    async def label_group(
        group_id: GroupId, request: Annotated[GroupLabelRequest, Body(openapi_examples=GROUP_EXAMPLES)]
    ) -> LabelReceipt:
        return await gateway.labelling.label_group(group_id, request)

    @router.post("/rollouts/{rollout_id}/labels", summary="Label one reply: levels, a defect", responses=refusals)
    async def label_reply(
        rollout_id: RolloutPath, request: Annotated[ReplyLabelRequest, Body(openapi_examples=REPLY_EXAMPLES)]
    ) -> LabelReceipt:
        return await gateway.labelling.label_reply(rollout_id, request)

    return router
