"""The health of a run over a real store: a judge that grows milder is noticed at a bounded cost."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import RunHeld
from app.domain.judging import Judgement, JudgeRequest
from app.domain.run_health import Alarm, HealthOptions
from app.judges.panels import ConfiguredPanels
from app.judges.scripted import ScriptedJudge
from app.main.gateway import build_gateway
from app.ports.sandbox import NoWorkers
from app.service.gateway import Gateway
from app.service.request_models import GroupToScore, NextBatch, ScoreRequest
from app.service.run_registry import RunSettings
from app.store.store import Store
from app.telemetry.null_observer import NullObserver
from tests.support.databases import MIGRATIONS
from tests.support.playground import World, environments


@dataclass
class Bench:
    gateway: Gateway
    store: Store
    judge: "ChangingJudge"
    told: list[tuple[str, Alarm]] = field(default_factory=list)


class ChangingJudge(ScriptedJudge):
    """Reads the number that a text says, and adds its leniency. A reading takes a thousand tokens."""

    def __init__(self, name: str, model: str) -> None:
        super().__init__(self.read, name)
        self.model = model
        self.leniency = 0.0
        self.fresh = 0

    def read(self, request: JudgeRequest, count: int) -> Mapping[str, float]:
        return {one.id: min(1.0, float(one.text) + self.leniency) for one in request.candidates}

    async def judge(self, request: JudgeRequest) -> Judgement:
        self.fresh += request.fresh
        made = await super().judge(request)
        return made.model_copy(update={"calls": 1, "input_tokens": 900, "output_tokens": 100, "cost_usd": 0.01})

    def compute_most(self, input_tokens: int) -> float | None:
        return 0.02


@dataclass
class Told:
    alarms: list[tuple[str, Alarm]] = field(default_factory=list)
    takes: bool = True

    async def send(self, run: str, alarm: Alarm) -> bool:
        self.alarms.append((run, alarm))
        return self.takes


Play = Callable[[Bench], Awaitable[None]]


@pytest.fixture
def on_bench(tmp_path: Path, migrated_file: Path) -> Callable[[Play], None]:
    path = tmp_path / "store.db"
    path.write_bytes(migrated_file.read_bytes())
    return lambda play: asyncio.run(_play(f"sqlite:///{path}", play))


async def _play(url: str, play: Play) -> None:
    world, told = World(), Told()
    store = Store.open(url, MIGRATIONS)
    judge = ChangingJudge("strict", "one")
    judges = {"strict": judge, "other": ChangingJudge("other", "two"), "twin": ChangingJudge("twin", "one")}
    panels = ConfiguredPanels(judges, {}, fallback=("strict",))
    gateway = build_gateway(
        environments(world), store, panels, NoWorkers(), world, NullObserver(), world.now, alarm_sink=told
    )
    gateway.catalogue.open(ConfiguredDatasets({}))
    try:
        await play(Bench(gateway, store, judge, told.alarms))
    finally:
        await gateway.group_scoring.close()
        await store.close()


async def train(bench: Bench, count: int, length: int = 1) -> None:
    """So many groups of one run, each looked at as the service does."""
    done = 0
    while done < count:
        handed = await bench.gateway.dispatcher.next_batch("arena", NextBatch(batch_size=4, run="a"))
        done += len(handed.tasks)
        texts = [f"0.{digit}{'0' * length}" for digit in (1, 3, 5, 7)]
        groups = [
            GroupToScore.model_validate(
                {"task_id": task.task_id, "lease_id": task.lease_id, "completions": [{"text": text} for text in texts]}
            )
            for task in handed.tasks
        ]
        await bench.gateway.scoring.score(ScoreRequest(groups=tuple(groups), run="a"), "arena", None)
        while await bench.gateway.run_health.look_once():
            pass


def test_a_milder_judge_is_noticed_and_the_run_is_held_until_it_is_released(
    on_bench: Callable[[Play], None],
) -> None:
    async def play(bench: Bench) -> None:
        await bench.gateway.runs.put("a", RunSettings(health=HealthOptions(on_alarm="hold")))
        await train(bench, 600)
        before = await bench.gateway.run_health.get_health("a")
        bench.judge.leniency = 0.1
        with pytest.raises(RunHeld, match="leniency"):
            await train(bench, 100)
        after = await bench.gateway.run_health.get_health("a")
        released = await bench.gateway.run_health.release("a")
        await bench.gateway.dispatcher.next_batch("arena", NextBatch(batch_size=1, run="a"))
        (alarm,) = after.alarms
        assert (before.alarms, before.anchors, before.held) == ((), 8, None)
        assert (alarm.series, alarm.subject, alarm.noticed_group <= 660) == ("leniency", "strict", True)
        assert (after.held is not None, released.held) == (True, None)
        assert {each.series: each.alarmed for each in after.figures}["leniency"]

    on_bench(play)


def test_readings_stay_within_their_share_and_are_counted(on_bench: Callable[[Play], None]) -> None:
    async def play(bench: Bench) -> None:
        await bench.gateway.runs.put("a", RunSettings(health=HealthOptions(shadow_judge="other")))
        await train(bench, 400)
        spent = (await bench.gateway.run_health.get_health("a")).spent
        cost = (await bench.gateway.runs.get_report("a")).judging.spent
        scored = len(bench.judge.requests) - bench.judge.fresh
        assert (bench.judge.fresh, spent.anchor_readings) == (spent.anchor_readings, spent.anchor_readings)
        assert (spent.anchor_readings > 5, spent.shadow_readings > 2) == (True, True)
        assert spent.run_tokens == 1000 * scored
        assert spent.tokens <= 0.03 * spent.run_tokens
        assert cost.input_tokens + cost.output_tokens == spent.run_tokens + spent.tokens
        assert cost.groups == 400

    on_bench(play)


def test_a_run_may_have_no_readings(on_bench: Callable[[Play], None]) -> None:
    async def play(bench: Bench) -> None:
        await bench.gateway.runs.put("a", RunSettings(health=HealthOptions(share=0.0)))
        await train(bench, 50)
        found = await bench.gateway.run_health.get_health("a")
        assert (bench.judge.fresh, found.spent.tokens, found.anchors, found.groups) == (0, 0, 0, 49)

    on_bench(play)
