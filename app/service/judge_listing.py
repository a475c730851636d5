"""Lists judges with the environments that they score and their health, and what they score by."""

from dataclasses import dataclass

from app.domain.judging import JudgeReport, Rubric
from app.domain.runs import ScoringOptions
from app.ports.environment import Environment
from app.ports.judges import Panels, ReportingJudge
from app.service.catalogue import Catalogue
from app.service.gateway import Gateway
from app.service.judging import select_options


@dataclass(frozen=True)
class JudgeEntry:
    """`environments` are scored by the judge by default; `report` is None for a judge without a server."""

    name: str
    model: str
    environments: tuple[str, ...]
    report: JudgeReport | None


def list_judges(catalogue: Catalogue, panels: Panels) -> tuple[JudgeEntry, ...]:
    judged = [name for name, kind in catalogue.classes.items() if kind.rubric is not None]
    serving = {name: panels.build_panel(name, ScoringOptions()).judges for name in judged}
    return tuple(
        JudgeEntry(
            name=name,
            model=judge.model,
            environments=tuple(environment for environment in judged if name in serving[environment]),
            report=judge.report() if isinstance(judge, ReportingJudge) else None,
        )
        for name, judge in panels.judges.items()
    )


def find_rubric(panels: Panels, environment: type[Environment], options: ScoringOptions) -> Rubric | None:
    """What judges score this environment by with these options; None if a verifier scores it."""
    if environment.rubric is None:
        return None
    chosen = panels.resolve_options(environment.name, select_options(environment, options))
    return chosen.rubric or environment.rubric


async def list_criteria(gateway: Gateway, environment: str, run: str | None) -> tuple[str, ...]:
    """The names of the criteria that every task of the environment has in this run, without those that a caller may
    add."""
    options = await gateway.runs.find_options(run)
    rubric = find_rubric(gateway.panels, gateway.catalogue.classes[environment], options)
    return () if rubric is None else tuple(criterion.name for criterion in rubric.criteria)
