"""Stored groups scored anew over HTTP, by a judge who disagrees. The rest is in docs/semantics.md."""

import asyncio
from pathlib import Path

import httpx
from pydantic import TypeAdapter

from app.domain.runs import ScoringOptions
from app.domain.scores import Score
from app.http.api.models import GroupView
from app.service.requests import GroupReply, HandedOutTask, ScoreResponse
from app.service.rescoring import RescoreReply, RescoreRequest
from tests.support.playground import World, play, until

TASKS = TypeAdapter(tuple[HandedOutTask, ...])
CONTRARY = {"judges": ["contrarian"]}


async def stored(client: httpx.AsyncClient, environment: str, *texts: str, purpose: str = "train") -> GroupReply:
    handed = await client.post(f"/envs/{environment}/next-batch", json={"batch_size": 1, "run": "a", "cursor": 0})
    (task,) = TASKS.validate_python(handed.json()["tasks"])
    group = {"task_id": task.task_id, "completions": [{"text": text} for text in texts]}
    body = {"groups": [group], "run": "a", "purpose": purpose}
    (reply,) = ScoreResponse.model_validate((await client.post(f"/envs/{environment}/score", json=body)).json()).groups
    assert isinstance(reply, GroupReply)
    return reply


async def rescored(client: httpx.AsyncClient, group_id: str, **asked: object) -> RescoreReply:
    response = await client.post(f"/groups/{group_id}/rescore", json=asked)
    assert response.status_code == 200, response.text
    return RescoreReply.model_validate(response.json())


async def shown(client: httpx.AsyncClient, group_id: str) -> GroupView:
    return GroupView.model_validate((await client.get(f"/groups/{group_id}")).json())


def test_another_judges_scores_stand_beside_the_original_which_never_changes(database: Path) -> None:
    async def scene(client: httpx.AsyncClient) -> None:
        told = await stored(client, "arena", "0.9", "0.2")
        before, statistics = await shown(client, told.group_id), (await client.get("/stats")).json()
        one = await rescored(client, told.group_id, judges=["contrarian"], relative_weight=0)
        after = await shown(client, told.group_id)
        assert one.original == told.rewards
        assert [round(reward or 0.0, 6) for reward in one.rewards] == [0.1, 0.8]
        assert one.scoring.options == ScoringOptions(judges=("contrarian",), relative_weight=0.0)
        assert (one.scoring.judges, one.scoring.mode, one.scoring.flags) == (("contrarian",), "listwise", ())
        assert {score.scoring_digest for score in one.scoring.scores} == {one.scoring.scoring_digest}
        assert after.model_copy(update={"scorings": ()}) == before
        (scoring,) = after.scorings
        assert scoring.model_copy(update={"judgements": ()}) == one.scoring
        assert {judgement.judge for judgement in scoring.judgements} == {"contrarian"}
        assert {judgement.judge for judgement in after.judgements} == {"critic"}
        assert (await client.get("/stats")).json() == statistics

    play(World(), database, scene)


def test_a_reply_that_is_due_says_pending_and_a_repeat_gets_the_rest(database: Path) -> None:
    world = World()
    world.going_on.set()
    found: list[RescoreReply] = []

    async def scene(client: httpx.AsyncClient) -> None:
        told = await stored(client, "slow_arena", "0.9", "0.2")
        world.going_on.clear()
        early = await rescored(client, told.group_id, wait_seconds=0, **CONTRARY)
        assert (early.scoring.outcome, early.rewards, early.original) == ("pending", (None, None), told.rewards)
        assert (await shown(client, told.group_id)).scorings == ()
        world.going_on.set()
        found.append(await rescored(client, told.group_id, **CONTRARY))
        assert found[0].scoring.scoring_id == early.scoring.scoring_id

    play(world, database, scene)
    assert found[0].scoring.outcome == "scored"
    assert world.scorings["slow_arena"] == 2


def test_stopping_amid_a_scoring_stores_nothing_of_it(database: Path) -> None:
    world = World()
    world.going_on.set()
    ids: list[str] = []

    async def scene(client: httpx.AsyncClient) -> None:
        ids.append((await stored(client, "slow_arena", "0.9", "0.2")).group_id)
        world.going_on.clear()
        await rescored(client, ids[0], wait_seconds=0, **CONTRARY)

    async def later(client: httpx.AsyncClient) -> None:
        world.going_on.set()
        assert (await shown(client, ids[0])).scorings == ()
        assert (await rescored(client, ids[0], **CONTRARY)).scoring.outcome == "scored"

    play(world, database, scene, later)


def test_an_evaluation_is_scored_anew_on_absolute_alone(database: Path) -> None:
    async def scene(client: httpx.AsyncClient) -> None:
        told = await stored(client, "arena", "0.75", "0.5", purpose="eval")
        one = await rescored(client, told.group_id, **CONTRARY)
        assert (one.original, one.rewards) == ((0.75, 0.5), (0.25, 0.5))
        assert one.scoring.options.relative_weight == 0

    play(World(), database, scene)


def test_what_makes_no_sense_is_refused_by_name(database: Path) -> None:
    wrong: list[tuple[str, dict[str, object], str]] = [
        ("arena", {"judges": ["nobody"]}, "options.judges"),
        ("toy", {"judges": ["contrarian"]}, "judges"),
        ("arena", {"judges": ["<b>"]}, "body.judges[0]"),
        ("arena", {"mode": "shouting"}, "body.mode"),
        ("arena", {"relative_weight": 1.5}, "body.relative_weight"),
        ("arena", {"wait_seconds": -1}, "body.wait_seconds"),
        ("arena", {"colour": 1}, "body.colour"),
    ]

    async def scene(client: httpx.AsyncClient) -> None:
        names = {kind: (await stored(client, kind, "1", "0.5")).group_id for kind in ("arena", "toy")}
        replies = [await client.post(f"/groups/{names[kind]}/rescore", json=asked) for kind, asked, _ in wrong]
        found = [(reply.status_code, reply.json()["errors"][0]["field"]) for reply in replies]
        assert found == [(422, field) for *_, field in wrong]
        assert [(await shown(client, name)).scorings for name in names.values()] == [(), ()]

    play(World(), database, scene)


def test_every_option_of_a_run_can_be_otherwise() -> None:
    assert RescoreRequest.model_fields.keys() == ScoringOptions.model_fields.keys() | {"wait_seconds", "dry_run"}


def test_an_environment_that_cannot_serve_is_503_and_leaves_no_scoring(database: Path) -> None:
    world, ids = World(broken=False), []

    async def scene(client: httpx.AsyncClient) -> None:
        ids.append((await stored(client, "broken", "1", "0.5")).group_id)
        world.broken = True

    async def later(client: httpx.AsyncClient) -> None:
        response = await client.post(f"/groups/{ids[0]}/rescore", json={})
        assert (response.status_code, response.json()["code"]) == (503, "environment_unavailable")
        assert (await shown(client, ids[0])).scorings == ()

    play(world, database, scene, later)


def test_a_caller_who_leaves_does_not_stop_the_scoring(database: Path) -> None:
    world = World()
    world.going_on.set()

    async def scene(client: httpx.AsyncClient) -> None:
        told = await stored(client, "slow_arena", "0.9", "0.2")
        world.going_on.clear()
        call = asyncio.ensure_future(rescored(client, told.group_id, **CONTRARY))
        await until(lambda: world.attempts["slow_arena"] == 2)
        call.cancel()
        world.going_on.set()
        await until(lambda: world.scorings["slow_arena"] == 2)
        again = await rescored(client, told.group_id, **CONTRARY)
        assert again.scoring.outcome == "scored"

    play(world, database, scene)
    assert world.scorings["slow_arena"] == 2


def test_scores_of_a_scoring_are_scores(database: Path) -> None:
    """Truncated completions earn what the options say."""

    async def scene(client: httpx.AsyncClient) -> None:
        handed = await client.post("/envs/toy/next-batch", json={"batch_size": 1})
        completions = [{"text": "1", "finish_reason": "length"}, {"text": "0.5"}]
        group = {"task_id": handed.json()["tasks"][0]["task_id"], "completions": completions}
        scored = (await client.post("/envs/toy/score", json={"groups": [group]})).json()["groups"][0]
        one = await rescored(client, scored["group_id"], on_truncated="score")
        assert (one.original, one.rewards) == ((0.0, 0.5), (1.0, 0.5))
        assert all(isinstance(score, Score) for score in one.scoring.scores)

    play(World(), database, scene)
