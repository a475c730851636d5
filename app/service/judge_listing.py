"""Lists judges with the environments that they score and their health, and what they score by."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from app.domain.access import KeyBounds
from app.domain.judging import JudgeReport
from app.domain.runs import ScoringOptions
from app.ports.judges import Panels, ReportingJudge
from app.service.catalogue import Catalogue
from app.service.gateway import Gateway
from app.service.judging import find_rubric


@dataclass(frozen=True)
class JudgeEntry:
    """`environments` are scored by the judge by default; `report` is None for a judge without a server, and
    where it is `hidden` from the caller."""

    name: str
    model: str
    environments: tuple[str, ...]
    report: JudgeReport | None
    hidden: bool = False


def show_judges(judges: Iterable[JudgeEntry], bounds: KeyBounds) -> list[JudgeEntry]:
    """As the caller may see them: how they fare and what they cost is of all runs."""
    if bounds.is_open:
        return list(judges)
    return [replace(judge, report=None, hidden=judge.report is not None) for judge in judges]


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


def list_judge_models(panels: Panels) -> dict[str, str]:
    return {name: judge.model for name, judge in panels.judges.items()}


async def list_criteria(gateway: Gateway, environment: str, run: str | None) -> tuple[str, ...]:
    """The names of the criteria that every task of the environment has in this run, without those that a caller may
    add."""
    options = await gateway.runs.find_options(run)
    rubric = find_rubric(gateway.panels, gateway.catalogue.classes[environment], options)
    return () if rubric is None else tuple(criterion.name for criterion in rubric.criteria)
