"""Conformance checks of one environment with real judges, workers and program sandboxes."""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from app.datasets.configured import ConfiguredDatasets
from app.domain.errors import EnvironmentUnavailable
from app.domain.runs import ScoringOptions
from app.judges.panels import ConfiguredPanels
from app.ports.environment import Datasets, Environment, Tools
from app.sandbox.pool import ProcessWorkers, usual_size
from app.sandbox.programs import JailedPrograms
from app.service.judging import NoPanel
from app.toolkit.conformance.checks import CHECKS, Check, checked
from app.toolkit.conformance.figures import measured
from app.toolkit.conformance.findings import Checked, Figures, Report
from app.toolkit.conformance.subject import Depth, Elsewhere, Subject, nobody_watches

NOTHING_CONFIGURED: Final[Datasets] = ConfiguredDatasets({})


@dataclass(frozen=True)
class Watching:
    """Callbacks while checks run."""

    begins: Callable[[Check], None] = field(default=lambda check: None)
    scored: Callable[[], None] = nobody_watches


async def examined(kind: type[Environment], check: Check, depth: Depth | None = None) -> Checked:
    """Runs one check on an environment without configuration; for tests."""
    async with tools_for(kind) as tools:
        return await checked(_remembered(kind, depth or Depth()).using(tools), check)


async def reported(
    kind: type[Environment], datasets: Datasets, depth: Depth, watching: Watching, elsewhere: Elsewhere
) -> Report:
    """Runs all checks and measurements. EnvironmentUnavailable when its data cannot be read; ValueError when it cannot
    be opened for another reason."""
    async with tools_for(kind) as tools:
        one, again = _opened(kind, datasets), _opened(kind, datasets)
        subject = Subject(one, again, tools, depth, watching.scored, elsewhere)
        done: list[Checked] = []
        for check in CHECKS:
            watching.begins(check)
            done.append(await checked(subject, check))
        figures = await _figures(subject)
        return Report(
            environment=kind.name,
            version=getattr(kind, "version", ""),
            source=f"{kind.__module__}.{kind.__qualname__}",
            passed=all(one.passed for one in done) and figures is not None,
            checks=tuple(done),
            figures=figures,
        )


@contextlib.asynccontextmanager
async def tools_for(kind: type[Environment]) -> AsyncIterator[Tools]:
    """The service's tools, but with the offline judge, which is free and deterministic."""
    workers, programs = ProcessWorkers(usual_size()), JailedPrograms(usual_size())
    panel = NoPanel() if kind.rubric is None else ConfiguredPanels({}, {}).panel(kind.name, ScoringOptions())
    try:
        yield Tools(panel=panel, workers=workers, programs=programs)
    finally:
        await workers.close()
        await programs.close()


def _opened(kind: type[Environment], datasets: Datasets) -> Environment:
    try:
        return kind.open(datasets)
    except EnvironmentUnavailable:
        raise
    except Exception as error:  # another's code may raise whatever it likes
        raise ValueError(f"cannot open {kind.name}: {type(error).__name__}: {error}") from error


async def _figures(subject: Subject) -> Figures | None:
    try:
        return await measured(subject)
    except Exception:  # whatever an environment may raise; a check says what, where it met it
        return None


@lru_cache(maxsize=64)
def _remembered(kind: type[Environment], depth: Depth) -> Subject:
    """Cached, so that checks share generated tasks; has no usable tools."""
    return Subject(kind.open(NOTHING_CONFIGURED), kind.open(NOTHING_CONFIGURED), Tools(panel=NoPanel()), depth)
