"""What benchmarks measured: printed, kept as small files in `results/`, and shown as the tables of README.md.

A benchmark joins with a function that returns figures, `run("its_name", measure)` at its end, and a marked part
`benchmark-its-name` in README.md. While it measures, it tells how far it is (`count_rounds`, `tell_progress`).
"""

import inspect
import os
import platform
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from docs.markdown import table

RESULTS: Final = Path(__file__).with_name("results")
MOST_ROWS: Final = 40
"""Of a wide table on the page; of a longer one only rows that miss a bound are shown."""


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
    column: str = ""
    """Of a wide table, whose row is `what`."""

    @classmethod
    def of(
        cls,
        what: str,
        values: Sequence[float],
        unit: str = "",
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        column: str = "",
    ) -> "BenchmarkFigure":
        """Four digits are more than any figure is worth."""
        median, least, most = (_round(one) for one in (statistics.median(values), min(values), max(values)))
        return cls(what, median, least, most, len(values), unit, at_least, at_most, column)

    @property
    def spread(self) -> str:
        """With the median, without the unit."""
        around = f" ({_show(self.least)} to {_show(self.most)})" if self.rounds > 1 and self.least < self.most else ""
        return f"{_show(self.median)}{around}"

    @property
    def measured(self) -> str:
        return f"{self.spread} {self.unit}".rstrip()

    @property
    def bound(self) -> str:
        bounds = (("at least", self.at_least), ("at most", self.at_most))
        return ", ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)

    @property
    def wanted(self) -> str:
        return f"{self.bound} (missed)" if self.is_missed else self.bound

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
    seconds: float = 0.0


_RESULT: Final = TypeAdapter(BenchmarkResult)


def read_arguments() -> list[str]:
    """What the program was called with. `--help` prints the words at the head of its file and ends it."""
    arguments = sys.argv[1:]
    if {"-h", "--help"} & set(arguments):
        print(inspect.cleandoc(sys.modules["__main__"].__doc__ or ""))
        raise SystemExit
    return arguments


def run(
    name: str,
    measure: Callable[[], Sequence[BenchmarkFigure]],
    arguments: Sequence[str] | None = None,
    given: str = "",
) -> BenchmarkResult:
    """Measures and prints; with `--record` among the arguments it keeps the result too. `given` is told as part of the
    command."""
    words = read_arguments() if arguments is None else arguments
    before, began = os.getloadavg()[0], time.monotonic()
    figures = tuple(measure())
    result = BenchmarkResult(
        command=f"python -m benchmarks.{name} {given}".strip(),
        date=datetime.now(UTC).date().isoformat(),
        machine=describe_machine(),
        load=(round(before, 1), round(os.getloadavg()[0], 1)),
        figures=figures,
        seconds=round(time.monotonic() - began),
    )
    print(*report(result), sep="\n", flush=True)
    if "--record" in words and figures:
        (RESULTS / f"{name}.json").write_bytes(_RESULT.dump_json(result, indent=1, exclude_defaults=True) + b"\n")
    return result


def report(result: BenchmarkResult) -> Iterator[str]:
    yield f"{result.command}, load {result.load[0]} to {result.load[1]}, {result.seconds:.0f} s"
    for one in result.figures:
        if not one.column:
            yield f"  {one.what:86} {one.measured:36} {one.wanted}".rstrip()
    yield from _render_wide([one for one in result.figures if one.column])
    if missed := sum(one.is_missed for one in result.figures):
        yield f"  missed: {missed} of {sum(bool(one.bound) for one in result.figures)} bounds"


def tell_progress(what: str) -> None:
    """Apart from the figures, so that these may be piped."""
    print(f"… {what}", file=sys.stderr, flush=True)


def count_rounds(what: str, rounds: int) -> Iterator[int]:
    """Their numbers, from 0 on; each is told when it begins."""
    for number in range(rounds):
        tell_progress(f"{what}: round {number + 1} of {rounds}")
        yield number


def render(name: str) -> str:
    """The tables of a kept result, and where it was taken."""
    result = _RESULT.validate_json((RESULTS / f"{name}.json").read_bytes())
    took = f", {result.seconds:.0f} s" if result.seconds else ""
    taken = f"`{result.command}`{took}, {result.date}, {result.machine}, load {result.load[0]} to {result.load[1]}."
    plain = [(one.what, one.measured, one.wanted) for one in result.figures if not one.column]
    narrow = [table(("what", "figure", "wanted"), plain)] if plain else []
    return "\n\n".join([taken, *narrow, *_render_wide([one for one in result.figures if one.column])])


def tell_step() -> str:
    """What the README says of `benchmarks.step`."""
    figures = _RESULT.validate_json((RESULTS / "step.json").read_bytes()).figures
    used = {one.what: one.median * 1.024 for one in figures if one.column.startswith("processor time")}
    whole, single = (used[f"`{path}`, 500 tokens"] for path in ("/envs/gsm8k/score", "/compat/slime/gsm8k"))
    return (
        f"A step of 1,024 samples of 500 tokens costs the gateway {whole:.2g} s of one core in whole groups, "
        f"and {single:.2g} s one sample a request, graded by gsm8k ([benchmarks](benchmarks/README.md#a-step))."
    )


def _render_wide(figures: Sequence[BenchmarkFigure]) -> Iterator[str]:
    """A column tells unit and bound in its head where all of its figures have the same."""
    columns = {one.column: [other for other in figures if other.column == one.column] for one in figures}
    agreed = {
        name: (_agree([one.unit for one in found]), _agree([one.bound for one in found]))
        for name, found in columns.items()
    }
    rows = {one.what: {other.column: other for other in figures if other.what == one.what} for one in figures}
    shown = rows
    if len(rows) > MOST_ROWS:
        shown = {what: cells for what, cells in rows.items() if any(one.is_missed for one in cells.values())}
        yield f"{len(rows) - len(shown)} of {len(rows)} rows keep every bound. These do not:"
    if shown:
        heads = [f"{name}, {unit}".rstrip(", ") + f" ({bound})" * bool(bound) for name, (unit, bound) in agreed.items()]
        cells = [[what, *(_fill(row.get(name), *agreed[name]) for name in columns)] for what, row in shown.items()]
        yield table(["what", *heads], cells)


def _fill(figure: BenchmarkFigure | None, unit: str, bound: str) -> str:
    if figure is None:
        return ""
    words = ["missed"] * figure.is_missed + [figure.bound] * (figure.bound not in {"", bound})
    told = f", {': '.join(words)}" if words else ""
    return (figure.spread if unit else figure.measured) + told


def _agree(words: Sequence[str]) -> str:
    """What all of them say, or nothing."""
    return words[0] if len(set(words)) == 1 else ""


def list_parts() -> dict[str, Callable[[], str]]:
    """What README.md may ask for, by the name of the part."""
    names = sorted(path.stem for path in RESULTS.glob("*.json") if path.stem != "guard")
    return {f"benchmark-{name.replace('_', '-')}": partial(render, name) for name in names}


def describe_machine() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    named = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    processor = f"{os.cpu_count()} x {next(named, platform.machine())}"
    return f"{processor}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def _show(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
