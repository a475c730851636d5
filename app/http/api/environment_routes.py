"""Routes of environments: the catalogue, and what each is asked for: next-batch, step and score.

Every environment has routes of its own, so that the document shows its params and a working example, which Swagger UI
sends on Execute.
"""

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Final, cast

from fastapi import APIRouter, FastAPI, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, create_model
from starlette.routing import Route

from app.characters.schema import CharacterCard
from app.domain.access import find_bounds
from app.domain.errors import Conflict, Forbidden, Gone, InvalidRequest, NotFound, PartsGone, RunHeld, TooLarge
from app.domain.faults import make_printable
from app.domain.judging import JudgeVersion, RubricLabel
from app.domain.runs import ScoringOptions
from app.domain.tasks import Completion, Message, Turn
from app.domain.values import Name, Split, canonical_json, digest_of_text
from app.http.api.models import (
    CharacterList,
    CriterionInfo,
    EnvironmentInfo,
    EnvironmentList,
    IsolationInfo,
    JudgeInfo,
    JudgeList,
    ReloadedCharacters,
    SplitInfo,
)
from app.http.web.api_keys import CallerBounds, find_caller, needs
from app.http.web.openapi import document_problems
from app.http.web.problems import MAX_DETAIL, MAX_ERRORS, FieldProblem, build_problem_response
from app.http.web.routes import ApiRoute, DirectRoute, JsonRoute
from app.ports.environment import Environment
from app.ports.judges import Panels, ReportingJudge
from app.ports.tracing import note_work
from app.service.access import BoundsCheck, check_hand_out, scope_idempotency
from app.service.catalogue import Catalogue
from app.service.handout import Dispatcher
from app.service.judging import find_rubric
from app.service.requests import (
    BatchOptions,
    GroupProblem,
    NextBatch,
    ScoreRequest,
    ScoreResponse,
    StepRequest,
    TaskBatch,
)
from app.service.retrieval import EpisodeStepper
from app.service.scoring import ScoringService
from app.service.task_cache import DealtBatch, TaskCache
from app.store.groups import IdempotencyKey

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


def create_environment_router(
    environment: type[Environment],
    *,
    dispatcher: Dispatcher,
    stepper: EpisodeStepper,
    scoring: ScoringService,
    checks: BoundsCheck,
) -> APIRouter:
    """`POST` and `GET /envs/{name}/next-batch`, `POST …/step` for multi-turn environments, `POST …/score`."""
    name = environment.name
    router = APIRouter(prefix=f"/envs/{name}", tags=[name], route_class=JsonRoute)
    request_type = _build_request_model(name, environment.Params)

    @needs("train", "handler")
    async def next_batch(request: BatchOptions, client: Request) -> Response:
        return await hand_out(_to_next_batch(request), client)

    @needs("train", "handler")
    async def next_batch_by_query(query: Annotated[BatchQuery, Query()], client: Request) -> Response:
        return await hand_out(_parse_query(query), client)

    async def hand_out(request: NextBatch, client: Request) -> Response:
        note_work(name, request.run)
        check_hand_out(find_bounds(find_caller(client.scope)), name, request.run, request.params)
        return build_batch_response(await dispatcher.deal_batch(name, request, client.is_disconnected))

    @needs("train", "handler")
    async def step(request: StepRequest, bounds: CallerBounds) -> Turn:
        note_work(name, request.run)
        if request.run is not None:
            bounds.require_run(request.run)
        await checks.require_tasks(bounds, [request.task_id], "task_id")
        return await stepper.step(name, request)

    @needs("train", "handler")
    async def score(request: ScoreRequest, client: Request, key: IdempotencyHeader = None) -> Response:
        return await score_in_bounds(scoring, checks, request, name, client, key)

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
    refusals |= document_problems(410)  # of groups that are pruned
    scores: dict[str, Any] = {"response_model": ScoreResponse, "responses": refusals}
    add("/score", score, methods=["POST"], summary=summary, route_class_override=DirectRoute, **scores)
    return router


def build_batch_response(batch: DealtBatch) -> Response:
    """Made here: FastAPI would build a model of every task to write it."""
    return Response(batch.to_json(), media_type="application/json")


_MOST_NAMED: Final = 5
"""Refused groups that the sentence for people has. The body has all."""


async def score_in_bounds(
    scoring: ScoringService,
    checks: BoundsCheck,
    request: ScoreRequest,
    environment: str | None,
    client: Request,
    key: str | None,
) -> Response:
    caller = find_caller(client.scope)
    await checks.check_score(find_bounds(caller), request)
    repeat = scope_idempotency(caller, await _build_idempotency_key(key, request))
    scored = await scoring.score(request, environment, repeat)
    refused = [group for group in scored.groups if isinstance(group, GroupProblem)]
    if refused and len(refused) == len(scored.groups):
        return _refuse_all(client, refused)
    return Response(scored.to_json(), media_type="application/json")


_STATUSES: Final[Mapping[str, int]] = {
    kind.code: kind.status
    for kind in (InvalidRequest, Forbidden, NotFound, Gone, PartsGone, Conflict, RunHeld, TooLarge)
}


def _refuse_all(client: Request, refused: Sequence[GroupProblem]) -> Response:
    """A client that looks at the status alone would take its groups for scored. The body has the reason of each, as a
    reply has it beside accepted groups."""
    codes = {one.code for one in refused}
    code = codes.pop() if len(codes) == 1 else InvalidRequest.code
    errors = [
        FieldProblem(
            field=make_printable(one.field or f"groups[{place}]"), message=make_printable(one.detail, MAX_DETAIL)
        )
        for place, one in enumerate(refused)
    ]
    told = "; ".join(f"{one.field}: {one.message}" for one in errors[:_MOST_NAMED])
    left = f"; and {len(errors) - _MOST_NAMED} more" if len(errors) > _MOST_NAMED else ""
    return build_problem_response(
        client.scope,
        _STATUSES.get(code, InvalidRequest.status),
        make_printable(f"no group was accepted: {told}{left}", MAX_DETAIL),
        code=code,
        errors=tuple(errors[:MAX_ERRORS]),
        more={"groups": [one.model_dump(mode="json") for one in refused]},
    )


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
    values = dict(request)
    values["params"] = cast(BaseModel, values["params"]).model_dump(mode="json")
    # Its parts are validated already.
    return NextBatch.model_construct(**values)


def _parse_query(query: BatchQuery) -> NextBatch:
    try:
        params = json.loads(query.params)
        values = query.model_dump(exclude={"step"}) | {"policy": None if query.step is None else {"step": query.step}}
        return NextBatch.model_validate({**values, "params": params})
    except (ValidationError, ValueError, RecursionError) as error:
        raise InvalidRequest("params must be a JSON object of finite values", field="query.params") from error


# The catalogue: environments and judges.

SPLITS: tuple[Split, ...] = ("train", "test")


def create_catalogue_router(
    *,
    catalogue: Catalogue,
    panels: Panels,
    list_judge_versions: Callable[[Sequence[str]], Awaitable[list[JudgeVersion]]],
    not_for_training: Collection[str],
) -> APIRouter:
    """`not_for_training` names judges that are only for trying the system."""
    router = APIRouter(tags=["catalogue"], route_class=ApiRoute)

    @router.get("/envs", summary="Every environment", responses=document_problems(401))
    @needs("read", "shared")
    async def environments() -> EnvironmentList:
        return EnvironmentList(
            environments=tuple(
                _build_environment_info(catalogue, panels, name, not_for_training) for name in catalogue.classes
            )
        )

    @router.get("/envs/{env}", summary="One environment", responses=document_problems(401, 404, 422))
    @needs("read", "shared")
    async def environment(env: str) -> EnvironmentInfo:
        catalogue.require_known(env)
        return _build_environment_info(catalogue, panels, env, not_for_training)

    @router.get("/judges", summary="Every judge", responses=document_problems(401, 503))
    @needs("read", "handler")
    async def judge_list(bounds: CallerBounds) -> JudgeList:
        versions = await list_judge_versions(tuple(panels.judges))
        listed = _list_judges(catalogue, panels, not_for_training, versions)
        return JudgeList(judges=listed if bounds.is_open else tuple(map(_leave_out_spending, listed)))

    return router


def _build_environment_info(
    catalogue: Catalogue, panels: Panels, name: str, not_for_training: Collection[str]
) -> EnvironmentInfo:
    environment = catalogue.classes[name]
    reason = catalogue.explain_unavailability(name)
    judged = None if environment.rubric is None else panels.resolve_options(name, ScoringOptions())
    rubric = find_rubric(panels, environment, ScoringOptions())
    return EnvironmentInfo(
        name=name,
        version=environment.version,
        description=describe_environment(environment),
        available=reason is None,
        reason=reason,
        origin=None if reason is not None else catalogue.get_environment_or_current(name).environment.origin,
        splits=() if reason is not None else _list_splits(catalogue, name),
        multi_turn=environment.multi_turn,
        label=environment.stats_label,
        criteria=tuple(
            CriterionInfo(name=criterion.name, weight=criterion.weight, description=criterion.description)
            for criterion in (rubric.criteria if rubric is not None else ())
        ),
        rubric=None if rubric is None else RubricLabel.from_rubric(rubric),
        takes_rubric=environment.takes_rubric,
        judges=() if judged is None else judged.judges,
        mode=None if judged is None else judged.mode,
        votes=None if judged is None else judged.votes,
        readings=None if judged is None else judged.readings,
        relative_weight=None if judged is None else judged.relative_weight,
        offline_judge=judged is not None and any(judge in not_for_training for judge in judged.judges),
        isolation=_build_isolation_info(catalogue, environment),
        server=None if reason is not None else catalogue.get_environment_or_current(name).environment.server_facts,
        params_schema=environment.Params.model_json_schema(),
    )


def _build_isolation_info(catalogue: Catalogue, environment: type[Environment]) -> IsolationInfo | None:
    isolation = catalogue.isolation if environment.runs_programs else None
    return None if isolation is None else IsolationInfo.from_isolation(isolation)


def _list_splits(catalogue: Catalogue, name: str) -> tuple[SplitInfo, ...]:
    hosted = catalogue.get_environment_or_current(name)
    defaults = hosted.validate_params({})
    return tuple(SplitInfo(name=split, size=hosted.environment.size(split, defaults)) for split in SPLITS)


def _list_judges(
    catalogue: Catalogue, panels: Panels, not_for_training: Collection[str], versions: Sequence[JudgeVersion]
) -> tuple[JudgeInfo, ...]:
    judged = [name for name, kind in catalogue.classes.items() if kind.rubric is not None]
    serving = {name: panels.build_panel(name, ScoringOptions()).judges for name in judged}
    return tuple(
        JudgeInfo(
            name=name,
            model=judge.model,
            environments=tuple(environment for environment in judged if name in serving[environment]),
            for_training=name not in not_for_training,
            report=judge.report() if isinstance(judge, ReportingJudge) else None,
            versions=tuple(version for version in versions if version.judge == name),
        )
        for name, judge in panels.judges.items()
    )


def _leave_out_spending(judge: JudgeInfo) -> JudgeInfo:
    """What it spent is of all runs. `GET /runs/{run}` has a run's own."""
    return judge.model_copy(update={"report": None})


def describe_environment(environment: type[Environment]) -> str:
    """The first paragraph of the environment's module docstring, on one line."""
    module = inspect.getmodule(environment)
    text = inspect.cleandoc((module.__doc__ if module is not None else None) or "")
    return " ".join(text.split("\n\n")[0].split())


# Working examples in the OpenAPI document.

log = logging.getLogger(__name__)

_Document = dict[str, JsonValue]

_RUN = "first-run"
_GREETING = Completion(text="Well met. What brings you to me today?")
_UNSURE = Completion(text="I am not sure.")


class Examples:
    """Example bodies by path. They name a real task of each environment, so they need its data to be loaded. Where the
    first task is costly, it is made when the document is first asked for."""

    def __init__(self, catalogue: Catalogue, dispatcher: Dispatcher, task_cache: TaskCache) -> None:
        self._catalogue = catalogue
        self._dispatcher = dispatcher
        self._task_cache = task_cache
        self._bodies: dict[str, JsonValue] = {}
        self._members: dict[str, JsonValue] = {}
        self._completing = asyncio.Lock()
        self._writing = asyncio.Lock()

    async def prepare(self) -> None:
        """Anew for every environment that serves, but for those of a costly first task."""
        for name, environment in self._catalogue.classes.items():
            if not environment.costly_first_task:
                await self.prepare_one(name)

    def install(self, app: FastAPI) -> None:
        original: Callable[[], _Document] = app.openapi

        def add_examples() -> _Document:
            document = original()
            for path, body in [*self._bodies.items()]:  # others may come meanwhile, since this is a thread's
                _set_example(document, path, body)
            return document

        @needs("read", "shared")
        async def serve_document(request: Request) -> Response:
            await self._complete()
            async with self._writing:
                if app.openapi_schema is None:  # seconds, of which a thread takes no more than its part
                    await asyncio.to_thread(app.openapi)
            reply: Response = await shown.endpoint(request)
            return reply

        # The documented way to extend the document is to replace this method.
        app.openapi = add_examples  # type: ignore[method-assign]
        # FastAPI has added its route already: it is replaced by one that first makes the examples that are missing.
        (index, shown), *_ = [
            (index, route)
            for index, route in enumerate(app.router.routes)
            if isinstance(route, Route) and route.path == app.openapi_url
        ]
        app.router.routes[index] = Route(shown.path, serve_document, include_in_schema=False)

    async def _complete(self) -> None:
        """With the examples of a costly first task that are missing. The document is shown without one that cannot be
        made."""
        async with self._completing:
            for name, environment in self._catalogue.classes.items():
                if environment.costly_first_task and name not in self._members:
                    try:
                        await self.prepare_one(name)
                    except Exception:
                        log.exception("the example of %s could not be made", name)

    async def prepare_one(self, name: str) -> None:
        """Anew for one environment, if it serves."""
        if self._catalogue.explain_unavailability(name) is not None:
            return
        task_id, gold = await self._fetch_first_task(name)
        score = _build_score_body(task_id, gold)
        self._bodies[f"/envs/{name}/next-batch"] = _build_batch_body(self._catalogue.classes[name])
        self._bodies[f"/envs/{name}/step"] = _build_step_body(task_id, gold)
        self._bodies[f"/envs/{name}/score"] = score
        self._bodies["/score"] = score
        self._bodies |= _build_try_body(self._catalogue.classes[name])
        self._members[name] = {"env": name, "weight": 1.0}
        mix = [self._members[one] for one in sorted(self._members)]
        self._bodies["/next-batch"] = {"batch_size": 4, "run": _RUN, "mix": mix}

    async def _fetch_first_task(self, name: str) -> tuple[str, Completion]:
        """The id of the first training task with its gold answer, or a friendly reply where there is none."""
        batch = await self._dispatcher.next_batch(name, NextBatch(batch_size=1, cursor=0))
        task_id = batch.tasks[0].task_id
        record = (await self._task_cache.get([task_id]))[task_id]
        hosted = self._catalogue.get_environment_or_current(name)
        environment: Environment = hosted.environment
        return task_id, environment.gold(self._task_cache.get_task(hosted, record)) or _GREETING


def _build_batch_body(environment: type[Environment]) -> JsonValue:
    """Includes the example of the environment's params if it has one."""
    body: dict[str, JsonValue] = {"batch_size": 2, "split": "train", "run": _RUN}
    examples = _read_examples(environment.Params)
    return body | ({"params": examples[0]} if examples else {})


def _build_step_body(task_id: str, gold: Completion) -> JsonValue:
    """The first turn of the gold answer."""
    first = next(iter(gold.messages or ()), Message(role="assistant", content=gold.answer))
    return {"task_id": task_id, "messages": [first.model_dump(mode="json", exclude_defaults=True)]}


def _build_score_body(task_id: str, gold: Completion) -> JsonValue:
    """The gold answer and an evasive one."""
    completions: list[JsonValue] = [_dump_completion(completion) for completion in (gold, _UNSURE)]
    return {"groups": [{"task_id": task_id, "completions": completions}]}


def _build_try_body(environment: type[Environment]) -> dict[str, JsonValue]:
    """The example of the environment's drafts with two replies."""
    examples = [] if environment.Draft is None else _read_examples(environment.Draft)
    completions: list[JsonValue] = [_dump_completion(_GREETING), _dump_completion(_UNSURE)]
    return {f"/envs/{environment.name}/try": {"draft": draft, "completions": completions} for draft in examples[:1]}


def _read_examples(model: type[BaseModel]) -> list[JsonValue]:
    examples: list[JsonValue] = model.model_json_schema().get("examples", [])
    return examples


def _dump_completion(completion: Completion) -> JsonValue:
    return completion.model_dump(mode="json", exclude_defaults=True)


def _set_example(document: _Document, path: str, body: JsonValue) -> None:
    node: JsonValue = document
    for key in ("paths", path, "post", "requestBody", "content", "application/json"):
        node = node.get(key) if isinstance(node, dict) else None
    if isinstance(node, dict):
        node["example"] = body


# Characters.


def create_characters_router(
    characters: Callable[[], tuple[CharacterCard, ...]], reload: Callable[[], Awaitable[None]]
) -> APIRouter:
    router = APIRouter(tags=["catalogue"], route_class=ApiRoute)

    @router.get("/characters", summary="Summaries of the character sheets", responses=document_problems(401))
    @needs("read", "shared")
    async def character_list() -> CharacterList:
        return CharacterList(characters=characters())

    @router.post(
        "/characters/reload",
        summary="Reload the character sheets; tasks that were handed out keep their sheets",
        responses=document_problems(401, 404, 422, 503),
    )
    @needs("author", "closed")
    async def reload_characters() -> ReloadedCharacters:
        before = characters()
        await reload()
        return ReloadedCharacters.from_reload(before, characters())

    return router
