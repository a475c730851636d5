"""create_app(settings): the only place where concrete classes meet."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

from fastapi import APIRouter, FastAPI

from app.domain.tasks import Isolation
from app.domain.trajectories import TrajectoryRunStatus
from app.domain.values import utc_now
from app.envs.npc_arena.environment import NpcArena
from app.features.atropos.routes import PREFIX as ATROPOS
from app.features.atropos.routes import create_atropos_router, create_post_routes
from app.features.atropos.service import AtroposQueue
from app.features.authoring.pages import AuthorPages, create_author_pages_router
from app.features.authoring.routes import create_author_router, create_characters_router
from app.features.exports.pages import ExportPages, create_export_page_router
from app.features.exports.routes import build_label_rows, create_export_router
from app.features.labels.pages import LabelPages, create_label_page_router
from app.features.labels.routes import create_agreement_router, create_import_router, create_label_router
from app.features.play.pages import TalkPages, create_talk_router
from app.features.play.routes import create_play_router
from app.features.worlds.pages import WorldPages, create_world_author_router, create_world_pages_router
from app.features.worlds.routes import create_worlds_router
from app.http.api.environment_routes import (
    Examples,
    create_catalogue_router,
    create_environment_router,
    describe_environment,
)
from app.http.api.operation_routes import (
    create_health_router,
    create_key_router,
    create_preview_router,
    create_quota_router,
)
from app.http.api.record_routes import (
    create_mixture_router,
    create_records_router,
    create_rescoring_router,
    create_runs_router,
)
from app.http.compat.kept_sessions import KeptSessions, PortPaths, PortRoot
from app.http.compat.nemo_gym import PREFIX as NEMO_GYM
from app.http.compat.nemo_gym import NemoGymServer, OptionsInPath
from app.http.compat.one_sample import RewardService
from app.http.compat.openenv.server import SessionServer, create_openenv_router
from app.http.compat.openenv.sessions import SessionContext, TaskAssigner
from app.http.compat.openrlhf import create_openrlhf_router
from app.http.compat.ors import PREFIX as ORS
from app.http.compat.ors import OrsServer
from app.http.compat.slime import create_slime_router
from app.http.viewer.character_pages import create_character_pages_router
from app.http.viewer.compare_pages import create_compare_router
from app.http.viewer.pages import HomePages, create_sign_in_router, create_viewer_router
from app.http.viewer.rendering import Renderer
from app.http.viewer.run_pages import RunPages, create_run_pages_router
from app.http.web.api_keys import ALWAYS_OPEN, KeyRing, ProxySignIn
from app.http.web.middleware import LOOPBACK_HOSTS, MiddlewareOptions, install_middleware, is_loopback
from app.http.web.openapi import install_docs
from app.http.web.routes import guard_routes, index_direct_routes
from app.judges.offline import NAME as OFFLINE
from app.judges.panel import collect_reports
from app.main.components import (
    ServedCharacters,
    build_alarm_sink,
    build_panels,
    build_play,
    build_retriever,
    build_tracer,
    create_key_ring,
    discover,
    find_shadow_judges,
    list_named_environments,
    require_known_names,
)
from app.main.gateway import ServedGateway, build_gateway
from app.main.lifespan import ServiceLifespan, list_judged_offline
from app.main.store import Store
from app.ports.environment import Clock, Environment
from app.ports.judges import Panels
from app.ports.retrieval import Retriever
from app.ports.tracing import Tracer
from app.rag.world_retriever import WorldRetriever
from app.sandbox.programs import JailedPrograms
from app.sandbox.workers import ProcessWorkers, choose_size
from app.service.access import KeyAdmin
from app.service.gateway import list_criteria, list_environments, list_judge_models, list_judges
from app.service.retrieval import RetrievalPolicy
from app.settings import Settings, SignInSettings
from app.store.judge_cache import CacheRetention
from app.telemetry.metrics import PrometheusObserver
from app.toolkit.templates import find_packaged_folder

# The pages for people, put together from the gateway's parts.


@dataclass(frozen=True)
class ViewerParts:
    """`free_bytes` is None where the data lies on a server."""

    gateway: ServedGateway
    served: ServedCharacters
    list_queues: Callable[[], Awaitable[Sequence[TrajectoryRunStatus]]]
    sign_in: Callable[[Renderer], APIRouter]
    clock: Clock
    free_bytes: Callable[[], float] | None
    talk: TalkPages
    authors: AuthorPages


def create_viewer(parts: ViewerParts) -> APIRouter:
    gateway, clock = parts.gateway, parts.clock
    roster = partial(list_judges, gateway.catalogue, gateway.panels)
    environments = partial(list_environments, gateway.catalogue, gateway.panels)
    runs = RunPages(gateway.runs, gateway.run_health, gateway.views, clock, partial(list_judge_models, gateway.panels))

    def get_isolation() -> Isolation | None:
        return gateway.catalogue.isolation

    worlds = WorldPages(gateway.worlds, parts.served.list_cards)
    exports = ExportPages(gateway.exports, gateway.views, partial(build_label_rows, gateway), {OFFLINE})
    return create_viewer_router(
        gateway.views,
        tuple(gateway.catalogue.classes),
        judges=roster,
        queues=parts.list_queues,
        find_cost=gateway.runs.find_cost,
        find_rubric=gateway.rubrics.find,
        list_labels=gateway.labels.list_of_group,
        home=HomePages(gateway.views, roster, environments, get_isolation, parts.free_bytes, runs),
        sections=(
            partial(create_export_page_router, exports),
            partial(create_label_page_router, LabelPages(gateway.labelling, gateway.bounds, roster, clock)),
            partial(create_world_pages_router, worlds),
            partial(create_world_author_router, worlds.world_service),
            partial(create_author_pages_router, parts.authors),
            partial(create_character_pages_router, parts.served.build_pages()),
            partial(create_run_pages_router, runs),
            partial(create_compare_router, runs),
            partial(create_talk_router, parts.talk),
            parts.sign_in,
        ),
    )


log = logging.getLogger(__name__)

VERSION = version("atropos-environments")
DESCRIPTION = """Reinforcement-learning environments over HTTP: tasks out, scores in, everything kept.

1. `GET /envs` lists the environments.
2. `POST /envs/{env}/next-batch` hands out tasks; let your model answer them.
3. `POST /envs/{env}/score` takes the answers and returns rewards.

Each environment has a group below with examples that run as they are. Open a group to see its routes; the box above
the groups finds one by its name. `/` shows in a browser what is kept."""


def prepare_store(settings: Settings, announce: Callable[[str], None]) -> None:
    """What the first of several processes would do alone: checks the settings, migrates the store, makes a key."""
    require_known_names(settings, discover())
    store = Store.open(
        settings.database_url, find_packaged_folder("migrations"), prepare=settings.database_prepared_statements
    )
    create_key_ring(settings, store, announce)
    asyncio.run(store.close())


def create_app(
    settings: Settings,
    *,
    environments: Mapping[str, type[Environment]] | None = None,
    panels: Panels | None = None,
    retriever: Retriever | None = None,
    programs: JailedPrograms | None = None,
    clock: Clock | None = None,
    announce: Callable[[str], None] = log.warning,
    metrics_folder: Path | None = None,
) -> FastAPI:
    """Opens and migrates the store at once, the environments' data behind the first requests. `environments`,
    `panels`, `retriever` and `programs` replace what would be discovered and configured, `clock` the present in groups,
    runs and leases; `announce` is told a key that was made. `metrics_folder` is what this process shares with others
    that serve the same ports."""
    classes = environments if environments is not None else discover()
    if environments is None:
        require_known_names(settings, classes)
    observer = PrometheusObserver(metrics_folder)
    store = Store.open(
        settings.database_url,
        find_packaged_folder("migrations"),
        clock=clock,
        committed=observer.record_commit,
        judgements=CacheRetention(days=settings.judge_cache_days, entries=settings.judge_cache_entries),
        prepare=settings.database_prepared_statements,
    )
    observer.watch("db_write_queue", lambda: store.depth)
    observer.watch("db_read_queue", lambda: store.read_depth)
    if (free := store.find_free_space()) is not None:
        observer.watch("db_disk_free_bytes", free)
    panels = panels or build_panels(settings, store.judge_cache)
    observer.watch_judges(partial(collect_reports, panels))
    workers = ProcessWorkers(_choose_size(settings.workers, settings), observer.record_worker_call)
    observer.watch("worker_queue", lambda: workers.waiting)
    jails = programs or JailedPrograms(_choose_size(settings.programs.at_once, settings), told=observer.record_program)
    observer.watch("program_queue", lambda: jails.waiting)
    observer.watch("program_oldest_seconds", lambda: jails.longest_wait)
    retriever = retriever or build_retriever(settings, WorldRetriever(store.events, store.lorebooks))
    policy = RetrievalPolicy(settings.rag.on_failure, settings.rag.deadline_seconds)
    rules = settings.parts.rules
    gateway = build_gateway(
        classes,
        store,
        panels,
        workers,
        retriever,
        observer,
        clock or utc_now,
        policy,
        jails,
        rules,
        find_shadow_judges(settings, panels),
        build_alarm_sink(settings),
        list_named_environments(settings),
    )
    observer.watch("group_oldest_seconds", lambda: gateway.group_scoring.longest_seconds)
    observer.watch("programs_isolated", lambda: gateway.catalogue.isolation_reading)
    examples = Examples()
    served = ServedCharacters(gateway, settings)
    authoring = served.build_authoring(store.authored, partial(examples.prepare_one, gateway, NpcArena.name))
    atropos = AtroposQueue(store.trajectories, observer, clock or utc_now)
    tracer = build_tracer(settings, VERSION)
    play = build_play(settings, gateway, store.play, served, authoring, clock or utc_now)
    service = FastAPI(
        title="Atropos Environments",
        version=VERSION,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=ServiceLifespan(
            settings,
            gateway,
            store,
            authoring,
            workers,
            jails,
            retriever,
            examples,
            atropos,
            observer.refresh,
            play,
            tracer,
        ).run,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},  # it tells whole URLs
    )
    service.router.routes.extend(create_post_routes(atropos, settings.max_body_bytes))
    _add_routes(service, create_atropos_router(atropos, settings.max_body_bytes))  # early: polled by the millisecond
    _add_trainer_routes(service, settings, gateway, observer, store)
    names = tuple(gateway.catalogue.classes)
    ring = create_key_ring(settings, store, announce)
    admin = KeyAdmin(store.keys, changed=ring.expire)
    bounds = settings.sign_in
    sign_in = partial(create_sign_in_router, ring, admin, hours=bounds.hours, most=bounds.per_key)
    authors = AuthorPages(authoring, served.build_prompt, served.list_names, served.list_scenes)
    parts = ViewerParts(gateway, served, atropos.explain_runs, sign_in, clock or utc_now, free, play, authors)
    _add_routes(service, create_viewer(parts))
    _add_environment_routes(service, gateway)
    _add_routes(service, create_characters_router(served.list_cards, authoring.reload))
    _add_routes(service, create_author_router(authoring, served.build_prompt))
    _add_record_routes(service, gateway)
    _add_routes(service, create_play_router(play.playing, play.turns, gateway.worlds))
    _add_routes(service, create_key_router(admin))
    _add_routes(service, create_quota_router(gateway.quotas))
    exposition, judged_offline = observer.render_exposition, list_judged_offline(gateway)
    _add_routes(service, create_health_router(gateway, VERSION, utc_now, exposition, judged_offline))
    install_docs(service)
    _protect(service, settings, ring, observer, names, tracer)
    examples.install(service, gateway)
    guard_routes(service.router.routes, gateway.bounds.require_group)  # last, so that no route is replaced afterwards
    index_direct_routes(service.router)
    return service


def _choose_size(chosen: int | None, settings: Settings) -> int:
    """This process's part of the workers or jails."""
    return choose_size(settings.processes) if chosen is None else -(-chosen // settings.processes)


def _add_routes(service: FastAPI, router: APIRouter) -> None:
    """As they are: `include_router` would build each of them a second time, before the first request is answered."""
    service.router.routes.extend(router.routes)


def _add_trainer_routes(
    service: FastAPI, settings: Settings, gateway: ServedGateway, observer: PrometheusObserver, store: Store
) -> None:
    rewards = RewardService(
        gateway.samples,
        gateway.catalogue,
        gateway.stepper,
        gateway.bounds,
        settings.compat.unscored_reward,
        settings.compat.unscored == "neutral_group",
        partial(list_criteria, gateway),
        observer.record_unscored_answer,
    )
    _add_routes(service, create_openrlhf_router(rewards))
    _add_routes(service, create_slime_router(rewards))
    rollouts = KeptSessions(store.episodes, gateway.stepper, gateway.task_cache)
    _add_routes(service, NemoGymServer(rewards, rollouts).router)
    _add_routes(service, OrsServer(gateway, rollouts, rewards).router)
    playing = SessionContext(gateway, TaskAssigner(gateway), observer.record_unscored_answer)
    talks = SessionServer(playing, settings.compat.openenv_sessions, settings.compat.openenv_idle_seconds)
    observer.watch("openenv_sessions", lambda: talks.open)
    _add_routes(service, create_openenv_router(talks, describe_environment))


def _add_environment_routes(service: FastAPI, gateway: ServedGateway) -> None:
    for environment in gateway.catalogue.classes.values():
        _add_routes(service, create_environment_router(environment, gateway))
        _add_routes(service, create_preview_router(environment, gateway))
    _add_routes(service, create_catalogue_router(gateway, not_for_training={OFFLINE}))


def _add_record_routes(service: FastAPI, gateway: ServedGateway) -> None:
    _add_routes(service, create_worlds_router(gateway.worlds))
    _add_routes(service, create_mixture_router(gateway))
    _add_routes(service, create_records_router(gateway))
    _add_routes(service, create_export_router(gateway, not_for_training={OFFLINE}))
    _add_routes(service, create_rescoring_router(gateway))
    _add_routes(service, create_runs_router(gateway))
    _add_routes(service, create_label_router(gateway, gateway.labelling))
    _add_routes(service, create_agreement_router(gateway, gateway.labelling))
    _add_routes(service, create_import_router(gateway.labelling))


def _protect(
    service: FastAPI,
    settings: Settings,
    ring: KeyRing,
    observer: PrometheusObserver,
    environments: Collection[str],
    tracer: Tracer | None,
) -> None:
    open_paths = ALWAYS_OPEN | ({"/metrics"} if settings.open_metrics else set())
    own_hosts = LOOPBACK_HOSTS if ring.anonymous and is_loopback(settings.host) else None
    install_middleware(
        service,
        MiddlewareOptions(
            ring,
            open_paths,
            settings.max_body_bytes,
            observer.record_request,
            (ATROPOS,),
            own_hosts,
            environments,
            settings.request_seconds,
            find_proxy(settings.sign_in),
            tracer,
        ),
    )
    service.add_middleware(OptionsInPath)
    if roots := _list_roots(settings):
        service.add_middleware(PortPaths, roots=roots)


def _list_roots(settings: Settings) -> dict[int, PortRoot]:
    """What has a port of its own."""
    runs = {port: PortRoot(f"{ATROPOS}/{run}") for port, run in settings.atropos_listeners.items()}
    served = [(NEMO_GYM, one) for one in settings.nemo_gym_ports.values()]
    served += [(ORS, one) for one in settings.ors_ports.values()]
    return runs | {one.port: PortRoot(f"{prefix}/{one.environment}", one.options) for prefix, one in served}


def find_proxy(settings: SignInSettings) -> ProxySignIn | None:
    if settings.proxy_header is None:
        return None
    return ProxySignIn(settings.proxy_header, settings.proxy_addresses, settings.proxy_scopes)
