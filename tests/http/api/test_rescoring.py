"""Stored groups scored anew over HTTP, by a judge who disagrees. The rest is in docs/semantics.md."""

import asyncio
from pathlib import Path

import httpx

from app.domain.runs import ScoringOptions
from app.domain.scores import Score
from app.http.api.models import GroupView
from app.service.requests import GroupReply
from app.service.rescoring import RescoreReply, RescoreRequest
from tests.http.api.asking import answer, take, tell
from tests.support.playground import World, gateway, until
from tests.support.tables import read_table

TABLE = read_table(__file__, "rescoring.yaml", list[tuple[str, dict[str, object], str]])

CONTRARY = {"judges": ["contrarian"]}


async def stored(client: httpx.AsyncClient, environment: str, *texts: str, purpose: str = "train") -> GroupReply:
    task = await take(client, environment, cursor=0)
    (reply,) = await tell(client, answer(task, *texts), run="a", purpose=purpose)
    assert isinstance(reply, GroupReply)
    return reply


async def rescored(client: httpx.AsyncClient, group_id: str, **asked: object) -> RescoreReply:
    response = await client.post(f"/groups/{group_id}/rescore", json=asked)
    assert response.status_code == 200, response.text
    return RescoreReply.model_validate(response.json())


async def shown(client: httpx.AsyncClient, group_id: str) -> GroupView:
    return GroupView.model_validate((await client.get(f"/groups/{group_id}")).json())


async def test_a_reply_that_is_due_says_pending_and_a_repeat_gets_the_rest(
    client: httpx.AsyncClient, world: World
) -> None:
    world.going_on.set()
    found: list[RescoreReply] = []
    told = await stored(client, "slow_arena", "0.9", "0.2")
    world.going_on.clear()
    early = await rescored(client, told.group_id, wait_seconds=0, **CONTRARY)
    assert (early.scoring.outcome, early.rewards, early.original) == ("pending", (None, None), told.rewards)
    assert (await shown(client, told.group_id)).scorings == ()
    world.going_on.set()
    found.append(await rescored(client, told.group_id, **CONTRARY))
    assert found[0].scoring.scoring_id == early.scoring.scoring_id
    assert found[0].scoring.outcome == "scored"
    assert world.scorings["slow_arena"] == 2


async def test_stopping_amid_a_scoring_stores_nothing_of_it(database: Path) -> None:
    world = World()
    world.going_on.set()
    ids: list[str] = []
    async with gateway(world, database) as client:
        ids.append((await stored(client, "slow_arena", "0.9", "0.2")).group_id)
        world.going_on.clear()
        await rescored(client, ids[0], wait_seconds=0, **CONTRARY)
    async with gateway(world, database) as client:
        world.going_on.set()
        assert (await shown(client, ids[0])).scorings == ()
        assert (await rescored(client, ids[0], **CONTRARY)).scoring.outcome == "scored"


async def test_an_evaluation_is_scored_anew_on_absolute_alone(client: httpx.AsyncClient) -> None:
    told = await stored(client, "arena", "0.75", "0.5", purpose="eval")
    one = await rescored(client, told.group_id, **CONTRARY)
    assert (one.original, one.rewards) == ((0.75, 0.5), (0.25, 0.5))
    assert one.scoring.options.relative_weight == 0


async def test_what_makes_no_sense_is_refused_by_name(client: httpx.AsyncClient) -> None:
    names = {kind: (await stored(client, kind, "1", "0.5")).group_id for kind in ("arena", "toy")}
    replies = [await client.post(f"/groups/{names[kind]}/rescore", json=asked) for kind, asked, _ in TABLE]
    found = [(reply.status_code, reply.json()["errors"][0]["field"]) for reply in replies]
    assert found == [(422, field) for *_, field in TABLE]
    assert [(await shown(client, name)).scorings for name in names.values()] == [(), ()]


def test_every_option_of_a_run_can_be_otherwise() -> None:
    # A reward has its parts by turn, or none, for the trainer of the run alone.
    options = ScoringOptions.model_fields.keys() - {"turn_rewards"}
    assert RescoreRequest.model_fields.keys() == options | {"wait_seconds", "dry_run"}


async def test_an_environment_that_cannot_serve_is_503_and_leaves_no_scoring(database: Path) -> None:
    world, ids = World(broken=False), []
    async with gateway(world, database) as client:
        ids.append((await stored(client, "broken", "1", "0.5")).group_id)
        world.broken = True
    async with gateway(world, database) as client:
        response = await client.post(f"/groups/{ids[0]}/rescore", json={})
        assert (response.status_code, response.json()["code"]) == (503, "environment_unavailable")
        assert (await shown(client, ids[0])).scorings == ()


async def test_a_caller_who_leaves_does_not_stop_the_scoring(client: httpx.AsyncClient, world: World) -> None:
    world.going_on.set()
    told = await stored(client, "slow_arena", "0.9", "0.2")
    world.going_on.clear()
    call = asyncio.ensure_future(rescored(client, told.group_id, **CONTRARY))
    await until(lambda: world.attempts["slow_arena"] == 2)
    call.cancel()
    world.going_on.set()
    await until(lambda: world.scorings["slow_arena"] == 2)
    again = await rescored(client, told.group_id, **CONTRARY)
    assert again.scoring.outcome == "scored"
    assert world.scorings["slow_arena"] == 2


async def test_scores_of_a_scoring_are_scores(client: httpx.AsyncClient) -> None:
    """Truncated completions earn what the options say."""
    completions = [{"text": "1", "finish_reason": "length"}, {"text": "0.5"}]
    group = {"task_id": (await take(client, cursor=0)).task_id, "completions": completions}
    scored = (await client.post("/envs/toy/score", json={"groups": [group]})).json()["groups"][0]
    one = await rescored(client, scored["group_id"], on_truncated="score")
    assert (one.original, one.rewards) == ((0.0, 0.5), (1.0, 0.5))
    assert all(isinstance(score, Score) for score in one.scoring.scores)
