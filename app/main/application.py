"""create_app(settings): the only place where concrete classes meet."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from importlib.metadata import version

from fastapi import FastAPI

from app.characters.views import CharacterCard, build_character_cards
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.values import utc_now
from app.envs.npc_arena.environment import NpcArena
from app.http.api.catalogue_routes import create_catalogue_router, describe_environment
from app.http.api.character_routes import create_characters_router
from app.http.api.environment_routes import create_environment_router
from app.http.api.examples import Examples
from app.http.api.export_routes import create_export_router
from app.http.api.health_routes import create_health_router
from app.http.api.preview_routes import create_preview_router
from app.http.api.record_routes import create_mixture_router, create_records_router, create_runs_router
from app.http.api.rescoring_routes import create_rescoring_router
from app.http.api.world_routes import create_worlds_router
from app.http.compat.atropos.addresses import PREFIX as ATROPOS
from app.http.compat.atropos.group_posts import create_post_routes
from app.http.compat.atropos.queue import AtroposQueue
from app.http.compat.atropos.routes import create_atropos_router
from app.http.compat.atropos.run_ports import RunPorts
from app.http.compat.one_sample.reward_service import RewardService
from app.http.compat.openenv.routes import create_openenv_router
from app.http.compat.openenv.session_server import SessionServer
from app.http.compat.openenv.sessions import SessionContext
from app.http.compat.openenv.task_assignment import TaskAssigner
from app.http.compat.openrlhf import create_openrlhf_router
from app.http.compat.slime import create_slime_router
from app.http.viewer.pages import create_viewer_router
from app.http.viewer.world_pages import WorldPages
from app.http.web.api_keys import ALWAYS_OPEN, KeyRing, compute_key_digest, generate_key
from app.http.web.browser_protection import LOOPBACK_HOSTS, is_loopback
from app.http.web.docs_page import install_docs
from app.http.web.middleware import MiddlewareOptions, install_middleware
from app.judges.offline import NAME as OFFLINE
from app.judges.panels import collect_reports
from app.main.components import build_panels, build_retriever
from app.main.discovery import discover
from app.main.gateway import build_gateway
from app.main.settings_check import require_known_names
from app.ports.environment import Environment
from app.ports.judges import Panels
from app.ports.retrieval import Retriever
from app.ports.runtime import Clock, ManagedResource
from app.rag.world_retriever import WorldRetriever
from app.sandbox.isolation import probe_isolation
from app.sandbox.pool import ProcessWorkers, choose_size
from app.sandbox.programs import JailedPrograms
from app.service.catalogue import Catalogue
from app.service.gateway import Gateway
from app.service.judge_listing import list_judges
from app.service.retrieval import RetrievalPolicy
from app.settings import Settings
from app.store.judge_cache import CacheRetention
from app.store.store import Store
from app.telemetry.metrics import PrometheusObserver
from app.toolkit.package_data import find_packaged_folder

log = logging.getLogger(__name__)

VERSION = version("atropos-environments")
ISOLATION_SECONDS = 2.0
"""The longest that readiness waits for the isolation to be tried, which takes less than one on an idle machine."""
DESCRIPTION = """Reinforcement-learning environments over HTTP: tasks out, scores in, everything kept.

1. `GET /envs` lists the environments.
2. `POST /envs/{env}/next-batch` hands out tasks; let your model answer them.
3. `POST /envs/{env}/score` takes the answers and returns rewards.

Each environment has a group below with examples that run as they are. Open a group to see its routes; the box above
the groups finds one by its name. `/` shows in a browser what is kept."""


def create_key_ring(settings: Settings, store: Store, announce: Callable[[str], None]) -> KeyRing:
    """Who may call. On a host other than loopback there is a key unless the settings say `anonymous`; one that was
    made here is announced once, then only its digest is known."""
    if settings.api_key is not None:
        return KeyRing([compute_key_digest(settings.api_key.get_secret_value())], anonymous=False)
    if settings.anonymous or is_loopback(settings.host):
        return KeyRing([], anonymous=True)
    digests = store.keys.list_digests()
    if not digests:
        key = generate_key()
        store.keys.add(compute_key_digest(key))
        announce(key)
        digests = (compute_key_digest(key),)
    return KeyRing(digests, anonymous=False)


def create_app(
    settings: Settings,
    *,
    environments: Mapping[str, type[Environment]] | None = None,
    panels: Panels | None = None,
    retriever: Retriever | None = None,
    programs: JailedPrograms | None = None,
    clock: Clock | None = None,
    announce: Callable[[str], None] = log.warning,
) -> FastAPI:
    """Opens and migrates the store at once, the environments' data behind the first requests. `environments`,
    `panels`, `retriever` and `programs` replace what would be discovered and configured, `clock` the present in groups,
    runs and leases; `announce` is told a key that was made."""
    classes = environments if environments is not None else discover()
    if environments is None:
        require_known_names(settings, classes)
    observer = PrometheusObserver()
    store = Store.open(
        settings.database_url,
        find_packaged_folder("migrations"),
        clock=clock,
        committed=observer.record_commit,
        judgements=CacheRetention(days=settings.judge_cache_days, entries=settings.judge_cache_entries),
    )
    observer.watch_queue(lambda: store.depth)
    panels = panels or build_panels(settings, store.judge_cache)
    observer.watch_judges(partial(collect_reports, panels))
    workers = ProcessWorkers(settings.workers or choose_size(), observer.record_worker_call)
    observer.watch_workers(lambda: workers.waiting)
    jails = programs or JailedPrograms(settings.programs.at_once or choose_size(), told=observer.record_program)
    observer.watch_programs(lambda: jails.waiting)
    retriever = retriever or build_retriever(settings, WorldRetriever(store.events, store.lorebooks))
    policy = RetrievalPolicy(settings.rag.on_failure, settings.rag.deadline_seconds)
    rules = settings.parts.rules
    gateway = build_gateway(
        classes, store, panels, workers, retriever, observer, clock or utc_now, policy, jails, rules
    )
    examples = Examples()
    service = FastAPI(
        title="Atropos Environments",
        version=VERSION,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=_create_lifespan(settings, gateway, store, workers, jails, retriever, examples),
    )
    roster = partial(list_judges, gateway.catalogue, panels)
    atropos = AtroposQueue(store.trajectories, observer, clock or utc_now)
    service.router.routes.extend(create_post_routes(atropos, settings.max_body_bytes))
    service.include_router(create_atropos_router(atropos, settings.max_body_bytes))  # early: polled by the millisecond
    rewards = RewardService(
        gateway.samples,
        gateway.catalogue,
        gateway.stepper,
        settings.compat.unscored_reward,
        observer.record_unscored_answer,
    )
    service.include_router(create_openrlhf_router(rewards))
    service.include_router(create_slime_router(rewards))
    playing = SessionContext(gateway, TaskAssigner(gateway), observer.record_unscored_answer)
    talks = SessionServer(playing, settings.compat.openenv_sessions, settings.compat.openenv_idle_seconds)
    observer.watch_openenv(lambda: talks.open)
    service.include_router(create_openenv_router(talks, describe_environment))
    names = tuple(gateway.catalogue.classes)
    characters = partial(list_characters, gateway)
    pages = WorldPages(gateway.worlds, characters)
    service.include_router(create_viewer_router(gateway.views, names, roster, atropos.explain_runs, pages))
    for environment in gateway.catalogue.classes.values():
        service.include_router(create_environment_router(environment, gateway))
        service.include_router(create_preview_router(environment, gateway))
    service.include_router(create_catalogue_router(gateway, not_for_training={OFFLINE}))
    service.include_router(create_characters_router(characters, lambda: _reload_characters(gateway, examples)))
    service.include_router(create_worlds_router(gateway))
    service.include_router(create_mixture_router(gateway))
    service.include_router(create_records_router(gateway))
    service.include_router(create_export_router(gateway, not_for_training={OFFLINE}))
    service.include_router(create_rescoring_router(gateway))
    service.include_router(create_runs_router(gateway))
    judged_offline = _list_judged_offline(gateway)
    service.include_router(create_health_router(gateway, VERSION, utc_now, observer.render_exposition, judged_offline))
    install_docs(service)
    ring = create_key_ring(settings, store, announce)
    open_paths = ALWAYS_OPEN | ({"/metrics"} if settings.open_metrics else set())
    own_hosts = LOOPBACK_HOSTS if ring.anonymous and is_loopback(settings.host) else None
    install_middleware(
        service,
        MiddlewareOptions(ring, open_paths, settings.max_body_bytes, observer.record_request, (ATROPOS,), own_hosts),
    )
    if settings.atropos_listeners:
        service.add_middleware(RunPorts, runs=settings.atropos_listeners)
    examples.install(service)
    return service


def _list_judged_offline(gateway: Gateway) -> tuple[str, ...]:
    """The environments that the offline judge scores by default."""
    entries = list_judges(gateway.catalogue, gateway.panels)
    return tuple(name for entry in entries if entry.name == OFFLINE for name in entry.environments)


def _create_lifespan(
    settings: Settings,
    gateway: Gateway,
    store: Store,
    workers: ProcessWorkers,
    programs: JailedPrograms,
    retriever: Retriever,
    examples: Examples,
) -> Callable[[FastAPI], contextlib.AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        held = [one for one in (*gateway.panels.judges.values(), retriever) if isinstance(one, ManagedResource)]
        await asyncio.gather(*(one.open() for one in held))
        await gateway.assembler.open()
        if judged_offline := _list_judged_offline(gateway):
            log.warning(
                "the offline judge, which has no model and is not for training, scores %s; configure a judge under "
                "`judges` and name it in `environments.<name>.judges`",
                ", ".join(judged_offline),
            )
        opening = asyncio.create_task(_open_gateway(settings, gateway, examples, programs))
        yield
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        await gateway.assembler.close()
        await gateway.group_scoring.close()
        await gateway.rescorer.close()
        await workers.close()
        await programs.close()
        await asyncio.gather(*(one.close() for one in held))
        await store.close()

    return lifespan


async def _open_gateway(settings: Settings, gateway: Gateway, examples: Examples, programs: JailedPrograms) -> None:
    """Reads the data, each configured data set by itself, so that a slow one holds up no other environment. Then takes
    up what a restart interrupted, and looks after groups that come in pieces meanwhile and for ever: what was
    interrupted may take long, and replicas may always have more of it."""
    folders = {"character_sheets": settings.character_sheets}
    datasets = ConfiguredDatasets(settings.datasets, folders=folders, hub_cache=settings.cache_dir)
    trying = asyncio.create_task(_try_isolation(settings, gateway.catalogue, programs))
    slow = {name for name in gateway.catalogue.classes if settings.datasets.get(name, "").strip()}
    reading = [asyncio.to_thread(gateway.catalogue.open, datasets, {name}) for name in sorted(slow)]
    configured = asyncio.ensure_future(asyncio.gather(*reading))
    try:
        await asyncio.to_thread(gateway.catalogue.open, datasets, gateway.catalogue.classes.keys() - slow)
        await asyncio.wait({trying}, timeout=ISOLATION_SECONDS)
        await asyncio.wait({configured}, timeout=settings.ready_after_data)
        gateway.catalogue.ready = True
        await asyncio.gather(_take_up(gateway, examples, trying, configured), gateway.assembler.run())
    finally:
        trying.cancel()
        configured.cancel()


async def _take_up(gateway: Gateway, examples: Examples, *known: Awaitable[object]) -> None:
    """What was interrupted is not given up because nobody knows yet whether it may be run, or from which data."""
    await asyncio.gather(*known)
    await _resume_work(gateway, examples)


async def _resume_work(gateway: Gateway, examples: Examples) -> None:
    for outcome in await asyncio.gather(
        gateway.group_scoring.resume(), examples.prepare(gateway), return_exceptions=True
    ):
        if isinstance(outcome, Exception):
            log.error("start-up work failed", exc_info=outcome)


async def _try_isolation(settings: Settings, catalogue: Catalogue, programs: JailedPrograms) -> None:
    """Where an environment runs programs: whether they can be kept apart here, found out while data is read."""
    if not any(environment.runs_programs for environment in catalogue.classes.values()):
        return
    isolation = await probe_isolation(programs)
    catalogue.set_isolation(isolation, weak_will_do=settings.programs.allow_weak_isolation)


async def _reload_characters(gateway: Gateway, examples: Examples) -> None:
    await asyncio.to_thread(gateway.catalogue.reopen, NpcArena.name)
    await examples.prepare(gateway)


def list_characters(gateway: Gateway) -> tuple[CharacterCard, ...]:
    """Of NPC Arena, when it is served."""
    if gateway.catalogue.explain_unavailability(NpcArena.name) is not None:
        return ()
    arena = gateway.catalogue.get_environment_or_current(NpcArena.name).environment
    return build_character_cards(arena.sheets) if isinstance(arena, NpcArena) else ()
