"""The gateway, put together from what stands behind the ports."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from app.domain.parts import PartRules
from app.envs.npc_arena.environment import NpcArena
from app.evaluation.agreement import find_lower_bound
from app.features.health.model import AlarmSink
from app.features.health.service import HealthReader, RunHealthService
from app.features.labels.service import LabelService
from app.features.worlds.service import WorldService
from app.judges.gates import GATES
from app.main.store import Store
from app.ports.environment import Clock, Environment, NoPrograms, Observer, Programs, Workers
from app.ports.judges import Panels
from app.ports.retrieval import Retriever
from app.service.access import BoundsCheck, QuotaService
from app.service.catalogue import Catalogue, EnvironmentVersions
from app.service.gateway import Gateway
from app.service.group_scoring import GroupScoring, ScoreValidator
from app.service.handout import Dispatcher
from app.service.judging import Scorer
from app.service.rescoring import Rescorer, RubricFinder
from app.service.retrieval import DraftBuilder, EpisodeStepper, PreviewService, RetrievalPolicy, RetrievalService
from app.service.runs import AgreementCheck, RunRegistry
from app.service.scoring import GroupAssembler, SampleService, ScoringService
from app.service.task_cache import TaskCache
from app.service.task_order import DifficultyEstimator


@dataclass(frozen=True)
class ServedGateway(Gateway):
    """With the features that routes and pages are given one by one."""

    run_health: RunHealthService
    labelling: LabelService
    worlds: WorldService


def build_gateway(
    classes: Mapping[str, type[Environment]],
    store: Store,
    panels: Panels,
    workers: Workers,
    retriever: Retriever,
    observer: Observer,
    clock: Clock,
    policy: RetrievalPolicy | None = None,
    programs: Programs | None = None,
    rules: PartRules | None = None,
    shadow_judges: Mapping[str, str] | None = None,
    alarm_sink: AlarmSink | None = None,
    named: Collection[str] = (),
) -> ServedGateway:
    """`named`: the environments that the settings name."""
    programs = programs or NoPrograms()
    catalogue = Catalogue(classes, named)
    environment_versions = EnvironmentVersions(catalogue, store.sheets)
    runs = RunRegistry(store.runs, panels, clock, AgreementCheck(store.labels, panels, find_lower_bound))
    task_cache = TaskCache(store.tasks)
    retrieval = RetrievalService(retriever, observer, policy)
    drafting = DraftBuilder(catalogue, retrieval)
    quotas = QuotaService(store.quotas, catalogue, panels, runs, clock)
    validator = ScoreValidator(
        environment_versions=environment_versions,
        tasks=store.tasks,
        task_cache=task_cache,
        groups=store.groups,
        runs=runs,
        panels=panels,
        quotas=quotas,
        observer=observer,
        clock=clock,
    )
    scorer = Scorer(environment_versions, panels, task_cache, workers, programs, runs, store.references)
    group_scoring = GroupScoring(
        validator=validator, scorer=scorer, groups=store.groups, task_cache=task_cache, observer=observer
    )
    assembler = GroupAssembler(
        parts=store.parts,
        groups=store.groups,
        scoring=group_scoring,
        task_cache=task_cache,
        observer=observer,
        rules=rules or PartRules(),
    )
    return ServedGateway(
        rubrics=RubricFinder(environment_versions, panels, task_cache, store.runs, workers, programs),
        catalogue=catalogue,
        dispatcher=Dispatcher(
            catalogue=catalogue,
            environment_versions=environment_versions,
            tasks=store.tasks,
            task_cache=task_cache,
            runs=runs,
            retrieval=retrieval,
            panels=panels,
            difficulty=DifficultyEstimator(store.outcomes),
            quotas=quotas,
            observer=observer,
        ),
        stepper=EpisodeStepper(environment_versions, task_cache),
        scoring=ScoringService(
            catalogue=catalogue,
            runs=runs,
            validator=validator,
            scoring=group_scoring,
            assembler=assembler,
            groups=store.groups,
        ),
        group_scoring=group_scoring,
        assembler=assembler,
        samples=SampleService(validator, assembler, group_scoring, runs),
        rescorer=Rescorer(
            environment_versions=environment_versions,
            task_cache=task_cache,
            groups=store.groups,
            scorings=store.scorings,
            runs=runs,
            panels=panels,
            scorer=scorer,
            workers=workers,
            programs=programs,
            observer=observer,
            clock=clock,
        ),
        labelling=LabelService(
            catalogue=catalogue,
            queue=store.label_queue,
            labels=store.labels,
            groups=store.groups,
            task_cache=task_cache,
            runs=runs,
            panels=panels,
            clock=clock,
        ),
        previews=PreviewService(
            drafting=drafting,
            panels=panels,
            workers=workers,
            programs=programs,
            observer=observer,
            gates={gate.flag: gate.notices for gate in GATES},
        ),
        runs=runs,
        quotas=quotas,
        task_cache=task_cache,
        worlds=WorldService(
            environment=NpcArena.name,
            catalogue=catalogue,
            drafting=drafting,
            events=store.events,
            lorebooks=store.lorebooks,
            retrieval=retrieval,
        ),
        groups=store.groups,
        labels=store.labels,
        panels=panels,
        views=store.views,
        exports=store.exports,
        health=store.health,
        bounds=BoundsCheck(task_cache, store.tasks, store.groups, store.label_queue, store.labels),
        run_health=RunHealthService(
            health=store.run_health,
            runs=runs,
            panels=panels,
            reader=HealthReader(
                store.run_health, runs, panels, environment_versions, task_cache, workers, programs, observer
            ),
            observer=observer,
            clock=clock,
            shadow_judges=shadow_judges,
            sink=alarm_sink,
        ),
    )
