"""The services as they are put together, and what is told of them: judges, environments, and what needs attention."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from app.domain.access import KeyBounds
from app.domain.judge_measurements import JudgeMeasurement
from app.domain.judging import JudgeReport, JudgeVersion
from app.domain.runs import ScoringOptions
from app.domain.tasks import Isolation
from app.ports.judges import Panels, ReportingJudge
from app.service.access import BoundsCheck, QuotaService
from app.service.catalogue import Catalogue, EnvironmentVersions
from app.service.handout import Dispatcher
from app.service.hosted import HostedEpisodes
from app.service.judging import find_rubric
from app.service.pending_groups import GroupAssembler, SampleService
from app.service.rescoring import Rescorer, RubricFinder
from app.service.retrieval import DraftBuilder, EpisodeStepper, PreviewService, RetrievalService
from app.service.runs import RunRegistry
from app.service.scoring import GroupScoring, ScoringService
from app.service.task_cache import TaskCache
from app.store.groups import GroupStore
from app.store.judge_measurements import JudgeMeasurementStore
from app.store.migration import HealthCheck
from app.store.views import GroupViews
from app.toolkit.texts import format_bytes


@dataclass(frozen=True)
class Gateway:
    """For who puts the service together, and for features when they are built. Routes and pages get the services that
    they use, by name."""

    catalogue: Catalogue
    dispatcher: Dispatcher
    stepper: EpisodeStepper
    scoring: ScoringService
    group_scoring: GroupScoring
    assembler: GroupAssembler
    samples: SampleService
    rescorer: Rescorer
    previews: PreviewService
    runs: RunRegistry
    quotas: QuotaService
    task_cache: TaskCache
    groups: GroupStore
    panels: Panels
    views: GroupViews
    health: HealthCheck
    bounds: BoundsCheck
    rubrics: RubricFinder
    environment_versions: EnvironmentVersions
    retrieval: RetrievalService
    drafting: DraftBuilder
    elsewhere: HostedEpisodes
    list_judge_versions: Callable[[Sequence[str]], Awaitable[list[JudgeVersion]]]
    """Of judges by name, oldest first."""
    find_measurements: Callable[[str], Awaitable[Sequence[tuple[JudgeMeasurement, bool]]]]
    """What was measured of a judge, the newest first, each with whether the judge is still the same."""


# Lists judges with the environments that they score and their health, and what they score by.


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


async def find_measurements(
    measurements: JudgeMeasurementStore, panels: Panels, judge: str
) -> Sequence[tuple[JudgeMeasurement, bool]]:
    """For `Gateway.find_measurements`."""
    return [(one, one.judge_digest == panels.judges[judge].digest) for one in await measurements.find(judge)]


def list_judge_models(panels: Panels) -> dict[str, str]:
    return {name: judge.model for name, judge in panels.judges.items()}


async def list_criteria(
    runs: RunRegistry, catalogue: Catalogue, panels: Panels, environment: str, run: str | None
) -> tuple[str, ...]:
    """The names of the criteria that every task of the environment has in this run, without those that a caller may
    add."""
    options = await runs.find_options(run)
    rubric = find_rubric(panels, catalogue.classes[environment], options)
    return () if rubric is None else tuple(criterion.name for criterion in rubric.criteria)


# What an operator sees first: which environments serve, and what needs somebody's attention.

LEAST_FREE_BYTES: Final = 2e9
"""The shipped alert for a full disk has the same limit."""
LEAST_BUDGET_SHARE: Final = 0.25
"""Of what was spent today. A budget of a day is four fifths spent then; any other lasts a quarter of such a day."""

EnvironmentState = Literal["serving", "starting", "not_installed", "unavailable"]
"""`not_installed`: an optional package is missing, and nobody has asked for the environment."""
WarningCode = Literal["offline_judge", "judge", "budget", "environment", "isolation", "disk", "run"]


@dataclass(frozen=True)
class EnvironmentEntry:
    """`judges` score it by default; none where code does."""

    name: str
    version: str
    state: EnvironmentState
    reason: str
    judges: tuple[str, ...]


@dataclass(frozen=True)
class ServiceWarning:
    """`about` is what it is said of, `path` the page that tells more."""

    code: WarningCode
    about: str
    text: str
    path: str = ""


@dataclass(frozen=True)
class ServiceState:
    """`offline` names judges that are not for training. `free_bytes` is None where the data lies on a server."""

    environments: Sequence[EnvironmentEntry]
    judges: Sequence[JudgeEntry]
    offline: str
    isolation: Isolation | None = None
    free_bytes: float | None = None


def list_environments(catalogue: Catalogue, panels: Panels) -> tuple[EnvironmentEntry, ...]:
    return tuple(_describe(catalogue, panels, name) for name in catalogue.classes)


def _describe(catalogue: Catalogue, panels: Panels, name: str) -> EnvironmentEntry:
    kind = catalogue.classes[name]
    reason = catalogue.explain_unavailability(name)
    judges = () if kind.rubric is None else panels.resolve_options(name, ScoringOptions()).judges
    return EnvironmentEntry(name, kind.version, _find_state(catalogue, name), reason or "", judges)


def _find_state(catalogue: Catalogue, name: str) -> EnvironmentState:
    if catalogue.explain_unavailability(name) is None:
        return "serving"
    if catalogue.is_starting(name):
        return "starting"
    return "not_installed" if catalogue.is_left_out(name) else "unavailable"


def list_warnings(state: ServiceState) -> Iterator[ServiceWarning]:
    for judge in state.judges:
        if judge.name == state.offline and judge.environments:
            yield ServiceWarning(
                "offline_judge",
                ", ".join(judge.environments),
                "The offline judge scores by words, which is for trying the system and not for training. Configure a "
                "judge under judges, and name it in environments.<name>.judges.",
                "/view/judges",
            )
        if judge.report is not None:
            yield from _warn_of_judge(judge.name, judge.report)
    for one in state.environments:
        if one.state == "unavailable":
            yield ServiceWarning("environment", one.name, f"It cannot serve: {one.reason}.", "")
    if state.isolation is not None and not state.isolation.strong:
        yield ServiceWarning(
            "isolation", "programs", f"Programs of models are isolated weakly here: {state.isolation.weaknesses}."
        )
    if state.free_bytes is not None and state.free_bytes < LEAST_FREE_BYTES:
        yield ServiceWarning("disk", "disk", f"{format_bytes(state.free_bytes)} are free beside the database.")


def _warn_of_judge(name: str, report: JudgeReport) -> Iterator[ServiceWarning]:
    page = "/view/judges"
    if report.health == "out":
        yield ServiceWarning("judge", name, "It is not asked after repeated failures; groups get no score.", page)
    left, today = report.budget_left_usd, report.spent_today.cost_usd
    if left is not None and left <= LEAST_BUDGET_SHARE * today:
        yield ServiceWarning("budget", name, f"${left:.2f} of its budget are left; today cost ${today:.2f}.", page)
    tokens, used = report.budget_left_tokens, report.spent_today.input_tokens + report.spent_today.output_tokens
    if tokens is not None and tokens <= LEAST_BUDGET_SHARE * used:
        yield ServiceWarning("budget", name, f"{tokens:,} tokens of its budget are left; today took {used:,}.", page)
