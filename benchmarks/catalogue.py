"""Every environment on one core: tasks made and completions scored in a second, and how long junk takes.

Rates are of this process's own processor time. What workers and programs take is not in it, so beside it stands the
time by the clock, which other programs on the machine lengthen.
`python -m benchmarks.catalogue [NAME …] [--record]` takes two minutes for all, once each.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from app.cli.envs.check import open_tools
from app.cli.serve import tune_garbage_collection
from app.datasets.configured_datasets import ConfiguredDatasets
from app.main.components import discover
from app.ports.environment import Environment
from app.toolkit.conformance.attempts import generate_hostile
from app.toolkit.conformance.checks import measure_environment
from app.toolkit.conformance.subject import CheckDepth, CheckSubject, ConformanceFigures
from benchmarks.results import BenchmarkFigure, read_arguments, run, tell_progress

HOSTILE = 2_000
JUDGED_DEPTH = CheckDepth(tasks=100, scored=100)
DEPTH = CheckDepth(tasks=1_000, scored=300)


@dataclass(frozen=True)
class Measured:
    name: str
    figures: ConformanceFigures
    hostile_p99_ms: float
    """By the clock, of scoring one of 2,000 texts that nobody meant."""
    hostile_most_ms: float


def measure_each(names: Sequence[str] = ()) -> Iterator[Measured]:
    """One after the other; all that are discovered unless some are named."""
    for name, kind in sorted(discover().items()):
        if not names or name in names:
            tell_progress(name)
            yield asyncio.run(_measured(kind))


async def _measured(kind: type[Environment]) -> Measured:
    environment = kind.open(ConfiguredDatasets({}))
    async with open_tools(kind) as tools:
        subject = CheckSubject(environment, environment, tools, DEPTH if kind.rubric is None else JUDGED_DEPTH)
        subject.strategies = ()  # what they earn stands in docs/environments.md, and takes longest
        figures = await measure_environment(subject)
        took = sorted([seconds async for seconds in _hostile(subject)])
    return Measured(kind.name, figures, 1e3 * took[round(0.99 * len(took)) - 1], 1e3 * took[-1])


async def _hostile(subject: CheckSubject) -> AsyncIterator[float]:
    tasks = subject.make_tasks("train", 100)
    for number, text in enumerate(generate_hostile(200 if subject.is_judged else HOSTILE)):
        began = time.perf_counter()
        await subject.score(tasks[number % len(tasks)], [f"<answer>{text}</answer>"])
        yield time.perf_counter() - began


def measure(names: Sequence[str] = ()) -> list[BenchmarkFigure]:
    tune_garbage_collection()  # as the service does it
    return [figure for one in measure_each(names) for figure in _list_figures(one)]


def _list_figures(one: Measured) -> Iterator[BenchmarkFigure]:
    figures = one.figures
    gold, strangers = figures.gold_scores_per_second, figures.strangers_paid
    found = (
        ("tasks a second", figures.tasks_per_second, ""),
        ("right answers scored a second", gold, ""),
        ("junk scored a second", figures.junk_scores_per_second, ""),
        ("a score, p99", figures.score_p99_ms, "ms"),
        ("by the clock", figures.score_p99_ms_by_the_clock, "ms"),
        (f"{HOSTILE:,} hostile texts, p99", one.hostile_p99_ms, "ms"),
        ("the slowest", one.hostile_most_ms, "ms"),
        ("met by another's answer", None if strangers is None else 100 * strangers, "%"),
    )
    for column, value, unit in found:
        if value is not None:
            yield BenchmarkFigure.of(f"`{one.name}`", [value], unit, column=column)


def main() -> None:
    words = read_arguments()
    names = [word for word in words if word != "--record"]
    run("catalogue", partial(measure, names), words, " ".join(names))


if __name__ == "__main__":
    main()
