"""The catalogue: environments and judges."""

import inspect
from collections.abc import Collection

from fastapi import APIRouter

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
from app.http.web.problems import problem_responses
from app.ports.environment import Environment
from app.ports.judges import SelfReporting
from app.service.catalogue import Catalogue
from app.service.gateway import Gateway

SPLITS: tuple[Split, ...] = ("train", "test")


def catalogue_router(gateway: Gateway, *, not_for_training: Collection[str] = ()) -> APIRouter:
    """`not_for_training` names judges that are only for trying the system."""
    router = APIRouter(tags=["catalogue"])

    @router.get("/envs", summary="Every environment", responses=problem_responses(401))
    async def environments() -> EnvironmentList:
        return EnvironmentList(environments=tuple(_info(gateway, name) for name in gateway.catalogue.classes))

    @router.get("/envs/{env}", summary="One environment", responses=problem_responses(401, 404, 422))
    async def environment(env: str) -> EnvironmentInfo:
        gateway.catalogue.require(env)
        return _info(gateway, env)

    @router.get("/judges", summary="Every judge", responses=problem_responses(401))
    async def judge_list() -> JudgeList:
        return JudgeList(judges=_judges(gateway, not_for_training))

    return router


def _info(gateway: Gateway, name: str) -> EnvironmentInfo:
    environment = gateway.catalogue.classes[name]
    reason = gateway.catalogue.reason(name)
    judged = None if environment.rubric is None else gateway.panels.options(name, ScoringOptions())
    return EnvironmentInfo(
        name=name,
        version=environment.version,
        description=description_of(environment),
        available=reason is None,
        reason=reason,
        origin=None if reason is not None else gateway.catalogue.hosted(name).environment.origin,
        splits=() if reason is not None else _splits(gateway.catalogue, name),
        multi_turn=environment.multi_turn,
        label=environment.stats_label,
        criteria=tuple(
            CriterionInfo(name=criterion.name, weight=criterion.weight, description=criterion.description)
            for criterion in (environment.rubric.criteria if environment.rubric is not None else ())
        ),
        judges=() if judged is None else judged.judges,
        mode=None if judged is None else judged.mode,
        votes=None if judged is None else judged.votes,
        relative_weight=None if judged is None else judged.relative_weight,
        isolation=_isolation(gateway.catalogue, environment),
        params_schema=environment.Params.model_json_schema(),
    )


def _isolation(catalogue: Catalogue, environment: type[Environment]) -> IsolationInfo | None:
    found = catalogue.isolation if environment.runs_programs else None
    return None if found is None else IsolationInfo.of(found)


def _splits(catalogue: Catalogue, name: str) -> tuple[SplitInfo, ...]:
    hosted = catalogue.hosted(name)
    defaults = hosted.params({})
    return tuple(SplitInfo(name=split, size=hosted.environment.size(split, defaults)) for split in SPLITS)


def _judges(gateway: Gateway, not_for_training: Collection[str]) -> tuple[JudgeInfo, ...]:
    judged = [name for name, kind in gateway.catalogue.classes.items() if kind.rubric is not None]
    serving = {name: gateway.panels.panel(name, ScoringOptions()).judges for name in judged}
    return tuple(
        JudgeInfo(
            name=name,
            model=judge.model,
            environments=tuple(environment for environment in judged if name in serving[environment]),
            for_training=name not in not_for_training,
            report=judge.report() if isinstance(judge, SelfReporting) else None,
        )
        for name, judge in gateway.panels.judges.items()
    )


def description_of(environment: type[Environment]) -> str:
    """The first paragraph of the environment's module docstring, on one line."""
    module = inspect.getmodule(environment)
    text = inspect.cleandoc((module.__doc__ if module is not None else None) or "")
    return " ".join(text.split("\n\n")[0].split())
