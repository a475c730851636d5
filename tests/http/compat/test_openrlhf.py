"""OpenRLHF's remote reward against a running gateway, asked as OpenRLHF asks."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.reward_trainers import Judged, OpenRlhf, judged_gateway

PROMPT = "<|im_start|>user\nMay I?<|im_end|>\n<|im_start|>assistant\n"
ANSWERS = ("Yes.", "Yes, of course.", "Yes, of course, why not?", "Yes, of course, why not, if you like it so much?")


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    with judged_gateway(tmp_path_factory.mktemp("openrlhf")) as judged:
        yield judged


def openrlhf(judged: Judged, path: str, **more: Any) -> OpenRlhf:
    return OpenRlhf(f"{judged.gateway.url}/compat/openrlhf/{path}", pause=0.05, **more)


def one_by_one(client: OpenRlhf, label: Any, answers: Sequence[str]) -> list[Any]:
    """As its rollouts ask: a request for each answer, all at once."""

    async def asked() -> list[Any]:
        wanted = (client.rewards([PROMPT + answer + "<|im_end|>"], [PROMPT], [label]) for answer in answers)
        return await asyncio.gather(*wanted)

    return asyncio.run(asked())


def post(judged: Judged, path: str, body: object) -> httpx.Response:
    return httpx.post(f"{judged.gateway.url}/compat/openrlhf/{path}", json=body, timeout=60)


def post_until_judged(judged: Judged, path: str, body: object) -> httpx.Response:
    """Asks again while a busy machine has no answer of the judge in time. A wait of a second leaves no time to ask the
    judge again, so that what it said is told at once."""
    for _ in range(5):
        reply = post(judged, path, body)
        if reply.json().get("code") != "pending":
            break
    return reply


def test_a_group_earns_what_it_would_at_the_native_door(judged: Judged) -> None:
    task = judged.preferring()
    client = openrlhf(judged, "rlaif/get_reward?run=same&group_size=4&eos=%3C%7Cim_end%7C%3E&model=policy")
    told = one_by_one(client, task, ANSWERS)
    native = judged.native(task, ANSWERS)
    (group,) = judged.groups("same")
    assert [one["rewards"] for one in told] == [[reward] for reward in native]
    assert (judged.stored("same"), group["policy"]) == ([list(ANSWERS)], {"model": "policy", "step": None})
    assert {one["completion"]["finish_reason"] for one in group["rollouts"]} == {"stop"}


def test_what_is_logged_has_the_same_names_whatever_became_of_an_answer(judged: Judged) -> None:
    """A name that some replies lack stops its training."""
    task = judged.preferring(1)
    client = openrlhf(judged, "rlaif?run=logged&group_size=2&eos=%3C%7Cim_end%7C%3E")
    (told,) = one_by_one(client, {"task_id": task, "size": 1}, ANSWERS[:1])
    cut = asyncio.run(client.rewards([PROMPT + "Yes, of"], [PROMPT], [json.dumps({"task_id": task, "size": 1})]))
    names = ["absolute", "gate", "flags", "unscored", "criterion_preference"]
    assert (list(told["extra_logs"]), list(cut["extra_logs"])) == (names, names)
    assert (cut["rewards"], cut["scores"], cut["extra_logs"]["gate"]) == ([0.0], [0.0], [0.0])


def test_lists_of_several_are_held_together(judged: Judged) -> None:
    task = judged.preferring(2)
    client = openrlhf(judged, "rlaif?run=several&group_size=3")
    answers = (ANSWERS[0], ANSWERS[2], ANSWERS[0])
    told = asyncio.run(client.rewards([PROMPT + answer for answer in answers], [PROMPT] * 3, [task] * 3))
    first, second, third = told["rewards"]
    assert (first == third > second, len(told["scores"]), len(told["extra_logs"]["gate"])) == (True, 3, 3)
    assert judged.stored("several") == [sorted(answers, key=len)]


def test_one_of_each_and_none_are_answered_alike(judged: Judged) -> None:
    task = judged.tasks("countdown", 1)[0]["task_id"]
    one = post(judged, "countdown/get_reward", {"query": "Q: so", "prompts": "Q:", "labels": task})
    none = post(judged, "countdown", {"query": [], "prompts": [], "labels": []})
    logs = {"absolute": 0.0, "gate": 1.0, "flags": 1.0, "unscored": 0.0}
    assert (one.json(), none.json()) == (
        {"rewards": 0.0, "scores": 0.0, "extra_logs": logs},
        {"rewards": [], "scores": [], "extra_logs": {}},
    )


def test_whoever_gave_up_asks_again_and_is_not_taken_for_another(judged: Judged) -> None:
    judged.judge.seconds = 1.5
    try:
        client = openrlhf(judged, "rlaif?run=again&group_size=2", total=1.2, tries=30)
        told = one_by_one(client, judged.preferring(3), [ANSWERS[0], ANSWERS[0]])
    finally:
        judged.judge.seconds = 0.0
    assert (told[0] == told[1], judged.stored("again"), set(client.failures)) == (
        True,
        [[ANSWERS[0], ANSWERS[0]]],
        {"TimeoutError"},
    )


def test_a_request_is_held_until_the_judge_is_back(judged: Judged) -> None:
    client = openrlhf(judged, "rlaif?run=patient&group_size=2", tries=1)
    judged.judge.refusals = 6
    told = one_by_one(client, judged.preferring(4), ANSWERS[:2])
    assert (told[0]["rewards"] > told[1]["rewards"], client.failures) == (True, [])
    assert judged.stored("patient") == [list(ANSWERS[:2])]


def test_no_score_is_said_in_its_own_shape(judged: Judged) -> None:
    judged.judge.refusals = float("inf")
    body = {"query": [PROMPT + ANSWERS[0]], "prompts": [PROMPT], "labels": [judged.preferring(5)]}
    refused = post_until_judged(judged, "rlaif?run=unscored&wait_seconds=1", body)
    judged.judge.refusals = 0
    said = refused.json()
    assert "judge_failed" in said.pop("error")
    assert (refused.status_code, refused.headers["retry-after"], said) == (
        503,
        "5",
        {
            "rewards": [None],
            "scores": [None],
            "extra_logs": {},
            "code": "unscored",
            "reason": "judge_failed",
            "field": None,
        },
    )


def test_a_key_comes_with_the_address(tmp_path: Path) -> None:
    key = "gw_a-key"
    with judged_gateway(tmp_path, ATROPOS_ENVS_API_KEY=key) as judged:
        url = judged.gateway.url
        with_key = OpenRlhf(url.replace("://", f"://any:{key}@") + "/compat/openrlhf/countdown/get_reward", tries=1)
        without = OpenRlhf(f"{url}/compat/openrlhf/countdown/get_reward", tries=1, pause=0)
        told = asyncio.run(with_key.rewards([], [], []))
        with pytest.raises(RuntimeError):
            asyncio.run(without.rewards([], [], []))
    assert (told["rewards"], without.failures) == ([], ["ClientResponseError"])


GOOD = {"query": ["Q: so"], "prompts": ["Q:"], "labels": ["task_" + "0" * 32]}


@pytest.mark.parametrize(
    ("path", "change", "status", "code", "field"),
    [
        ("nothing", {}, 404, "not_found", None),
        ("mastermind", {}, 404, "not_found", "labels[0]"),
        ("countdown", {}, 404, "not_found", "labels[0]"),
        ("countdown", {"query": ["so"]}, 422, "invalid_request", "query[0]"),
        ("countdown", {"query": [1]}, 422, "invalid_request", "query.list[str][0]"),
        ("countdown", {"query": []}, 422, "invalid_request", "labels"),
        ("countdown", {"prompts": ["Q:", "Q:"]}, 422, "invalid_request", "labels"),
        ("countdown", {"labels": [""]}, 422, "invalid_request", "labels[0]"),
        ("countdown", {"labels": ["17"]}, 422, "invalid_request", "labels[0].task_id"),
        ("countdown", {"labels": [{"task_id": "task_" + "0" * 32, "size": 999}]}, 422, "invalid_request", None),
        ("countdown?group_size=0", {}, 422, "invalid_request", "query.group_size"),
        ("countdown?eos=%20", {}, 422, "invalid_request", "query.eos[0]"),
        ("countdown?groupsize=4", {}, 422, "invalid_request", "query.groupsize"),
        ("countdown?run=My%20run", {}, 422, "invalid_request", "query.run"),
        ("countdown?gather_seconds=nan", {}, 422, "invalid_request", "query.gather_seconds"),
        ("countdown?wait_seconds=600", {}, 422, "invalid_request", "query.wait_seconds"),
    ],
)
def test_what_is_wrong_is_said_by_its_place(
    judged: Judged, path: str, change: dict[str, object], status: int, code: str, field: str | None
) -> None:
    reply = post(judged, path, {**GOOD, **change})
    said = reply.json()
    assert (reply.status_code, set(said), said["code"]) == (status, {"error", "code", "field"}, code)
    assert said["field"] == field or field is None


@pytest.mark.parametrize(("environment", "status"), [("mastermind", 422), ("npc_arena", 200)])
def test_a_task_of_several_turns_is_refused_by_its_task(judged: Judged, environment: str, status: int) -> None:
    asked = {"batch_size": 1, "cursor": 0}
    (task,) = httpx.post(f"{judged.gateway.url}/envs/{environment}/next-batch", json=asked).json()["tasks"]
    reply = post(judged, environment, {**GOOD, "labels": [task["task_id"]]})
    assert (reply.status_code, reply.json().get("field")) == (status, "labels[0]" if status == 422 else None)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"query": ["a"], "prompts": ["a"], "labels": [NaN]}', 422),
        (b'{"query": ["a \\ud800"], "prompts": ["a"], "labels": ["x"]}', 422),
        (b'{"query": ["a"], "prompts": ["a"], "labels": [' + b"[" * 800 + b"]" * 800 + b"]}", 422),
        (b'{"query": ["a"], "prompts": ["a"], "labels": ' + b"[" * 100_000, 400),
        (b'{"query": ', 400),
        (b"[]", 422),
        (b"\xff", 400),
    ],
)
def test_hostile_bodies_are_refused_and_nothing_is_kept(judged: Judged, body: bytes, status: int) -> None:
    headers = {"Content-Type": "application/json"}
    url = f"{judged.gateway.url}/compat/openrlhf/countdown?run=hostile"
    reply = httpx.post(url, content=body, headers=headers, timeout=60)
    assert (reply.status_code, set(reply.json()), judged.stored("hostile")) == (status, {"error", "code", "field"}, [])


def test_ten_megabytes_are_an_answer_like_others(judged: Judged) -> None:
    task = judged.tasks("countdown", 1)[0]["task_id"]
    body = {"query": ["Q:" + "a </s>" * 1_700_000], "prompts": ["Q:"], "labels": [task]}
    assert post(judged, "countdown", body).json()["rewards"] == [0.0]
