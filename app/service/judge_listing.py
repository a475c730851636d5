"""Lists judges with the environments that they score and their health."""

from dataclasses import dataclass

from app.domain.judging import JudgeReport
from app.domain.runs import ScoringOptions
from app.ports.judges import Panels, ReportingJudge
from app.service.catalogue import Catalogue


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
