"""The trainers' own Python environment, and programs that run in it."""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.support.serving import free_port

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ROOT / ".cache" / "trainers"
TUNERS = ROOT / ".cache" / "tuners"
LLAMA = ROOT / ".cache" / "llama"
VERIFIERS = ROOT / ".cache" / "verifiers"
OPENREWARD = ROOT / ".cache" / "openreward"
GYMS = ROOT / ".cache" / "gyms"
LOOPS = ROOT / ".cache" / "loops"
LOGGERS = ROOT / ".cache" / "loggers"
NEMO_GYM = ROOT / ".cache" / "nemo_gym"
TUNING = (TUNERS / ".installed", TUNERS / ".torch")
"""What is there when a model can be trained."""
PROGRAMS = Path(__file__).parent / "programs"
PATIENCE_SECONDS = 120


@dataclass(frozen=True)
class Running:
    process: "subprocess.Popen[bytes]"
    log: Path

    def finish(self, seconds: float = PATIENCE_SECONDS) -> None:
        """RuntimeError with its log when it fails or takes too long."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            raise RuntimeError(f"ended with {code}:\n{self.said()}")

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-6000:]


@contextlib.contextmanager
def running(
    folder: Path,
    *command: str | Path | int,
    installed: Path = INSTALLED,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Running]:
    """A console command of the environment, or a file of `programs` (or of anywhere, as a whole path), which may import
    the examples; killed on leaving."""
    first, *others = map(str, command)
    program = [installed / "bin" / "python", PROGRAMS / first] if first.endswith(".py") else [installed / "bin" / first]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        "NO_PROXY": "*",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(ROOT / "examples"),
        **variables,
    }
    log = folder / f"{Path(first).stem}-{time.monotonic_ns()}.log"
    with log.open("wb") as output:
        process = subprocess.Popen([*program, *others], cwd=folder, env=environment, stdout=output, stderr=output)
    try:
        yield Running(process, log)
    finally:
        process.kill()
        process.wait()


def do_job(
    folder: Path,
    job: object,
    *command: str | Path | int,
    installed: Path,
    seconds: float = PATIENCE_SECONDS,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Any, str]:
    """What a program makes of a job, both of which are files of JSON, and its log."""
    files = folder / "job.json", folder / "told.json"
    files[0].write_text(json.dumps(job), encoding="utf-8")
    with running(folder, *command, *files, installed=installed, variables=variables) as program:
        program.finish(seconds)
        log = program.log.read_text(encoding="utf-8", errors="replace")
    return json.loads(files[1].read_text(encoding="utf-8")), log


def wait_for_server(server: Running, url: str) -> None:
    """RuntimeError with its log when it ends before it answers there."""

    def answers() -> bool:
        if server.process.poll() is not None:
            raise RuntimeError(server.said())
        try:
            return httpx.get(url, timeout=5).is_success
        except httpx.TransportError:
            return False

    wait_until(answers)


def place_server(url: str) -> dict[str, Any]:
    """Where it is, as NeMo Gym's configurations have it."""
    split = urlsplit(url)
    return {"host": split.hostname, "port": split.port, "entrypoint": "app.py", "domain": "other"}


@contextlib.contextmanager
def serving_nemo_gym(
    folder: Path,
    package: str,
    own: Mapping[str, Any] = MappingProxyType({}),
    others: Mapping[str, Any] = MappingProxyType({}),
    port: int | None = None,
) -> Iterator[str]:
    """The address of a released server. Servers know one another by a name, a host and a port."""
    url = f"http://127.0.0.1:{port or free_port()}"
    kind, name = package.split(".")
    config = {
        "head_server": place_server(f"http://127.0.0.1:{free_port()}"),
        "dry_run": False,
        "served": {kind: {name: {**place_server(url), **own}}},
        **others,
    }
    file = folder / f"{name}.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    with running(folder, "nemo_gym_server.py", package, "served", file, installed=NEMO_GYM) as program:
        wait_for_server(program, f"{url}/readyz")
        yield url


def written(path: Path) -> list[Any]:
    """The JSON lines that are there by now."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def wait_until(true: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """TimeoutError when it does not become true."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so within {seconds} s")
        time.sleep(0.1)
