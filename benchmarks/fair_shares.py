"""How long a group of one key takes while 2,000 groups of another wait, as a multiple of its time alone: with a judge
that takes a second, and with programs. `python -m benchmarks.fair_shares [GROUPS]`."""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import uvloop

from app.cli.serve import tune_garbage_collection
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.access import Caller, work_for
from app.domain.runs import ScoringOptions
from app.domain.tasks import Program
from app.envs.npc_arena.environment import NpcArena
from app.judges.chat_judge import CachingJudge
from app.judges.configuration import ChatJudgeConfig
from app.judges.panel import ConfiguredPanels, build_chat_judges
from app.main.store import Store
from app.ports.environment import Tools
from app.sandbox.programs import JailedPrograms
from app.sandbox.workers import choose_size
from app.service.group_scoring import start_each
from benchmarks.judging import CONCURRENCY, judge_server, write_completions
from benchmarks.programs import list_programs
from benchmarks.results import read_arguments
from tests.support.databases import MIGRATIONS

GROUPS: Final = 2000
GROUP_SIZE: Final = 8
TRIES: Final = 9
SECONDS_BETWEEN: Final = 1.3
"""Not a multiple of the judge's time: groups begin at different moments of its calls."""

ScoreGroup = Callable[[int], Awaitable[object]]
"""Gets the number of the group."""


@dataclass(frozen=True)
class Share:
    alone: tuple[float, ...]
    """Seconds of each group."""
    beside: tuple[float, ...]
    """While the groups of the other key wait."""
    left: int
    """How many of those still waited at the end."""

    @property
    def ratio(self) -> float:
        return median(self.beside) / median(self.alone)

    def describe(self) -> str:
        return (
            f"alone {median(self.alone):.3f} s, beside {median(self.beside):.3f} s (at most {max(self.beside):.3f} s): "
            f"{self.ratio:.2f} times, {self.left} groups of the other key left"
        )


async def compare(score: ScoreGroup, groups: int) -> Share:
    alone = [await _time_group(score, groups + place) for place in range(TRIES)]
    with work_for(Caller("other", frozenset())):
        waiting = await start_each(_score(score, number) for number in range(groups))
    await asyncio.sleep(2 * SECONDS_BETWEEN)
    beside = []
    for place in range(TRIES):
        beside.append(await _time_group(score, groups + TRIES + place))
        await asyncio.sleep(SECONDS_BETWEEN)
    left = sum(not task.done() for task in waiting)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return Share(tuple(alone), tuple(beside), left)


async def _score(score: ScoreGroup, number: int) -> None:
    await score(number)


async def _time_group(score: ScoreGroup, number: int) -> float:
    with work_for(Caller("mine", frozenset())):
        began = time.perf_counter()
        await asyncio.create_task(_score(score, number))
        return time.perf_counter() - began


async def measure_judging(url: str, database: Path, groups: int) -> Share:
    store = Store.open(f"sqlite:///{database}", MIGRATIONS)
    config = ChatJudgeConfig(name="slow", base_url=url, model="slow", max_concurrency=CONCURRENCY)
    judge = build_chat_judges([config], {}, store.judge_cache)["slow"]
    assert isinstance(judge, CachingJudge)
    arena = NpcArena.open(ConfiguredDatasets({}))
    panel = ConfiguredPanels({"slow": judge}, {}, fallback=("slow",)).build_panel("npc_arena", ScoringOptions())
    size = arena.size("train", arena.Params()) or groups

    async def score(number: int) -> None:
        task = arena.task("train", number % size, arena.Params())
        await arena.score(task, write_completions(number), Tools(panel=panel))

    try:
        return await compare(score, groups)
    finally:
        await judge.close()
        await store.close()


async def measure_programs(groups: int) -> Share:
    jails, programs = JailedPrograms(choose_size()), list_programs()

    async def score(number: int) -> None:
        chosen = _choose(programs, number)
        await asyncio.gather(*(jails.run(program) for program in chosen))

    try:
        await jails.prepare()
        return await compare(score, groups)
    finally:
        await jails.close()


def _choose(programs: Sequence[Program], number: int) -> list[Program]:
    return [programs[(number * GROUP_SIZE + place) % len(programs)] for place in range(GROUP_SIZE)]


def main(groups: int) -> None:
    tune_garbage_collection()  # as the service does it
    print("programs:", asyncio.run(measure_programs(groups)).describe(), flush=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        judge_server() as url,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        print("judging:", runner.run(measure_judging(url, Path(folder) / "fair.db", groups)).describe())


if __name__ == "__main__":
    main(int(next(iter(read_arguments()), GROUPS)))
