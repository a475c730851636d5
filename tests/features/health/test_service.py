"""The health of a run over a real store: a judge that grows milder is noticed at a bounded cost."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import InvalidRequest, RunHeld
from app.domain.groups import Group
from app.domain.judging import Judgement, JudgeRequest
from app.domain.runs import Alarm, HealthOptions
from app.features.health.service import CLAIM_SECONDS, IDLE_SECONDS, RETRY_SECONDS, HealthReader, RunHealthService
from app.features.health.store import RunHealthStore, run_health
from app.judges.panel import ConfiguredPanels
from app.main.store import Store
from app.ports.environment import NoPrograms, NoWorkers
from app.service.gateway import Gateway
from app.service.requests import GroupToScore, NextBatch, ScoreRequest
from app.service.runs import RunSettings
from app.store.tables import claims
from app.telemetry.metrics import NullObserver
from tests.support.databases import MIGRATIONS
from tests.support.playground import WAIT, PaidJudge, World, services
from tests.support.store_cases import alarm


@dataclass
class Bench:
    gateway: Gateway
    watch: RunHealthService
    store: Store
    judge: "ChangingJudge"
    told: "Told"
    world: World


class ChangingJudge(PaidJudge):
    """Reads the number that a text says, and adds its leniency. A reading takes a thousand tokens."""

    def __init__(self, name: str, model: str) -> None:
        super().__init__(self.read, name, 0.01, 0.02, (900, 100))
        self.model = model
        self.leniency = 0.0
        self.fresh = 0
        self.raises = False
        """Instead of a reading past the cache."""

    def read(self, request: JudgeRequest, count: int) -> Mapping[str, float]:
        return {one.id: min(1.0, float(one.text) + self.leniency) for one in request.candidates}

    async def judge(self, request: JudgeRequest) -> Judgement:
        if request.fresh and self.raises:
            raise RuntimeError("a defect of ours")
        self.fresh += request.fresh
        return await super().judge(request)


@dataclass
class Told:
    """A receiver of alarms that takes those that it is let take, and never answers when it `hangs`."""

    alarms: list[tuple[str, Alarm]] = field(default_factory=list)
    takes: bool = True
    hangs: bool = False
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, run: str, alarm: Alarm) -> bool:
        self.alarms.append((run, alarm))
        self.asked.set()
        if self.hangs:
            await asyncio.Event().wait()
        return self.takes


@pytest.fixture
async def bench(sqlite_url: str) -> AsyncIterator[Bench]:
    world, told = World(), Told()
    store = Store.open(sqlite_url, MIGRATIONS, clock=world.now)
    judge = ChangingJudge("strict", "one")
    judges = {"strict": judge, "other": ChangingJudge("other", "two"), "twin": ChangingJudge("twin", "one")}
    panels = ConfiguredPanels(judges, {}, fallback=("strict",))
    gateway = services(world, store, panels)
    health = store.part(RunHealthStore)
    reader = HealthReader(
        health,
        gateway.runs,
        panels,
        gateway.environment_versions,
        gateway.task_cache,
        NoWorkers(),
        NoPrograms(),
        NullObserver(),
    )
    watch = RunHealthService(
        health=health,
        claims=store.claims,
        runs=gateway.runs,
        panels=panels,
        reader=reader,
        observer=NullObserver(),
        clock=world.now,
        sink=told,
    )
    gateway.runs.watch = watch
    gateway.catalogue.open(ConfiguredDatasets({}))
    yield Bench(gateway, watch, store, judge, told, world)
    await gateway.group_scoring.close()
    await store.close()


async def train(
    bench: Bench, count: int, run: str = "a", look: bool = True, texts: Sequence[str] = ("0.10", "0.30", "0.50", "0.70")
) -> None:
    """So many groups of one run, each looked at as the service does."""
    done = 0
    while done < count:
        handed = await bench.gateway.dispatcher.next_batch("arena", NextBatch(batch_size=4, run=run))
        done += len(handed.tasks)
        groups = [
            GroupToScore.model_validate(
                {"task_id": task.task_id, "lease_id": task.lease_id, "completions": [{"text": text} for text in texts]}
            )
            for task in handed.tasks
        ]
        await bench.gateway.scoring.score(ScoreRequest(groups=tuple(groups), run=run), "arena", None)
        while look and await bench.watch.look_once():
            pass


async def test_a_milder_judge_is_noticed_at_a_bounded_cost_and_the_run_is_held_until_it_is_released(
    bench: Bench,
) -> None:
    health = HealthOptions(on_alarm="hold", shadow_judge="other")
    await bench.gateway.runs.put("a", RunSettings(health=health))
    await train(bench, 600)
    before = await bench.watch.get_health("a")
    spent, cost = before.spent, (await bench.gateway.runs.get_report("a")).judging.spent
    scored = len(bench.judge.requests) - bench.judge.fresh
    assert (before.alarms, before.anchors, before.held, cost.groups) == ((), 8, None, 600)
    assert (bench.judge.fresh, spent.run_tokens) == (spent.anchor_readings, 1000 * scored)
    assert (spent.anchor_readings > 5, spent.shadow_readings > 2) == (True, True)
    assert spent.tokens <= 0.03 * spent.run_tokens
    assert cost.input_tokens + cost.output_tokens == spent.run_tokens + spent.tokens
    bench.judge.leniency = 0.1
    with pytest.raises(RunHeld, match="judges score the same replies higher"):
        await train(bench, 100)
    after = await bench.watch.get_health("a")
    released = await bench.watch.release("a")
    await bench.gateway.dispatcher.next_batch("arena", NextBatch(batch_size=1, run="a"))
    (alarm,) = after.alarms
    assert (alarm.series, alarm.subject, alarm.noticed_group <= 700) == ("leniency", "strict", True)
    assert (after.held is not None, released.held) == (True, None)
    assert {each.series: each.alarmed for each in after.figures}["leniency"]


async def test_a_run_may_have_no_readings(bench: Bench) -> None:
    await bench.gateway.runs.put("a", RunSettings(health=HealthOptions(share=0.0)))
    await train(bench, 50)
    found = await bench.watch.get_health("a")
    assert (bench.judge.fresh, found.spent.tokens, found.anchors, found.groups) == (0, 0, 0, 49)


async def test_a_run_budget_that_is_spent_ends_readings_and_no_score(bench: Bench) -> None:
    """A group costs a cent or two and so does a reading: what is left after 100 groups is for scores."""
    await bench.gateway.runs.put("a", RunSettings())
    await train(bench, 100)
    cost = (await bench.gateway.runs.get_report("a")).judging.spent
    made = bench.judge.fresh
    await bench.gateway.runs.put("a", RunSettings(budget_usd=cost.cost_usd + 0.001))
    await bench.watch._reader.read_anchor(run := await bench.gateway.runs.require("a"), (await anchors(bench))[0], 100)
    after = (await bench.gateway.runs.get_report("a")).judging.spent
    found = made > 0, bench.judge.fresh, after.cost_usd, run.budget_usd
    assert found == (True, made, cost.cost_usd, cost.cost_usd + 0.001)


async def anchors(bench: Bench) -> tuple[Group, ...]:
    return await bench.store.part(RunHealthStore).freeze_anchors("a", 8)


async def test_a_shadow_judge_of_the_model_that_the_environment_trains_with_reads_nothing(bench: Bench) -> None:
    twin = RunSettings(health=HealthOptions(shadow_judge="twin"))
    await bench.gateway.runs.put("a", twin)  # nobody knows yet which judges will train it
    await train(bench, 100)
    with pytest.raises(InvalidRequest, match="same model as 'strict'"):
        await bench.gateway.runs.put("a", twin)
    spent = (await bench.watch.get_health("a")).spent
    assert (spent.anchor_readings > 0, spent.shadow_readings) == (True, 0)


async def test_a_run_that_cannot_be_looked_after_stops_no_other(bench: Bench) -> None:
    for run in ("a", "b"):
        await train(bench, 20, run, look=False)
    broken = update(run_health).where(run_health.c.run == "a").values(state="no state")
    assert await bench.watch.look_once()
    await bench.store._database.write(lambda c: c.execute(broken).rowcount)
    bench.world.moment += timedelta(seconds=CLAIM_SECONDS + IDLE_SECONDS)
    for run in ("a", "b"):
        await train(bench, 20, run, look=False)
    looks = [await bench.watch.look_once() for _ in range(3)]
    states = await bench.store._database.read(lambda c: {*c.execute(select(claims.c.name, claims.c.until > 0))})
    assert (looks, states) == ([True, True, False], {("a", True), ("b", False)})
    assert (await bench.store.part(RunHealthStore).get_state("b")).groups > 20


async def test_a_step_that_fails_keeps_the_others(bench: Bench) -> None:
    """The judge of one anchor's reading raises: trends are followed, and the next look goes on."""
    await train(bench, 60)
    made = bench.judge.fresh
    bench.judge.raises = True
    await train(bench, 40)
    failing = await bench.store.part(RunHealthStore).get_state("a")
    bench.judge.raises = False
    await train(bench, 120)
    after = await bench.store.part(RunHealthStore).get_state("a")
    assert (failing.failures > 0, failing.newest > 5, after.failures, bench.judge.fresh > made) == (True, True, 0, True)


async def test_a_receiver_that_never_answers_delays_neither_looks_nor_the_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.features.health.service.POLL_SECONDS", 0.01)

    bench.told.hangs = True
    await train(bench, 4, look=False)
    await bench.store.part(RunHealthStore).add_alarm("a", alarm(), None)
    running = asyncio.create_task(bench.watch.run())
    async with asyncio.timeout(WAIT):
        await bench.told.asked.wait()
        await train(bench, 20, look=False)
        while not (await bench.store.part(RunHealthStore).get_state("a")).groups:  # noqa: ASYNC110  # the loop wakes nobody
            await asyncio.sleep(0.01)
    running.cancel()
    async with asyncio.timeout(WAIT):
        await asyncio.gather(running, return_exceptions=True)
    assert len(bench.told.alarms) == 1


async def test_an_alarm_that_nobody_takes_is_sent_again_and_then_given_up(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.told.takes = False
    await train(bench, 4, look=False)
    await bench.store.part(RunHealthStore).add_alarm("a", alarm(), None)
    sent = []
    for pause in (0, *RETRY_SECONDS, 10 * RETRY_SECONDS[-1]):
        bench.world.moment += timedelta(seconds=pause - 1)
        await bench.watch._send_notices()
        early = len(bench.told.alarms)
        bench.world.moment += timedelta(seconds=1)
        await bench.watch._send_notices()
        sent.append((early, len(bench.told.alarms)))
    assert sent == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 6)]
    assert "given up" in caplog.text


async def test_a_run_that_earns_nothing_from_its_beginning_on_raises_one_alarm_that_says_why(bench: Bench) -> None:
    await bench.gateway.runs.put("a", RunSettings(health=HealthOptions(on_alarm="hold", share=0.0)))
    with pytest.raises(RunHeld, match=r"All rewards of the first \d\d groups are 0\. .* got 0 from the gate `empty`\."):
        await train(bench, 100, texts=("", "", "", ""))
    held = await bench.watch.get_health("a")
    await bench.watch.release("a")
    await train(bench, 80)
    after = await bench.watch.get_health("a")
    found = [[(alarm.series, alarm.noticed_group) for alarm in each.alarms] for each in (held, after)]
    assert (found, [each.flag for each in held.findings], after.findings) == (
        [[("beginning", 64)]] * 2,
        ["empty"],
        (),
    )
