"""Episodes whose player is a model: stored lines, replicas, forged lines, and players that fail."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
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
from tests.support.nemo_gym import build_response, build_row
from tests.support.nemo_gym import say as say_item
from tests.support.openenv import talking
from tests.support.played_episodes import (
    CALM,
    REPLIES,
    SAID,
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

SERVE = ("app.cli", "serve")


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
    assert told == ([*SAID], True, 3, "scored", 1)


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


@pytest.mark.parametrize("again", ["restarted", pytest.param("replica", marks=pytest.mark.slow)])
def test_a_line_is_said_and_paid_once_though_its_gateway_was_killed_before_it_answered(
    client: TestClient, carter: ChatServer, tmp_path: Path, request: pytest.FixtureRequest, again: str
) -> None:
    """Whoever is asked for the step next says the line that is stored, whatever the model would say now."""
    whole = play(client, task := ask_task(client))
    reward = score(client, task, whole)["rewards"]
    carter.received.clear()
    variables = {"ATROPOS_ENVS_POLICIES": json.dumps(build_settings(carter.url))}
    if again == "replica":
        variables["ATROPOS_ENVS_DATABASE_URL"] = request.getfixturevalue("postgres").empty()
    with ExitStack() as opened:

        def start(name: str, *program: str) -> httpx.Client:
            (folder := tmp_path / name).mkdir(exist_ok=True)
            served = opened.enter_context(processes.serving(folder, settings=variables, program=program))
            return opened.enter_context(httpx.Client(base_url=served.url, timeout=60))

        dying = start("first", "tests.support.killed_at_step", "2")
        other = start("second", *SERVE) if again == "replica" else None
        task = ask_task(dying, run="played")
        assert step(dying, task, whole[:1])["messages"] == whole[1:2]
        with pytest.raises(httpx.TransportError):
            step(dying, task, whole[:3])
        carter.script = say_in_turn(tuple(line.replace("sister", "brother") for line in CALM))
        living = other or start("first", *SERVE)
        told = [play(living, task), *(score(living, task, whole, run="played")["rewards"] for _ in range(2))]
        spent = living.get("/runs/played").json()["judging"]["spent"]
    assert (told, len(carter.received), spent["calls"]) == ([whole, reward, reward], 3, 3)


def test_over_openenv_and_nemo_gym_the_player_is_an_observation_and_the_reward_the_native_one(
    client: TestClient,
) -> None:
    """NeMo Gym's agents send a step again whose answer was lost."""
    task = ask_task(client)
    native = score(client, task, play(client, task))["rewards"][0]
    with talking(client, NpcArena.name) as talk:
        talk.told("reset", task_id=task["task_id"])
        turns = [talk.told("step", text=reply) for reply in REPLIES[:4]]
    url, row = "/compat/nemo_gym/npc_arena/run=gym", build_row(task["task_id"], 0, 0)
    client.post(f"{url}/reset", json=row).raise_for_status()
    sent = [row | {"response": build_response(say_item(reply))} for reply in REPLIES[:4]]
    twice = [[client.post(f"{url}/step", json=one).json() for _ in range(2)] for one in sent]
    steps = [one for one, again in twice if one == again]
    over_openenv = [turn["observation"]["text"] for turn in turns], turns[-1]["done"], turns[-1]["reward"]
    over_nemo_gym = [one["observation"] for one in steps], steps[-1]["terminated"], steps[-1]["reward"]
    assert (over_openenv, over_nemo_gym) == (([*SAID, ""], True, native), ([*SAID, None], True, native))


def test_over_nemo_gym_a_player_that_fails_is_asked_again_or_ends_the_episode_without_a_reward(
    client: TestClient, carter: ChatServer
) -> None:
    url, row = "/compat/nemo_gym/npc_arena/run=failing", build_row(ask_task(client)["task_id"], 0, 0)
    client.post(f"{url}/reset", json=row).raise_for_status()
    sent = row | {"response": build_response(say_item("Two coppers."))}
    told = []
    for script in (lambda *_: Reply(b"{}", status=404), lambda *_: answer("Hm?")):
        carter.script = script
        replies = [client.post(f"{url}/step", json=sent) for _ in range(2)]
        told.append([(one.status_code, one.json()["code"], one.json().get("reason")) for one in replies])
    assert told == [[(503, "player_failed", None)] * 2, [(422, "unscored", "player_failed")] * 2]


def test_a_kept_group_is_scored_anew_after_a_prune_and_a_line_that_no_group_used_is_gone(
    client: TestClient, carter: ChatServer, tmp_path: Path
) -> None:
    tasks = [ask_task(client), ask_task(client, "hob_tarrant-played-drowned_brother")]
    kept = score(client, tasks[0], play(client, tasks[0]), purpose="eval")
    turn = step(client, tasks[1], say(REPLIES[0]))
    unused = say(REPLIES[0], turn["messages"][0]["content"], REPLIES[1])
    asked = len(carter.received)
    tomorrow = PruneRule(before=datetime.now(UTC) + timedelta(days=1))

    async def prune(store: Store) -> Pruned:
        pruner = Pruner(store.retention, store.claims, pauses=0.0)
        return await pruner.prune(await pruner.plan(tomorrow), lambda _: None)

    pruned = using(f"sqlite:///{tmp_path}/gateway.db", prune)
    anew = client.post(f"/groups/{kept['group_id']}/rescore", json={}).json()["scoring"]
    lost = score(client, tasks[1], unused)["scores"][0]
    play(client, tasks[0])
    step(client, tasks[1], say(REPLIES[0]))
    told = pruned.player_lines, [one["reward"] for one in anew["scores"]], len(carter.received) - asked
    assert told == (1, kept["rewards"], 1)
    assert (lost["reason"], lost["rationale"]) == ("player_failed", "no line of the player is stored for messages[1]")
