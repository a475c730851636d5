"""examples/verifiers_taskset.py under verifiers' own `Env.run_episode`, with given replies in the place of a model.

Runs in verifiers' own Python: file with the configurations of task sets, the replies of each task's episodes, and how
often a reply of the gateway gets lost; file to write."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
from verifiers.v1.utils.loaders import load_taskset
from verifiers_taskset import GatewayConfig, GatewayEnv, GatewayEnvConfig


@dataclass
class Record:
    """What is told of an agent's run."""

    rewards: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    errors: list[Any] = field(default_factory=list)
    is_truncated: bool = False
    ok: bool = True

    def record_reward(self, name: str, reward: float) -> None:
        self.rewards[name] = reward

    def record_metrics(self, values: dict[str, float]) -> None:
        self.metrics |= values

    def record_metric(self, name: str, value: float) -> None:
        self.metrics[name] = value


class Player:
    """Says the replies one after the other."""

    def __init__(self, replies: list[str], traces: list[Any]) -> None:
        self.trace = Record()
        traces.append(self.trace)
        self._replies = iter(replies)

    @asynccontextmanager
    async def interaction(self, _task: Any) -> AsyncIterator["Player"]:
        yield self

    async def turn(self, heard: str | None = None) -> Any:
        reply = next(self._replies, None)
        return SimpleNamespace(last_reply=reply or "", terminated=reply is None)


class Given(GatewayEnv):
    replies: list[str] = []

    def _episode_agents(self, _ctx: Any, traces: list[Any], *_: object) -> Any:
        return SimpleNamespace(player=Player(self.replies, traces))


class Losing(httpx.AsyncHTTPTransport):
    """Loses some of the replies on the way back."""

    every = sent = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await super().handle_async_request(request)
        Losing.sent += 1
        if Losing.every and Losing.sent % Losing.every == 0:
            await answer.aread()
            raise httpx.ReadError("lost")
        return answer


async def play_all(job: dict[str, Any]) -> list[dict[str, Any]]:
    Losing.every = job["lost"]
    httpx._client.AsyncHTTPTransport = Losing  # type: ignore[attr-defined]
    told = []
    for options in job["tasksets"]:
        config = GatewayConfig(id="verifiers_taskset", **options)
        env = Given(GatewayEnvConfig(taskset=config))
        for task in load_taskset(config):
            for replies in job["replies"][task.data.task_id]:
                env.replies = replies
                episode = await env.run_episode(task, ctx=None)
                (trace,) = episode.traces
                errors = [each.message for each in episode.errors]
                row = {"task_id": task.data.task_id, "ok": episode.ok, "errors": errors}
                told.append({**row, "rewards": trace.rewards, "metrics": trace.metrics, "info": trace.info})
    return told


if __name__ == "__main__":
    job_file, out = map(Path, sys.argv[1:])
    told = asyncio.run(play_all(json.loads(job_file.read_text(encoding="utf-8"))))
    out.write_text(json.dumps(told), encoding="utf-8")
