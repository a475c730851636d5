"""The service as one FastAPI application: `create_app` is the only place where concrete classes meet.

The order in it matters. The store is opened first, as everything stands on it. Features come once the kernel stands,
and hand back their hooks, pages and routes. Routes are guarded and indexed last, when none is added any more."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

from fastapi import APIRouter, FastAPI

from app.domain.tasks import Isolation
from app.domain.values import utc_now
from app.envs.npc_arena.environment import NpcArena
from app.features.contract import Feature, FeatureParts, Kernel
from app.http.api.environment_routes import (
    Examples,
    create_catalogue_router,
    create_characters_router,
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
from app.http.compat.nemo_gym import NemoGymServer, take_options_from_path
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
from app.http.viewer.rendering import Renderer, ViewerParts
from app.http.viewer.run_pages import RunPages, create_run_pages_router
from app.http.web.api_keys import ALWAYS_OPEN, KeyRing, ProxySignIn
from app.http.web.middleware import LOOPBACK_HOSTS, MiddlewareOptions, PathRewriting, install_middleware, is_loopback
from app.http.web.openapi import install_docs
from app.http.web.routes import install_routing
from app.judges.offline import NAME as OFFLINE
from app.judges.panel import collect_reports
from app.main.components import (
    ServedCharacters,
    add_foreign,
    build_foreign_servers,
    build_panels,
    build_players,
    build_retriever,
    build_tracer,
    create_children,
    create_key_ring,
    discover,
    list_named_environments,
    read_server_key,
    require_known_names,
)
from app.main.features import import_modules
from app.main.gateway import build_gateway
from app.main.lifespan import ServiceLifespan, list_judged_offline
from app.main.store import Store
from app.ports.environment import Clock, Environment
from app.ports.judges import Panels
from app.ports.retrieval import Retriever
from app.ports.tracing import Tracer
from app.sandbox.programs import JailedPrograms
from app.sandbox.workers import ProcessWorkers, WorkersPart, choose_size
from app.service.access import KeyAdmin
from app.service.gateway import Gateway, list_criteria, list_environments, list_judge_models, list_judges
from app.service.hosted import LOOK_SECONDS, ServerWatch
from app.service.retrieval import RetrievalPolicy
from app.settings import Settings, SignInSettings
from app.telemetry.metrics import PrometheusObserver
from app.toolkit.templates import find_packaged_folder

log = logging.getLogger(__name__)

VERSION = version("atropos-environments")
_DESCRIPTION = """Reinforcement-learning environments over HTTP: tasks out, scores in, everything kept.

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
    look_seconds: float = LOOK_SECONDS,
) -> FastAPI:
    """Opens and migrates the store at once, the environments' data behind the first requests. `environments`,
    `panels`, `retriever` and `programs` replace what would be discovered and configured, `clock` the present in groups,
    runs and leases; `announce` is told a key that was made. `metrics_folder` is what this process shares with others
    that serve the same ports. Others' servers are asked what they are every `look_seconds`."""
    classes = environments if environments is not None else discover()
    if environments is None:
        require_known_names(settings, classes)
    foreign = build_foreign_servers(settings, create_children(settings))
    classes = add_foreign(classes, foreign)
    observer = PrometheusObserver(metrics_folder)
    store = Store.open(
        settings.database_url,
        find_packaged_folder("migrations"),
        clock=clock,
        committed=observer.record_commit,
        judgement_days=settings.judge_cache_days,
        prepare=settings.database_prepared_statements,
    )
    observer.watch("db_write_queue", lambda: store.depth)
    observer.watch("db_read_queue", lambda: store.read_depth)
    if (free_bytes := store.find_free_space()) is not None:
        observer.watch("db_disk_free_bytes", free_bytes)
    features = load_features()
    panels = panels or build_panels(settings, store.judge_cache)
    players = build_players(settings, store.judge_cache)
    observer.watch_judges(partial(collect_reports, panels, players.values()))
    workers = ProcessWorkers(count_workers(settings), observer.record_worker_call)
    observer.watch("worker_queue", lambda: workers.waiting)
    # Half of them, so that what models wrote never waits for all that authors sent.
    authors = WorkersPart(workers, workers.size // 2)
    jails = programs or JailedPrograms(
        _choose_size(settings.programs.at_once, settings), observe=observer.record_program
    )
    observer.watch("program_queue", lambda: jails.waiting)
    observer.watch("program_oldest_seconds", lambda: jails.longest_wait)
    retrievers = {name: partial(build, store) for one in features for name, build in one.retrievers.items()}
    retriever = retriever or build_retriever(settings, retrievers)
    gateway = build_gateway(
        classes=classes,
        store=store,
        panels=panels,
        workers=workers,
        authors=authors,
        retriever=retriever,
        observer=observer,
        clock=clock or utc_now,
        policy=RetrievalPolicy(settings.rag.on_failure, settings.rag.deadline_seconds),
        programs=jails,
        rules=settings.parts.rules,
        named=list_named_environments(settings),
        players=players,
    )
    observer.watch("group_oldest_seconds", lambda: gateway.group_scoring.longest_seconds)
    observer.watch("foreign_sessions", lambda: gateway.elsewhere.open_sessions)
    observer.watch("programs_isolated", lambda: gateway.catalogue.isolation_reading)
    examples = Examples(gateway.catalogue, gateway.dispatcher, gateway.task_cache)
    served = ServedCharacters(
        gateway.catalogue, gateway.views, settings, authors, partial(examples.prepare_one, NpcArena.name)
    )
    tracer = build_tracer(settings, VERSION)
    kernel = Kernel(
        settings=settings,
        gateway=gateway,
        storage=store,
        characters=served,
        environment_versions=gateway.environment_versions,
        workers=workers,
        authors=authors,
        programs=jails,
        observer=observer,
        clock=clock or utc_now,
        read_server_key=partial(read_server_key, settings),
        refresh_examples=served.refresh_examples,
        not_for_training=frozenset({OFFLINE}),
    )
    parts = [one.build(kernel) for one in features]
    service = FastAPI(
        title="Atropos Environments",
        version=VERSION,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=ServiceLifespan(
            settings=settings,
            catalogue=gateway.catalogue,
            panels=gateway.panels,
            assembler=gateway.assembler,
            group_scoring=gateway.group_scoring,
            rescorer=gateway.rescorer,
            store=store,
            parts=parts,
            list_texts=served.list_texts,
            workers=workers,
            authors=authors,
            programs=jails,
            retriever=retriever,
            players=tuple(players.values()),
            foreign=tuple(foreign.values()),
            watch=ServerWatch(gateway.catalogue, tuple(foreign.values()), gateway.elsewhere, look_seconds),
            elsewhere=gateway.elsewhere,
            examples=examples,
            refresh_metrics=observer.refresh,
            tracer=tracer,
        ).run,
        # FastAPI's own spans and metrics tell whole URLs, with what stands in queries.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    # Before all others, as the first that matches answers: trainers poll these by the millisecond.
    service.router.routes.extend(route for one in parts for route in one.polled)
    _add_trainer_routes(service, settings, gateway, observer, store)
    ring = create_key_ring(settings, store, announce)
    admin = KeyAdmin(store.keys, changed=ring.expire)
    sign_in = partial(
        create_sign_in_router, ring, admin, hours=settings.sign_in.hours, per_key=settings.sign_in.per_key
    )
    _add_routes(service, _create_viewer(gateway, served, features, parts, sign_in, clock or utc_now, free_bytes))
    _add_environment_routes(service, gateway)
    _add_routes(service, create_characters_router(served.list_cards, served.reload))
    _add_record_routes(service, gateway)
    for router in (router for one in parts for router in one.routers):
        _add_routes(service, router)
    _add_routes(service, create_key_router(admin))
    _add_routes(service, create_quota_router(gateway.quotas))
    exposition, judged_offline = observer.render_exposition, list_judged_offline(gateway.catalogue, gateway.panels)
    health_router = create_health_router(
        catalogue=gateway.catalogue,
        health=gateway.health,
        version=VERSION,
        clock=utc_now,
        exposition=exposition,
        offline_judge=judged_offline,
        list_down=lambda: tuple(name for name in foreign if gateway.catalogue.explain_unavailability(name) is not None),
    )
    _add_routes(service, health_router)
    install_docs(service)
    _protect(service, settings, ring, observer, tuple(gateway.catalogue.classes), tracer, parts)
    examples.install(service)
    install_routing(service.router, gateway.bounds.require_group)  # last, so that no route is replaced afterwards
    return service


def _create_viewer(
    gateway: Gateway,
    served: ServedCharacters,
    features: Sequence[Feature],
    parts: Sequence[FeatureParts],
    sign_in: Callable[[Renderer], APIRouter],
    clock: Clock,
    free_bytes: Callable[[], float] | None,
) -> APIRouter:
    """`free_bytes` is None where the data lies on a server."""
    roster = partial(list_judges, gateway.catalogue, gateway.panels)
    environments = partial(list_environments, gateway.catalogue, gateway.panels)
    added = _join_viewer_parts([one.viewer for one in parts])
    names = tuple(gateway.catalogue.classes)
    runs = RunPages(gateway.runs, gateway.views, clock, partial(list_judge_models, gateway.panels), added, names)

    def get_isolation() -> Isolation | None:
        return gateway.catalogue.isolation

    return create_viewer_router(
        gateway.views,
        names,
        judges=roster,
        find_rubric=gateway.rubrics.find,
        home=HomePages(gateway.views, roster, environments, get_isolation, free_bytes, runs),
        sections=(
            *(page for one in parts for page in one.pages),
            partial(create_character_pages_router, served.build_pages(added)),
            partial(create_run_pages_router, runs),
            partial(create_compare_router, runs),
            sign_in,
        ),
        parts=added,
        menu=[entry for one in parts for entry in one.menu],
        templates=[one.templates for one in features if one.templates is not None],
        clock=clock,
        find_measurements=gateway.find_measurements,
    )


def load_features() -> list[Feature]:
    """LookupError for a feature whose `needs` are not listed before it."""
    features: list[Feature] = [module.FEATURE for module in import_modules("feature")]
    for position, feature in enumerate(features):
        missing = {*feature.needs} - {one.name for one in features[:position]}
        if missing:
            raise LookupError(f"the feature {feature.name} needs {', '.join(sorted(missing))} before it")
    return features


def _join_viewer_parts(parts: Sequence[ViewerParts]) -> ViewerParts:
    return ViewerParts(
        link_group=[link for one in parts for link in one.link_group],
        show_group=[show for one in parts for show in one.show_group],
        link_character=[link for one in parts for link in one.link_character],
        link_characters=[link for one in parts for link in one.link_characters],
        link_groups=[link for one in parts for link in one.link_groups],
        show_run=[show for one in parts for show in one.show_run],
        show_judge=[show for one in parts for show in one.show_judge],
    )


def count_workers(settings: Settings) -> int:
    """Of this process. At least two, whatever is set: a text of an author never takes the only one from models."""
    return max(2, _choose_size(settings.workers, settings))


def _choose_size(chosen: int | None, settings: Settings) -> int:
    """This process's part of the workers or jails: what is set holds for all processes together."""
    return choose_size(settings.processes) if chosen is None else -(-chosen // settings.processes)


def _add_routes(service: FastAPI, router: APIRouter) -> None:
    """As they are: `include_router` would build each of them a second time, before the first request is answered."""
    service.router.routes.extend(router.routes)


def _add_trainer_routes(
    service: FastAPI, settings: Settings, gateway: Gateway, observer: PrometheusObserver, store: Store
) -> None:
    rewards = RewardService(
        parts=gateway.samples,
        catalogue=gateway.catalogue,
        stepper=gateway.stepper,
        bounds=gateway.bounds,
        unscored_reward=settings.compat.unscored_reward,
        masks_groups=settings.compat.unscored == "neutral_group",
        list_criteria=partial(list_criteria, gateway.runs, gateway.catalogue, gateway.panels),
        unscored=observer.record_unscored_answer,
    )
    _add_routes(service, create_openrlhf_router(rewards))
    _add_routes(service, create_slime_router(rewards))
    rollouts = KeptSessions(store.episodes, gateway.stepper, gateway.task_cache)
    _add_routes(service, NemoGymServer(rewards, rollouts).router)
    ors = OrsServer(
        catalogue=gateway.catalogue,
        dispatcher=gateway.dispatcher,
        task_cache=gateway.task_cache,
        scoring=gateway.scoring,
        sessions=rollouts,
        reward_service=rewards,
    )
    _add_routes(service, ors.router)
    assigner = TaskAssigner(
        catalogue=gateway.catalogue,
        dispatcher=gateway.dispatcher,
        task_cache=gateway.task_cache,
        checks=gateway.bounds,
    )
    playing = SessionContext(
        catalogue=gateway.catalogue,
        stepper=gateway.stepper,
        samples=gateway.samples,
        assigner=assigner,
        unscored=observer.record_unscored_answer,
    )
    talks = SessionServer(playing, settings.compat.openenv_sessions, settings.compat.openenv_idle_seconds)
    observer.watch("openenv_sessions", lambda: talks.open)
    _add_routes(service, create_openenv_router(talks, describe_environment))


def _add_environment_routes(service: FastAPI, gateway: Gateway) -> None:
    for environment in gateway.catalogue.classes.values():
        router = create_environment_router(
            environment,
            dispatcher=gateway.dispatcher,
            stepper=gateway.stepper,
            scoring=gateway.scoring,
            checks=gateway.bounds,
        )
        _add_routes(service, router)
        _add_routes(service, create_preview_router(environment, gateway.previews, gateway.quotas))
    catalogue_router = create_catalogue_router(
        catalogue=gateway.catalogue,
        panels=gateway.panels,
        list_judge_versions=gateway.list_judge_versions,
        not_for_training={OFFLINE},
    )
    _add_routes(service, catalogue_router)


def _add_record_routes(service: FastAPI, gateway: Gateway) -> None:
    _add_routes(service, create_mixture_router(gateway.dispatcher, gateway.scoring, gateway.bounds))
    records_router = create_records_router(
        catalogue=gateway.catalogue,
        views=gateway.views,
        task_cache=gateway.task_cache,
        scoring=gateway.scoring,
        checks=gateway.bounds,
        runs=gateway.runs,
    )
    _add_routes(service, records_router)
    _add_routes(service, create_rescoring_router(gateway.rescorer))
    _add_routes(service, create_runs_router(gateway.runs, gateway.views))


def _protect(
    service: FastAPI,
    settings: Settings,
    ring: KeyRing,
    observer: PrometheusObserver,
    environments: Collection[str],
    tracer: Tracer | None,
    parts: Sequence[FeatureParts],
) -> None:
    open_paths = ALWAYS_OPEN | ({"/metrics"} if settings.open_metrics else set())
    # Without a key on loopback, a foreign page could reach the service by a name of its own for 127.0.0.1.
    is_guarded = settings.allowed_hosts or (ring.anonymous and is_loopback(settings.host))
    own_hosts = LOOPBACK_HOSTS | {*settings.allowed_hosts} if is_guarded else None
    install_middleware(
        service,
        MiddlewareOptions(
            keys=ring,
            open_paths=open_paths,
            max_body_bytes=settings.max_body_bytes,
            observe=observer.record_request,
            inflating=tuple(prefix for one in parts for prefix in one.unpacks),
            hosts=own_hosts,
            origins=frozenset(settings.allowed_origins),
            environments=environments,
            request_seconds=settings.request_seconds,
            proxy=_find_proxy(settings.sign_in),
            tracer=tracer,
        ),
    )
    # Added after the others, so before them: they see paths and ports already rewritten.
    service.add_middleware(PathRewriting, prefix=NEMO_GYM, rewrite=take_options_from_path)
    if roots := _list_roots(settings, parts):
        service.add_middleware(PortPaths, roots=roots)


def _list_roots(settings: Settings, parts: Sequence[FeatureParts]) -> dict[int, PortRoot]:
    """What has a port of its own."""
    added = {port: root for one in parts for port, root in one.ports.items()}
    served = [(NEMO_GYM, one) for one in settings.nemo_gym_ports.values()]
    served += [(ORS, one) for one in settings.ors_ports.values()]
    return added | {one.port: PortRoot(f"{prefix}/{one.environment}", one.options) for prefix, one in served}


def _find_proxy(settings: SignInSettings) -> ProxySignIn | None:
    if settings.proxy_header is None:
        return None
    return ProxySignIn(settings.proxy_header, settings.proxy_addresses, settings.proxy_scopes)
