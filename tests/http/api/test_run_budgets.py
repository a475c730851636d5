"""Budgets of runs over HTTP: what no longer fits is unscored, never judged in part."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from pydantic import JsonValue

from app.judges.panel import ConfiguredPanels
from app.service.requests import GroupReply
from tests.http.api.asking import answer, lease, score
from tests.support.playground import PaidJudge, World, by_number, gateway


@pytest.fixture
async def client(database: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Every call costs a dime, and two at most."""
    paid = {"paid": PaidJudge(by_number, "paid", 0.1, 0.2), "unpriced": PaidJudge(by_number, "unpriced", None, None)}
    async with gateway(World(), database, ConfiguredPanels(paid, {}, fallback=("paid",))) as client:
        yield client


async def put(client: httpx.AsyncClient, **body: JsonValue) -> httpx.Response:
    return await client.put("/runs/a", json=body)


async def train(client: httpx.AsyncClient, count: int) -> list[GroupReply]:
    return await score(client, *(answer(task, "0.8", "0.2") for task in await lease(client, "arena", count)))


def reasons(replies: list[GroupReply]) -> list[str]:
    """How each group ended: all its completions alike."""
    return sorted({str(score.reason or score.outcome) for score in reply.scores}.pop() for reply in replies)


async def test_parallel_groups_stay_within_the_budget(client: httpx.AsyncClient) -> None:
    """A group costs two dimes. Put aside are four calls of two dimes at first, then the mean."""
    await put(client, budget_usd=2.5)
    replies = [*await train(client, 4), *await train(client, 4), *await train(client, 4), *await train(client, 4)]
    report = (await client.get("/runs/a")).json()
    page = (await client.get("/view/runs/a")).text
    assert [words in page for words in ("$2.40", "$200.00", "$0.10 of $2.50")] == [True] * 3
    judging = report["judging"]
    assert (reasons(replies), judging["spent"]["groups"]) == (["budget"] * 4 + ["scored"] * 12, 12)
    assert judging["usd"] == pytest.approx(2.4)
    assert judging["usd_per_1000_groups"] == pytest.approx(200)
    assert judging["budget"]["left_usd"] == pytest.approx(0.1)
    assert (judging["budget"]["held_usd"], report["run"]["budget_usd"]) == (0, 2.5)


async def test_a_raised_budget_scores_what_was_left(client: httpx.AsyncClient) -> None:
    await put(client, seed=3, budget_usd=0.5)
    refused = await train(client, 1)
    raised = await put(client, seed=3, budget_usd=5.0)
    kept = await put(client, seed=3)
    again = await train(client, 1)
    other = await put(client, seed=4, budget_usd=9.0)
    freed = await put(client, seed=3, budget_usd=None)
    assert (reasons(refused), reasons(again)) == (["budget"], ["scored"])
    assert [one.json()["budget_usd"] for one in (raised, kept, freed)] == [5.0, 5.0, None]
    assert (other.status_code, other.json()["errors"][0]["field"]) == (409, "seed")


async def test_nonsense_and_judges_without_prices_are_refused(client: httpx.AsyncClient) -> None:
    wrong: list[dict[str, JsonValue]] = [
        {"budget_usd": -1},
        {"budget_usd": "5"},
        {"budget_usd": True},
        {"budget_usd": 1e300},
        {"budget_usd": 5, "options": {"judges": ["paid", "unpriced"]}},
    ]
    replies = [await put(client, **body) for body in wrong]
    fields = [(one.status_code, one.json()["errors"][0]["field"].removeprefix("body.")) for one in replies]
    stored = await client.get("/runs/a")
    assert (fields, stored.status_code) == ([(422, "budget_usd")] * len(wrong), 404)
