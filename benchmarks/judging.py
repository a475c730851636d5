"""500 groups of 8 before a judge that takes a second: what waiting costs beyond the judge's own time."""

import asyncio
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from app.cli.serving import tune_garbage_collection
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.runs import ScoringOptions
from app.domain.scores import Score
from app.domain.tasks import Completion
from app.envs.npc_arena.environment import NpcArena
from app.judges.caching_judge import CachingJudge
from app.judges.configuration import ChatJudgeConfig
from app.judges.judge_factory import build_chat_judges
from app.judges.panels import ConfiguredPanels
from app.ports.environment import Tools
from app.service.group_scoring import start_each
from app.store.store import Store
from benchmarks import slow_judge
from tests.support.databases import MIGRATIONS
from tests.support.serving import ROOT

GROUPS = 500
GROUP_SIZE = 8
CONCURRENCY = 64
TICK_SECONDS = 0.005

WORDS = (
    "the old river road runs past our mill and nobody in town will say who walked it last night with a lantern "
    "though three doors down somebody left bread on every sill before dawn broke"
)


@dataclass(frozen=True)
class Judged:
    calls: int
    seconds: float
    cpu_seconds: float
    lags: tuple[float, ...]
    """Seconds by which a timer of the event loop was late, each time it was looked at."""
    own_lags: tuple[float, ...]
    """What of each the loop's own CPU time accounts for: other programs on the machine lengthen `lags` alone."""
    judged: int
    """Completions that the judge scored."""

    @property
    def ideal_seconds(self) -> float:
        return self.calls / CONCURRENCY * slow_judge.SECONDS

    @property
    def factor(self) -> float:
        return self.seconds / self.ideal_seconds

    def lag(self, share: float) -> float:
        return _ranked(self.lags, share)

    def own_lag(self, share: float) -> float:
        return _ranked(self.own_lags, share)


def _ranked(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


@dataclass
class Pulse:
    """How late the event loop is, looked at every few milliseconds, and what CPU time its thread took meanwhile."""

    lags: list[float] = field(default_factory=list)
    own_lags: list[float] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._beat())
        try:
            yield
        finally:
            task.cancel()

    async def _beat(self) -> None:
        while True:
            began, cpu = time.perf_counter(), time.thread_time()
            await asyncio.sleep(TICK_SECONDS)
            late = max(0.0, time.perf_counter() - began - TICK_SECONDS)
            self.lags.append(late)
            self.own_lags.append(min(late, time.thread_time() - cpu))


def measure(groups: int = GROUPS) -> Judged:
    with (
        tempfile.TemporaryDirectory() as folder,
        judge_server() as url,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_measured(url, Path(folder) / "judging.db", groups))


@contextlib.contextmanager
def judge_server() -> Iterator[str]:
    program = [sys.executable, "-m", "benchmarks.slow_judge"]
    with subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        finally:
            process.terminate()


async def _measured(url: str, database: Path, groups: int) -> Judged:
    store = Store.open(f"sqlite:///{database}", MIGRATIONS)
    config = ChatJudgeConfig(name="slow", base_url=url, model="slow", max_concurrency=CONCURRENCY)
    judge = build_chat_judges([config], {}, store.judge_cache)["slow"]
    assert isinstance(judge, CachingJudge)
    arena = NpcArena.open(ConfiguredDatasets({}))
    panel = ConfiguredPanels({"slow": judge}, {}, fallback=("slow",)).build_panel("npc_arena", ScoringOptions())
    size = arena.size("train", arena.Params()) or groups
    given = [(arena.task("train", index % size, arena.Params()), write_completions(index)) for index in range(groups)]
    tune_garbage_collection()  # as the service does it
    pulse = Pulse()
    try:
        async with pulse.beating():
            await asyncio.sleep(0.1)
            pulse.lags.clear()
            pulse.own_lags.clear()
            began, cpu = time.perf_counter(), time.process_time()
            scores = await asyncio.gather(*await start_each(arena.score(*one, Tools(panel=panel)) for one in given))
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    finally:
        calls = judge.report().spent.calls
        await judge.close()
        await store.close()
    return Judged(calls, seconds, cpu, tuple(pulse.lags), tuple(pulse.own_lags), _judged(scores))


def write_completions(index: int) -> list[Completion]:
    """Replies of 46 words that differ, and that pass the gates: all of them come before the judge."""
    chance = random.Random(index)
    return [
        Completion(text=" ".join(chance.choices(WORDS.split(), k=45)) + f" {index}.{place}")
        for place in range(GROUP_SIZE)
    ]


def _judged(scores: Sequence[Sequence[Score]]) -> int:
    return sum(bool(score.judges) for group in scores for score in group)
