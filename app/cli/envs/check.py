"""Finding an environment by name, file or folder, and its conformance checks with the service's own tools.

The checks run with real workers and jails, and with the offline judge, which costs nothing and is deterministic."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import EnvironmentUnavailable, UserError
from app.domain.runs import ScoringOptions
from app.domain.values import suggest
from app.judges.panel import ConfiguredPanels
from app.main.components import ENVIRONMENT_MODULE, discover, load_environment
from app.ports.environment import Datasets, Environment, Tools
from app.sandbox.programs import JailedPrograms
from app.sandbox.workers import ProcessWorkers, choose_size
from app.service.judging import NoPanel
from app.toolkit.conformance.checks import CHECKS, Check, apply_check, measure_environment
from app.toolkit.conformance.subject import (
    CheckDepth,
    CheckResult,
    CheckSubject,
    ConformanceFigures,
    ConformanceReport,
    OtherProcess,
    ignore_score,
)

_NOTHING_CONFIGURED: Final[Datasets] = ConfiguredDatasets({})


@dataclass(frozen=True)
class CheckObserver:
    """Callbacks while checks run."""

    begins: Callable[[Check], None] = field(default=lambda check: None)
    scored: Callable[[], None] = ignore_score


async def run_check(kind: type[Environment], check: Check, depth: CheckDepth | None = None) -> CheckResult:
    """Runs one check on an environment without configuration; for tests."""
    async with open_tools(kind) as tools:
        return await apply_check(_get_shared_subject(kind, depth or CheckDepth()).with_tools(tools), check)


async def run_all_checks(
    kind: type[Environment], datasets: Datasets, depth: CheckDepth, watching: CheckObserver, elsewhere: OtherProcess
) -> ConformanceReport:
    """Runs all checks and measurements. EnvironmentUnavailable when its data cannot be read; UserError when it cannot
    be opened for another reason."""
    async with open_tools(kind) as tools:
        one, again = _open_environment(kind, datasets), _open_environment(kind, datasets)
        subject = CheckSubject(one, again, tools, depth, watching.scored, elsewhere)
        done: list[CheckResult] = []
        for check in CHECKS:
            watching.begins(check)
            done.append(await apply_check(subject, check))
        figures = await _measure_figures(subject)
        return ConformanceReport(
            environment=kind.name,
            version=getattr(kind, "version", ""),
            source=f"{kind.__module__}.{kind.__qualname__}",
            passed=all(one.passed for one in done) and figures is not None,
            checks=tuple(done),
            figures=figures,
        )


@contextlib.asynccontextmanager
async def open_tools(kind: type[Environment]) -> AsyncIterator[Tools]:
    """The service's tools, but with the offline judge, which is free and deterministic."""
    workers, programs = ProcessWorkers(choose_size()), JailedPrograms(choose_size())
    panel = NoPanel() if kind.rubric is None else ConfiguredPanels({}, {}).build_panel(kind.name, ScoringOptions())
    try:
        yield Tools(panel=panel, workers=workers, programs=programs)
    finally:
        await workers.close()
        await programs.close()


def _open_environment(kind: type[Environment], datasets: Datasets) -> Environment:
    try:
        return kind.open(datasets)
    except EnvironmentUnavailable:
        raise
    except Exception as error:  # another's code may raise whatever it likes
        raise UserError(f"cannot open {kind.name}: {type(error).__name__}: {error}") from error


async def _measure_figures(subject: CheckSubject) -> ConformanceFigures | None:
    try:
        return await measure_environment(subject)
    except Exception:  # whatever an environment may raise; a check says what, where it met it
        return None


@lru_cache(maxsize=64)
def _get_shared_subject(kind: type[Environment], depth: CheckDepth) -> CheckSubject:
    """Cached, so that checks share generated tasks; has no usable tools."""
    return CheckSubject(kind.open(_NOTHING_CONFIGURED), kind.open(_NOTHING_CONFIGURED), Tools(panel=NoPanel()), depth)


# Finding an environment.


@dataclass(frozen=True)
class FoundEnvironment:
    kind: type[Environment]
    where: str
    """Name or path, to find it in another process."""


def find_environment(where: str) -> FoundEnvironment:
    """UserError when there is no such environment, or its code fails."""
    if ":" in where:
        raise UserError(f"{where} is a grader, no environment: atropos-envs graders check {where} --rows FILE")
    if where.endswith(".py") or "/" in where:
        return _load_from_file(Path(where))
    environments = discover_environments()
    if where not in environments:
        raise UserError(
            f"unknown environment {where!r}{suggest(where, environments)}; "
            f"known environments: {', '.join(sorted(environments))}. "
            f"Give a file or folder by its path, such as ./{where}"
        )
    return FoundEnvironment(environments[where], where)


def discover_environments() -> dict[str, type[Environment]]:
    """UserError when the code of one fails on import."""
    try:
        return discover()
    except Exception as error:  # another's code may raise whatever it likes
        raise UserError(f"cannot load an environment: {' <- '.join(_describe_causes(error))}") from error


def _load_from_file(file: Path) -> FoundEnvironment:
    inside = _find_module(file) if file.is_dir() else file
    try:
        return FoundEnvironment(load_environment(inside), str(inside.resolve()))
    except FileNotFoundError:
        raise UserError(f"file not found: {inside}") from None


def _find_module(folder: Path) -> Path:
    names = (f"{ENVIRONMENT_MODULE}.py", "__init__.py")
    return next((folder / name for name in names if (folder / name).is_file()), folder / names[0])


def _describe_causes(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield f"{type(error).__name__}: {error}"
        error = error.__cause__
