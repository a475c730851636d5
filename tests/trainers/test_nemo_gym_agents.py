"""NeMo Gym's released agents as servers, between a scripted model and ports of a live gateway."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.envs.tool_agent.environment import ToolAgent, ToolAgentParams
from tests.support import chat_server
from tests.support.agent_episodes import SIZE, plan_replies, read_groups, score_natively, write_rows
from tests.support.chat_server import Received, Reply
from tests.support.lossy_gateway import Lossy, losing_replies
from tests.support.nemo_gym import build_response, say, write_items
from tests.support.serving import Served, free_port, serving
from tests.trainers.installed import NEMO_GYM, place_server, serving_nemo_gym

NEEDS = (NEMO_GYM / ".installed",)
GROUPS = 24
CALLING_GROUPS = 64
"""One of these tasks has a single wish; of the others this agent plays the first wish alone, which earns 0."""
PORTS = {name: free_port() for name in ("mastermind", "npc_arena", "tool_agent")}
Items = list[dict[str, Any]]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    settings: dict[str, str] = {}
    for name, port in PORTS.items():
        given = {"port": port, "environment": name, "run": name, "group_size": SIZE}
        settings |= {f"ATROPOS_ENVS_NEMO_GYM_PORTS__{name}__{key}".upper(): str(one) for key, one in given.items()}
    with serving(tmp_path_factory.mktemp("gateway"), settings=settings) as served:
        yield served


@dataclass
class ScriptedModel:
    """Says to each rollout, which requests name in their metadata, one reply after the other."""

    replies: dict[str, list[Items]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)

    def __call__(self, number: int, received: Received) -> Reply:
        metadata = received.body["metadata"]
        assert isinstance(metadata, dict)
        name = metadata["rollout"]
        items = self.replies[name][self.asked[name]]
        self.asked[name] += 1
        output = [{"id": f"item_{number}_{place}", **item} for place, item in enumerate(items)]
        return Reply(json.dumps(build_response(*output)).encode())


@contextmanager
def serving_agent(folder: Path, kind: str, model: str, resources: str) -> Iterator[str]:
    """The agent's address."""
    agent = {
        "resources_server": {"type": "resources_servers", "name": "atropos"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
        "max_steps": 40,
    }
    others = {
        "policy_model": {"responses_api_models": {"scripted": place_server(model)}},
        "atropos": {"resources_servers": {"atropos": place_server(resources)}},
    }
    with serving_nemo_gym(folder, f"responses_api_agents.{kind}", agent, others) as url:
        yield url


@dataclass(frozen=True)
class Played:
    rewards: dict[str, list[float]]
    """By task, of each rollout."""
    lossy: Lossy


def play(
    gateway: Served, folder: Path, kind: str, environment: str, plans: Sequence[list[list[Items]]], *ends: str
) -> Played:
    """All groups at once, each rollout by one request to the agent. `ends` are of paths whose replies get lost."""
    rows = write_rows(folder, gateway.url, "nemo_gym", environment, "--count", str(len(plans)))
    model = ScriptedModel()
    sent: list[dict[str, Any]] = []
    for task, (row, group) in enumerate(zip(rows, plans, strict=True)):
        for member, replies in enumerate(group):
            name = f"{task}-{member}"
            model.replies[name] = replies
            params = row["responses_create_params"] | {"metadata": {"rollout": name}}
            indices = {"_ng_task_index": task, "_ng_rollout_index": member}
            sent.append(row | indices | {"responses_create_params": params})

    async def run(agent: str) -> list[float]:
        async with httpx.AsyncClient(timeout=300, limits=httpx.Limits()) as client:

            async def roll_out(row: dict[str, Any]) -> float:
                reply = await client.post(f"{agent}/run", json=row)
                assert reply.is_success, reply.text[-2000:]
                return float(reply.json()["reward"])

            return await asyncio.gather(*map(roll_out, sent))

    with ExitStack() as opened:
        script = opened.enter_context(chat_server.serving(model))
        lossy = opened.enter_context(losing_replies(f"http://127.0.0.1:{PORTS[environment]}", 17, ends or ("",)))
        agent = opened.enter_context(serving_agent(folder, kind, script.url, lossy.url))
        told = asyncio.run(run(agent))
    rewards: dict[str, list[float]] = {}
    for row, reward in zip(sent, told, strict=True):
        rewards.setdefault(row["task_id"], []).append(reward)
    return Played(rewards, lossy)


def read_native(gateway: Served, environment: str) -> dict[str, list[float | None]]:
    """By task, what the native route pays for what was stored, which is each task once."""
    stored = read_groups(gateway.url, environment)
    rewards = score_natively(gateway.url, environment, stored)
    assert len({group["task_id"] for group in stored}) == len(stored)
    return {group["task_id"]: paid for group, paid in zip(stored, rewards, strict=True)}


@pytest.mark.parametrize("environment", ["mastermind", "npc_arena"])
def test_turns_of_gymnasium_agent_earn_what_they_would_natively(
    gateway: Served, tmp_path: Path, environment: str
) -> None:
    """Whatever reply gets lost: it is sent again, and answered as it was."""
    texts = [plan_replies(environment, place) for place in range(GROUPS)]
    plans = [[[[say(text)] for text in replies] for replies in group] for group in texts]
    played = play(gateway, tmp_path, "gymnasium_agent", environment, plans)
    assert played.rewards == read_native(gateway, environment)
    assert (len(played.rewards), sum(played.lossy.lost.values()) > 10) == (GROUPS, True)
    assert len({reward for group in played.rewards.values() for reward in group}) > 2


def plan_calls(place: int) -> list[list[Items]]:
    """Solved, half done, not begun, and with a call that no tool knows."""
    agent = ToolAgent()
    solved = agent.gold(agent.task("train", place, ToolAgentParams()))
    said = [one.model_dump(mode="json") for one in solved.messages or () if one.role == "assistant"]
    calls = [write_items(one) for one in said]
    unknown = {"type": "function_call", "call_id": "odd", "name": "no_such_tool", "arguments": "{}"}
    return [calls, [calls[0], [say("Done.")]], [[say("Done.")]], [[unknown], *calls]]


def test_calls_of_simple_agent_are_carried_out_and_paid_as_natively(gateway: Served, tmp_path: Path) -> None:
    """A call has no id: one whose reply gets lost would be carried out twice, so those arrive."""
    plans = [plan_calls(place) for place in range(CALLING_GROUPS)]
    played = play(gateway, tmp_path, "simple_agent", "tool_agent", plans, "/seed_session", "/verify")
    assert played.rewards == read_native(gateway, "tool_agent")
    assert (len(played.rewards), sum(played.lossy.lost.values()) > 5) == (CALLING_GROUPS, True)
    assert {reward for group in played.rewards.values() for reward in group} == {0.0, 1.0}
