"""OpenRLHF's remote reward against a running gateway, asked as OpenRLHF asks."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from tests.support.reward_trainers import Judged, OpenRlhf
from tests.support.tables import read_table

pytestmark = pytest.mark.xdist_group("one judge")

JSON = {"Content-Type": "application/json"}
PROMPT = "<|im_start|>user\nMay I?<|im_end|>\n<|im_start|>assistant\n"
ANSWERS = ("Yes.", "Yes, of course.", "Yes, of course, why not?", "Yes, of course, why not, if you like it so much?")


def openrlhf(judged: Judged, path: str, **more: Any) -> OpenRlhf:
    return OpenRlhf(f"{judged.gateway.url}/compat/openrlhf/{path}", pause=0.05, **more)


async def one_by_one(client: OpenRlhf, label: Any, answers: Sequence[str]) -> list[Any]:
    """As its rollouts ask: a request for each answer, all at once."""
    wanted = (client.rewards([PROMPT + answer + "<|im_end|>"], [PROMPT], [label]) for answer in answers)
    return await asyncio.gather(*wanted)


def post(judged: Judged, path: str, body: object) -> httpx.Response:
    return httpx.post(f"{judged.gateway.url}/compat/openrlhf/{path}", json=body, timeout=60)


async def test_a_group_earns_what_it_would_at_the_native_door(judged: Judged) -> None:
    task = judged.preferring(30)
    client = openrlhf(judged, "rlaif/get_reward?run=openrlhf-same&group_size=4&eos=%3C%7Cim_end%7C%3E&model=policy")
    told = await one_by_one(client, task, ANSWERS)
    native = judged.native(task, ANSWERS)
    (group,) = judged.groups("openrlhf-same")
    assert [one["rewards"] for one in told] == [[reward] for reward in native]
    assert (judged.stored("openrlhf-same"), group["policy"]) == ([list(ANSWERS)], {"model": "policy", "step": None})
    assert {one["completion"]["finish_reason"] for one in group["rollouts"]} == {"stop"}


async def test_what_is_logged_has_the_same_names_whatever_became_of_an_answer(judged: Judged) -> None:
    """A name that some replies lack stops its training."""
    task = judged.preferring(31)
    client = openrlhf(judged, "rlaif?run=openrlhf-logged&group_size=2&eos=%3C%7Cim_end%7C%3E")
    (told,) = await one_by_one(client, {"task_id": task, "size": 1}, ANSWERS[:1])
    cut = await client.rewards([PROMPT + "Yes, of"], [PROMPT], [json.dumps({"task_id": task, "size": 1})])
    names = ["absolute", "gate", "flags", "unscored", "criterion_preference"]
    assert (list(told["extra_logs"]), list(cut["extra_logs"])) == (names, names)
    assert (cut["rewards"], cut["scores"], cut["extra_logs"]["gate"]) == ([0.0], [0.0], [0.0])


def test_lists_of_several_are_held_together(judged: Judged) -> None:
    task = judged.preferring(32)
    client = openrlhf(judged, "rlaif?run=openrlhf-several&group_size=3")
    answers = (ANSWERS[0], ANSWERS[2], ANSWERS[0])
    told = asyncio.run(client.rewards([PROMPT + answer for answer in answers], [PROMPT] * 3, [task] * 3))
    first, second, third = told["rewards"]
    assert (first == third > second, len(told["scores"]), len(told["extra_logs"]["gate"])) == (True, 3, 3)
    assert judged.stored("openrlhf-several") == [sorted(answers, key=len)]


def test_one_of_each_and_none_are_answered_alike(judged: Judged) -> None:
    task = judged.tasks("countdown", 1)[0]["task_id"]
    one = post(judged, "countdown/get_reward", {"query": "Q: so", "prompts": "Q:", "labels": task})
    none = post(judged, "countdown", {"query": [], "prompts": [], "labels": []})
    logs = {"absolute": 0.0, "gate": 1.0, "flags": 1.0, "unscored": 0.0}
    assert (one.json(), none.json()) == (
        {"rewards": 0.0, "scores": 0.0, "extra_logs": logs},
        {"rewards": [], "scores": [], "extra_logs": {}},
    )


def test_no_score_is_said_in_its_own_shape(judged: Judged) -> None:
    judged.judge.refusals = float("inf")
    body = {"query": [PROMPT + ANSWERS[0]], "prompts": [PROMPT], "labels": [judged.preferring(35)]}
    refused = post(judged, "rlaif?run=openrlhf-unscored&wait_seconds=2.9&gather_seconds=1", body)
    judged.judge.refusals = 0
    said = refused.json()
    assert "judge_failed" in said.pop("error")
    assert (refused.status_code, refused.headers["retry-after"], said) == read_table(
        __file__, "no_score_told.yaml", tuple[int, str, dict[str, Any]]
    )


GOOD: dict[str, object] = {"query": ["Q: so"], "prompts": ["Q:"], "labels": ["task_" + "0" * 32]}


REFUSALS = read_table(__file__, "openrlhf_refusals.yaml", list[Any])


def test_what_is_wrong_is_said_by_its_place(judged: Judged) -> None:
    turns = judged.tasks("mastermind", 1)[0]["task_id"]
    wrong = [*REFUSALS, ["mastermind", {"labels": [turns]}, 422, "invalid_request", "labels[0]"]]
    replies = [post(judged, path, {**GOOD, **change}) for path, change, _, _, _ in wrong]
    told = [(reply.status_code, reply.json()["code"], reply.json()["field"]) for reply in replies]
    assert told == [tuple(rest) for _, _, *rest in wrong]
    assert [set(reply.json()) for reply in replies] == [{"error", "code", "field"}] * len(wrong)


def test_a_body_that_is_no_json_is_refused_in_its_own_shape(judged: Judged) -> None:
    reply = httpx.post(f"{judged.gateway.url}/compat/openrlhf/countdown", content=b"\xff", headers=JSON, timeout=60)
    assert (reply.status_code, set(reply.json())) == (400, {"error", "code", "field"})
