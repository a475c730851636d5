"""Nobody holds what another needs to go on: between two calls, and after a reading that nobody wants any more."""

import asyncio
import json

import pytest

from app.domain.budgets import BudgetConfig
from app.domain.judging import Judgement
from app.judges import judge_client as line
from app.judges.chat_judge import ChatJudge
from tests.support.chat_server import Received, Reply, serving
from tests.support.judge_cases import BAD, GOOD, REQUEST, completion, config, failure


def cheap(reply: Reply) -> Reply:
    """Of few tokens, beside the 2,100 that a call may take at most."""
    usage = {"prompt_tokens": 100, "completion_tokens": 20}
    return Reply(json.dumps(json.loads(reply.body) | {"usage": usage}).encode())


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "FIRST_PAUSE_SECONDS", 0.01)


async def readings(judge: ChatJudge, count: int) -> list[Judgement]:
    asked = [REQUEST.model_copy(update={"vote": vote}) for vote in range(count)]
    return list(await asyncio.gather(*map(judge.judge, asked)))


@pytest.mark.parametrize("trouble", [cheap(BAD), failure(500)], ids=["unusable", "500"])
def test_who_must_ask_again_and_who_waits_for_the_budget_do_not_wait_for_one_another(trouble: Reply) -> None:
    """One call at a time, and tokens for no second one beside it."""

    def script(number: int, received: Received) -> Reply:
        return trouble if number == 0 else cheap(completion(GOOD))

    async def play(url: str) -> list[Judgement]:
        judge = ChatJudge(config(url, max_concurrency=1, queue_seconds=2.0, budget=BudgetConfig(tokens=3_500)))
        try:
            return await readings(judge, 2)
        finally:
            await judge.close()

    with serving(script) as server:
        found = asyncio.run(play(server.url))
    assert [judgement.error for judgement in found] == [None, None]


def test_a_reading_that_nobody_wants_any_more_holds_nothing() -> None:
    """One call is under way and two wait for it when all are given up."""

    def script(number: int, received: Received) -> Reply:
        return Reply(b"", seconds=0.5) if number == 0 else completion(GOOD)

    async def play(url: str) -> tuple[int, int, list[Judgement]]:
        judge = ChatJudge(config(url, max_concurrency=1, requests_per_minute=6_000, tokens_per_minute=1e9))
        try:
            given_up = asyncio.ensure_future(readings(judge, 3))
            while judge.report().queued < 2:  # noqa: ASYNC110  # nothing tells
                await asyncio.sleep(0.01)
            given_up.cancel()
            await asyncio.wait([given_up])
            report = judge.report()
            return report.in_flight, report.queued, await readings(judge, 2)
        finally:
            await judge.close()

    with serving(script) as server:
        in_flight, queued, found = asyncio.run(play(server.url))
    assert (in_flight, queued, [judgement.error for judgement in found]) == (0, 0, [None, None])
