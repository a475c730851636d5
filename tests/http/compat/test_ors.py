"""The Open Reward Standard against a running gateway."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.values import NoParams
from app.envs.gsm8k.environment import Gsm8k
from app.envs.tool_calling.environment import ToolCalling
from app.envs.tool_calling.requests import ToolRequest
from app.http.compat.ors import CHUNK, Block, CallReply, TextBlock, ToolOutput, write_result
from app.main.application import create_app
from app.settings import Settings
from tests.support.ors import Ors, read_stream
from tests.support.preferring import FEWER
from tests.support.reward_trainers import Judged

pytestmark = pytest.mark.xdist_group("one judge")


def connect(judged: Judged, environment: str, run: str, **options: str) -> Ors:
    return Ors(f"{judged.gateway.url}/compat/ors/{environment}", {"run": run, **options})


def native(judged: Judged, environment: str, task_id: str, **completion: Any) -> float:
    group = {"task_id": task_id, "completions": [completion]}
    (reward,) = judged.scored(environment, {"groups": [group], "run": "native"})["rewards"]
    return float(reward)


def test_a_reply_is_paid_as_natively(judged: Judged) -> None:
    client, environment = connect(judged, "gsm8k", "sums"), Gsm8k.open(ConfiguredDatasets({}))
    paid, wanted = [], []
    for place, task in enumerate(judged.tasks("gsm8k", 6, run="sums")):
        gold = environment.gold(environment.task("train", task["metadata"]["index"], NoParams()))
        text = gold.text if gold and gold.text and place % 2 else "#### 1"
        client.begin(place)
        assert [one["text"] for one in client.get("/prompt")] == [one["content"] for one in task["messages"]]
        paid.append(client.finish("answer" if place % 3 else "reply", text=text)["reward"])
        wanted.append(native(judged, "gsm8k", task["task_id"], text=text))
    assert (paid, set(paid)) == (wanted, {0.0, 1.0})


def test_turns_are_played_and_the_last_message_ends_them(judged: Judged) -> None:
    client = connect(judged, "mastermind", "codes")
    (task,) = judged.tasks("mastermind", 1, run="codes")
    client.begin(0)
    guess = "<answer>AAB</answer>"
    turn = client.call("reply", text=guess)
    observed = [one["text"] for one in turn["output"]["blocks"]]
    told = client.finish("answer", text="I give up.")
    messages = [
        {"role": "assistant", "content": guess},
        *({"role": "user", "content": one} for one in observed),
        {"role": "assistant", "content": "I give up."},
    ]
    over = client.call("reply", text=guess)
    assert (turn["output"]["reward"], told["reward"], over["reason"]) == (
        None,
        native(judged, "mastermind", task["task_id"], messages=messages),
        "episode_finished",
    )


def test_calls_that_are_the_answer_are_noted_and_scored_together(judged: Judged) -> None:
    client, environment = connect(judged, "tool_calling", "calls"), ToolCalling.open(ConfiguredDatasets({}))
    paid, wanted = [], []
    for place, task in enumerate(judged.tasks("tool_calling", 12, run="calls")):
        made = environment.task("train", task["metadata"]["index"], ToolCalling.Params())
        calls = [one.build_minimal_call() for one in ToolRequest.model_validate(made.reference).expected]
        client.begin(place)
        noted = [client.send_call(call.name, dict(call.arguments))["output"] for call in calls]
        assert {one["finished"] for one in noted} <= {False}
        paid.append(client.finish("answer", text="Done.")["reward"])
        said = [{"function": {"name": call.name, "arguments": dict(call.arguments)}} for call in calls]
        message = {"role": "assistant", "content": "Done.", "tool_calls": said}
        wanted.append(native(judged, "tool_calling", task["task_id"], messages=[message]))
    assert (paid, 1.0 in paid) == (wanted, True)


def test_a_call_whose_stream_was_lost_is_answered_as_it_was(judged: Judged) -> None:
    client = connect(judged, "mastermind", "lost")
    client.begin(3)
    turns = [client.call("reply", task_id="first", text="<answer>AAB</answer>") for _ in range(2)]
    ends = [client.call("answer", task_id="last", text="No.") for _ in range(3)]
    assert (turns[0], ends[1:], len(judged.groups("lost"))) == (turns[1], ends[:2], 1)


def test_without_a_score_the_reward_is_null_until_there_is_one(judged: Judged) -> None:
    params = json.dumps({"preference": FEWER})
    client = connect(judged, "rlaif", "down", params=params, wait_seconds="3", gather_seconds="1")
    judged.judge.refusals = float("inf")
    client.begin(9)
    down = client.call("answer", task_id="one", text="Yes, of course.")["output"]
    judged.judge.refusals = 0
    up = client.call("answer", task_id="one", text="Yes, of course.")["output"]
    assert (down["reward"], down["finished"], up["reward"] is None) == (None, True, False)


def test_a_group_is_scored_as_natively(judged: Judged) -> None:
    client = connect(judged, "rlaif", "groups", params=json.dumps({"preference": FEWER}))
    texts = ["Yes.", "Yes, of course, with pleasure.", "Yes, of course."]
    client.begin(0)
    candidates = [{"messages": [{"role": "assistant", "blocks": [{"type": "text", "text": one}]}]} for one in texts]
    scores = read_stream(client.post("/score_group", {"candidates": candidates}).text)["scores"]
    assert [one["reward"] for one in scores] == judged.native(judged.preferring(), texts)
    assert len(set(one["reward"] for one in scores)) == 3


def test_tasks_and_tools_are_listed(judged: Judged) -> None:
    client = connect(judged, "tool_agent", "lists")
    client.begin(0)
    listed = client.get("/task_tools")
    (task,) = judged.tasks("tool_agent", 1)
    own = [one["function"]["name"] for one in task["tools"]]
    assert ([one["name"] for one in listed["tools"]], listed["terminal_tool"]["name"]) == ([*own, "reply"], "answer")
    counts = [client.post(path, {"split": "train"}).json() for path in ("/num_tasks", "/tool_agent/num_tasks")]
    some = client.post("/task_range", {"split": "train", "start": 2, "stop": 4}).json()
    assert (counts, some["tasks"]) == (
        [{"num_tasks": 1_000_000}] * 2,
        [{"split": "train", "index": 2}, {"split": "train", "index": 3}],
    )


def test_what_is_wrong_is_named(judged: Judged) -> None:
    client = connect(judged, "gsm8k", "wrong")
    client.headers = {"X-Session-ID": "unknown"}
    wrong: list[tuple[str, object, int, str]] = [
        ("/create", {}, 422, "task_spec"),
        ("/create", {"split": "test", "index": 10**9}, 422, "index"),
        ("/call", {"name": "reply"}, 404, "no such session"),
        ("/score_group", {"candidates": [{"messages": [{"role": "user", "blocks": []}]}]}, 422, "candidate 0"),
    ]
    replies = [client.post(path, body) for path, body, *_ in wrong]
    assert [(one.status_code, told in one.text) for one, (*_, told) in zip(replies, wrong, strict=True)] == [
        (status, True) for *_, status, _ in wrong
    ]
    client.begin(0)
    mute = client.call("reply", content="4")
    client.options = {"params": "[]"}
    refused = client.post("/create", {"split": "train", "index": 0})
    assert (mute["reason"], refused.status_code, "params" in refused.text) == ("input_validation", 422, True)


def test_an_environment_that_cannot_serve_is_said_to_be_starting(tmp_path: Path) -> None:
    """Which clients wait for. The key comes as they send it."""
    data = {"gsm8k": {"missing": {"source": str(tmp_path / "nothing")}}}
    settings = Settings(database_url=f"sqlite:///{tmp_path}/ors.db", api_key="secret", datasets=data)
    with TestClient(create_app(settings, environments={"gsm8k": Gsm8k}), base_url="http://localhost") as client:
        replies = [
            client.get("/compat/ors/gsm8k/tools", headers=headers)
            for headers in ({}, {"X-API-Key": "wrong"}, {"X-API-Key": "secret"})
        ]
    assert [one.status_code for one in replies] == [401, 401, 503]
    assert (replies[2].headers["x-backend-state"], replies[2].headers["retry-after"]) == ("starting", "5")


def test_no_piece_of_a_long_reply_begins_with_a_space() -> None:
    output = ToolOutput(blocks=(TextBlock(text=f"{'a' * (CHUNK - 40)}{' ' * 90}b"),) * 4)
    events = b"".join([b"event: task_id\ndata: one\n\n", *write_result(CallReply(output=output))])
    assert read_stream(events.decode()) == CallReply(output=output).model_dump(mode="json")
    assert max(map(len, events.splitlines())) < CHUNK + 200


def test_blocks_of_other_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="type"):
        Block.model_validate({"type": "video"})
