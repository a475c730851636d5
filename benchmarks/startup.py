"""What the first minute takes, as ratios: commands against a Typer program of two commands, starts against importing
the libraries that a service like this one is made of. Processor time, five rounds in turns. And three times the first
start, the memory of a service that nobody has asked anything, and the start after it.
`python -m benchmarks.startup [--record]` takes two minutes.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import httpx

from benchmarks.results import BenchmarkFigure, count_rounds, run
from benchmarks.servers import read_megabytes, read_processor_seconds
from tests.support.serving import ROOT, START_SECONDS, free_port, serving

ROUNDS = 5
STARTS = 3
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


def measure() -> list[BenchmarkFigure]:
    starts = [_measure_starts() for _ in count_rounds("starts on an empty folder", STARTS)]
    return [*measure_ratios(), *_list_starts(starts)]


def _measure_starts() -> tuple[float, float, float, float]:
    """Seconds to the first 200 on /readyz, on an empty folder and on one served before; megabytes of the first, which
    nobody asked anything: all that is resident, and what it does not share."""
    with tempfile.TemporaryDirectory() as folder:
        with serving(Path(folder), python=sys.executable, migrated=False) as first:
            time.sleep(IDLE_SECONDS)
            sizes = read_megabytes(first.process.pid, "smaps_rollup")
        with serving(Path(folder), python=sys.executable) as again:
            pass
    return first.seconds_to_ready, again.seconds_to_ready, sizes["Rss"], sizes["Pss"]


def measure_ratios() -> Iterator[BenchmarkFigure]:
    """One round before that is not counted, so that what Python compiles is there."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "two_commands.py"
        program.write_text(TYPER_PROGRAM, encoding="utf-8")
        found = [_measure_first_minute(program, folder) for _ in count_rounds("commands and starts", ROUNDS + 1)][1:]
    for name, told in (("help", "`--help`"), ("version", "`--version`"), ("completion", "completion")):
        what = f"{told}, processor time over that of a two-command Typer program"
        yield BenchmarkFigure.of(what, [one[name] / one["typer"] for one in found], at_most=2)
    for name, most in (("livez", 2.2), ("readyz", 3)):
        what = f"start to `/{name}`, processor time over importing what such a service is made of"
        yield BenchmarkFigure.of(what, [one[name] / one["libraries"] for one in found], at_most=most)


def _measure_first_minute(program: Path, folder: Path) -> dict[str, float]:
    """Processor seconds."""
    livez, readyz = _start(folder)
    return {
        "typer": _processor_seconds([str(program), "--help"], folder),
        "help": _processor_seconds(["-c", ENTRY, "--help"], folder),
        "version": _processor_seconds(["-c", ENTRY, "--version"], folder),
        "completion": _processor_seconds(["-c", ENTRY], folder, COMPLETION),
        "libraries": _processor_seconds(["-c", LIBRARIES], folder),
        "livez": livez,
        "readyz": readyz,
    }


def _list_starts(found: Sequence[tuple[float, float, float, float]]) -> Iterator[BenchmarkFigure]:
    first, again, resident, own = zip(*found, strict=True)
    what = "start of the process to `/readyz`"
    yield BenchmarkFigure.of(f"{what}, first, with migration", first, "s", at_most=3)
    yield BenchmarkFigure.of(f"{what}, again", again, "s")
    yield BenchmarkFigure.of("memory of an idle process, resident", resident, "MB", at_most=220)
    yield BenchmarkFigure.of("the same without what others share", own, "MB")


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


def _start(folder: Path) -> tuple[float, float]:
    """To /livez and to /readyz, on a store that is there already but for the first time."""
    port = free_port()
    given = {"ATROPOS_ENVS_PORT": str(port), "ATROPOS_ENVS_DATABASE_URL": f"sqlite:///{folder / 'gateway.db'}"}
    with (folder / "gateway.log").open("ab") as log:
        command = [sys.executable, "-m", "app.cli", "serve"]
        process = subprocess.Popen(command, cwd=folder, env=_environment(folder, given), stdout=log, stderr=log)
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
                return read_processor_seconds(process.pid)
        time.sleep(POLL_SECONDS)
    raise RuntimeError(f"{url} never answered 200")


if __name__ == "__main__":
    run("startup", measure)
