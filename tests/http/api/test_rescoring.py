"""Stored groups scored anew over HTTP, by a judge who disagrees and after the environment has changed."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest
from pydantic import TypeAdapter

from app.domain.runs import ScoringOptions
from app.domain.scores import Score
from app.http.api.models import GroupView
from app.service.requests import GroupReply, HandedOutTask, ScoreResponse
from app.service.rescoring import RescoreReply, RescoreRequest
from tests.support.playground import World, gateway, until

Play = Callable[[httpx.AsyncClient], Awaitable[None]]
TASKS = TypeAdapter(tuple[HandedOutTask, ...])
HOSTILE = "</script><b>{{ 7 * 7 }}</b> \x00 \u202e 0.9"
CONTRARY = {"judges": ["contrarian"]}


@pytest.fixture
def database(tmp_path: Path, migrated_file: Path) -> Path:
    path = tmp_path / "store.db"
    path.write_bytes(migrated_file.read_bytes())
    return path


def played(world: World, database: Path, *scenes: Play) -> None:
    """Each scene meets the service anew, over the same store."""

    async def play() -> None:
        for scene in scenes:
            async with gateway(world, database) as client:
                await scene(client)

    asyncio.run(play())


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
    async def play(client: httpx.AsyncClient) -> None:
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

    played(World(), database, play)


def test_the_same_rule_scores_a_group_once_also_after_a_restart(database: Path) -> None:
    world = World()
    found: list[tuple[str, RescoreReply]] = []

    async def play(client: httpx.AsyncClient) -> None:
        told = await stored(client, "arena", "0.9", "0.2")
        replies = await asyncio.gather(*(rescored(client, told.group_id, **CONTRARY) for _ in range(5)))
        found.extend((told.group_id, reply) for reply in replies)
        await rescored(client, told.group_id, judges=["contrarian"], relative_weight=0.1)

    async def again(client: httpx.AsyncClient) -> None:
        group_id = found[0][0]
        found.append((group_id, await rescored(client, group_id, **CONTRARY)))
        assert len((await shown(client, group_id)).scorings) == 2

    played(world, database, play, again)
    assert len({(group_id, reply.scoring.model_dump_json()) for group_id, reply in found}) == 1
    assert world.scorings["arena"] == 3


def test_what_fails_is_unscored_in_that_scoring_alone_and_tried_again(database: Path) -> None:
    async def play(client: httpx.AsyncClient) -> None:
        told = await stored(client, "arena", "0.9", "0.2")
        silent = await stored(client, "arena", "0.9", "silence")
        first = await rescored(client, silent.group_id, **CONTRARY)
        second = await rescored(client, silent.group_id, **CONTRARY)
        view = await shown(client, silent.group_id)
        assert [score.reason for score in first.scoring.scores] == ["judge_failed", "judge_failed"]
        assert first.rewards == (None, None)
        assert (second.scoring.outcome, second.scoring.scoring_id) == ("scored", first.scoring.scoring_id)
        assert second.rewards[0] is not None
        assert [one.model_copy(update={"judgements": ()}) for one in view.scorings] == [second.scoring]
        assert [judgement.error is None for judgement in view.scorings[0].judgements] == [False, False, True, True]
        assert view.reply == silent
        assert told.outcome == "scored"

    played(World(), database, play)


def test_a_reply_that_is_due_says_pending_and_a_repeat_gets_the_rest(database: Path) -> None:
    world = World()
    world.going_on.set()
    found: list[RescoreReply] = []

    async def play(client: httpx.AsyncClient) -> None:
        told = await stored(client, "slow_arena", "0.9", "0.2")
        world.going_on.clear()
        early = await rescored(client, told.group_id, wait_seconds=0, **CONTRARY)
        assert (early.scoring.outcome, early.rewards, early.original) == ("pending", (None, None), told.rewards)
        assert (await shown(client, told.group_id)).scorings == ()
        world.going_on.set()
        found.append(await rescored(client, told.group_id, **CONTRARY))
        assert found[0].scoring.scoring_id == early.scoring.scoring_id

    played(world, database, play)
    assert found[0].scoring.outcome == "scored"
    assert world.scorings["slow_arena"] == 2


def test_stopping_amid_a_scoring_stores_nothing_of_it(database: Path) -> None:
    world = World()
    world.going_on.set()
    ids: list[str] = []

    async def play(client: httpx.AsyncClient) -> None:
        ids.append((await stored(client, "slow_arena", "0.9", "0.2")).group_id)
        world.going_on.clear()
        await rescored(client, ids[0], wait_seconds=0, **CONTRARY)

    async def later(client: httpx.AsyncClient) -> None:
        world.going_on.set()
        assert (await shown(client, ids[0])).scorings == ()
        assert (await rescored(client, ids[0], **CONTRARY)).scoring.outcome == "scored"

    played(world, database, play, later)


@pytest.mark.parametrize(("version", "data"), [("2", "first"), ("1", "other")])
def test_a_task_of_an_earlier_environment_is_made_again(database: Path, version: str, data: str) -> None:
    world, found = World(), []

    async def play(client: httpx.AsyncClient) -> None:
        found.append(await stored(client, "toy", "1", "0.5"))
        world.version, world.data = version, data

    async def later(client: httpx.AsyncClient) -> None:
        (told,) = found
        one = await rescored(client, told.group_id)
        view = await shown(client, told.group_id)
        assert (one.rewards, one.scoring.flags) == ((1.0, 0.5), ("task_remade",))
        assert one.scoring.scoring_digest != told.scores[0].scoring_digest
        assert (view.reply, view.task.version, len(view.scorings)) == (told, "1", 1)

    played(world, database, play, later)


def test_an_evaluation_is_scored_anew_on_absolute_alone(database: Path) -> None:
    async def play(client: httpx.AsyncClient) -> None:
        told = await stored(client, "arena", "0.75", "0.5", purpose="eval")
        one = await rescored(client, told.group_id, **CONTRARY)
        assert (one.original, one.rewards) == ((0.75, 0.5), (0.25, 0.5))
        assert one.scoring.options.relative_weight == 0

    played(World(), database, play)


@pytest.mark.parametrize(
    ("environment", "asked", "status", "field"),
    [
        ("arena", {"judges": ["nobody"]}, 422, "options.judges"),
        ("toy", {"judges": ["contrarian"]}, 422, "judges"),
        ("arena", {"judges": ["<b>"]}, 422, "body.judges[0]"),
        ("arena", {"mode": "shouting"}, 422, "body.mode"),
        ("arena", {"relative_weight": 1.5}, 422, "body.relative_weight"),
        ("arena", {"wait_seconds": -1}, 422, "body.wait_seconds"),
        ("arena", {"colour": 1}, 422, "body.colour"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(
    database: Path, environment: str, asked: dict[str, object], status: int, field: str
) -> None:
    async def play(client: httpx.AsyncClient) -> None:
        told = await stored(client, environment, "1", "0.5")
        response = await client.post(f"/groups/{told.group_id}/rescore", json=asked)
        assert (response.status_code, response.json()["errors"][0]["field"]) == (status, field)
        assert (await shown(client, told.group_id)).scorings == ()

    played(World(), database, play)


def test_every_option_of_a_run_can_be_otherwise() -> None:
    assert RescoreRequest.model_fields.keys() == ScoringOptions.model_fields.keys() | {"wait_seconds"}


def test_an_unknown_group_is_not_found(database: Path) -> None:
    async def play(client: httpx.AsyncClient) -> None:
        response = await client.post(f"/groups/group_{0:032x}/rescore", json={})
        assert (response.status_code, response.json()["code"]) == (404, "not_found")

    played(World(), database, play)


def test_an_environment_that_cannot_serve_is_503_and_leaves_no_scoring(database: Path) -> None:
    world, ids = World(broken=False), []

    async def play(client: httpx.AsyncClient) -> None:
        ids.append((await stored(client, "broken", "1", "0.5")).group_id)
        world.broken = True

    async def later(client: httpx.AsyncClient) -> None:
        response = await client.post(f"/groups/{ids[0]}/rescore", json={})
        assert (response.status_code, response.json()["code"]) == (503, "environment_unavailable")
        assert (await shown(client, ids[0])).scorings == ()

    played(world, database, play, later)


def test_hostile_text_is_scored_anew_like_any_other(database: Path) -> None:
    async def play(client: httpx.AsyncClient) -> None:
        told = await stored(client, "arena", HOSTILE, "0.5")
        one = await rescored(client, told.group_id, relative_weight=0, **CONTRARY)
        page = (await client.get(f"/view/groups/{told.group_id}")).text
        assert one.rewards == (0.0, 0.5)  # a gate sees what does not show
        assert ("<b>{{" in page, "&lt;b&gt;{{ 7 * 7 }}" in page) == (False, True)

    played(World(), database, play)


def test_a_caller_who_leaves_does_not_stop_the_scoring(database: Path) -> None:
    world = World()
    world.going_on.set()

    async def play(client: httpx.AsyncClient) -> None:
        told = await stored(client, "slow_arena", "0.9", "0.2")
        world.going_on.clear()
        call = asyncio.ensure_future(rescored(client, told.group_id, **CONTRARY))
        await until(lambda: world.attempts["slow_arena"] == 2)
        call.cancel()
        world.going_on.set()
        await until(lambda: world.scorings["slow_arena"] == 2)
        again = await rescored(client, told.group_id, **CONTRARY)
        assert again.scoring.outcome == "scored"

    played(world, database, play)
    assert world.scorings["slow_arena"] == 2


def test_scores_of_a_scoring_are_scores(database: Path) -> None:
    """Truncated completions earn what the options say."""

    async def play(client: httpx.AsyncClient) -> None:
        handed = await client.post("/envs/toy/next-batch", json={"batch_size": 1})
        completions = [{"text": "1", "finish_reason": "length"}, {"text": "0.5"}]
        group = {"task_id": handed.json()["tasks"][0]["task_id"], "completions": completions}
        scored = (await client.post("/envs/toy/score", json={"groups": [group]})).json()["groups"][0]
        one = await rescored(client, scored["group_id"], on_truncated="score")
        assert (one.original, one.rewards) == ((0.0, 0.5), (1.0, 0.5))
        assert all(isinstance(score, Score) for score in one.scoring.scores)

    played(World(), database, play)
