"""500 groups of 8 before a judge that takes a second: what waiting costs beyond the judge's own time, and what of the
processor time is ours. `python -m benchmarks.judging [GROUPS] [--record]` takes turns, 3 rounds at 64 and at 256 calls
at once: some three minutes.

Each round has two halves: groups scored whole, then the very bodies of the first half through the client alone
(`app.inference.connection`), with nothing read of the replies. **Ours** is processor time of a call of the first half
less that of the second, of this whole process. A few groups go first and are not counted.
"""

import asyncio
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import uvloop
from pydantic import JsonValue

from app.cli.serve import tune_garbage_collection
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.judging import Judgement, JudgeRequest
from app.domain.runs import ScoringOptions
from app.domain.tasks import Completion, Task
from app.envs.npc_arena.environment import NpcArena
from app.inference.connection import Connection
from app.judges.chat_judge import CachingJudge, ChatJudge, build_messages
from app.judges.configuration import ChatJudgeConfig
from app.judges.judge_client import build_body, build_request_form
from app.judges.panel import ConfiguredPanels, build_chat_judges
from app.main.store import Store
from app.ports.environment import Tools
from app.service.scoring import start_each
from benchmarks import slow_judge
from benchmarks.results import BenchmarkFigure, count_rounds, read_arguments, run
from tests.support.databases import MIGRATIONS
from tests.support.serving import ROOT

GROUPS = 500
GROUP_SIZE = 8
CONCURRENCY = 64
WIDTHS: Final = (64, 256)
ROUNDS: Final = 3
WARMING_GROUPS: Final = 4
WALL_WANTED: Final[Mapping[int, float]] = {64: 1.08, 256: 1.3}
OURS_WANTED: Final = 2.5
LATE_WANTED: Final = 50.0
"""Both in milliseconds."""
TICK_SECONDS = 0.005

WORDS = (
    "the old river road runs past our mill and nobody in town will say who walked it last night with a lantern "
    "though three doors down somebody left bread on every sill before dawn broke"
)


@dataclass(frozen=True)
class Judged:
    calls: int
    factor: float
    """Wall time over that of the judge."""
    cpu_seconds: float
    """Of a call, ours."""
    client_cpu_seconds: float
    """Of a call, the client alone with the same bodies."""
    lags: tuple[float, ...]
    """Seconds by which a timer of the event loop was late, each time it was looked at."""
    own_lags: tuple[float, ...]
    """What of each the loop's own CPU time accounts for: other programs on the machine lengthen `lags` alone."""


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


class NotingJudge:
    """Keeps what it is asked, to send the same again."""

    def __init__(self, judge: CachingJudge) -> None:
        self.name, self.model, self.digest, self.pace = judge.name, judge.model, judge.digest, judge.pace
        self.asked: list[JudgeRequest] = []
        self._judge = judge

    async def judge(self, request: JudgeRequest) -> Judgement:
        self.asked.append(request)
        return await self._judge.judge(request)


def measure_round(groups: int = GROUPS, at_once: int = CONCURRENCY) -> Judged:
    with (
        tempfile.TemporaryDirectory() as folder,
        judge_server() as url,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_measured(url, Path(folder) / "judging.db", groups, at_once))


@contextlib.contextmanager
def judge_server() -> Iterator[str]:
    program = [sys.executable, "-m", "benchmarks.slow_judge"]
    with subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        finally:
            process.terminate()


async def _measured(url: str, database: Path, groups: int, at_once: int) -> Judged:
    store = Store.open(f"sqlite:///{database}", MIGRATIONS)
    config = ChatJudgeConfig(name="slow", base_url=url, model="slow", max_concurrency=at_once)
    judge = build_chat_judges([config], {}, store.judge_cache)["slow"]
    assert isinstance(judge, CachingJudge)
    noting = NotingJudge(judge)
    arena = NpcArena.open(ConfiguredDatasets({}))
    tools = Tools(
        panel=ConfiguredPanels({"slow": noting}, {}, fallback=("slow",)).build_panel("npc_arena", ScoringOptions())
    )
    *given, last = [_give_group(arena, index) for index in range(groups + WARMING_GROUPS + 1)]
    tune_garbage_collection()  # as the service does it
    pulse = Pulse()
    try:
        await _score(arena, given[groups:], tools)
        await arena.score(*last, tools)
        noting.asked.clear()
        before = judge.report().spent.calls
        async with pulse.beating():
            await asyncio.sleep(0.1)
            pulse.lags.clear()
            pulse.own_lags.clear()
            began, cpu = time.perf_counter(), time.process_time()
            await _score(arena, given[:groups], tools)
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            calls, lags = (
                judge.report().spent.calls - before,
                (tuple(sorted(pulse.lags)), tuple(sorted(pulse.own_lags))),
            )
            client = await _measure_client(config, noting.asked, at_once)
    finally:
        await judge.close()
        await store.close()
    ideal = calls / at_once * slow_judge.SECONDS
    return Judged(calls, seconds / ideal, cpu / calls - client, client, *lags)


def _give_group(arena: NpcArena, index: int) -> tuple[Task, list[Completion]]:
    size = arena.size("train", arena.Params())
    return arena.task("train", index % size, arena.Params()), write_completions(index)


async def _score(arena: NpcArena, given: Sequence[tuple[Task, list[Completion]]], tools: Tools) -> None:
    await asyncio.gather(*await start_each(arena.score(*one, tools) for one in given))


async def _measure_client(config: ChatJudgeConfig, asked: Sequence[JudgeRequest], at_once: int) -> float:
    """Processor seconds of a call."""
    build = partial(_build_body, ChatJudge(config), config)
    bodies = iter(list(map(build, asked)))
    async with contextlib.aclosing(Connection(config.endpoint)) as connection:

        async def send_next() -> None:
            for body in bodies:
                await connection.post(body)

        await connection.post(_build_body(ChatJudge(config), config, asked[0]))
        began = time.process_time()
        await asyncio.gather(*(send_next() for _ in range(at_once)))
        return (time.process_time() - began) / len(asked)


def _build_body(judge: ChatJudge, config: ChatJudgeConfig, request: JudgeRequest) -> dict[str, JsonValue]:
    messages = build_messages(judge.build_question(request).prompt)
    return build_body(build_request_form(config), messages, request, config)


def write_completions(index: int) -> list[Completion]:
    """Replies of 46 words that differ, and that pass the gates: all of them come before the judge."""
    chance = random.Random(index)
    return [
        Completion(text=" ".join(chance.choices(WORDS.split(), k=45)) + f" {index}.{place}")
        for place in range(GROUP_SIZE)
    ]


def measure(groups: int = GROUPS) -> list[BenchmarkFigure]:
    found: dict[int, list[Judged]] = {width: [] for width in WIDTHS}
    for _ in count_rounds(f"{groups} groups of {GROUP_SIZE} before a judge of {slow_judge.SECONDS:g} s", ROUNDS):
        for width, judged in found.items():
            judged.append(measure_round(groups, width))
    return [figure for width, judged in found.items() for figure in _list_figures(width, judged)]


def _list_figures(width: int, found: Sequence[Judged]) -> Iterator[BenchmarkFigure]:
    what = f"{width} calls at once, {found[0].calls:,} calls"

    def of(column: str, values: Sequence[float], unit: str = "", at_most: float | None = None) -> BenchmarkFigure:
        return BenchmarkFigure.of(what, values, unit, at_most=at_most, column=column)

    yield of("wall time over the ideal", [one.factor for one in found], at_most=WALL_WANTED[width])
    yield of("processor time of a call, ours", [one.cpu_seconds * 1e3 for one in found], "ms", OURS_WANTED)
    yield of("the client alone with the same bodies", [one.client_cpu_seconds * 1e3 for one in found], "ms")
    late = "event loop late by its own processor time"
    looks = [one.own_lags[int(0.99 * len(one.own_lags))] * 1e3 for one in found]
    yield of(f"{late}, 99 of 100 looks", looks, "ms")
    yield of(f"{late}, the latest", [one.own_lags[-1] * 1e3 for one in found], "ms", LATE_WANTED)
    yield of("the latest by the clock", [one.lags[-1] * 1e3 for one in found], "ms")


def main() -> None:
    words = read_arguments()
    groups = next((word for word in words if word.isdigit()), str(GROUPS))
    run("judging", partial(measure, int(groups)), words, "" if groups == str(GROUPS) else groups)


if __name__ == "__main__":
    main()
