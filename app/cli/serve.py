"""`atropos-envs serve`, `migrate`, `version` and `settings`: the service as a program of the system.

`serve` opens its sockets before anything else, prepares the store, and serves in this process or in several. Several
processes share nothing but the store and a folder of metrics. Each has sockets of its own at the same addresses, and
the supervisor replaces one that died or hangs. One that finds no store ends and is replaced, too; one that can never
start, because of its settings, ends the service."""

import asyncio
import ctypes
import errno
import gc
import json
import logging
import multiprocessing
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NoReturn, Self, cast

import typer
import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from rich.table import Table
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import STARTUP_FAILURE
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.supervisors import Multiprocess

from app.cli.envs.check import discover_environments
from app.cli.judge_bench import say_store
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import GatewayError, StoreUnavailable, UserError
from app.domain.faults import explain_os_error
from app.domain.tasks import Isolation
from app.domain.values import Frozen
from app.http.web.api_keys import PEER
from app.http.web.middleware import create_timed_protocol
from app.inference.connection import Connection, Endpoint, NoReply
from app.main.application import VERSION, create_app, prepare_store
from app.main.components import build_judge_config, list_named_environments, require_known_names
from app.service.catalogue import Catalogue
from app.settings import MOST_PROCESSES, PREFIX, Settings, read_settings, share_metrics
from app.store.database import describe
from app.store.migration import migrate as migrate_database
from app.store.migration import require_servable
from app.telemetry.logs import configure_logging
from app.terminal.client import build_local_url, join_address
from app.terminal.consoles import AsJson, errors, output_console, print_outcome, stop
from app.toolkit.templates import find_packaged_folder

# The commands.

_GREETING_SECONDS: Final = 10.0
"""Data that takes longer to read does not keep the address from whoever waits for it: pages are served meanwhile."""
_READY_POLL_SECONDS: Final = 0.05


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, max=MOST_PROCESSES, help="Number of processes; more than 1 need PostgreSQL.")
    ] = None,
) -> None:
    """Migrate the database and serve until stopped. Settings come from ATROPOS_ENVS_* variables, then
    from gateway.yaml."""
    keep_little_freed_memory()  # before there are threads, each of which would get an arena
    settings = _read_settings()
    options = {"host": host, "port": port, "processes": processes}
    settings = settings.model_copy(update={name: value for name, value in options.items() if value is not None})
    sockets = _open_sockets(settings)
    configure_logging(settings.log_level, settings.log_format, name_process=settings.processes > 1)
    for said in settings.withdrawn:
        log.warning("a setting does nothing any more: %s", said)
    gc.disable()  # until everything is loaded: it takes a fifth of the start, and what is loaded stays
    try:
        say_store(settings)
        if settings.processes > 1:
            prepare_store(settings, _print_api_key)
        else:
            app = create_app(settings, announce=_print_api_key)
    except (GatewayError, UserError) as error:
        stop(str(error))
    # A thread, since uvicorn takes this one; it waits beside the start and prints when the service is ready.
    greeting = threading.Thread(target=_greet_when_ready, args=(settings, sockets[0].getsockname()[1]), daemon=True)
    greeting.start()
    tune_garbage_collection()
    allow_many_sockets()
    if settings.processes > 1:
        raise typer.Exit(_serve_in_processes(settings, sockets))
    config = _build_config(settings, app)
    config.app = keep_peers(app, config.forwarded_allow_ips)  # of the variable FORWARDED_ALLOW_IPS
    uvicorn.Server(config).run(sockets)


def _open_sockets(settings: Settings) -> list[socket.socket]:
    """One for each port. They are one service: what differs is decided by the port that a request came in at. Opened
    first: nothing is migrated for a service that cannot listen. Who connects early waits."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    opened: list[socket.socket] = []
    servers = (one.port for one in (*settings.nemo_gym_ports.values(), *settings.ors_ports.values()))
    for port in (settings.port, *settings.atropos_listeners, *servers):
        try:
            opened.append(socket.create_server((settings.host, port), family=family))
        except OSError as error:
            stop(f"cannot listen on {join_address(settings.host, port)}: {_explain(error)}")
    return opened


def _explain(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{explain_os_error(error)}; --port takes another one, as does {PREFIX}PORT"
    return explain_os_error(error)


def migrate() -> None:
    """Bring the database to the newest schema and stop. `serve` does it too."""
    settings = _read_settings()
    try:
        say_store(settings)
        migrate_database(settings.database_url, find_packaged_folder("migrations"))
    except (GatewayError, UserError) as error:
        stop(str(error))


def version(as_json: AsJson = False) -> None:
    """Print the version."""
    print_outcome(VERSION, as_json=as_json, version=VERSION)


def _read_settings() -> Settings:
    try:
        return read_settings()
    except UserError as error:
        stop(str(error))


def _print_api_key(key: str) -> None:
    """On the terminal only, once: the log may be kept by others."""
    errors.print(f"API key, shown this once: {key}", style="bold", highlight=False)


def _greet_when_ready(settings: Settings, port: int) -> None:
    address = build_local_url(settings.host, port)
    ready = wait_until_ready(settings.host, port, _GREETING_SECONDS)
    errors.print(f"Atropos Environments {VERSION}: open {address}/, or {address}/docs for the API", highlight=False)
    if not ready:
        errors.print(f"It is still starting: {address}/readyz says what it waits for", highlight=False)
    for port, run in settings.atropos_listeners.items():
        errors.print(f"Atropos' API for the run {run}: port {port}", highlight=False)
    for one in settings.nemo_gym_ports.values():
        errors.print(f"NeMo Gym's resources server for {one.environment}: port {one.port}", highlight=False)
    for one in settings.ors_ports.values():
        errors.print(f"ORS server for {one.environment}: port {one.port}", highlight=False)


def wait_until_ready(host: str, port: int, seconds: float) -> bool:
    """Whether the service says within these seconds that it takes requests."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        with suppress(OSError, HTTPException), closing(HTTPConnection(host, port, timeout=left)) as connection:
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return True
        time.sleep(_READY_POLL_SECONDS)
    return False


# The server in one process.

_SILENT_SECONDS = 60
"""A process that says nothing for so long is replaced. Importing the service on a busy machine takes a part of it."""


def _build_config(settings: Settings, app: ASGIApp | Callable[[], ASGIApp], *, processes: int = 1) -> uvicorn.Config:
    """For several processes `app` makes the service in each of them."""
    return uvicorn.Config(
        app,
        factory=processes > 1,
        workers=processes,
        host=settings.host,
        port=settings.port,
        http=create_timed_protocol(settings.request_seconds),
        log_config=None,
        access_log=settings.log_level == "debug",
        server_header=False,
        proxy_headers=False,  # `keep_peers` does it
        timeout_graceful_shutdown=settings.shutdown_seconds,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_worker_healthcheck=_SILENT_SECONDS,
        ws="websockets-sansio",
        ws_max_size=settings.max_body_bytes,
        ws_per_message_deflate=False,  # as request bodies: a few kilobytes could become gigabytes
        ws_ping_timeout=None,  # a client may learn for minutes, and answer nothing meanwhile
    )


def keep_peers(app: ASGIApp, trusted: list[str] | str) -> ASGIApp:
    """Takes a client's address and scheme from `X-Forwarded-*` of trusted proxies, as uvicorn does, and keeps the
    address of the connection itself."""
    # The two packages have types of their own for the same interface.
    rewritten = cast(ASGIApp, ProxyHeadersMiddleware(cast(Any, app), trusted_hosts=trusted))

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        await rewritten({**scope, PEER: scope.get("client")}, receive, send)

    return call


def tune_garbage_collection() -> None:
    """Makes searches for reference cycles rare: by Python's defaults they took a fifth of the time of scoring.

    What a request makes dies with it by reference counting alone. What was loaded at the start never dies: it is
    frozen, so that no search walks through it. Everything waits for a search, so young objects are searched a thousand
    at once, and survivors every second time: every sixth time it took tens of milliseconds. All objects are searched
    once in 20 million: that takes 0.2 s, and what requests leave in cycles until then is some 20 MB.
    """
    gc.freeze()
    gc.set_threshold(1_000, 0, 10_000)
    gc.enable()


_GLIBC_SETTINGS: Final = {-8: 2, -3: 1024 * 1024, -1: 4 * 1024 * 1024}
"""By the numbers of malloc.h: M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD."""


def keep_little_freed_memory() -> None:
    """Has glibc keep freed memory for two arenas, by default eight for each core, and give back what was large: its
    thresholds would rise with the largest body, and what came after that stay in pieces. Other C libraries are left as
    they are."""
    with suppress(OSError, AttributeError):
        set_option = ctypes.CDLL(None).mallopt
        for option, value in _GLIBC_SETTINGS.items():
            set_option(option, value)


ENOUGH: Final = 65_536
"""Open files and sockets."""


def allow_many_sockets() -> None:
    """Raises the soft limit as far as the system allows: the usual 1024 is too low for some trainers."""
    with suppress(OSError, ValueError):
        allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        enough = ENOUGH if most == resource.RLIM_INFINITY else min(ENOUGH, most)
        if allowed != resource.RLIM_INFINITY and allowed < enough:
            resource.setrlimit(resource.RLIMIT_NOFILE, (enough, most))


# Several processes and their supervisor.

log = logging.getLogger(__name__)

_STORE_RETRY_SECONDS = 3
"""A process that finds no store waits so long before it ends, and another one tries."""


@dataclass(frozen=True)
class _ServingProcess:
    """Sent to each process, which calls it and serves what comes back. All have the settings of the first start: one
    that takes another's place reads no file that was edited meanwhile."""

    settings: Settings
    metrics_folder: Path
    trusted: list[str] | str = ""
    """Proxies, as uvicorn takes them."""

    def __call__(self) -> ASGIApp:
        keep_little_freed_memory()
        threading.Thread(target=_end_with_parent, daemon=True).start()
        configure_logging(self.settings.log_level, self.settings.log_format, name_process=True)
        gc.disable()  # until everything is loaded, as in `serve`
        app = self._create_app()
        tune_garbage_collection()
        return keep_peers(app, self.trusted)

    def _create_app(self) -> ASGIApp:
        try:
            return create_app(self.settings, metrics_folder=self.metrics_folder)
        except StoreUnavailable as error:
            log.critical("a process cannot start while the store is away: %s", error)
            time.sleep(_STORE_RETRY_SECONDS)
            sys.exit(1)  # the supervisor replaces it
        except (GatewayError, ValueError) as error:
            log.critical("a process cannot start: %s", error)
            sys.exit(STARTUP_FAILURE)  # the supervisor ends the service


class HeldPort(socket.socket):
    """Bound, so that the port is nobody else's. A process that it is sent to gets a socket of its own at the same
    address, and the kernel deals connections out among them. From one socket that all share, whichever process wakes
    first takes every connection of a burst."""

    @classmethod
    def take_over(cls, opened: socket.socket) -> Self:
        """The port of a socket that found it free. Two services could otherwise hold the same one."""
        address = opened.getsockname()
        opened.close()
        return cls.bind_to(opened.family, address)

    @classmethod
    def bind_to(cls, family: int, address: tuple[str, int]) -> Self:
        held = cls(family, socket.SOCK_STREAM)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:  # as `create_server` does it, which found the port free
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        held.bind(address)
        return held

    # Sockets are sent to processes by pickling. Here the address goes, not the open file.
    def __reduce__(self) -> tuple[Callable[..., socket.socket], tuple[int, tuple[str, int]]]:
        return HeldPort.bind_to, (int(self.family), self.getsockname())


class _Supervisor(Multiprocess):
    """Replaces processes that died, and forgets the state that metrics had of them."""

    def __init__(self, settings: Settings, sockets: Sequence[socket.socket], metrics_folder: Path) -> None:
        served = _ServingProcess(settings, metrics_folder)
        config = _build_config(settings, served, processes=settings.processes)
        config.app = replace(served, trusted=config.forwarded_allow_ips)
        super().__init__(config, [*sockets])
        self._metrics_folder = metrics_folder

    @property
    def failed(self) -> bool:
        """Whether it ended because no process can start."""
        return any(one.exitcode == STARTUP_FAILURE for one in self.processes)

    def keep_subprocess_alive(self) -> None:
        with self._forgetting():
            super().keep_subprocess_alive()

    def handle_signals(self) -> None:
        with self._forgetting():
            super().handle_signals()

    # Gauges of a process lie in a file by its id: those of a dead one would be counted for ever.
    @contextmanager
    def _forgetting(self) -> Iterator[None]:
        before = [*self.processes]
        yield
        for gone in before:
            if gone not in self.processes and gone.pid is not None:
                log.warning("serving process %d has ended (%s)", gone.pid, _tell_exit(gone.exitcode))
                mark_process_dead(gone.pid, str(self._metrics_folder))  # type: ignore[no-untyped-call]


def _serve_in_processes(settings: Settings, sockets: Sequence[socket.socket]) -> int:
    """Until stopped, with a store that was prepared. Returns the exit code of the command."""
    with tempfile.TemporaryDirectory(prefix="atropos-envs-metrics-") as folder:
        share_metrics(Path(folder))
        supervisor = _Supervisor(settings, [HeldPort.take_over(one) for one in sockets], Path(folder))
        supervisor.run()
    return STARTUP_FAILURE if supervisor.failed else 0


def _tell_exit(code: int | None) -> str:
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def _end_with_parent() -> None:
    """As after SIGTERM. Without it, nobody would look after the processes, and nothing could take their ports."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


# `atropos-envs settings`.

settings = typer.Typer(help="Check the settings before serving with them.", no_args_is_help=True)

_JUDGE_SECONDS = 5.0
"""How long a server of a judge has to answer."""


class _Tried(Frozen):
    """Something outside of the settings that may be away now and come back."""

    kind: Literal["database", "environment", "judge"]
    name: str
    problem: str | None
    not_installed: str | None = None
    """What to install for an environment that the settings do not name: it is no problem."""


@settings.callback()
def about() -> None:
    """Check the settings before serving with them."""


@settings.command()
def check(as_json: AsJson = False) -> None:
    """Check the settings, then try what they point to: the database, data of environments, servers of judges.

    Nothing is migrated. Exit code 2: the settings are wrong, and a start would stop. Exit code 1: something that they
    point to is missing, so a start would stop (the database) or an environment would answer 503. A missing optional
    package is no fault unless the settings name its environment."""
    try:
        checked = read_settings()
        require_known_names(checked, discover_environments())
    except UserError as error:
        _stop_with_mistakes(str(error), as_json=as_json)
    for said in checked.withdrawn:
        typer.echo(f"a setting does nothing any more: {said}", err=True)
    tried = [_try_database(checked), *_try_environments(checked), *asyncio.run(_try_judges(checked))]
    if as_json:
        typer.echo(json.dumps({"settings": [], "tried": [one.model_dump() for one in tried]}, indent=2))
    else:
        table = Table("", "name", "result")
        for one in tried:
            table.add_row(one.kind, one.name, one.problem or one.not_installed or "ok")
        output_console().print(table)
    if any(one.problem for one in tried):
        raise typer.Exit(1)


def _try_database(checked: Settings) -> _Tried:
    problem = None
    try:
        require_servable(checked.database_url, find_packaged_folder("migrations"))
    except StoreUnavailable as error:
        problem = error.detail
    return _Tried(kind="database", name=describe(checked.database_url), problem=problem)


def _try_environments(checked: Settings) -> list[_Tried]:
    catalogue = Catalogue(discover_environments(), list_named_environments(checked))
    folders = {"character_sheets": checked.character_sheets}
    catalogue.open(ConfiguredDatasets(checked.datasets, folders=folders, hub_cache=checked.cache_dir))
    catalogue.set_isolation(Isolation(protections=()), weak_will_do=True)  # not what is tried here
    return [_try_environment(catalogue, name) for name in catalogue.classes]


def _try_environment(catalogue: Catalogue, name: str) -> _Tried:
    reason = catalogue.explain_unavailability(name)
    if catalogue.is_left_out(name):
        return _Tried(kind="environment", name=name, problem=None, not_installed=reason)
    return _Tried(kind="environment", name=name, problem=reason)


async def _try_judges(checked: Settings) -> list[_Tried]:
    endpoints = {name: build_judge_config(checked, name, judge).endpoint for name, judge in checked.judges.items()}
    problems = await asyncio.gather(*map(_try_endpoint, endpoints.values()))
    return [_Tried(kind="judge", name=name, problem=problem) for name, problem in zip(endpoints, problems, strict=True)]


async def _try_endpoint(endpoint: Endpoint) -> str | None:
    """What is wrong. Any status below 500 but a refused key will do: not every server lists its models."""
    async with aclosing(Connection(endpoint)) as connection:
        try:
            async with asyncio.timeout(_JUDGE_SECONDS):
                status = (await connection.get("/models")).status
        except TimeoutError:
            return f"{endpoint.base_url} does not answer within {_JUDGE_SECONDS:g} s"
        except NoReply as error:
            return f"{endpoint.base_url} does not answer: {error.reason}"
    return f"{endpoint.base_url} answers {status}" if status in {401, 403} or status >= 500 else None


def _stop_with_mistakes(message: str, *, as_json: bool) -> NoReturn:
    if as_json:
        typer.echo(json.dumps({"settings": message.splitlines(), "tried": []}, indent=2))
    stop(message)
