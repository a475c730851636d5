"""examples/verifiers_taskset.py under verifiers' own `Env.run_episode`, with given replies in the place of a model.

Runs in verifiers' own Python: file with the configurations of task sets, the replies of each task's episodes, and how
often a reply of the gateway gets lost; file to write."""

from types import SimpleNamespace
from typing import Any

import httpx
from job_files import answer
from scripted_player import Player
from verifiers.v1.utils.loaders import load_taskset
from verifiers_taskset import GatewayConfig, GatewayEnv, GatewayEnvConfig


class Given(GatewayEnv):
    replies: list[str] = []

    def _episode_agents(self, _ctx: Any, traces: list[Any], *_: object) -> Any:
        player = Player(self.replies)
        traces.append(player.trace)
        return SimpleNamespace(player=player)


class Losing(httpx.AsyncHTTPTransport):
    """Loses some of the replies on the way back."""

    every = sent = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        reply = await super().handle_async_request(request)
        Losing.sent += 1
        if Losing.every and Losing.sent % Losing.every == 0:
            await reply.aread()
            raise httpx.ReadError("lost")
        return reply


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
    answer(play_all)
