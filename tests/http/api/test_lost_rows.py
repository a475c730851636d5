"""Rows that the store has lost while the service runs, as a failover to a replica that lagged may lose them."""

import sqlite3
from pathlib import Path

import httpx
import pytest
from pydantic import JsonValue

from app.service import catalogue
from app.service.runs import RunReport
from tests.http.api.asking import answer, collect, score, take
from tests.support.playground import WAIT, World, gateway, until


def lose(database: Path, *tables: str) -> None:
    """All rows of these tables, behind the service's back."""
    with sqlite3.connect(database, timeout=WAIT) as connection:
        for table in tables:
            connection.execute(f"DELETE FROM {table}")  # noqa: S608  # names of our own
    connection.close()


def is_stored(database: Path, table: str, column: str, value: str) -> bool:
    with sqlite3.connect(database, timeout=WAIT) as connection:
        found = connection.execute(f"SELECT 1 FROM {table} WHERE {column} = ?", (value,)).fetchone()  # noqa: S608
    connection.close()
    return found is not None


@pytest.mark.parametrize("parts", [1, 2])
async def test_a_task_that_is_lost_before_its_score_completes_its_lease_all_the_same(
    client: httpx.AsyncClient, database: Path, parts: int
) -> None:
    """Whether the group comes whole or in pieces."""
    task = await take(client)
    lose(database, "tasks", "prompts")
    whole = answer(task, "1", "0")
    pieces: list[JsonValue] = [
        {**whole, "completions": [{"text": text}], "part": {"key": "k", "index": place, "size": 2}}
        for place, text in enumerate("10")
    ]
    replies = await score(client, *([whole] if parts == 1 else pieces))
    assert [(one.rewards, one.flags) for one in replies] == (
        [((1.0, 0.0), ())] if parts == 1 else [((1.0,), ()), ((0.0,), ())]
    )


async def test_a_task_that_is_lost_before_a_single_sample_is_scored(client: httpx.AsyncClient, database: Path) -> None:
    task = await take(client, run=None, cursor=0)
    lose(database, "tasks", "prompts")
    sample = {"prompt": "", "response": "1", "label": task.task_id}
    reply = await client.post("/compat/slime/toy", json=sample, timeout=WAIT)
    assert (reply.status_code, reply.json()) == (200, 1.0)


async def test_a_group_that_is_lost_while_it_is_scored_is_stored_with_its_scores(
    client: httpx.AsyncClient, world: World, database: Path
) -> None:
    (pending,) = await score(client, answer(await take(client, "slow"), "1", "0"), wait=0)
    await until(lambda: world.scorings["slow"] == 1)
    lose(database, "rollouts", "groups", "tasks", "prompts")
    world.going_on.set()
    await until(lambda: is_stored(database, "groups", "group_id", pending.group_id))
    assert [one.rewards for one in await collect(client, pending.group_id)] == [(1.0, 0.0)]


async def test_a_lost_run_is_stored_again_with_its_settings_and_pins(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "RECHECK_SECONDS", 0.0)

    async def report(client: httpx.AsyncClient) -> RunReport:
        return RunReport.model_validate_json((await client.get("/runs/a")).content)

    async with gateway(World(), database) as client:
        await client.put("/runs/a", json={"seed": 5, "strict": True})
        await take(client)
        before = (await report(client)).run
        states = []
        for lost in (("pins", "runs"), ("pins",)):
            lose(database, *lost)
            await take(client)
            states.append((await report(client)).run)
        lose(database, "pins", "runs")
        await take(client, "drill")
        pinned = {pin.environment for pin in (await report(client)).run.pins}
        assert (states, pinned) == ([before] * 2, {"toy", "drill"})
