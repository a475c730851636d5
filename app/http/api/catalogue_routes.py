"""The catalogue: environments and judges."""

import inspect
from collections.abc import Collection, Sequence

from fastapi import APIRouter

from app.domain.health_records import JudgeVersion
from app.domain.rubrics import RubricLabel
from app.domain.runs import ScoringOptions
from app.domain.values import Split
from app.http.api.models import (
    CriterionInfo,
    EnvironmentInfo,
    EnvironmentList,
    IsolationInfo,
    JudgeInfo,
    JudgeList,
    SplitInfo,
)
from app.http.web.api_keys import CallerBounds
from app.http.web.bodies import ApiRoute
from app.http.web.openapi import document_problems
from app.ports.environment import Environment
from app.ports.judges import ReportingJudge
from app.service.catalogue import Catalogue
from app.service.gateway import Gateway
from app.service.judging import find_rubric

SPLITS: tuple[Split, ...] = ("train", "test")


def create_catalogue_router(gateway: Gateway, *, not_for_training: Collection[str] = ()) -> APIRouter:
    """`not_for_training` names judges that are only for trying the system."""
    router = APIRouter(tags=["catalogue"], route_class=ApiRoute)

    @router.get("/envs", summary="Every environment", responses=document_problems(401))
    async def environments() -> EnvironmentList:
        return EnvironmentList(
            environments=tuple(
                _build_environment_info(gateway, name, not_for_training) for name in gateway.catalogue.classes
            )
        )

    @router.get("/envs/{env}", summary="One environment", responses=document_problems(401, 404, 422))
    async def environment(env: str) -> EnvironmentInfo:
        gateway.catalogue.require_known(env)
        return _build_environment_info(gateway, env, not_for_training)

    @router.get("/judges", summary="Every judge", responses=document_problems(401, 503))
    async def judge_list(bounds: CallerBounds) -> JudgeList:
        versions = await gateway.run_health.list_versions(tuple(gateway.panels.judges))
        listed = _list_judges(gateway, not_for_training, versions)
        return JudgeList(judges=listed if bounds.is_open else tuple(map(_leave_out_spending, listed)))

    return router


def _build_environment_info(gateway: Gateway, name: str, not_for_training: Collection[str]) -> EnvironmentInfo:
    environment = gateway.catalogue.classes[name]
    reason = gateway.catalogue.explain_unavailability(name)
    judged = None if environment.rubric is None else gateway.panels.resolve_options(name, ScoringOptions())
    rubric = find_rubric(gateway.panels, environment, ScoringOptions())
    return EnvironmentInfo(
        name=name,
        version=environment.version,
        description=describe_environment(environment),
        available=reason is None,
        reason=reason,
        origin=None if reason is not None else gateway.catalogue.get_environment_or_current(name).environment.origin,
        splits=() if reason is not None else _list_splits(gateway.catalogue, name),
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
        isolation=_build_isolation_info(gateway.catalogue, environment),
        params_schema=environment.Params.model_json_schema(),
    )


def _build_isolation_info(catalogue: Catalogue, environment: type[Environment]) -> IsolationInfo | None:
    found = catalogue.isolation if environment.runs_programs else None
    return None if found is None else IsolationInfo.from_isolation(found)


def _list_splits(catalogue: Catalogue, name: str) -> tuple[SplitInfo, ...]:
    hosted = catalogue.get_environment_or_current(name)
    defaults = hosted.validate_params({})
    return tuple(SplitInfo(name=split, size=hosted.environment.size(split, defaults)) for split in SPLITS)


def _list_judges(
    gateway: Gateway, not_for_training: Collection[str], versions: Sequence[JudgeVersion]
) -> tuple[JudgeInfo, ...]:
    judged = [name for name, kind in gateway.catalogue.classes.items() if kind.rubric is not None]
    serving = {name: gateway.panels.build_panel(name, ScoringOptions()).judges for name in judged}
    return tuple(
        JudgeInfo(
            name=name,
            model=judge.model,
            environments=tuple(environment for environment in judged if name in serving[environment]),
            for_training=name not in not_for_training,
            report=judge.report() if isinstance(judge, ReportingJudge) else None,
            versions=tuple(version for version in versions if version.judge == name),
        )
        for name, judge in gateway.panels.judges.items()
    )


def _leave_out_spending(judge: JudgeInfo) -> JudgeInfo:
    """What it spent is of all runs. `GET /runs/{run}` has a run's own."""
    return judge.model_copy(update={"report": None})


def describe_environment(environment: type[Environment]) -> str:
    """The first paragraph of the environment's module docstring, on one line."""
    module = inspect.getmodule(environment)
    text = inspect.cleandoc((module.__doc__ if module is not None else None) or "")
    return " ".join(text.split("\n\n")[0].split())
