"""The gateway's environments as a task set of verifiers: turns by `/step`, the reward by `/score`.

PYTHONPATH=examples vf-eval verifiers_taskset --env.taskset.environment mastermind --model qwen

Groups: verifiers knows none, so each episode is scored alone, and judges that compare pay by what they find in it.
Ranks: each plays its own episodes; tasks are taken by cursor, so all see the same.
Retries: for a quarter of an hour while the gateway is away. A repeated score request gets the scores that are stored.
Truncation: a reply that was cut off is sent as such, and earns 0 unless the run says otherwise.
No score: verifiers has no reward that is none, so the episode fails with an error and is in no mean.
Tools: verifiers has its own; take `tool_format` among `params`, which writes the environment's into the prompt.
"""

import asyncio
import itertools
import os
from collections.abc import Iterator
from typing import Any

import httpx
import verifiers.v1 as vf

PATIENCE_SECONDS = 900
KEY = os.environ.get("ATROPOS_ENVS_API_KEY")
HEADERS = {"Authorization": f"Bearer {KEY}"} if KEY else {}


class GatewayData(vf.TaskData):
    url: str
    run: str
    environment: str
    purpose: str
    task_id: str
    max_turns: int


class GatewayTask(vf.Task[GatewayData]):
    pass


class GatewayConfig(vf.TasksetConfig):
    url: str = "http://127.0.0.1:8000"
    environment: str = "npc_arena"
    params: dict[str, Any] = {}
    split: str = "train"
    count: int = 100
    run: str = "verifiers"


class GatewayTaskset(vf.Taskset[GatewayTask, GatewayConfig]):
    def load(self) -> Iterator[GatewayTask]:
        config, cursor = self.config, 0
        purpose = "eval" if config.split == "test" else "train"
        with httpx.Client(base_url=config.url, timeout=600, headers=HEADERS) as gateway:
            while cursor < config.count:
                asked = {"run": config.run, "split": config.split, "params": config.params, "cursor": cursor}
                body = {**asked, "batch_size": min(256, config.count - cursor)}
                batch = gateway.post(f"/envs/{config.environment}/next-batch", json=body).raise_for_status().json()
                for task in batch["tasks"]:
                    said = {"url": config.url, "run": config.run, "environment": config.environment, "purpose": purpose}
                    shown = {"name": task["task_id"], "task_id": task["task_id"], "max_turns": task["max_turns"]}
                    yield GatewayTask(GatewayData(prompt=task["messages"], **said, **shown), config.task)
                cursor += len(batch["tasks"])
                if batch["exhausted"] or not batch["tasks"]:
                    break


class GatewayEnvConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})


class GatewayEnv(vf.Env[GatewayEnvConfig]):
    async def run(self, task: GatewayTask, agents: vf.Agents) -> None:
        data = task.data
        said: list[dict[str, Any]] = []
        async with httpx.AsyncClient(base_url=data.url, timeout=600, headers=HEADERS) as gateway:
            async with agents.player.interaction(task) as talk:
                heard = await talk.turn()
                while not heard.terminated:
                    said.append({"role": "assistant", "content": heard.last_reply.encode(errors="replace").decode()})
                    if data.max_turns == 1:
                        break
                    body = {"task_id": data.task_id, "messages": said}
                    turn = await send(gateway, f"/envs/{data.environment}/step", body)
                    said += turn["messages"]
                    if turn["done"]:
                        break
                    heard = await talk.turn("\n".join(message["content"] for message in turn["messages"]))
            trace = talk.trace
            if trace.errors or not said:
                raise RuntimeError("the model failed: there is nothing to score")
            sample = {"messages": said, "finish_reason": "length" if trace.is_truncated else "stop"}
            about = {"run": data.run, "purpose": data.purpose}
            groups = [{"task_id": data.task_id, "completions": [sample]}]
            (group,) = (await send(gateway, "/score", {**about, "groups": groups}))["groups"]
            (score,) = group.get("scores") or [{"reward": None, "rationale": group.get("detail")}]
            if score["reward"] is None:
                raise RuntimeError(f"no score: {score['rationale']}")
            trace.record_reward("gateway", score["reward"])
            values = {f"criteria/{one['name']}": one["value"] for one in score["criteria"] if one["value"] is not None}
            trace.record_metrics({**values, **{f"flags/{flag}": 1.0 for flag in score["flags"]}})
            dollars = (await send(gateway, f"/runs/{data.run}"))["judging"]["usd"]
            if dollars is not None:
                trace.record_metric("judge_usd", dollars)
            page = f"{data.url.rstrip('/')}/view/groups/{group['group_id']}"
            trace.info["gateway"] = {"group": page, "rationale": score["rationale"], "flags": score["flags"]}


async def send(gateway: httpx.AsyncClient, path: str, body: dict[str, Any] | None = None) -> Any:
    """Again while the gateway is away: what is sent twice is scored once. An error that stays is raised."""
    for attempt in itertools.count():
        try:
            answer = await (gateway.get(path) if body is None else gateway.post(path, json=body))
            if answer.status_code not in {429, 502, 503, 504} or attempt * 30 > PATIENCE_SECONDS:
                return answer.raise_for_status().json()
        except httpx.TransportError:
            if attempt * 30 > PATIENCE_SECONDS:
                raise
        await asyncio.sleep(min(2.0**attempt, 30.0))


__all__ = ["GatewayConfig", "GatewayData", "GatewayEnv", "GatewayEnvConfig", "GatewayTask", "GatewayTaskset"]
