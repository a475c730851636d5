"""Every environment on one core: tasks made and completions scored in a second, and how long junk takes.

Rates are of this process's own processor time. What workers and programs take is not in it, so beside it stands the
time by the clock, which other programs on the machine lengthen.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

from app.cli.envs.conformance_run import open_tools
from app.datasets.configured_datasets import ConfiguredDatasets
from app.main.discovery import discover
from app.ports.environment import Environment
from app.toolkit.conformance.findings import ConformanceFigures
from app.toolkit.conformance.hostile_texts import generate_hostile
from app.toolkit.conformance.measurements import measure_environment
from app.toolkit.conformance.subject import CheckDepth, CheckSubject
from benchmarks.results import read_arguments

HOSTILE = 2_000
COLUMNS = (
    "environment",
    "tasks/s",
    "right answers scored/s",
    "junk scored/s",
    "a score, p99, ms",
    "by the clock, ms",
    "2,000 hostile texts, p99 / most, ms",
    "met by another's answer",
)
JUDGED_DEPTH = CheckDepth(tasks=100, scored=100)
DEPTH = CheckDepth(tasks=1_000, scored=300)


@dataclass(frozen=True)
class Measured:
    name: str
    figures: ConformanceFigures
    hostile_p99_ms: float
    """By the clock, of scoring one of 2,000 texts that nobody meant."""
    hostile_most_ms: float


def measure(names: Sequence[str] = ()) -> Iterator[Measured]:
    """One after the other; all that are discovered unless some are named."""
    for name, kind in sorted(discover().items()):
        if not names or name in names:
            yield asyncio.run(_measured(kind))


async def _measured(kind: type[Environment]) -> Measured:
    environment = kind.open(ConfiguredDatasets({}))
    async with open_tools(kind) as tools:
        subject = CheckSubject(environment, environment, tools, DEPTH if kind.rubric is None else JUDGED_DEPTH)
        figures = await measure_environment(subject)
        took = sorted([seconds async for seconds in _hostile(subject)])
    return Measured(kind.name, figures, 1e3 * took[round(0.99 * len(took)) - 1], 1e3 * took[-1])


async def _hostile(subject: CheckSubject) -> AsyncIterator[float]:
    tasks = subject.make_tasks("train", 100)
    for number, text in enumerate(generate_hostile(200 if subject.is_judged else HOSTILE)):
        began = time.perf_counter()
        await subject.score(tasks[number % len(tasks)], [f"<answer>{text}</answer>"])
        yield time.perf_counter() - began


def report(found: Iterator[Measured]) -> Iterator[str]:
    """A table for README.md, a row as soon as it is measured."""
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"| {' | '.join('---' for _ in COLUMNS)} |"
    for one in found:
        figures = one.figures
        gold = "" if figures.gold_scores_per_second is None else f"{figures.gold_scores_per_second:,.0f}"
        met = "judged" if figures.strangers_paid is None else f"{figures.strangers_paid:.1%}"
        cells = (
            f"`{one.name}`",
            f"{figures.tasks_per_second:,.0f}",
            gold,
            f"{figures.junk_scores_per_second:,.0f}",
            f"{figures.score_p99_ms:.2f}",
            f"{figures.score_p99_ms_by_the_clock:.1f}",
            f"{one.hostile_p99_ms:.1f} / {one.hostile_most_ms:.1f}",
            met,
        )
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    for line in report(measure(read_arguments())):
        print(line, flush=True)
