"""NeMo Gym's resources server against a running gateway, asked as its agents ask."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from tests.support.nemo_gym import NemoGym, build_response, build_row, say, write_items
from tests.support.reward_trainers import Judged

pytestmark = pytest.mark.xdist_group("one judge")

ANSWERS = ("Yes.", "Yes, of course.", "Yes, of course, why not?", "Yes, of course, why not, if you like it so much?")
Rollout = tuple[dict[str, Any], dict[str, Any]]


def connect(judged: Judged, options: str, environment: str = "rlaif") -> NemoGym:
    return NemoGym(f"{judged.gateway.url}/compat/nemo_gym/{environment}/{options}")


def roll_out(task: str, answers: Sequence[str], index: int = 0) -> list[Rollout]:
    return [(build_row(task, index, place), build_response(say(answer))) for place, answer in enumerate(answers)]


def verify(client: NemoGym, *rollouts: Rollout) -> list[dict[str, Any]]:
    return asyncio.run(client.verify_all(*rollouts))


def rewards(told: Sequence[dict[str, Any]]) -> list[tuple[float, bool]]:
    return [(one["reward"], one["mask_sample"]) for one in told]


def paid(judged: Judged, task: str, answers: Sequence[str]) -> list[tuple[float, bool]]:
    return [(reward, False) for reward in judged.native(task, answers)]


def test_a_group_earns_what_it_would_at_the_native_door(judged: Judged) -> None:
    task = judged.preferring(40)
    told = verify(connect(judged, "run=nemo-same&group_size=4"), *roll_out(task, ANSWERS))
    assert (rewards(told), judged.stored("nemo-same")) == (paid(judged, task, ANSWERS), [list(ANSWERS)])
    assert len({one["reward"] for one in told}) == 4


def test_a_line_and_its_calls_earn_what_they_would_at_the_native_door(judged: Judged) -> None:
    (task,) = judged.tasks("npc_arena", 1, params={"actions": "only"})
    function = {"name": task["tools"][0]["function"]["name"], "arguments": {"count": 1}}
    call = {"id": "call_0", "type": "function", "function": function}
    said = [
        ("Sit down, and tell me.", []),
        ("Sit down, and tell me.", [call]),
        ("Not before noon.", [call]),
        ("", [call]),
    ]
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": line, "tool_calls": calls} for line, calls in said
    ]
    rollouts = [
        (build_row(task["task_id"], 0, place), build_response(*write_items(message)))
        for place, message in enumerate(messages)
    ]
    told = verify(connect(judged, "run=nemo-acts&group_size=4", "npc_arena"), *rollouts)
    group = {"task_id": task["task_id"], "completions": [{"messages": [message]} for message in messages]}
    native = judged.scored("npc_arena", {"groups": [group], "run": "native"})
    (stored,) = judged.groups("nemo-acts")
    kept = sorted(bool((one["completion"]["messages"] or [{}])[-1].get("tool_calls")) for one in stored["rollouts"])
    assert [reward for reward, _ in rewards(told)] == native["rewards"]
    assert {score["criteria"][-1]["name"] for score in native["scores"]} == {"action"}
    assert kept == [False, True, True, True]


def test_what_was_sent_comes_back_byte_for_byte(judged: Judged) -> None:
    task = judged.preferring(41)
    body = (
        f'{{"task_id":"{task}", "responses_create_params":{{"input":[ ],"top_p":1.00}},  "mine":"\\u00e9é",'
        '"response":{"output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Yes."}],'
        '"generation_log_probs":[-1.0E-05,-0.10],"prompt_token_ids":[1, 2]}]}, "reward":7 }\n'
    )
    reply = httpx.post(
        f"{judged.gateway.url}/compat/nemo_gym/rlaif/verify",
        content=body.encode(),
        headers={"Content-Type": "application/json"},
        timeout=60,
    )
    told = reply.json()
    sent = body.encode().rstrip()[:-2]
    assert (reply.content[: len(sent)], told["mine"], told["reward"] != 7) == (sent, "éé", True)
    assert sorted(told.keys() - json.loads(body).keys()) == [
        "absolute",
        *sorted(name for name in told if name.startswith("criterion_")),
        "failure_kind",
        "failure_reason",
        "flags",
        "group_id",
        "mask_sample",
        "rationale",
    ]


def test_without_indices_a_task_gathers_its_group(judged: Judged) -> None:
    """As NeMo-RL sends rows."""
    task = judged.preferring(46)
    rows = [
        ({key: value for key, value in row.items() if not key.startswith("_ng")}, response)
        for row, response in roll_out(task, ANSWERS[:2])
    ]
    told = verify(connect(judged, "run=nemo-bare&group_size=2"), *rows)
    assert (rewards(told), judged.stored("nemo-bare")) == (paid(judged, task, ANSWERS[:2]), [list(ANSWERS[:2])])


def test_without_a_score_for_one_the_whole_group_is_masked_for_good(judged: Judged) -> None:
    """The first says nothing, which is worth 0 without a judge."""
    group = roll_out(judged.preferring(47), ("", *ANSWERS[:2]))
    client = connect(judged, "run=nemo-masked&group_size=3&wait_seconds=6&gather_seconds=2")
    before = judged.untold()
    judged.judge.refusals = float("inf")
    try:
        told = verify(client, *group)
    finally:
        judged.judge.refusals = 0
    counted = {name: more for name, count in judged.untold().items() if (more := count - before.get(name, 0))}
    again = verify(client, *group)
    assert (rewards(told), again) == ([(0.0, True)] * 3, told)
    assert [(one["failure_kind"], one["instance_config"], one["_ng_failure_class"]) for one in told] == [
        (kind, {"mask_sample": True}, "judge_failed") for kind in ("cohort_incomplete", "judge_failed", "judge_failed")
    ]
    assert [group["flags"] for group in judged.groups("nemo-masked")] == [["masked"]]
    assert counted == {
        '{contract="nemo_gym",env="rlaif",reason="judge_failed",told="masked"}': 2.0,
        '{contract="nemo_gym",env="rlaif",reason="masked",told="masked"}': 1.0,
    }


def test_a_reply_that_the_models_server_broke_off_is_masked(judged: Judged) -> None:
    task = judged.preferring(48)
    whole = roll_out(task, ANSWERS[:1])
    broken = (build_row(task, 0, 1), build_response(say("Yes, of"), status="failed"))
    told = verify(connect(judged, "run=nemo-broken&group_size=2&gather_seconds=2"), *whole, broken)
    kinds = ["cohort_incomplete", "atropos:broken_off"]
    assert (rewards(told), [one["failure_kind"] for one in told]) == ([(0.0, True)] * 2, kinds)


async def test_a_session_of_either_kind_has_a_cookie_and_may_be_seeded_and_closed_twice(judged: Judged) -> None:
    task = judged.preferring(49)
    client = connect(judged, "run=nemo-sessions")
    episode = {"rollout_id": "a", "attempt": 0}
    named = {
        "resources_session_id": "session-1",
        "episode_id": episode,
        "task_id": {"taskset": "ours", "task_id": "1"},
        "task_data": {"task_id": task},
    }
    closing = {"resources_session_id": "session-1", "episode_id": episode}
    old = await client.post("seed_session", build_row(task, 0, 0))
    seeds = [await client.post("seed_session", named) for _ in range(2)]
    ends = [await client.post("close_session", closing) for _ in range(2)]
    assert len({one.headers["set-cookie"] for one in seeds}) == 1
    assert task in old.headers["set-cookie"]
    found = [one.json() for one in (old, *seeds, *ends)]
    seeded = {"resources_session_id": "session-1", "resources_tools": None, "sandbox_access": None}
    closed = {"resources_session_id": "session-1"}
    assert found == [{}, seeded, seeded, closed, closed]


def test_metrics_are_means_of_what_was_measured(judged: Judged) -> None:
    rows = [
        {"_ng_task_index": 0, "reward": 1.0, "right": True, "said": "a"},
        {"_ng_task_index": 0, "reward": 0.0, "mask_sample": True},
        {"_ng_task_index": 1, "reward": 0.5, "right": False},
    ]
    reply = asyncio.run(connect(judged, "run=a").post("aggregate_metrics", {"verify_responses": rows}))
    first = {"mean/reward": 1.0, "mean/right": 1.0, "rollouts": 2, "masked": 1}
    assert reply.json() == {
        "group_level_metrics": [
            {"_ng_task_index": "0", **first},
            {"_ng_task_index": "1", "mean/reward": 0.5, "mean/right": 0.0, "rollouts": 1, "masked": 0},
        ],
        "agent_metrics": {"mean/reward": 0.75, "mean/right": 0.5, "rollouts": 3, "masked": 1},
        "key_metrics": {"mean/reward": 0.75},
        "perf_summary": None,
        "repeat_level_metrics": [],
    }


def test_a_row_alone_can_be_verified_again_where_code_decides(judged: Judged) -> None:
    root = f"{judged.gateway.url}/compat/nemo_gym"
    modes = [httpx.get(f"{root}/{name}/reverify_mode", timeout=60).json() for name in ("gsm8k", "rlaif", "mastermind")]
    assert modes == ["stateless", "unsupported", "unsupported"]


def test_what_cannot_be_is_refused_with_its_field(judged: Judged) -> None:
    turns = judged.tasks("mastermind", 1)[0]["task_id"]
    wrong: list[tuple[str, dict[str, Any], int, str | None]] = [
        ("rlaif/verify", {"task_id": None}, 422, "task_id"),
        ("rlaif/verify", {"response": {}}, 422, "response.output"),
        ("rlaif/verify", {"_ng_task_index": -1}, 422, "_ng_task_index"),
        ("rlaif/seed_session", {"task_id": None}, 422, "task_id"),
        ("rlaif/group_size=x/verify", {}, 422, "query.group_size"),
        ("rlaif/colour=red/verify", {}, 422, "query.colour"),
        ("rlaif/verify", {}, 404, "task_id"),
        ("nothing/verify", {}, 404, None),
        ("mastermind/verify", {"task_id": turns, "response": build_response(say("1 2 3 4"))}, 422, "task_id"),
    ]
    row = build_row("task_" + "0" * 32, 0, 0) | {"response": build_response()}
    root = f"{judged.gateway.url}/compat/nemo_gym"
    replies = [httpx.post(f"{root}/{path}", json=row | changed, timeout=60) for path, changed, *_ in wrong]
    told = [(reply.status_code, reply.json()["field"]) for reply in replies]
    assert told == [(status, field) for *_, status, field in wrong]
