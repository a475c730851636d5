"""What the first minute takes, as ratios: commands against a Typer program of two commands, starts against importing
the libraries that a service like this one is made of. Processor time, medians of five. And the memory of a service
that nobody has asked anything. `python -m benchmarks.startup`.
"""

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.results import BenchmarkFigure, run
from tests.support.serving import ROOT, START_SECONDS, free_port, serving

TIMES = 5
IDLE_SECONDS = 10
"""From readiness on: what is prepared afterwards counts too."""
POLL_SECONDS = 0.02
LIBRARIES = "import fastapi, sqlmodel, alembic, uvicorn"
TYPER_PROGRAM = '''
import typer
cli = typer.Typer(no_args_is_help=True)
@cli.command()
def one(name: str = "x") -> None:
    """Do one thing."""
@cli.command()
def two(count: int = 1) -> None:
    """Do another."""
cli()
'''
COMPLETION = {"_ATROPOS_ENVS_COMPLETE": "complete_bash", "COMP_WORDS": "atropos-envs e", "COMP_CWORD": "1"}
ENTRY = "import sys; sys.argv[0] = 'atropos-envs'; from app.cli.main import run; run()"


@dataclass(frozen=True)
class StartUp:
    first_seconds: float
    again_seconds: float


@dataclass(frozen=True)
class FirstMinute:
    """Processor seconds."""

    typer_help: float
    help: float
    version: float
    completion: float
    libraries: float
    livez: float
    readyz: float


def measure() -> StartUp:
    """From the start of the process to the first 200 on /readyz, on an empty folder and on one served before."""
    with tempfile.TemporaryDirectory() as folder:
        with serving(Path(folder), python=sys.executable, migrated=False) as first:
            pass
        with serving(Path(folder), python=sys.executable) as again:
            pass
    return StartUp(first.seconds_to_ready, again.seconds_to_ready)


def measure_ratios(times: int = TIMES) -> FirstMinute:
    """Each once without being counted, so that what Python compiles is there."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "two_commands.py"
        program.write_text(TYPER_PROGRAM, encoding="utf-8")
        livez, readyz = _starts(folder, times)
        return FirstMinute(
            typer_help=_median(times, lambda: _processor_seconds([str(program), "--help"], folder)),
            help=_median(times, lambda: _processor_seconds(["-c", ENTRY, "--help"], folder)),
            version=_median(times, lambda: _processor_seconds(["-c", ENTRY, "--version"], folder)),
            completion=_median(times, lambda: _processor_seconds(["-c", ENTRY], folder, COMPLETION)),
            libraries=_median(times, lambda: _processor_seconds(["-c", LIBRARIES], folder)),
            livez=livez,
            readyz=readyz,
        )


def measure_idle_megabytes() -> tuple[float, float]:
    """Of a first start with default settings: all that is resident, and what it does not share."""
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), python=sys.executable, migrated=False) as gateway,
    ):
        time.sleep(IDLE_SECONDS)
        rollup = Path(f"/proc/{gateway.process.pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    kilobytes = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in rollup[1:])}
    return kilobytes["Rss"] / 1024, kilobytes["Pss"] / 1024


def list_figures() -> list[BenchmarkFigure]:
    return [*_list_seconds(measure()), *_list_ratios(measure_ratios()), *_list_memory()]


def _list_seconds(found: StartUp) -> Iterator[BenchmarkFigure]:
    what = "start of the process to `/readyz`"
    yield BenchmarkFigure.of(f"{what}, first, with migration", [found.first_seconds], "s", at_most=3)
    yield BenchmarkFigure.of(f"{what}, again", [found.again_seconds], "s")


def _list_memory() -> Iterator[BenchmarkFigure]:
    resident, own = measure_idle_megabytes()
    yield BenchmarkFigure.of("memory of an idle process, resident", [resident], "MB", at_most=220)
    yield BenchmarkFigure.of("the same without what others share", [own], "MB")


def _list_ratios(found: FirstMinute) -> Iterator[BenchmarkFigure]:
    for name, seconds in (("`--help`", found.help), ("`--version`", found.version), ("completion", found.completion)):
        what = f"{name}, processor time over that of a two-command Typer program"
        yield BenchmarkFigure.of(what, [seconds / found.typer_help], at_most=2)
    for name, seconds, most in (("`/livez`", found.livez, 2.2), ("`/readyz`", found.readyz, 3)):
        what = f"start to {name}, processor time over importing what such a service is made of"
        yield BenchmarkFigure.of(what, [seconds / found.libraries], at_most=most)


def _median(times: int, once: Callable[[], float]) -> float:
    once()
    return statistics.median(once() for _ in range(times))


def _environment(folder: Path, more: Mapping[str, str]) -> dict[str, str]:
    """Compiled code is kept in the folder, whatever this process is told."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ATROPOS_ENVS_", "PYTHON"))}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(folder / "compiled"), **more}


def _processor_seconds(arguments: Sequence[str], folder: Path, more: Mapping[str, str] | None = None) -> float:
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=folder, env=_environment(folder, more or {}), stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, arguments
    return usage.ru_utime + usage.ru_stime


def _starts(folder: Path, times: int) -> tuple[float, float]:
    """To /livez and to /readyz, on a store that is there already."""
    _start(folder)
    found = [_start(folder) for _ in range(times)]
    return statistics.median(one[0] for one in found), statistics.median(one[1] for one in found)


def _start(folder: Path) -> tuple[float, float]:
    port = free_port()
    given = {"ATROPOS_ENVS_PORT": str(port), "ATROPOS_ENVS_DATABASE_URL": f"sqlite:///{folder / 'gateway.db'}"}
    with (folder / "gateway.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "serve"],
            cwd=folder,
            env=_environment(folder, given),
            stdout=log,
            stderr=log,
        )
    try:
        return tuple(_used_until(f"http://127.0.0.1:{port}/{path}", process) for path in ("livez", "readyz"))  # type: ignore[return-value]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _used_until(url: str, process: "subprocess.Popen[bytes]") -> float:
    """The processor seconds of the process when the address answers 200."""
    began = time.monotonic()
    while time.monotonic() - began < START_SECONDS and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(url, timeout=30).status_code == 200:
                fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        time.sleep(POLL_SECONDS)
    raise RuntimeError(f"{url} never answered 200")


if __name__ == "__main__":
    run("startup", list_figures)
