"""Scoring under way: repeats that meet, work that outlives its caller or its process. The rest is in
docs/semantics.md."""

import asyncio
from pathlib import Path

import httpx
import pytest

from app.http.api.models import GroupPage
from app.service import runs
from app.service import task_cache as shelf
from app.service.requests import GroupReply, TaskBatch
from tests.http.api.asking import answer, collect, lease, score
from tests.support.playground import World, gateway, until
from tests.support.tables import read_table


async def rewarded(client: httpx.AsyncClient, *groups: GroupReply) -> list[tuple[float | None, ...]]:
    return [group.rewards for group in await collect(client, *(one.group_id for one in groups))]


@pytest.mark.parametrize("waits", [[None] * 20, [0.02, 0.0, None, 0.0]])
async def test_repeats_that_meet_share_one_scoring(
    client: httpx.AsyncClient, world: World, waits: list[float | None]
) -> None:
    """However long each waits; whoever waits to the end gets scores, also when the first in line did not."""
    (task,) = await lease(client, "slow")
    repeats = []
    for wait in waits:
        repeats.append(asyncio.ensure_future(score(client, answer(task, "1", "0.5"), wait=wait)))
        await asyncio.sleep(0.02)
    await until(lambda: all(future.done() for future, wait in zip(repeats, waits, strict=True) if wait is not None))
    world.going_on.set()
    outcomes = [(await repeat)[0].outcome for repeat in repeats]
    (group,) = await score(client, answer(task, "1", "0.5"))
    assert outcomes == ["scored" if wait is None else "pending" for wait in waits]
    assert (group.rewards, group.flags) == ((1.0, 0.5), ())
    assert world.scorings["slow"] == 1


async def test_what_ends_while_it_is_written_as_pending_is_not_forgotten(client: httpx.AsyncClient) -> None:
    naps = [f"{number / 1000:.4f}" for number in range(40)]
    batch = await lease(client, "nap", 4)
    for task in batch:
        answers = [answer(task, nap, "1") for nap in naps]
        groups = await score(client, *answers, wait=0.0)
        assert await rewarded(client, *groups) == [(float(nap), 1.0) for nap in naps]


async def test_retries_of_what_was_unscored_share_one_scoring_too(client: httpx.AsyncClient, world: World) -> None:
    (task,) = await lease(client, "slow")
    (failed,) = await score(client, answer(task, "1", "fail"))
    first = asyncio.ensure_future(score(client, answer(task, "1", "fail"), wait=0.1))
    await until(lambda: world.scorings["slow"] == 2)
    others = [asyncio.ensure_future(score(client, answer(task, "1", "fail"))) for _ in range(5)]
    await asyncio.sleep(0.2)
    world.going_on.set()
    await first
    assert failed.outcome == "unscored"
    assert [(await other)[0].rewards for other in others] == [(1.0, 0.0)] * 5
    assert world.scorings["slow"] == 2


async def test_two_bodies_race_for_one_key_and_one_wins(client: httpx.AsyncClient, world: World) -> None:
    (task,) = await lease(client, "slow")
    requests = [
        client.post("/score", json={"groups": [answer(task, text)]}, headers={"Idempotency-Key": "k"})
        for text in ("1", "0")
    ]
    both = asyncio.gather(*requests)
    await until(lambda: world.scorings["slow"] == 2)
    world.going_on.set()
    replies = await both
    groups = GroupPage.model_validate_json((await client.get("/groups")).content).groups
    assert sorted(reply.status_code for reply in replies) == [200, 422]
    assert len(groups) == 1


async def test_who_hangs_up_finds_the_work_done_later(client: httpx.AsyncClient, world: World) -> None:
    (task,) = await lease(client, "slow")
    caller = asyncio.ensure_future(score(client, answer(task, "1", "0.5")))
    await until(lambda: world.scorings["slow"] == 1)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    world.going_on.set()
    (group,) = await score(client, answer(task, "1", "0.5"))
    assert group.rewards == (1.0, 0.5)
    assert (world.scorings["slow"], world.scorings["cancelled"]) == (1, 0)


async def test_a_service_that_stops_lets_go_of_what_nobody_waits_for(database: Path) -> None:
    world = World()
    async with gateway(world, database) as client:
        (task,) = await lease(client, "slow")
        caller = asyncio.ensure_future(score(client, answer(task, "1")))
        await until(lambda: world.scorings["slow"] == 1)
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
    async with gateway(world, database) as client:
        page = GroupPage.model_validate_json((await client.get("/groups")).content)
        assert page.groups == ()  # it was never answered, so it was never promised
    assert world.scorings["cancelled"] == 1


async def test_any_amount_of_accepted_work_is_taken_up_after_a_restart(database: Path) -> None:
    """More than is resumed at once, and while its owner comes back for the oldest."""
    world = World()
    pending: list[GroupReply] = []
    asked: list[object] = []
    async with gateway(world, database) as client:
        for task in await lease(client, "slow", 4):
            asked.extend(answer(task, "1", str(number / 100)) for number in range(40))
        for place in range(0, len(asked), 40):
            pending.extend(await score(client, *asked[place : place + 40], wait=0.0))
    async with gateway(world, database) as client:
        again = asyncio.ensure_future(score(client, *asked[:80], wait=0.0))
        await again
        world.going_on.set()
        assert await rewarded(client, *pending) == [(1.0, number / 100) for number in range(40)] * 4
    assert {group.outcome for group in pending} == {"pending"}
    assert world.scorings["slow"] == 2 * len(asked)


async def test_a_retriever_that_is_down_at_start_keeps_no_accepted_work_waiting(database: Path) -> None:
    world = World()
    pending: list[GroupReply] = []
    async with gateway(world, database) as client:
        (task,) = await lease(client, "slow")
        pending.extend(await score(client, answer(task, "1"), wait=0.0))
        world.retriever_is_down = True
    async with gateway(world, database) as client:
        world.going_on.set()
        assert await rewarded(client, *pending) == [(1.0,)]
    assert pending[0].outcome == "pending"


@pytest.mark.parametrize("path", ["/envs/tavern/next-batch", "/next-batch"])
async def test_what_cannot_be_retrieved_goes_to_whoever_asks_next(
    client: httpx.AsyncClient, world: World, path: str
) -> None:
    """No prompt goes out without its context, and no lease on one has to run out."""
    world.retriever_is_down = True
    mix = [{"env": "tavern", "split": "test"}] if path == "/next-batch" else None
    request = {"run": "a", "batch_size": 2, "lease_seconds": 60} | ({"mix": mix} if mix else {"split": "test"})
    refused = await client.post(path, json=request)
    world.retriever_is_down = False
    batch = TaskBatch.model_validate_json((await client.post(path, json=request)).content)
    (done,) = (await client.get("/runs/a")).json()["activity"]
    assert (refused.status_code, refused.json()["code"]) == (503, "retriever_failed")
    assert "retry-after" in refused.headers
    assert (len(batch.tasks), done["handed_out"], done["outstanding"]) == (2, 2, 2)


async def test_an_environment_at_fault_earns_nobody_a_zero(client: httpx.AsyncClient) -> None:
    faults = {
        "break": "the environment's scorer broke; see the log",
        "short": "flaky gave 0 scores for 1 completions",
        "refuse": "nobody who scores may say so",
        "judge": "flaky: an environment without a rubric has no judges",
    }
    batch = await lease(client, "flaky", len(faults))
    groups = await score(client, *(answer(task, text) for task, text in zip(batch, faults, strict=True)))
    told = [(one.reward, one.reason, one.rationale) for group in groups for one in group.scores]
    assert told == [(None, "internal", rationale) for rationale in faults.values()]


async def test_what_the_service_no_longer_remembers_it_reads_again(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "MAX_CACHED_BYTES", 1)
    monkeypatch.setattr(runs, "REMEMBERED_RUNS", 1)
    async with gateway(World(), database) as client:
        batch = await lease(client, "toy", 4)
        other = await client.post("/envs/toy/next-batch", json={"run": "b", "cursor": 0})
        groups = await score(client, *(answer(task, "1", "0.5") for task in batch))
        again = await client.post("/envs/toy/next-batch", json={"run": "b", "cursor": 0})
        assert [group.rewards for group in groups] == [(1.0, 0.5)] * 4
        assert again.content == other.content


WRONG = read_table(__file__, "scoring.yaml", tuple[tuple[str, str, dict[str, object] | None, str], ...])


async def test_what_a_request_cannot_say_is_refused_by_its_field(client: httpx.AsyncClient, world: World) -> None:
    (task,) = await lease(client, "toy")
    found = []
    for method, path, body, _ in WRONG:
        groups = {"groups": [answer(task, "1")]} if path == "/score" else {}
        reply = await client.request(method, path, json=None if body is None else groups | body)
        found.append((reply.status_code, [error["field"] for error in reply.json()["errors"]]))
    assert (found, world.scorings["toy"]) == ([(422, [field]) for *_, field in WRONG], 0)


async def test_what_is_scored_at_once_is_counted_and_stored_once(client: httpx.AsyncClient, world: World) -> None:
    """A repeat is scored again, which takes less than to look for it; what is stored stays, and so do the metrics."""
    (task,) = await lease(client, "drill")
    repeats = await asyncio.gather(*(score(client, answer(task, "1", "0.5")) for _ in range(5)))
    metrics = (await client.get("/metrics")).text.splitlines()
    counted = [line for line in metrics if line.startswith("atropos_envs_rollouts_total{")]
    page = GroupPage.model_validate_json((await client.get("/groups")).content)
    assert repeats == [repeats[0]] * 5
    assert (repeats[0][0].rewards, len(page.groups)) == ((1.0, 0.5), 1)
    assert counted == ['atropos_envs_rollouts_total{env="drill",outcome="scored",reason=""} 2.0']
    assert world.scorings["drill"] == 5
