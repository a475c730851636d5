"""Routes by which people label replies, blind until their label is sent."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import APIRouter, Body, Path, Query
from fastapi.openapi.models import Example

from app.domain.errors import NotFound
from app.domain.labels import (
    Arm,
    ArmCounts,
    GroupLabelRequest,
    ImportRequest,
    Label,
    LabelledGroupRecord,
    LabellerName,
    ReplyLabelRequest,
    find_labeller,
)
from app.domain.values import Frozen, Name, suggest
from app.evaluation.agreement import AgreementSlice, measure_judge_agreement, measure_slices
from app.features.labels.model import (
    ImportReceipt,
    ItemRequest,
    LabelEvidence,
    LabelReceipt,
    LeaseSeconds,
    NextItem,
    SkipRequest,
    WithdrawnLabel,
)
from app.features.labels.service import LabelService
from app.http.web.api_keys import CallerBounds, MaybeCaller, needs
from app.http.web.openapi import document_problems
from app.http.web.routes import ApiRoute, JsonRoute
from app.ports.judges import Panels
from app.service.access import require_named
from app.service.requests import GroupId
from app.service.runs import RunRegistry

_RolloutPath = Annotated[str, Path(pattern=r"^group_[0-9a-f]{32}-[0-9]{1,4}$")]
_ONE, _TWO = (f"group_{'0' * 31}1-{place}" for place in (0, 1))
_LEASE: Final = f"item_{'0' * 31}1"
_ITEM_EXAMPLES = {
    "any": Example(summary="Of any judged environment", value={}),
    "tool": Example(summary="For somebody who shares the key", value={"on_behalf_of": "ada"}),
    "no key": Example(summary="Where the service has no keys", value={"labeller": "ada"}),
    "run": Example(summary="Of one run", value={"environment": "npc_arena", "run": "my-run"}),
}
_GROUP_EXAMPLES = {
    "pair": Example(
        summary="The better one of two",
        value={"pair": {"better": _ONE, "worse": _TWO}, "seconds": 21.5},
    ),
    "queue": Example(
        summary="An item of the queue, with a tie, levels and a defect",
        value={
            "on_behalf_of": "ada",
            "lease_id": _LEASE,
            "order": [[_ONE, _TWO]],
            "replies": {_ONE: {"levels": {"in_character": 3}, "defect": False}, _TWO: {"defect": True}},
            "show_judge": True,
        },
    ),
}
_REPLY_EXAMPLES = {"defect": Example(summary="One reply", value={"levels": {"in_character": 4}, "defect": False})}
_IMPORT_EXAMPLES = {
    "pair": Example(
        summary="A pair",
        value={
            "on_behalf_of": "ada",
            "choices": [
                {
                    "kind": "pair",
                    "choice": {
                        "prompt": [{"role": "user", "content": "Who goes there?"}],
                        "chosen": "A friend, and a wet one.",
                        "rejected": ["I am a helpful assistant."],
                    },
                }
            ],
        },
    )
}
_SKIP_EXAMPLES = {"item": Example(summary="An item", value={"lease_id": _LEASE})}


def create_label_router(labelling: LabelService) -> APIRouter:
    router = APIRouter(tags=["labels"], route_class=JsonRoute)
    refusals = document_problems(400, 401, 404, 408, 409, 410, 413, 415, 422, 503)

    @router.post("/labels/next", summary="The next group to label, without its scores", responses=refusals)
    @needs("label", "handler")
    async def next_item(
        request: Annotated[ItemRequest, Body(openapi_examples=_ITEM_EXAMPLES)],
        bounds: CallerBounds,
        caller: MaybeCaller,
    ) -> NextItem:
        bounds.require_run(request.run, "run")
        bounds.require_environment(request.environment, "environment")
        return await labelling.next_item(request, find_labeller(caller, request.labeller, request.on_behalf_of))

    @router.post("/labels/skip", summary="Give an item back; others may get it", responses=refusals)
    @needs("label", "handler")
    async def skip(
        request: Annotated[SkipRequest, Body(openapi_examples=_SKIP_EXAMPLES)],
        bounds: CallerBounds,
        caller: MaybeCaller,
    ) -> NextItem:
        await labelling.require_item(bounds, request.lease_id)
        return await labelling.skip(request, find_labeller(caller, request.labeller, request.on_behalf_of))

    @router.delete(
        "/labels/{label_id}", summary="Take a label of one's own back; an admin anybody's", responses=refusals
    )
    @needs("label", "handler")
    async def withdraw(
        label_id: Annotated[str, Path(max_length=64)],
        bounds: CallerBounds,
        caller: MaybeCaller,
        labeller: Annotated[LabellerName | None, Query()] = None,
        lease_seconds: Annotated[LeaseSeconds, Query()] = 1800.0,
    ) -> WithdrawnLabel:
        await labelling.require_label(bounds, label_id)
        is_admin = caller is not None and caller.has("admin")
        by = find_labeller(caller, labeller, None)
        return await labelling.withdraw(label_id, by, lease_seconds, is_admin=is_admin)

    @router.post(
        "/groups/{group_id}/labels", summary="Label a group: an order or a pair, levels, defects", responses=refusals
    )
    @needs("label", "group")
    async def label_group(
        group_id: GroupId,
        request: Annotated[GroupLabelRequest, Body(openapi_examples=_GROUP_EXAMPLES)],
        caller: MaybeCaller,
    ) -> LabelReceipt:
        by = find_labeller(caller, request.labeller, request.on_behalf_of)
        return await labelling.label_group(group_id, request, by)

    @router.post("/rollouts/{rollout_id}/labels", summary="Label one reply: levels, a defect", responses=refusals)
    @needs("label", "rollout")
    async def label_reply(
        rollout_id: _RolloutPath,
        request: Annotated[ReplyLabelRequest, Body(openapi_examples=_REPLY_EXAMPLES)],
        caller: MaybeCaller,
    ) -> LabelReceipt:
        by = find_labeller(caller, request.labeller, request.on_behalf_of)
        return await labelling.label_reply(rollout_id, request, by)

    return router


class JudgeAgreement(Frozen):
    """How far a judge agrees with people, over the groups that it scored and the queue drew uniformly."""

    judge: str
    environment: str | None
    run: str | None
    labels: dict[str, int]
    """Labels by kind, of all judges. Only those of the kind `queue` that were drawn uniformly are in the figures."""
    draws: dict[Arm, ArmCounts]
    """Items by how they were drawn: a skip is no accident, so compare the rates."""
    with_others: int
    """Groups whose scores are those of a panel of several judges, for want of the judge's own."""
    unverified: int = 0
    """Labels in the figures by names that nobody verified: they were given where the service had no keys."""
    overall: AgreementSlice
    languages: tuple[AgreementSlice, ...]
    """Where there is more than one."""
    rubrics: tuple[AgreementSlice, ...]


def create_import_router(labelling: LabelService) -> APIRouter:
    router = APIRouter(tags=["labels"], route_class=JsonRoute)

    @router.post(
        "/labels/import",
        summary="Store choices that people made elsewhere",
        responses=document_problems(400, 401, 408, 413, 415, 422, 503),
    )
    @needs("author", "closed")
    async def import_choices(
        request: Annotated[ImportRequest, Body(openapi_examples=_IMPORT_EXAMPLES)], caller: MaybeCaller
    ) -> ImportReceipt:
        by = find_labeller(caller, request.labeller, request.on_behalf_of)
        return await labelling.import_choices(request, by)

    return router


def create_agreement_router(panels: Panels, runs: RunRegistry, labelling: LabelService) -> APIRouter:
    router = APIRouter(tags=["labels"], route_class=ApiRoute)

    @router.get(
        "/judges/{judge}/agreement",
        summary="How far a judge agrees with people",
        responses=document_problems(401, 404, 422, 503),
    )
    @needs("read", "handler")
    async def agreement(
        judge: Annotated[str, Path(max_length=100, examples=["critic"])],
        bounds: CallerBounds,
        env: Annotated[str | None, Query(max_length=100, description="Only groups of this environment.")] = None,
        run: Annotated[Name | None, Query(description="Only groups of this run.")] = None,
    ) -> JudgeAgreement:
        require_named(bounds, run, env)
        if judge not in panels.judges:
            raise NotFound(f"there is no judge {judge!r}{suggest(judge, panels.judges)}; GET /judges lists them")
        if run is not None:
            await runs.require(run, field="query.run")
        evidence = await labelling.collect_evidence(judge, env, run)
        return await asyncio.to_thread(_build_agreement, judge, env, run, evidence)

    return router


def _build_agreement(judge: str, environment: str | None, run: str | None, evidence: LabelEvidence) -> JudgeAgreement:
    records: Sequence[LabelledGroupRecord] = evidence.records
    return JudgeAgreement(
        judge=judge,
        environment=environment,
        run=run,
        labels=evidence.labels,
        draws=evidence.draws,
        with_others=sum(record.with_others for record in records),
        unverified=sum(not label.verified for record in records for label in record.labels),
        overall=measure_judge_agreement(records),
        languages=measure_slices(records, lambda label: label.language),
        rubrics=measure_slices(records, _name_rubric),
    )


def _name_rubric(label: Label) -> str:
    return "none" if label.rubric is None else f"{label.rubric.name} {label.rubric.version}"
