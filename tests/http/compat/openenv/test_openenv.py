"""OpenEnv's web socket: frames, what a reset may ask for, how episodes go and end."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.domain.tasks import FunctionSpec, ToolSpec
from app.http.compat.openenv.sessions import write_tool_listing
from tests.support.openenv import Talk, talking
from tests.support.tables import read_table


@pytest.fixture
def toy(client: TestClient) -> Iterator[Talk]:
    with talking(client, "toy") as talk:
        yield talk


def number(stepped: Any) -> int:
    return int(stepped["observation"]["metadata"]["number"])


def unscored_counts(client: TestClient) -> list[str]:
    lines = client.get("/metrics").text.splitlines()
    return [line.partition("_total")[2] for line in lines if line.startswith("atropos_envs_compat_unscored_total")]


ONE_TURN = read_table(__file__, "one_turn.yaml", dict[str, dict[str, Any]])


def test_an_episode_of_one_turn(toy: Talk) -> None:
    begun, ended = toy.told("reset", index=2, episode_id="e1"), toy.told("step", text="0.5")
    task = {"task_id": begun["observation"]["task_id"]}
    scored = ONE_TURN["scored"] | {"group_id": ended["metadata"]["group_id"]}
    seen = [{**told, "observation": {**told["observation"], **task}} for told in (ONE_TURN["begun"], ONE_TURN["ended"])]
    seen[1] |= {"observation": seen[1]["observation"] | {"metadata": scored}, "metadata": scored}
    assert [begun, ended, toy.told("state")] == [*seen, ONE_TURN["state"] | task]


OBJECT = 'a frame must be an object such as {"type": "reset", "data": {}}'


def test_what_is_wrong_with_a_frame_is_said_and_the_session_goes_on(toy: Talk) -> None:
    wrong = [
        ("{", "INVALID_JSON", "invalid JSON at line 1 column 2"),
        ("[" * 100_000, "INVALID_JSON", "invalid JSON"),
        ("1" * 5_000, "INVALID_JSON", "invalid JSON"),
        ("[]", "VALIDATION_ERROR", OBJECT),
        ('{"type": 1}', "VALIDATION_ERROR", OBJECT),
        ('{"type": "dance"}', "UNKNOWN_TYPE", "unknown type; the types are reset, step, state, close, mcp"),
        ('{"type": "reset", "data": 1}', "VALIDATION_ERROR", "data: expected an object"),
        ('{"type": "step", "data": {"text": "1"}}', "EXECUTION_ERROR", "there is no episode: reset first"),
    ]
    told = [toy.raw(text) for text, *_ in wrong]
    assert told == [{"type": "error", "data": {"message": message, "code": code}} for _, code, message in wrong]
    assert toy.told("reset")["done"] is False


WRONG_RESETS = read_table(__file__, "wrong_resets.yaml", list[Any])


def test_what_is_wrong_with_a_reset_is_named(toy: Talk) -> None:
    told = [toy.refused("reset", **data) for data, _ in WRONG_RESETS]
    assert told == [("VALIDATION_ERROR", message) for _, message in WRONG_RESETS]


def test_a_reset_says_which_task(client: TestClient, toy: Talk) -> None:
    known = toy.told("reset", index=3)["observation"]["task_id"]
    asked: list[dict[str, Any]] = [
        {"index": 1},
        {"seed": 1},
        {"seed": 5},
        {"seed": 2**63},
        {"split": "test", "seed": 3},
        {"task_id": known},
        {"select": {"level": ["hard"]}, "index": 0},
    ]
    told = [number(toy.told("reset", **data)) for data in asked]
    walked = [number(toy.told("reset")) for _ in range(5)]
    tone = toy.told("reset", index=1, params={"tone": "sad"})["observation"]["text"]
    assert (told, walked, tone) == (
        [1, 1, 1, 0, 1, 3, 1],
        [0, 1, 2, 3, 0],
        "Say a number in a sad tone. (train 1)",
    )


def test_a_run_leases_its_tasks_and_its_seeds_are_its_own_order(client: TestClient) -> None:
    with talking(client, "toy") as one, talking(client, "toy") as two:
        leased = [number(talk.told("reset", run="a")) for talk in (one, two, one, two)]
        wait = one.refused("reset", run="a", split="train", lease_seconds=60)
        one.told("step", text="1")
        places = [number(one.told("reset", run="a", seed=place)) for place in range(4)]
    activity = client.get("/runs/a").json()["activity"][0]
    assert (sorted(leased), sorted(places), wait, activity["handed_out"], activity["scored"]) == (
        [0, 1, 2, 3],
        [0, 1, 2, 3],
        ("EXECUTION_ERROR", "the remaining tasks of this split are leased to other holders; retry later"),
        4,
        1,
    )


@pytest.mark.parametrize("run", [None, "a"])
def test_members_of_a_named_group_have_one_task_and_are_judged_together(client: TestClient, run: str | None) -> None:
    with ExitStack() as stack:
        talks = [stack.enter_context(talking(client, "arena")) for _ in range(3)]
        given = [
            talk.told("reset", run=run, group={"key": "p1", "size": 3})["observation"]["task_id"] for talk in talks
        ]
        other = talks[0].told("reset", run=run, group={"key": "p1", "size": 3})["observation"]["task_id"]
        talks[0].told("reset", task_id=given[0], run=run, group={"key": "p1", "size": 3})
        with ThreadPoolExecutor(3) as pool:
            ended = list(
                pool.map(
                    lambda pair: pair[0].told("step", text=pair[1]), zip(talks, ["0.2", "0.9", "0.4"], strict=True)
                )
            )
    groups = {one["metadata"]["group_id"] for one in ended}
    rewards = [one["reward"] for one in ended]
    order = sorted(range(3), key=lambda place: rewards[place])
    assert (len(set(given)), other == given[0], len(groups), order) == (1, False, 1, [0, 2, 1])


def test_an_evaluation_is_kept_apart(client: TestClient, toy: Talk) -> None:
    toy.told("reset", split="test", index=0, run="a", purpose="eval", policy={"model": "m", "step": 3})
    toy.told("step", text="1")
    (group,) = client.get("/groups", params={"run": "a"}).json()["groups"]
    assert (group["purpose"], group["policy"], group["rewards"]) == ("eval", {"model": "m", "step": 3}, [1.0])


def test_an_episode_of_several_turns(client: TestClient) -> None:
    with talking(client, "ladder") as talk:
        talk.told("reset", index=0)
        first = talk.told("step", content="1")
        broken = talk.refused("step", text="no number")
        turns = [first, *(talk.told("step", content=text) for text in ("3", "5"))]
        over = talk.refused("step", text="7")
        begun = talk.told("reset", index=1)["observation"]["turns_left"]
        state = talk.told("state")
        cut = talk.told("step", text="1", finish_reason="length")
        talk.told("reset", index=2)
        unscored = talk.refused("step", text="1", finish_reason="abort")
    shown = [
        (turn["observation"]["text"], turn["observation"]["turns_left"], turn["reward"], turn["done"]) for turn in turns
    ]
    assert (shown, broken, over) == (
        [("2", 2, None, False), ("4", 1, None, False), ("", 0, 1.0, True)],
        ("EXECUTION_ERROR", "internal error; the service's log has the details"),
        ("EXECUTION_ERROR", "the episode is over: reset to start another"),
    )
    assert (begun, state["step_count"], state["episode_id"].startswith("episode_")) == (3, 0, True)
    assert (cut["done"], cut["reward"], cut["metadata"]["flags"]) == (True, 0.0, ["truncated"])
    told = (
        "unscored: broken_off: the model's server broke off (abort): it is no sample; the same step may be sent again"
    )
    assert unscored == ("EXECUTION_ERROR", told)


def test_no_score_is_an_error_after_which_the_same_step_is_scored(client: TestClient) -> None:
    with talking(client, "flaky") as talk:
        talk.told("reset", index=0)
        refused = talk.refused("step", text="once")
        ended = talk.told("step", text="once")
    assert (refused, ended["reward"], unscored_counts(client)) == (
        ("EXECUTION_ERROR", "unscored: verifier_killed: took too long; the same step may be sent again"),
        1.0,
        ['{contract="openenv",env="flaky",reason="verifier_killed",told="error"} 1.0'],
    )


def test_over_http_no_score_is_our_fault(client: TestClient) -> None:
    begun = client.post("/compat/openenv/flaky/reset", json={"index": 0}).json()
    body = {"action": {"text": "once"}, "task_id": begun["observation"]["task_id"]}
    replies = [client.post("/compat/openenv/flaky/step", json=body) for _ in range(2)]
    assert ([reply.status_code for reply in replies], replies[1].json()["reward"]) == ([503, 200], 1.0)


def test_no_score_may_be_asked_for_as_a_reward_of_null(client: TestClient) -> None:
    with talking(client, "flaky") as talk:
        talk.told("reset", index=0, unscored="null")
        ended = talk.told("step", text="once")
    assert (ended["reward"], ended["done"], ended["metadata"]["reason"], unscored_counts(client)) == (
        None,
        True,
        "verifier_killed",
        ['{contract="openenv",env="flaky",reason="verifier_killed",told="null"} 1.0'],
    )


def test_an_environment_without_data_says_why(client: TestClient) -> None:
    with talking(client, "broken") as talk:
        refused = talk.refused("reset")
    assert (refused, client.get("/compat/openenv/broken/health").status_code) == (
        ("EXECUTION_ERROR", "broken: the folder is empty"),
        503,
    )


def test_an_unknown_environment_is_told(client: TestClient) -> None:
    with talking(client, "nothing") as talk:
        answer = json.loads(talk.receive())
    with talking(client, "brokn") as talk:
        mistyped = json.loads(talk.receive())
    assert [one["data"] for one in (answer, mistyped)] == [
        {"message": "there is no environment 'nothing'", "code": "FACTORY_ERROR"},
        {"message": "there is no environment 'brokn'; did you mean 'broken'?", "code": "FACTORY_ERROR"},
    ]


def test_tools_can_be_listed_and_are_called_by_what_the_model_says(toy: Talk) -> None:
    rpc = {"jsonrpc": "2.0", "id": 7}
    listed = toy.ask("mcp", **rpc, method="tools/list")
    called = toy.told("mcp", **rpc, method="tools/call", params={"name": "add"})
    wrong = toy.told("mcp", method="tools/list")
    assert (listed, called["error"]["code"], called["id"], wrong["error"]["code"]) == (
        {"type": "mcp", "data": {**rpc, "result": {"tools": []}}},
        -32601,
        7,
        -32600,
    )


def test_tools_can_be_asked_for_in_a_step_before_a_reset_and_use_up_no_turn(client: TestClient) -> None:
    with talking(client, "ladder") as talk:
        listed = talk.told("step", type="list_tools")
        talk.told("reset", index=0)
        again = talk.told("step", type="list_tools")
        left = talk.told("state")["turns_left"]
    over_http = client.post("/compat/openenv/ladder/step", json={"action": {"type": "list_tools"}}).json()
    nothing: dict[str, Any] = {"observation": {"tools": []}, "reward": None, "done": False, "metadata": {}}
    assert (listed, again, left, over_http) == (nothing, nothing, 3, nothing)


def test_the_tools_of_a_task_are_listed_as_openenv_gives_them() -> None:
    add = ToolSpec(function=FunctionSpec(name="add", description="Adds.", parameters={"type": "object"}))
    listed = [{"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}]
    assert json.loads(write_tool_listing([add]))["observation"] == {"tools": listed}


def test_an_action_that_says_nothing_uses_up_a_turn_and_earns_what_silence_does(client: TestClient) -> None:
    """It may be what a model wrote: an error would let it do without a score."""
    with talking(client, "ladder") as talk:
        talk.told("reset", index=0)
        steps = [talk.told("step", **action) for action in ({}, {"tool_calls": "x"}, {})]
        talk.told("reset", index=0)
        silent = [talk.told("step", text="") for _ in range(3)]
    assert [step["metadata"]["read_as"] for step in steps] == ["nothing"] * 3
    assert [(one["reward"], one["done"]) for one in steps] == [(one["reward"], one["done"]) for one in silent]
    assert (steps[-1]["reward"], steps[-1]["done"]) == (0.0, True)
