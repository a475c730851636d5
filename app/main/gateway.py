"""The gateway, put together from what stands behind the ports."""

from collections.abc import Mapping

from app.domain.parts import PartRules
from app.envs.npc_arena.environment import NpcArena
from app.judges.gates.registry import GATES
from app.ports.environment import Environment
from app.ports.judges import Panels
from app.ports.retrieval import Retriever
from app.ports.runtime import Clock, Observer
from app.ports.sandbox import NoPrograms, Programs, Workers
from app.service.acceptance import Acceptance
from app.service.catalogue import Catalogue
from app.service.difficulty import Difficulty
from app.service.dispatch import Dispatcher
from app.service.drafting import Drafting
from app.service.editions import Editions
from app.service.gateway import Gateway
from app.service.gathering import Gathering
from app.service.group_scoring import GroupScoring
from app.service.judging import Scorer
from app.service.parts import PartDesk
from app.service.rescoring import Rescorer
from app.service.retrieval import Retrieval, RetrievalPolicy
from app.service.runs import RunBook
from app.service.scoring import ScoreDesk
from app.service.shelf import Shelf
from app.service.stepping import Stepper
from app.service.trying import Trier
from app.service.worlds import WorldDesk
from app.store.store import Store


def gateway_of(
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
) -> Gateway:
    programs = programs or NoPrograms()
    catalogue = Catalogue(classes)
    editions = Editions(catalogue, store.sheets)
    runs = RunBook(store.runs, clock)
    shelf = Shelf(store.tasks)
    retrieval = Retrieval(retriever, observer, policy)
    drafting = Drafting(catalogue, retrieval)
    acceptance = Acceptance(
        editions=editions,
        tasks=store.tasks,
        shelf=shelf,
        groups=store.groups,
        runs=runs,
        panels=panels,
        observer=observer,
        clock=clock,
    )
    scorer = Scorer(editions, panels, shelf, workers, programs)
    scoring = GroupScoring(acceptance=acceptance, scorer=scorer, groups=store.groups, shelf=shelf, observer=observer)
    gathering = Gathering(
        parts=store.parts, groups=store.groups, scoring=scoring, observer=observer, rules=rules or PartRules()
    )
    return Gateway(
        catalogue=catalogue,
        dispatcher=Dispatcher(
            catalogue=catalogue,
            editions=editions,
            tasks=store.tasks,
            shelf=shelf,
            runs=runs,
            retrieval=retrieval,
            panels=panels,
            difficulty=Difficulty(store.outcomes),
            observer=observer,
        ),
        stepper=Stepper(editions, shelf),
        desk=ScoreDesk(
            catalogue=catalogue,
            runs=runs,
            acceptance=acceptance,
            scoring=scoring,
            gathering=gathering,
            groups=store.groups,
        ),
        scoring=scoring,
        gathering=gathering,
        parts=PartDesk(acceptance, gathering),
        rescorer=Rescorer(
            editions=editions,
            shelf=shelf,
            groups=store.groups,
            scorings=store.scorings,
            runs=runs,
            panels=panels,
            workers=workers,
            programs=programs,
            observer=observer,
            clock=clock,
        ),
        trier=Trier(
            drafting=drafting,
            panels=panels,
            workers=workers,
            programs=programs,
            observer=observer,
            gates={gate.flag: gate.notices for gate in GATES},
        ),
        runs=runs,
        shelf=shelf,
        worlds=WorldDesk(
            environment=NpcArena.name,
            catalogue=catalogue,
            drafting=drafting,
            events=store.events,
            lorebooks=store.lorebooks,
            retrieval=retrieval,
        ),
        groups=store.groups,
        panels=panels,
        views=store.views,
        exports=store.exports,
        health=store.health,
    )
