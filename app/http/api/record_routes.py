"""Routes for stored tasks, groups, runs and statistics, for rescoring, and for mixtures of environments."""

from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Request, Response
from fastapi.openapi.models import Example
from pydantic import AfterValidator, Field

from app.domain.access import KeyBounds
from app.domain.errors import InvalidRequest, NotFound
from app.domain.groups import GroupCriteria, GroupDetail, GroupFilter, StatisticsBreakdown, parse_text_query
from app.domain.runs import Run
from app.domain.values import Name
from app.http.api.environment_routes import IdempotencyHeader, build_batch_response, score_in_bounds
from app.http.api.models import GroupPage, GroupReplies, GroupView, RunPage, StatisticsView, TaskView
from app.http.web.api_keys import CallerBounds, needs
from app.http.web.openapi import document_problems
from app.http.web.routes import ApiRoute, JsonRoute
from app.ports.tracing import note_work
from app.service.access import BoundsCheck, check_mixture, list_within
from app.service.catalogue import Catalogue
from app.service.handout import Dispatcher
from app.service.requests import GroupId, NextMixedBatch, ScoreRequest, ScoreResponse, TaskBatch, TaskId
from app.service.rescoring import RescoreEstimate, Rescorer, RescoreReply, RescoreRequest
from app.service.runs import RunRegistry, RunReport, RunSettings
from app.service.scoring import ScoringService, build_reply
from app.service.task_cache import TaskCache
from app.store.views import GroupViews

# The query of `GET /groups`.

_Limit = Annotated[int, Query(ge=1, le=500)]


def _require_words(text: str | None) -> str | None:
    if text is not None and parse_text_query(text) is None:
        raise ValueError("must have a letter or a digit")
    return text


class GroupQuery(GroupCriteria):
    """Of `GET /groups`. Every field narrows what is found, but for `id`, which asks for these alone."""

    id: Annotated[tuple[GroupId, ...], Field(max_length=256)] = ()
    wait: Annotated[float, Field(ge=0, le=600, allow_inf_nan=False)] = 0.0
    """Seconds, with `id`."""

    task_id: TaskId | None = None
    """Only groups of this task."""
    judge: Name | None = None
    """Only groups that this judge read for their own scores."""
    text: Annotated[str | None, Field(max_length=200), AfterValidator(_require_words)] = None
    """Words of prompts, completions or rationales; "phrases" in quotes."""
    before: Annotated[int | None, Field(ge=0, lt=2**63)] = None
    """Only older groups than this place: `next_before` of the page before."""
    limit: Annotated[int, Field(ge=1, le=500)] = 50

    @property
    def where(self) -> GroupFilter:
        shared = self.model_dump(exclude={"id", "wait", "text"})
        return GroupFilter(**shared, text=None if self.text is None else parse_text_query(self.text))


# Mixtures, records and runs.

RunName = Annotated[Name, Path(description="The run's name.", examples=["my-run"])]


def create_mixture_router(dispatcher: Dispatcher, scoring: ScoringService, checks: BoundsCheck) -> APIRouter:
    """next-batch and score over several environments at once."""
    router = APIRouter(tags=["mixtures"], route_class=JsonRoute)
    refusals = document_problems(400, 401, 404, 408, 409, 413, 415, 422, 429, 503)

    @router.post(
        "/next-batch", response_model=TaskBatch, summary="Hand out tasks of a seeded mixture", responses=refusals
    )
    @needs("train", "handler")
    async def next_mixed_batch(request: NextMixedBatch, client: Request, bounds: CallerBounds) -> Response:
        note_work(run=request.run)
        check_mixture(bounds, request)
        return build_batch_response(await dispatcher.deal_mixed_batch(request, client.is_disconnected))

    @router.post(
        "/score",
        response_model=ScoreResponse,
        summary="Score groups of any environments",
        responses=refusals | document_problems(410),
    )
    @needs("train", "handler")
    async def score(request: ScoreRequest, client: Request, key: IdempotencyHeader = None) -> Response:
        return await score_in_bounds(scoring, checks, request, None, client, key)

    return router


def create_records_router(
    *,
    catalogue: Catalogue,
    views: GroupViews,
    task_cache: TaskCache,
    scoring: ScoringService,
    checks: BoundsCheck,
    runs: RunRegistry,
) -> APIRouter:
    router = APIRouter(tags=["records"], route_class=ApiRoute)
    refusals = document_problems(401, 404, 422, 503)

    @router.get("/tasks/{task_id}", summary="One task, as it was handed out", responses=refusals)
    @needs("read", "handler")
    async def task(task_id: TaskId, bounds: CallerBounds) -> TaskView:
        await checks.require_tasks(bounds, [task_id])
        record = (await task_cache.get([task_id])).get(task_id)
        if record is None:
            raise NotFound(f"there is no task {task_id}")
        return TaskView.from_record(record)

    @router.get("/groups", summary="Groups that a filter finds, or groups by id once scored", responses=refusals)
    @needs("read", "handler")
    async def groups(query: Annotated[GroupQuery, Query()], bounds: CallerBounds) -> GroupPage | GroupReplies:
        if query.id:
            return await _collect_groups(scoring, checks, query.id, query.wait, bounds)
        page = await views.find_groups(query.where.within(bounds))
        _require_environment(catalogue, bounds, query.environment, is_empty=not page.groups and query.before is None)
        return GroupPage(
            groups=page.groups,
            next_before=page.next_before,
            looked_at=page.looked_at,
            matched=page.matched,
            not_indexed=page.not_indexed,
        )

    @router.get(
        "/groups/{group_id}",
        summary="One group with its task and judgements",
        responses=document_problems(401, 404, 410, 422, 503),
    )
    @needs("read", "group")
    async def group(group_id: GroupId) -> GroupView:
        detail = await views.get_group(group_id) or await _find_open_group(scoring, task_cache, group_id)
        if detail is None:
            raise NotFound(f"there is no group {group_id}")
        return GroupView.from_detail(detail)

    @router.get("/stats", summary="Rewards by environment, run and policy step", responses=refusals)
    @needs("read", "handler")
    async def statistics(
        bounds: CallerBounds,
        env: Annotated[str | None, Query(max_length=100)] = None,
        run: Annotated[str | None, Query(max_length=100)] = None,
        by: Annotated[
            Name | None,
            Query(
                description="Also break down by `judge`, `dataset`, or this key of the tasks' metadata: `character`. "
                "`label`: by the key of each environment.",
            ),
        ] = None,
        judge: Annotated[
            Name | None, Query(description="Only groups that this judge scored. Not with another `by` than `judge`.")
        ] = None,
        min_step: Annotated[int | None, Query(ge=0, lt=2**53, description="Only this policy step or later.")] = None,
        max_step: Annotated[int | None, Query(ge=0, lt=2**53, description="Only this policy step or earlier.")] = None,
    ) -> StatisticsView:
        if run is not None and bounds.allows_run(run):  # of another run nobody is told whether there is one
            await runs.require(run, "query.run")
        labelled = _find_labelled(catalogue, by, judge)
        breakdown = _choose_breakdown(by, judge, bool(labelled))
        uncounted = await views.count_uncounted()
        steps = {"min_step": min_step, "max_step": max_step}
        rows = await views.get_statistics(env, run, by=breakdown, judge=judge, **steps, bounds=bounds)
        _require_environment(catalogue, bounds, env, is_empty=not rows and min_step is None and max_step is None)
        shown = tuple(row for row in rows if not labelled or row.environment in labelled)
        return StatisticsView(rows=shown, uncounted=uncounted)

    return router


def create_runs_router(registry: RunRegistry, views: GroupViews) -> APIRouter:
    router = APIRouter(prefix="/runs", tags=["runs"], route_class=JsonRoute)
    refusals = document_problems(400, 401, 404, 408, 409, 413, 415, 422, 503)

    @router.put("/{run}", summary="Set a run's seed and options before its first use", responses=refusals)
    @needs("train", "run")
    async def put_run(run: RunName, settings: RunSettings) -> Run:
        return await registry.put(run, settings)

    @router.get("", summary="Every run, by name", responses=document_problems(401, 422, 503))
    @needs("read", "handler")
    async def runs(bounds: CallerBounds, after: Name | None = None, limit: _Limit = 100) -> RunPage:
        page = await list_within(registry.list_runs, _name_run, bounds.allows_run, limit, after)
        return RunPage(runs=tuple(page), next_after=page[-1].name if len(page) == limit else None)

    @router.get("/{run}", summary="One run: pinned options and activity", responses=refusals)
    @needs("read", "run")
    async def one_run(run: RunName) -> RunReport:
        uncounted = await views.count_uncounted()  # before the counts, which so have at least what it says
        report = await registry.get_report(run)
        alarms = await registry.list_open_alarms(run)
        return report.model_copy(update={"alarms": alarms, "uncounted": uncounted})

    return router


def _require_environment(catalogue: Catalogue, bounds: KeyBounds, name: str | None, *, is_empty: bool) -> None:
    """NotFound where an answer is empty and there is no such environment: a mistyped name would be hidden. Of what is
    beyond a key it is told nothing."""
    if is_empty and name is not None and bounds.allows_environment(name):
        catalogue.require_known(name, "query.env")


def _find_labelled(catalogue: Catalogue, by: str | None, judge: str | None) -> set[str]:
    """The environments whose tasks are labelled by this key; none for `judge`, `dataset`, `label` and no key."""
    if by in {None, "judge"}:
        return set()
    labelled = {name for name, kind in catalogue.classes.items() if kind.stats_label == by}
    if not labelled and by not in {"dataset", "label"}:
        raise InvalidRequest("no environment has statistics by this key", field="query.by")
    if judge is not None:
        raise InvalidRequest("statistics of one judge are not broken down by another key", field="query.judge")
    return labelled


def _choose_breakdown(by: str | None, judge: str | None, labelled: bool) -> StatisticsBreakdown | None:
    if labelled or by == "label":
        return "label"
    if by == "dataset":
        return "dataset"
    return "judge" if by or judge else None


def _name_run(run: Run) -> str:
    return run.name


async def _find_open_group(scoring: ScoringService, task_cache: TaskCache, group_id: str) -> GroupDetail | None:
    """A group that still waits for pieces, with those that have come."""
    group = (await scoring.collect([group_id], 0.0)).get(group_id)
    record = None if group is None else (await task_cache.get([group.task_id])).get(group.task_id)
    return None if group is None or record is None else GroupDetail(group=group, task=record, judgements=())


async def _collect_groups(
    scoring: ScoringService, checks: BoundsCheck, ids: tuple[str, ...], wait: float, bounds: KeyBounds
) -> GroupReplies:
    foreign = await checks.find_foreign(bounds, ids)
    collected = {} if foreign else await scoring.collect(ids, wait)
    groups = {name: group for name, group in collected.items() if bounds.allows_group(group.run, group.environment)}
    missing = sorted(foreign) or [identity for identity in ids if identity not in groups]
    if missing:
        raise NotFound(f"there is no group {missing[0]}", field="query.id")
    return GroupReplies(groups=tuple(build_reply(groups[identity]) for identity in ids))


# Rescoring.

_EXAMPLES = {
    "now": Example(summary="With the run's options and the environment's current version", value={}),
    "judge": Example(
        summary="By another judge, absolute scores only", value={"judges": ["offline"], "relative_weight": 0.0}
    ),
}


def create_rescoring_router(rescorer: Rescorer) -> APIRouter:
    router = APIRouter(tags=["records"], route_class=JsonRoute)
    refusals = document_problems(400, 401, 404, 408, 410, 413, 415, 422, 429, 503)

    @router.post(
        "/groups/{group_id}/rescore", summary="Rescore a group; the original scores are kept", responses=refusals
    )
    @needs("train", "group")
    async def rescore(
        group_id: GroupId, request: Annotated[RescoreRequest, Body(openapi_examples=_EXAMPLES)]
    ) -> RescoreReply:
        return await rescorer.rescore(group_id, request)

    @router.post(
        "/groups/{group_id}/rescore/estimate",
        summary="What rescoring a group would cost at most; nothing is asked",
        responses=refusals,
    )
    @needs("train", "group")
    async def estimate(
        group_id: GroupId, request: Annotated[RescoreRequest, Body(openapi_examples=_EXAMPLES)]
    ) -> RescoreEstimate:
        return await rescorer.estimate(group_id, request)

    return router
