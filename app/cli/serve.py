"""`atropos-envs serve`, `migrate` and `version`."""

import errno
import gc
import socket
from typing import Annotated, Any, cast

import typer
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.cli.consoles import errors, stop
from app.cli.descriptors import allow_many_sockets
from app.cli.judge_setup import say_store
from app.domain.errors import GatewayError
from app.http.web.api_keys import PEER
from app.http.web.arrival import create_timed_protocol
from app.http.web.browser_protection import is_loopback
from app.main.application import VERSION, create_app
from app.settings import Settings, read_settings
from app.store.migration import migrate as migrate_database
from app.telemetry.logs import configure_logging
from app.toolkit.package_data import find_packaged_folder

KEEP_ALIVE_SECONDS = 75
"""Of a connection without requests. Longer than proxies keep theirs, which is a minute for most: whoever closes first
must be the proxy, or it sends a request into a closed connection and answers 502."""


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
) -> None:
    """Migrate the database and serve until stopped. Settings: ATROPOS_ENVS_* variables over gateway.yaml."""
    settings = _read_settings()
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = settings.model_copy(update=given)
    sockets = _open_sockets(settings)
    configure_logging(settings.log_level, settings.log_format)
    gc.disable()  # until everything is loaded: it takes a fifth of the start, and what is loaded stays
    try:
        say_store(settings)
        app = create_app(settings, announce=_print_api_key)
    except (GatewayError, ValueError) as error:
        stop(str(error))
    _print_greeting(settings, sockets[0].getsockname()[1])
    tune_garbage_collection()
    allow_many_sockets()
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=create_timed_protocol(settings.request_seconds),
        log_config=None,
        access_log=settings.log_level == "debug",
        server_header=False,
        proxy_headers=False,  # `keep_peers` does it
        timeout_graceful_shutdown=settings.shutdown_seconds,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        ws="websockets-sansio",
        ws_max_size=settings.max_body_bytes,
        ws_per_message_deflate=False,  # as request bodies: a few kilobytes could become gigabytes
        ws_ping_timeout=None,  # a client may learn for minutes, and answer nothing meanwhile
    )
    config.app = keep_peers(app, config.forwarded_allow_ips)  # of the variable FORWARDED_ALLOW_IPS
    uvicorn.Server(config).run(sockets)


def keep_peers(app: ASGIApp, trusted: list[str] | str) -> ASGIApp:
    """Takes a client's address and scheme from `X-Forwarded-*` of trusted proxies, as uvicorn does, and keeps the
    address of the connection itself."""
    # The two packages have types of their own for the same interface.
    rewritten = cast(ASGIApp, ProxyHeadersMiddleware(cast(Any, app), trusted_hosts=trusted))

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        await rewritten({**scope, PEER: scope.get("client")}, receive, send)

    return call


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
            stop(f"cannot listen on {settings.host}:{port}: {error.strerror}{_other_port(error)}")
    return opened


def _other_port(error: OSError) -> str:
    return "; --port takes another one" if error.errno == errno.EADDRINUSE else ""


def tune_garbage_collection() -> None:
    """What a request makes dies with it by counting alone. Looking for cycles after every 700 objects, through
    everything that was ever loaded, took a fifth of the time of scoring. Looking at 10,000 young ones takes some
    milliseconds, for which everything waits; at all of them once in 50 million."""
    gc.freeze()
    gc.set_threshold(2_000, 5, 5_000)
    gc.enable()


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


def _print_greeting(settings: Settings, port: int) -> None:
    address = f"http://{'127.0.0.1' if is_loopback(settings.host) else settings.host}:{port}"
    errors.print(f"Atropos Environments {VERSION}: open {address}/, or {address}/docs for the API", highlight=False)
    for port, run in settings.atropos_listeners.items():
        errors.print(f"Atropos' API for the run {run}: port {port}", highlight=False)
    for one in settings.nemo_gym_ports.values():
        errors.print(f"NeMo Gym's resources server for {one.environment}: port {one.port}", highlight=False)
    for one in settings.ors_ports.values():
        errors.print(f"ORS server for {one.environment}: port {one.port}", highlight=False)
