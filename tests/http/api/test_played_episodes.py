"""Episodes whose player is a model: stored lines, replicas, forged lines, and players that fail."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from app.domain.retention import Pruned, PruneRule
from app.envs.npc_arena.environment import NpcArena
from app.main.store import Store
from app.service.background import Pruner
from app.settings import Settings
from tests.support import serving as processes
from tests.support.chat_server import ChatServer, Reply, serving
from tests.support.openenv import talking
from tests.support.played_episodes import (
    CALM,
    REPLIES,
    answer,
    ask_task,
    build_settings,
    play,
    say,
    say_in_turn,
    score,
    step,
)
from tests.support.playground import serve_here
from tests.support.store_cases import using


@pytest.fixture
def carter() -> Iterator[ChatServer]:
    with serving(say_in_turn(CALM)) as server:
        yield server


@pytest.fixture
def client(carter: ChatServer, tmp_path: Path) -> Iterator[TestClient]:
    settings = Settings(database_url=f"sqlite:///{tmp_path}/gateway.db", policies=build_settings(carter.url))
    with serve_here(settings, NpcArena) as client:
        yield client


def test_a_model_plays_the_player_and_its_lines_are_stored_once(client: TestClient, carter: ChatServer) -> None:
    task = ask_task(client)
    episode = play(client, task)
    again = play(client, task)
    group = score(client, task, episode, again)
    said = [message["content"] for message in episode if message["role"] == "user"]
    told = said, again == episode, len(carter.received), group["outcome"], len(set(group["rewards"]))
    assert told == (["And if I only have one?", "My sister is ill.", "Keep your boat, then."], True, 3, "scored", 1)


def test_a_player_that_says_nothing_usable_three_times_ends_its_episode_unscored(
    client: TestClient, carter: ChatServer
) -> None:
    carter.script = lambda *_: answer('{"say": "Hob: Two coppers."}')
    task, episode = ask_task(client), say("Two coppers.")
    turn, group = step(client, task, episode), score(client, task, episode)
    why = "no line of the player carter was usable; the last one: it begins with 'Hob': say the player's words alone"
    told = turn, len(carter.received), [(one["reason"], one["rationale"]) for one in group["scores"]]
    assert told == ({"messages": [], "done": True}, 3, [("player_failed", why)])


def test_a_line_that_the_player_did_not_say_is_forged(client: TestClient) -> None:
    """Nor does anything come after its last line was answered."""
    task = ask_task(client)
    played = [*play(client, task), *say("x", "One more thing.", "Aye.")[1:]]
    told = []
    for place, words in ((1, "Take my knife."), (3, "My sister is ill"), (7, "One more thing.")):
        forged = [*played]
        forged[place] = {"role": "user", "content": words}
        told.append(
            (
                step(client, task, forged[: place + 2])["errors"][0]["field"],
                score(client, task, forged)["scores"][0]["flags"],
            )
        )
    assert told == [(f"messages[{place}]", ["forged_observation"]) for place in (1, 3, 7)]


def test_a_server_that_fails_is_asked_again_and_costs_no_reward(client: TestClient, carter: ChatServer) -> None:
    carter.script = lambda *_: Reply(b'{"error": {"message": "no such model"}}', status=404)
    task, episode = ask_task(client), say("Two coppers.")
    refused = step(client, task, episode)
    failed = score(client, task, episode)
    carter.script = say_in_turn(CALM)
    turn = step(client, task, episode)
    told = refused["code"], failed["scores"][0]["reason"], [one["content"] for one in turn["messages"]]
    assert told == ("player_failed", "player_failed", ["And if I only have one?"])
    assert refused["detail"] == "the player carter gave no answer: the player's server answered 404: no such model"


def test_params_name_a_policy_that_plays_and_judges_nothing(tmp_path: Path, carter: ChatServer) -> None:
    policies = build_settings(carter.url) | {"talker": {"base_url": carter.url, "model": "carter-1"}}
    judges = {"stern": {"base_url": carter.url, "model": "carter-1"}}
    settings = Settings(
        database_url=f"sqlite:///{tmp_path}/gateway.db",
        policies=policies,
        judges=judges,
        environments={"npc_arena": {"judges": ["stern"]}},
    )
    told = []
    with serve_here(settings, NpcArena) as client:
        for policy in ("carter", "talker", "cartre"):
            body = {"params": {"turns": "multi", "player": {"policy": policy}}}
            refused = client.post("/envs/npc_arena/next-batch", json=body).json()
            told.append((refused["detail"], refused["errors"][0]["field"]))
    assert told == [
        ("carter is the model of a judge too; choose another, or set `as_player.allow_judge`", "params.player.policy"),
        ("no policy 'talker' plays players: it needs `as_player` in the settings", "params.player.policy"),
        (
            "no policy 'cartre' plays players; did you mean 'carter'?: it needs `as_player` in the settings",
            "params.player.policy",
        ),
    ]


def test_a_killed_gateway_goes_on_with_the_same_lines_and_the_same_reward(tmp_path: Path, carter: ChatServer) -> None:
    """The line that it stored before it died is not asked for again, whatever the model would say now."""
    variables = {"ATROPOS_ENVS_POLICIES": json.dumps(build_settings(carter.url))}
    with processes.serving(tmp_path, settings=variables) as served:
        with httpx.Client(base_url=served.url, timeout=60) as client:
            task = ask_task(client, run="played")
            episode = [*say(REPLIES[0]), *step(client, task, say(REPLIES[0]))["messages"]]
        served.kill()
    carter.script = say_in_turn(tuple(line.replace("only", "just") for line in CALM))
    with (
        processes.serving(tmp_path, settings=variables) as served,
        httpx.Client(base_url=served.url, timeout=60) as client,
    ):
        whole = play(client, task)
        first, again = (score(client, task, whole, run="played") for _ in range(2))
        spent = client.get("/runs/played").json()["judging"]["spent"]
    assert (whole[:2] == episode, first == again, first["outcome"], spent["calls"]) == (True, True, "scored", 3)


def test_over_openenv_the_player_is_an_observation_and_the_reward_the_native_one(client: TestClient) -> None:
    task = ask_task(client)
    with talking(client, NpcArena.name) as talk:
        talk.told("reset", task_id=task["task_id"])
        turns = [talk.told("step", text=reply) for reply in REPLIES[:4]]
    seen = [turn["observation"]["text"] for turn in turns]
    native = score(client, task, play(client, task))["rewards"][0]
    said = ["And if I only have one?", "My sister is ill.", "Keep your boat, then.", ""]
    assert (seen, turns[-1]["done"], turns[-1]["reward"]) == (said, True, native)


def test_a_kept_group_is_scored_anew_after_a_prune_and_a_line_that_no_group_used_is_asked_for_again(
    client: TestClient, carter: ChatServer, tmp_path: Path
) -> None:
    tasks = [ask_task(client), ask_task(client, "hob_tarrant-played-drowned_brother")]
    kept = score(client, tasks[0], play(client, tasks[0]), purpose="eval")
    step(client, tasks[1], say(REPLIES[0]))
    asked = len(carter.received)
    tomorrow = PruneRule(before=datetime.now(UTC) + timedelta(days=1))

    async def prune(store: Store) -> Pruned:
        pruner = Pruner(store.retention, store.claims, pauses=0.0)
        return await pruner.prune(await pruner.plan(tomorrow), lambda _: None)

    pruned = using(f"sqlite:///{tmp_path}/gateway.db", prune)
    anew = client.post(f"/groups/{kept['group_id']}/rescore", json={}).json()["scoring"]
    play(client, tasks[0])
    step(client, tasks[1], say(REPLIES[0]))
    told = pruned.player_lines, [one["reward"] for one in anew["scores"]], len(carter.received) - asked
    assert told == (1, kept["rewards"], 1)
