"""Rollouts of NeMo Gym's agents that call tools or play turns, against a running gateway."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.characters.company import PASSING_REPLY
from app.domain.tasks import Task
from app.envs.tool_agent.environment import ToolAgent
from app.http.compat.nemo_gym import ResponsesObject
from tests.support.nemo_gym import NemoGym, build_response, build_row, play_gymnasium, play_simple, say, write_items
from tests.support.reward_trainers import Judged
from tests.support.tables import read_table

TABLE = read_table(__file__, "nemo_gym_endings.yaml", tuple[tuple[dict[str, Any], str], ...])

pytestmark = pytest.mark.xdist_group("one judge")

GUESS = "<guess>1 2 3 4</guess>"


def connect(judged: Judged, options: str, environment: str) -> NemoGym:
    return NemoGym(f"{judged.gateway.url}/compat/nemo_gym/{environment}/{options}")


def solve(task: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of the known solution of a task of tool_agent."""
    index = task["metadata"]["index"]
    made: Task = ToolAgent().task("train", index, ToolAgent.Params())
    return [one.model_dump(mode="json") for one in ToolAgent().gold(made).messages or ()]


def find_tasks(judged: Judged, wishes: int) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Tasks of tool_agent with so many wishes, and their solutions."""
    for task in judged.tasks("tool_agent", 64):
        solution = solve(task)
        replies = [one for one in solution if one["role"] == "assistant" and not one.get("tool_calls")]
        if len(replies) == wishes:
            yield task, solution


def list_replies(solution: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    return [write_items(one) for one in solution if one["role"] == "assistant"]


def build_tool_row(task: dict[str, Any], place: int) -> dict[str, Any]:
    row = build_row(task["task_id"], place, 0)
    row["responses_create_params"]["tools"] = [{"type": "function", **one["function"]} for one in task["tools"]]
    return row


def native(judged: Judged, environment: str, task_id: str, messages: list[dict[str, Any]]) -> float:
    group = {"task_id": task_id, "completions": [{"messages": messages}]}
    (reward,) = judged.scored(environment, {"groups": [group], "run": "native"})["rewards"]
    return float(reward)


async def test_calls_are_carried_out_and_the_rollout_is_paid_as_natively(judged: Judged) -> None:
    """Up to the first reply without a call, where these agents end: only tasks of one wish are done by then."""
    told = []
    for place, (task, solution) in enumerate([*find_tasks(judged, wishes=1), *find_tasks(judged, wishes=2)][:12]):
        client = connect(judged, "run=tools", "tool_agent")
        done = await play_simple(client, build_tool_row(task, place), list_replies(solution))
        texts = [at for at, one in enumerate(solution) if one["role"] == "assistant" and not one.get("tool_calls")]
        played = solution[: texts[0] + 1]
        told.append((done["reward"], native(judged, "tool_agent", task["task_id"], played)))
    assert (len(told) >= 10, [paid for paid, _ in told]) == (True, [own for _, own in told])
    assert {paid for paid, _ in told} == {0.0, 1.0}


def test_a_result_that_no_tool_gave_is_forged(judged: Judged) -> None:
    task, solution = next(find_tasks(judged, wishes=1))
    forged: list[dict[str, Any]] = []
    for message in solution:
        if message["role"] == "tool":
            output = {"type": "function_call_output", "call_id": message["tool_call_id"], "output": '{"ok": true}'}
            forged.append(output)
        else:
            forged += write_items(message)
    client = connect(judged, "run=forged", "tool_agent")
    told = asyncio.run(client.verify(build_tool_row(task, 0), build_response(*forged)))
    assert (told["reward"], told["flags"]) == (0.0, ["forged_observation"])


async def test_a_call_that_the_agent_answered_itself_is_no_forgery(judged: Judged) -> None:
    """Arguments that are no JSON never reach a tool."""
    task, solution = next(find_tasks(judged, wishes=1))
    broken = {"type": "function_call", "call_id": "broken", "name": "list_events", "arguments": "{"}
    answer = {"type": "function_call_output", "call_id": "broken", "output": "Invalid tool call arguments"}
    client = connect(judged, "run=broken", "tool_agent")
    row = build_tool_row(task, 0)
    whole = await play_simple(client, row, list_replies(solution))
    output = whole["response"]["output"]
    told = await client.verify(row, build_response(broken, answer, *output))
    assert (told["reward"], told["flags"]) == (1.0, [])


async def test_several_wishes_are_played_turn_by_turn_whatever_is_sent_twice(judged: Judged) -> None:
    told = []
    for place, (task, solution) in enumerate(find_tasks(judged, wishes=2)):
        client = connect(judged, "run=wishes", "tool_agent")
        row = build_tool_row(task, place)
        *_, last = await play_gymnasium(client, row, list_replies(solution), times=2)
        told.append((last.json()["reward"], native(judged, "tool_agent", task["task_id"], solution)))
    assert (len(told) >= 5, set(told)) == (True, {(1.0, 1.0)})
    assert judged.counts("wishes") == {"groups": len(told), "scored": len(told)}


async def test_a_seat_among_several_characters_is_paid_as_natively(judged: Judged) -> None:
    (task,) = judged.tasks("npc_arena", 1, params={"turns": "multi"}, select={"scene_kind": ["company"]})
    told: list[tuple[float, float]] = []
    for lines in (
        [PASSING_REPLY] * 3,
        ["Aye.", PASSING_REPLY, "Ask them."],
        [f"[{task['metadata']['others'][0]}] No."] * 3,
    ):
        messages: list[dict[str, Any]] = []
        for line in lines:
            messages.append({"role": "assistant", "content": line})
            messages += judged.step("npc_arena", task["task_id"], messages)
        client = connect(judged, f"run=seat-{len(told)}", "npc_arena")
        *_, last = await play_gymnasium(client, build_row(task["task_id"], 0, 0), [[say(line)] for line in lines])
        told.append((last.json()["reward"], native(judged, "npc_arena", task["task_id"], messages)))
    assert ([paid for paid, _ in told], len({paid for paid, _ in told})) == ([own for _, own in told], 3)


async def test_a_port_of_its_own_serves_a_game_at_the_root_that_is_paid_with_its_group(
    judged: Judged, game_port: int
) -> None:
    task = judged.tasks("mastermind", 1)[0]
    url = f"http://127.0.0.1:{game_port}"
    games = [
        play_gymnasium(NemoGym(url), build_row(task["task_id"], 0, place), [[say(GUESS)]] * task["max_turns"])
        for place in range(2)
    ]
    told = [game[-1].json()["reward"] for game in await asyncio.gather(*games)]
    paths = "reverify_mode", "reverify_mode?run=other&group_size=8", "groups/x", f"compat/nemo_gym/mastermind/{told}"
    asked = [(await asyncio.to_thread(httpx.get, f"{url}/{path}")).status_code for path in paths]
    stored = [[one["score"]["reward"] for one in group["rollouts"]] for group in judged.groups("port")]
    assert (stored, asked) == ([told], [200, 200, 404, 404])


async def test_a_reply_that_is_cut_off_ends_the_episode_and_one_that_broke_off_has_no_score(judged: Judged) -> None:
    cut: dict[str, Any] = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    told, after = [], []
    for place, ending in enumerate([cut, {"status": "failed"}]):
        row = build_row(judged.tasks("mastermind", 1)[0]["task_id"], 0, 0)
        client = connect(judged, f"run=cut-{place}", "mastermind")
        (await client.post("reset", row)).raise_for_status()
        sent = (build_response(say("<guess>1"), **ending), build_response(say(GUESS)))
        first, second = [await client.post("step", row | {"response": one}) for one in sent]
        told.append(first.json())
        after.append((second.status_code, second.json()["code"]))
    assert (told[0]["reward"], told[0]["truncated"], told[0]["info"]["flags"]) == (0.0, True, ["truncated"])
    assert (told[1]["reason"], after) == ("broken_off", [(409, "conflict")] * 2)


@pytest.mark.parametrize(("told", "reason"), TABLE)
def test_a_failure_is_looked_at_before_anything_else(told: dict[str, Any], reason: str) -> None:
    assert ResponsesObject.model_validate({"output": [], **told}).finish_reason == reason


async def test_a_session_that_was_closed_does_not_begin_again(judged: Judged) -> None:
    task = judged.tasks("tool_agent", 1)[0]
    client = connect(judged, "run=closed", "tool_agent")
    episode = {"rollout_id": "a", "attempt": 0}
    statuses = []
    for name in ("seeded", "never"):
        seed = {
            "resources_session_id": name,
            "episode_id": episode,
            "task_id": {"taskset": "t", "task_id": "1"},
            "task_data": {"task_id": task["task_id"]},
        }
        closing = {"resources_session_id": name, "episode_id": episode}
        sent = [("seed_session", seed)] * 2 if name == "seeded" else []
        for path, body in (*sent, ("close_session", closing), ("close_session", closing), ("seed_session", seed)):
            statuses.append((await client.post(path, body)).status_code)
    assert statuses == [200, 200, 200, 200, 409, 200, 200, 409]


def test_a_call_without_a_session_is_refused(judged: Judged) -> None:
    reply = asyncio.run(connect(judged, "run=none", "tool_agent").post("list_events", {}))
    assert (reply.status_code, reply.json()["code"]) == (404, "not_found")


async def test_calls_that_are_the_answer_are_noted(judged: Judged) -> None:
    task = judged.tasks("tool_calling", 1)[0]
    client = connect(judged, "run=noted", "tool_calling")
    await client.post("seed_session", build_tool_row(task, 0))
    assert (await client.post("anything", {"a": 1})).text.startswith("Noted.")
