"""Nothing is asked twice, nothing is used before it is kept, and every cost is told once."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from app.domain.budgets import Amount, BudgetConfig, BudgetState, Reservation
from app.domain.errors import StoreUnavailable
from app.domain.judging import JudgeFailure, Judgement, JudgeReport, JudgeRequest, Probes, Rubric, Spending
from app.domain.values import digest
from app.judges import chat_judge as remembered
from app.judges.chat_judge import CachingJudge, InProcessMemory, JudgeWithFallback, WriteOnlyMemory
from app.judges.configuration import SpendingAccount
from app.judges.prompts import JudgePrompt, JudgeQuestion
from app.ports.judges import CachedJudgement


def request(vote: int = 0) -> JudgeRequest:
    rubric = Rubric(name="r", version="1", instructions="", criteria=())
    return JudgeRequest(rubric=rubric, document={}, probes=Probes(), candidates=(), vote=vote)


@dataclass
class Oracle:
    """Answers when it is let; every call costs a dollar."""

    name: str = "oracle"
    failure: JudgeFailure | None = None
    model: str = "m"
    digest: str = "d"
    asked: int = 0
    closed: bool = False
    shelf: "Shelf | None" = None
    standing: BudgetState | None = None
    refreshed: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def build_question(self, request: JudgeRequest) -> JudgeQuestion:
        kept = f"prompt {request.vote}"
        return JudgeQuestion(request, JudgePrompt("", kept), kept, digest(kept), digest([self.name, request.vote]))

    async def refresh(self) -> None:
        self.standing = None if self.shelf is None else await self.shelf.get_budget_state(self.name)
        self.refreshed.set()

    async def record_spending(self, judgement: Judgement, hold: str) -> None:
        if self.shelf is not None and judgement.calls:
            await self.shelf.put(judgement, hold)

    def report(self) -> JudgeReport:
        return JudgeReport(
            **{"health": "ok", "last_error": None, "in_flight": 0, "queued": 0, "limit": 1, "cache_hits": 0},
            **{"budget_left_usd": None, "budget_left_tokens": None},
            spent=Spending(calls=self.asked),
            spent_today=Spending(),
        )

    async def judge(self, request: JudgeRequest) -> Judgement:
        return await self.answer_question(self.build_question(request), "")

    async def answer_question(self, question: JudgeQuestion, hold: str) -> Judgement:
        self.asked += 1
        await self.gate.wait()
        return Judgement(
            judge=self.name,
            model=self.model,
            order=(),
            prompt=question.prompt_text,
            error=None if self.failure is None else "no",
            failure=self.failure,
            cost_usd=1.0,
            input_tokens=7,
            output_tokens=3,
            latency_seconds=0.5,
            calls=1,
        )

    async def close(self) -> None:
        self.closed = True


@dataclass
class Shelf(InProcessMemory):
    kept: dict[str, Judgement] = field(default_factory=dict)
    claimed: set[str] = field(default_factory=set)
    puts: list[Judgement] = field(default_factory=list)
    broken: bool = False

    def __post_init__(self) -> None:
        super().__init__(lambda: datetime(2026, 1, 2, tzinfo=UTC))

    async def get(self, reading: str) -> CachedJudgement | None:
        await asyncio.sleep(0)
        found = self.kept.get(reading)
        return None if found is None else CachedJudgement(found, reading in self.claimed)

    async def put(self, judgement: Judgement, hold: str = "") -> BudgetState:
        await asyncio.sleep(0)
        if self.broken:
            raise StoreUnavailable("the disk is full")
        self.puts.append(judgement)
        if judgement.error is None:
            self.kept[judgement.reading] = judgement.model_copy(update={"prompt": ""})
        return await super().put(judgement, hold)


def remembering(oracle: Oracle, shelf: Shelf) -> CachingJudge:
    oracle.shelf = shelf
    return CachingJudge(oracle, shelf)


async def judged(judge: CachingJudge, oracle: Oracle, requests: Sequence[JudgeRequest]) -> list[Judgement]:
    oracle.gate = asyncio.Event()
    readings = [asyncio.create_task(judge.judge(one)) for one in requests]
    for _ in range(20):
        await asyncio.sleep(0)
    oracle.gate.set()
    return list(await asyncio.gather(*readings))


def costs(judgements: Sequence[Judgement]) -> list[tuple[float | None, int, int, bool]]:
    return [(made.cost_usd, made.calls, made.input_tokens + made.output_tokens, made.cached) for made in judgements]


PAID = (1.0, 1, 10, False)
FREE = (0.0, 0, 0, True)


async def test_equal_readings_under_way_share_one_call() -> None:
    oracle, shelf = Oracle(), Shelf()
    made = await judged(remembering(oracle, shelf), oracle, [request(), request(), request(1)])
    assert costs(made) == [PAID, FREE, PAID]
    assert (oracle.asked, len(shelf.puts)) == (2, 2)
    assert len({judgement.reading for judgement in made}) == 2


async def test_what_was_answered_is_answered_again_from_memory() -> None:
    oracle, shelf = Oracle(), Shelf()
    judge = remembering(oracle, shelf)
    first = await judged(judge, oracle, [request()])
    second = await judged(judge, oracle, [request()])
    assert costs(first + second) == [PAID, FREE]
    assert (second[0].prompt, oracle.asked, judge.report().cache_hits) == ("prompt 0", 1, 1)


@pytest.mark.parametrize("failure", ["unavailable", "unusable", "refused", "budget"])
async def test_failures_are_asked_again_and_their_cost_is_kept(failure: JudgeFailure) -> None:
    oracle, shelf = Oracle(failure=failure), Shelf()
    judge = remembering(oracle, shelf)
    made = (await judged(judge, oracle, [request(), request()])) + (await judged(judge, oracle, [request()]))
    assert costs(made) == [PAID, (0.0, 0, 0, False), PAID]
    assert [judgement.failure for judgement in made] == [failure] * 3
    assert (shelf.kept, len(shelf.puts)) == ({}, 2)


async def test_a_fresh_request_is_asked_past_the_cache_paid_and_not_kept() -> None:
    oracle, shelf = Oracle(), Shelf()
    judge = remembering(oracle, shelf)
    kept = await judged(judge, oracle, [request()])
    fresh = request().model_copy(update={"fresh": True})
    made = (await judged(judge, oracle, [fresh, fresh])) + (await judged(judge, oracle, [request()]))
    assert costs(kept + made) == [PAID, PAID, PAID, FREE]
    assert [judgement.reading for judgement in made] == ["", "", kept[0].reading]
    assert (oracle.asked, len(shelf.puts), shelf.kept[kept[0].reading].prompt) == (3, 3, "")


async def test_a_judgement_that_no_group_held_comes_back_with_its_cost_once() -> None:
    """Its process died between writing it down and writing the group."""
    shelf = Shelf()
    before = Oracle()
    await judged(remembering(before, shelf), before, [request(), request(1)])
    shelf.claimed.add(before.build_question(request(1)).cache_key)
    oracle = Oracle()
    judge = remembering(oracle, shelf)
    made = (await judged(judge, oracle, [request()])) + (await judged(judge, oracle, [request(), request(1)]))
    assert (costs(made), oracle.asked) == ([PAID, FREE, FREE], 0)


async def test_nothing_is_used_that_could_not_be_written_down() -> None:
    oracle = Oracle()
    (made,) = await judged(remembering(oracle, Shelf(broken=True)), oracle, [request()])
    assert (made.failure, made.verdicts, made.error) == (
        "unavailable",
        (),
        "could not store the judgement: the disk is full",
    )


async def test_a_caller_who_leaves_takes_nobody_with_him() -> None:
    oracle, shelf = Oracle(), Shelf()
    judge = remembering(oracle, shelf)
    first, second = (asyncio.create_task(judge.judge(request())) for _ in range(2))
    for _ in range(20):
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    oracle.gate.set()
    assert (costs([await second]), oracle.asked, len(shelf.puts)) == ([PAID], 1, 1)


async def test_what_is_under_way_at_the_end_is_written_down() -> None:
    oracle, shelf = Oracle(), Shelf()
    judge = remembering(oracle, shelf)
    reading = asyncio.create_task(judge.judge(request()))
    for _ in range(20):
        await asyncio.sleep(0)
    reading.cancel()
    asyncio.get_running_loop().call_later(0.01, oracle.gate.set)
    await judge.close()
    assert (len(shelf.puts), oracle.closed) == (1, True)


async def test_what_was_spent_before_is_known_from_the_start() -> None:
    before = Spending(readings=1, calls=2, cost_usd=0.5)
    oracle, shelf = Oracle(), Shelf()
    await shelf.put(Judgement(judge="oracle", model="m", order=(), calls=2, cost_usd=0.5))
    judge = remembering(oracle, shelf)
    await judge.open()
    await judge.close()
    assert oracle.standing == BudgetState(total=before, today=before)


async def test_what_others_spend_is_learnt_while_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "REFRESH_SECONDS", 0.01)
    spent = Spending(readings=1, calls=1)
    oracle, shelf = Oracle(), Shelf()
    judge = remembering(oracle, shelf)
    await judge.open()
    await shelf.put(Judgement(judge="oracle", model="m", order=(), calls=1))
    oracle.refreshed.clear()
    async with asyncio.timeout(5):
        await oracle.refreshed.wait()
    await judge.close()
    assert oracle.standing == BudgetState(spent, spent)


async def test_a_memory_that_asks_anew_answers_nothing_and_keeps_everything() -> None:
    shelf = Shelf()
    anew = WriteOnlyMemory(shelf)
    hold = Reservation("h", "j", used=Amount(1), open=Amount(2), seconds=9.0)
    admitted = await anew.reserve(hold, BudgetConfig(tokens=3))
    states = [await anew.get_budget_state("j"), await anew.release("j", "h")]
    states.append(await anew.put(Judgement(judge="j", model="m", order=(), calls=1, reading="r")))
    spent = Spending(readings=1, calls=1)
    held = BudgetState(used=Amount(1), open=Amount(2))
    assert states == [held, BudgetState(), BudgetState(spent, spent)]
    assert (admitted.admits, await anew.get("r"), list(shelf.kept)) == ("now", None, ["r"])


async def test_without_memory_everything_is_asked() -> None:
    oracle = Oracle()
    judge = CachingJudge(oracle, InProcessMemory(lambda: datetime(2026, 1, 2, tzinfo=UTC)))
    made = (await judged(judge, oracle, [request()])) + (await judged(judge, oracle, [request()]))
    assert costs(made) == [PAID, PAID]


async def with_fallback(failure: JudgeFailure | None) -> tuple[Judgement, JudgeWithFallback]:
    first, second = Oracle("first", failure), Oracle("second")
    judge = JudgeWithFallback(remembering(first, Shelf()), remembering(second, Shelf()))
    first.gate.set()
    second.gate.set()
    return await judge.judge(request()), judge


@pytest.mark.parametrize("failure", ["refused", "unusable"])
async def test_a_failure_of_the_model_goes_to_the_fallback_and_is_kept_beside_its_answer(failure: JudgeFailure) -> None:
    made, judge = await with_fallback(failure)
    told = [(one.judge, one.failure, one.cost_usd, one.instead_of) for one in made.attempts]
    assert (made.judge, made.error) == ("second", None)
    assert told == [("first", failure, 1.0, ()), ("second", None, 1.0, ())]
    assert judge.digest != Oracle().digest


@pytest.mark.parametrize("failure", [None, "unavailable", "budget", "language"])
async def test_nothing_else_does(failure: JudgeFailure | None) -> None:
    made, _ = await with_fallback(failure)
    assert (made.judge, made.failure, len(made.attempts)) == ("first", failure, 1)


def test_accounts_turn_with_the_day_and_count_what_could_not_be_written() -> None:
    now = [datetime(2026, 1, 2, 23, tzinfo=UTC)]
    account = SpendingAccount(lambda: now[0])
    account.update_state(BudgetState(Spending(calls=5), Spending(calls=2)))
    lost = Judgement(judge="j", model="m", order=(), calls=1, cost_usd=0.5)
    account.add_unwritten(lost)
    seen = [account.state]
    now[0] = datetime(2026, 1, 3, tzinfo=UTC)
    seen.append(account.state)
    account.add_unwritten(lost)
    seen.append(account.state)
    assert [(one.total.calls, one.total.cost_usd, one.today.calls) for one in seen] == [
        (6, 0.5, 3),
        (6, 0.5, 0),
        (7, 1.0, 1),
    ]
