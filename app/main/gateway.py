"""The gateway, put together from what stands behind the ports.

Each service gets the few others that it needs, and no service makes its own. What several share, such as the cache of
tasks, the registry of runs and the scorer, is made once here."""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

from app.domain.parts import PartRules
from app.judges.gates import GATES
from app.main.store import Store
from app.ports.environment import Clock, Environment, NoPrograms, Observer, Programs, Workers
from app.ports.judges import Panels
from app.ports.players import PlayerModel
from app.ports.retrieval import Retriever
from app.service.access import BoundsCheck, QuotaService
from app.service.catalogue import Catalogue, EnvironmentVersions
from app.service.gateway import Gateway, find_measurements
from app.service.handout import Dispatcher
from app.service.hosted import HostedEpisodes
from app.service.judging import Scorer
from app.service.pending_groups import GroupAssembler, SampleService
from app.service.players import PlayedEpisodes
from app.service.rescoring import Rescorer, RubricFinder
from app.service.retrieval import DraftBuilder, EpisodeStepper, PreviewService, RetrievalPolicy, RetrievalService
from app.service.runs import RunRegistry
from app.service.scoring import GroupScoring, ScoreValidator, ScoringService
from app.service.task_cache import TaskCache
from app.service.task_order import DifficultyEstimator

NO_PLAYERS: Final[Mapping[str, PlayerModel]] = {}


def build_gateway(
    *,
    classes: Mapping[str, type[Environment]],
    store: Store,
    panels: Panels,
    workers: Workers,
    authors: Workers | None = None,
    retriever: Retriever,
    observer: Observer,
    clock: Clock,
    policy: RetrievalPolicy | None = None,
    programs: Programs | None = None,
    rules: PartRules | None = None,
    named: Collection[str] = (),
    players: Mapping[str, PlayerModel] = NO_PLAYERS,
) -> Gateway:
    """`authors`: the part of the workers that reads texts of authors, by default all. `named`: the environments that
    the settings name."""
    programs = programs or NoPrograms()
    catalogue = Catalogue(classes, named)
    environment_versions = EnvironmentVersions(catalogue, store.sheets)
    runs = RunRegistry(store.runs, panels, clock)
    task_cache = TaskCache(store.tasks)
    played = PlayedEpisodes(players, store.player_lines)
    elsewhere = HostedEpisodes(store.hosted_steps)
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
    scorer = Scorer(
        environment_versions, panels, task_cache, workers, programs, runs, store.references, played, elsewhere
    )
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
    return Gateway(
        rubrics=RubricFinder(environment_versions, panels, task_cache, store.runs),
        environment_versions=environment_versions,
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
            played=played,
            elsewhere=elsewhere,
        ),
        stepper=EpisodeStepper(environment_versions, task_cache, runs, played, elsewhere),
        scoring=ScoringService(
            catalogue=catalogue,
            runs=runs,
            validator=validator,
            scoring=group_scoring,
            pieces=assembler,
            groups=store.groups,
            quotas=quotas,
        ),
        group_scoring=group_scoring,
        assembler=assembler,
        samples=SampleService(validator, assembler, group_scoring, runs, quotas),
        rescorer=Rescorer(
            environment_versions=environment_versions,
            task_cache=task_cache,
            groups=store.groups,
            scorings=store.scorings,
            runs=runs,
            panels=panels,
            scorer=scorer,
            quotas=quotas,
            observer=observer,
            clock=clock,
        ),
        previews=PreviewService(
            drafting=drafting,
            panels=panels,
            workers=workers,
            authors=authors or workers,
            programs=programs,
            observer=observer,
            gates={gate.flag: gate.notices for gate in GATES},
        ),
        runs=runs,
        quotas=quotas,
        task_cache=task_cache,
        groups=store.groups,
        panels=panels,
        views=store.views,
        health=store.health,
        bounds=BoundsCheck(task_cache, store.tasks, store.groups, store.parts),
        retrieval=retrieval,
        drafting=drafting,
        elsewhere=elsewhere,
        list_judge_versions=store.judge_cache.list_versions,
        find_measurements=partial(find_measurements, store.judge_measurements, panels),
    )
