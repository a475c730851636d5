"""What benchmarks measured: printed, kept as small files in `results/`, and shown as the tables of README.md.

A benchmark joins with a function that returns figures, `run("its_name", measure)` at its end, and a marked part
`benchmark-its-name` in README.md. `python -m benchmarks.its_name --record` keeps what it measured;
`python -m docs.generate` writes the table.
"""

import inspect
import os
import platform
import sqlite3
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from docs.markdown import table

RESULTS: Final = Path(__file__).with_name("results")


@dataclass(frozen=True)
class BenchmarkFigure:
    """The median of some rounds, and how far they spread."""

    what: str
    median: float
    least: float
    most: float
    rounds: int
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None

    @classmethod
    def of(
        cls,
        what: str,
        values: Sequence[float],
        unit: str = "",
        *,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> "BenchmarkFigure":
        """Four digits are more than any figure is worth."""
        median, least, most = (_round(one) for one in (statistics.median(values), min(values), max(values)))
        return cls(what, median, least, most, len(values), unit, at_least, at_most)

    @property
    def measured(self) -> str:
        spread = f" ({_show(self.least)} to {_show(self.most)})" if self.rounds > 1 else ""
        return f"{_show(self.median)}{spread} {self.unit}".rstrip()

    @property
    def wanted(self) -> str:
        bounds = (("at least", self.at_least), ("at most", self.at_most))
        told = ", ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)
        return f"{told} (missed)" if self.is_missed else told

    @property
    def is_missed(self) -> bool:
        low = self.at_least is not None and self.median < self.at_least
        return low or (self.at_most is not None and self.median > self.at_most)


@dataclass(frozen=True)
class BenchmarkResult:
    command: str
    date: str
    machine: str
    load: tuple[float, float]
    """Of the machine when it began and when it ended, the benchmark's own included."""
    figures: tuple[BenchmarkFigure, ...]


_RESULT: Final = TypeAdapter(BenchmarkResult)


def read_arguments() -> list[str]:
    """What the program was called with. `--help` prints the words at the head of its file and ends it."""
    arguments = sys.argv[1:]
    if {"-h", "--help"} & set(arguments):
        print(inspect.cleandoc(sys.modules["__main__"].__doc__ or ""))
        raise SystemExit
    return arguments


def run(
    name: str, measure: Callable[[], Sequence[BenchmarkFigure]], arguments: Sequence[str] | None = None
) -> BenchmarkResult:
    """Measures and prints; with `--record` among the arguments it keeps the result too."""
    given = read_arguments() if arguments is None else arguments
    before = os.getloadavg()[0]
    figures = tuple(measure())
    result = BenchmarkResult(
        command=f"python -m benchmarks.{name}",
        date=datetime.now(UTC).date().isoformat(),
        machine=describe_machine(),
        load=(round(before, 1), round(os.getloadavg()[0], 1)),
        figures=figures,
    )
    print(*report(result), sep="\n", flush=True)
    if "--record" in given:
        find_file(name).write_bytes(_RESULT.dump_json(result, indent=1) + b"\n")
    return result


def report(result: BenchmarkResult) -> Iterator[str]:
    yield f"{result.command}, load {result.load[0]} to {result.load[1]}"
    for one in result.figures:
        yield f"  {one.what:86} {one.measured:36} {one.wanted}".rstrip()


def find_file(name: str) -> Path:
    return RESULTS / f"{name}.json"


def render(name: str) -> str:
    """The table of a kept result, and where it was taken."""
    result = _RESULT.validate_json(find_file(name).read_bytes())
    rows = [(one.what, one.measured, one.wanted) for one in result.figures]
    taken = f"`{result.command}`, {result.date}, {result.machine}, load {result.load[0]} to {result.load[1]}"
    return (
        f"{taken}; medians, and in brackets how far the rounds spread.\n\n{table(('what', 'figure', 'wanted'), rows)}"
    )


def list_parts() -> dict[str, Callable[[], str]]:
    """What README.md may ask for, by the name of the part."""
    names = sorted(path.stem for path in RESULTS.glob("*.json") if path.stem != "guard")
    return {f"benchmark-{name.replace('_', '-')}": partial(render, name) for name in names}


def describe_machine() -> str:
    cores, processor = os.cpu_count(), _read_processor()
    return f"{cores} x {processor}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"


def _read_processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def _show(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
