"""slime's remote reward against a running gateway, asked as slime asks."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.reward_trainers import Judged, Slime, judged_gateway
from tests.support.tables import read_table

pytestmark = pytest.mark.xdist_group("one judge")

ANSWERS = ("Yes.", "Yes, of course.", "Yes, of course, why not?", "Yes, of course, why not, if you like it so much?")
EOS = "&eos=%3C%7Cim_end%7C%3E"


def slime(judged: Judged, options: str, **more: Any) -> Slime:
    return Slime(f"{judged.gateway.url}/compat/slime/rlaif?{options}", pace=0.05, **more)


def rewards(client: Slime, label: Any, *answers: str) -> list[Any]:
    return asyncio.run(client.rewards([(answer, label) for answer in answers]))


def test_a_group_earns_what_it_would_at_the_native_door(judged: Judged) -> None:
    task = judged.preferring(20)
    asked = slime(judged, f"run=slime&group_size=4{EOS}")
    told = rewards(asked, {"task_id": task}, *(f"{answer}<|im_end|>" for answer in ANSWERS))
    assert (told, asked.failures, judged.stored("slime")) == (judged.native(task, ANSWERS), [], [list(ANSWERS)])
    assert len(set(told)) == 4


def test_an_evaluation_stands_by_itself_and_in_no_training_figure(judged: Judged) -> None:
    label = {"task_id": judged.preferring(29), "purpose": "eval"}
    told = rewards(
        slime(judged, "run=slime-held-out&group_size=4&reply=object"), label, ANSWERS[0], ANSWERS[1], ANSWERS[0]
    )
    groups = [
        httpx.get(f"{judged.gateway.url}/groups/{name}").json()["group"]
        for name in dict.fromkeys(one["group_id"] for one in told)
    ]
    kept = [(one["purpose"], [rollout["completion"]["text"] for rollout in one["rollouts"]]) for one in groups]
    curves = httpx.get(f"{judged.gateway.url}/stats", params={"run": "slime-held-out"}).json()
    assert kept == [("eval", [text]) for text in (ANSWERS[0], ANSWERS[1], ANSWERS[0])]
    assert ([one["reward"] for one in told], curves["rows"]) == ([one["score"] for one in told], [])


def test_no_score_is_an_error_until_there_is_one(judged: Judged) -> None:
    task = judged.preferring(26)
    url = f"{judged.gateway.url}/compat/slime/rlaif?run=slime-unscored&wait_seconds=2.9&gather_seconds=1"
    judged.judge.refusals = float("inf")
    body = {"prompt": "p", "response": ANSWERS[1], "label": task}
    before = judged.untold()
    refused = httpx.post(url, json=body, timeout=60)
    judged.judge.refusals = 0
    counted = {name: more for name, count in judged.untold().items() if (more := count - before.get(name, 0))}
    said = refused.json()
    assert (refused.status_code, refused.headers["retry-after"], said["reward"], said["code"], said["reason"]) == (
        503,
        "5",
        None,
        "unscored",
        "judge_failed",
    )
    assert counted == {'{contract="slime",env="rlaif",reason="judge_failed",told="error"}': 1.0}
    assert isinstance(httpx.post(url, json=body, timeout=60).json(), float)
    assert judged.stored("slime-unscored") == [[ANSWERS[1]]]


def test_an_object_is_for_the_reward_key(judged: Judged) -> None:
    task = judged.tasks("countdown", 1)[0]["task_id"]
    client = Slime(f"{judged.gateway.url}/compat/slime/countdown?reply=object{EOS}")
    (told,) = rewards(client, task, "I do not know")
    group = told.pop("group_id")
    assert (told, group[:6]) == (read_table(__file__, "reply_object.yaml", dict[str, Any]), "group_")


def test_an_answer_that_comes_too_late_is_asked_for_again(judged: Judged) -> None:
    task = judged.preferring(28)
    url = f"{judged.gateway.url}/compat/slime/rlaif?run=slime-slow&wait_seconds=0.3"
    judged.judge.seconds = 0.6
    first = httpx.post(url, json={"response": ANSWERS[0], "label": task}, timeout=60)
    judged.judge.seconds = 0.0
    assert (first.status_code, first.json()["code"], first.headers["retry-after"]) == (503, "pending", "1")
    told = rewards(slime(judged, "run=slime-slow"), task, ANSWERS[0])
    assert (len(told), judged.stored("slime-slow")) == (1, [[ANSWERS[0]]])


def test_a_neutral_group_tells_every_member_the_same_number(tmp_path: Path) -> None:
    """Also the one that says nothing, which is worth 0 without a judge."""
    with judged_gateway(tmp_path, ATROPOS_ENVS_COMPAT__UNSCORED="neutral_group") as judged:
        task = judged.preferring()
        judged.judge.refusals = float("inf")
        client = slime(judged, "run=neutral&group_size=3&wait_seconds=6&gather_seconds=2&reply=object")
        told = rewards(client, task, "", *ANSWERS[:2])
        judged.judge.refusals = 0
        next_epoch = rewards(client, task, "", *ANSWERS[:2])
        counted, native = judged.untold(), judged.native(task, ["", *ANSWERS[:2]])
    assert [(one["reward"], one["outcome"], "masked" in one["flags"]) for one in told] == [(0.0, "unscored", True)] * 3
    assert [one["reward"] for one in next_epoch] == native
    assert sum(counted.values()) == 3
    assert "compat.unscored is neutral_group" in (tmp_path / "gateway.log").read_text()


def test_a_number_for_no_score_is_told_only_where_the_settings_say_so(tmp_path: Path) -> None:
    with judged_gateway(tmp_path, ATROPOS_ENVS_COMPAT__UNSCORED_REWARD="0.25") as judged:
        judged.judge.refusals = float("inf")
        task = judged.preferring()
        bare = rewards(slime(judged, "run=told&wait_seconds=3&gather_seconds=1"), task, ANSWERS[0])
        (whole,) = rewards(slime(judged, "run=told&reply=object&wait_seconds=3&gather_seconds=1"), task, ANSWERS[1])
        counted = judged.untold()
    assert (bare, whole["reward"], whole["score"], whole["outcome"], whole["reason"]) == (
        [0.25],
        0.25,
        0.25,
        "unscored",
        "judge_failed",
    )
    assert counted == {'{contract="slime",env="rlaif",reason="judge_failed",told="number"}': 2.0}
    assert "compat.unscored_reward is set" in (tmp_path / "gateway.log").read_text()
