"""`atropos-envs serve`, `migrate` and `version`."""

import errno
import gc
import os
import socket
import threading
import time
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from typing import Annotated, Final

import typer
import uvicorn

from app.cli.address import build_local_url, join_address
from app.cli.consoles import errors, stop
from app.cli.descriptors import allow_many_sockets
from app.cli.judge_setup import say_store
from app.cli.serving import build_config, keep_peers, tune_garbage_collection
from app.cli.supervisor import serve_in_processes
from app.domain.errors import GatewayError
from app.main.application import VERSION, create_app, prepare_store
from app.settings import MOST_PROCESSES, PREFIX, Settings, read_settings
from app.store.migration import migrate as migrate_database
from app.telemetry.logs import configure_logging
from app.toolkit.package_data import find_packaged_folder

GREETED_AFTER_SECONDS: Final = 10.0
"""Data that takes longer to read does not keep the address from whoever waits for it: pages are served meanwhile."""
READY_POLL_SECONDS: Final = 0.05


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, max=MOST_PROCESSES, help="Processes that serve; above 1 on PostgreSQL.")
    ] = None,
) -> None:
    """Migrate the database and serve until stopped. Settings: ATROPOS_ENVS_* variables over gateway.yaml."""
    settings = _read_settings()
    given = {"host": host, "port": port, "processes": processes}
    settings = settings.model_copy(update={name: value for name, value in given.items() if value is not None})
    sockets = _open_sockets(settings)
    configure_logging(settings.log_level, settings.log_format, name_process=settings.processes > 1)
    gc.disable()  # until everything is loaded: it takes a fifth of the start, and what is loaded stays
    try:
        say_store(settings)
        if settings.processes > 1:
            prepare_store(settings, _print_api_key)
        else:
            app = create_app(settings, announce=_print_api_key)
    except (GatewayError, ValueError) as error:
        stop(str(error))
    greeting = threading.Thread(target=_greet_when_ready, args=(settings, sockets[0].getsockname()[1]), daemon=True)
    greeting.start()
    tune_garbage_collection()
    allow_many_sockets()
    if settings.processes > 1:
        raise typer.Exit(serve_in_processes(settings, sockets))
    config = build_config(settings, app)
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
        return f"{os.strerror(error.errno)}; --port takes another one, as does {PREFIX}PORT"
    return error.strerror or str(error)


def migrate() -> None:
    """Bring the database to the newest schema and stop. `serve` does it too."""
    settings = _read_settings()
    try:
        say_store(settings)
        migrate_database(settings.database_url, find_packaged_folder("migrations"))
    except (GatewayError, ValueError) as error:
        stop(str(error))


def version() -> None:
    """Print the version."""
    typer.echo(VERSION)


def _read_settings() -> Settings:
    try:
        return read_settings()
    except ValueError as error:
        stop(str(error))


def _print_api_key(key: str) -> None:
    """On the terminal only, once: the log may be kept by others."""
    errors.print(f"API key, shown this once: {key}", style="bold", highlight=False)


def _greet_when_ready(settings: Settings, port: int) -> None:
    address = build_local_url(settings.host, port)
    ready = wait_until_ready(settings.host, port, GREETED_AFTER_SECONDS)
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
        time.sleep(READY_POLL_SECONDS)
    return False
