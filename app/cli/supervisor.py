"""Several processes that serve the same ports, and the one that looks after them."""

import contextlib
import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from prometheus_client.multiprocess import mark_process_dead
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from app.cli.serving import build_config, keep_peers, tune_garbage_collection
from app.domain.errors import GatewayError, StoreUnavailable
from app.main.application import create_app
from app.settings import Settings, share_metrics
from app.telemetry.logs import configure_logging

log = logging.getLogger(__name__)

AGAIN_SECONDS = 3
"""A process that finds no store waits so long before it ends, and another one tries."""


@dataclass(frozen=True)
class ServingProcess:
    """Sent to each process, which calls it and serves what comes back. All have the settings of the first start: one
    that takes another's place reads no file that was edited meanwhile."""

    settings: Settings
    metrics_folder: Path
    trusted: list[str] | str = ""
    """Proxies, as uvicorn takes them."""

    def __call__(self) -> ASGIApp:
        threading.Thread(target=_end_with_parent, daemon=True).start()
        configure_logging(self.settings.log_level, self.settings.log_format, name_process=True)
        gc.disable()  # until everything is loaded
        app = self._create_app()
        tune_garbage_collection()
        return keep_peers(app, self.trusted)

    def _create_app(self) -> ASGIApp:
        try:
            return create_app(self.settings, metrics_folder=self.metrics_folder)
        except StoreUnavailable as error:
            log.critical("a process cannot start while the store is away: %s", error)
            time.sleep(AGAIN_SECONDS)
            sys.exit(1)
        except (GatewayError, ValueError) as error:
            log.critical("a process cannot start: %s", error)
            sys.exit(STARTUP_FAILURE)


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
        if family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        held.bind(address)
        return held

    def __reduce__(self) -> tuple[Callable[..., socket.socket], tuple[int, tuple[str, int]]]:
        return HeldPort.bind_to, (int(self.family), self.getsockname())


class Supervisor(Multiprocess):
    """Replaces processes that died, and forgets the state that metrics had of them."""

    def __init__(self, settings: Settings, sockets: Sequence[socket.socket], metrics_folder: Path) -> None:
        served = ServingProcess(settings, metrics_folder)
        config = build_config(settings, served, processes=settings.processes)
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

    @contextlib.contextmanager
    def _forgetting(self) -> Iterator[None]:
        before = [*self.processes]
        yield
        for gone in before:
            if gone not in self.processes and gone.pid is not None:
                log.warning("serving process %d has ended (%s)", gone.pid, _tell_exit(gone.exitcode))
                mark_process_dead(gone.pid, str(self._metrics_folder))  # type: ignore[no-untyped-call]


def serve_in_processes(settings: Settings, sockets: Sequence[socket.socket]) -> int:
    """Until stopped, with a store that was prepared. Returns the exit code of the command."""
    with tempfile.TemporaryDirectory(prefix="atropos-envs-metrics-") as folder:
        share_metrics(Path(folder))
        supervisor = Supervisor(settings, [HeldPort.take_over(one) for one in sockets], Path(folder))
        supervisor.run()
    return STARTUP_FAILURE if supervisor.failed else 0


def _tell_exit(code: int | None) -> str:
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def _end_with_parent() -> None:
    """As after SIGTERM. Without it, nobody would look after the processes, and nothing could take their ports."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
