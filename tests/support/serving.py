"""A real gateway in a process of its own, for tests and benchmarks that must not share one with it."""

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.databases import read_migrated_store
from tests.support.forked_programs import ROOT as ROOT
from tests.support.forked_programs import ForkedProgram, Program, plain_environment

START_SECONDS = 180


@dataclass(frozen=True)
class Served:
    url: str
    database: Path
    process: Program
    seconds_to_ready: float

    def kill(self) -> None:
        """SIGKILL, as an out-of-memory killer does it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def serving(
    folder: Path,
    *,
    port: int | None = None,
    settings: Mapping[str, str] | None = None,
    python: str | Path | None = None,
    migrated: bool = True,
    program: Sequence[str] = ("app.cli", "serve"),
) -> Iterator[Served]:
    """A gateway on loopback whose SQLite file lies in `folder`; again on the same folder, it goes on where it was.
    It finds a file without rows there; where that is not `migrated`, none. `program` is a module and its arguments. An
    interpreter is started for it where `python` names one or it has a PYTHONPATH of its own; else it is forked.
    RuntimeError with its log when it does not get ready."""
    port = port or free_port()
    database = folder / "gateway.db"
    if migrated and not database.exists():
        database.write_bytes(read_migrated_store())
    log = folder / "gateway.log"
    environment = {
        **plain_environment(),
        "ATROPOS_ENVS_PORT": str(port),
        "ATROPOS_ENVS_DATABASE_URL": f"sqlite:///{database}",
        **(settings or {}),
    }
    began = time.monotonic()
    process = _start(program, folder, environment, log, python)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_ready(url, process, log, began)
        yield Served(url, database, process, time.monotonic() - began)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(
    program: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path, python: str | Path | None
) -> Program:
    module, *arguments = program
    if python is None and environment["PYTHONPATH"] == str(ROOT):
        return ForkedProgram(module, arguments, folder, environment, log)
    with log.open("ab") as output:
        command = [python or sys.executable, "-m", *program]
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)


def _wait_until_ready(url: str, process: Program, log: Path, began: float) -> None:
    with httpx.Client(base_url=url, timeout=5) as client:  # one: each reads all certificates anew
        while time.monotonic() - began < START_SECONDS and process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                if client.get("/readyz").status_code == 200:
                    return
            time.sleep(0.02)
    process.kill()
    process.wait()
    raise RuntimeError(f"the gateway did not get ready:\n{log.read_text(errors='replace')[-4000:]}")
