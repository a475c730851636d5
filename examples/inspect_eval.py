"""The gateway as evals of Inspect: turns and tools by `/step`, our scores in its log. inspect-ai 0.3.285.

LOCAL_BASE_URL=http://127.0.0.1:9001/v1 LOCAL_API_KEY=x inspect eval examples/inspect_eval.py \
    --model openai-api/local/my-model -T environment=npc_arena -T params='{"turns": "multi"}'

The key comes from `ATROPOS_ENVS_API_KEY`.

Epochs      Each is an attempt that is scored by itself, on what is comparable, and is in no training figure. The tasks
            are the same in every run of the same name.
Retries     For a quarter of an hour while the gateway is away or its judge is down. What is sent twice is scored once.
Truncation  A reply that was cut off is sent as such, and earns 0 unless the run says otherwise.
No score    `Score.unscored` with the reason: left out of the metrics, and counted by Inspect as unscored.
Log         `explanation` is the rationale; `metadata` has criteria, flags, the judge's dollars and the group's page.
            Metrics: the mean with its error, each criterion, `flagged` (a share) and `judge_usd` (a sum).
"""

import asyncio
import itertools
import json
import os
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    ModelOutput,
    get_model,
)
from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, mean, metric, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import ToolInfo, ToolParams

PATIENCE_SECONDS = 900.0
"""For a gateway that is restarted, or whose judge is down."""
FINAL = {
    "stale",
    "version_changed",
    "self_judge",
    "language_unknown",
    "player_failed",
    "reward_missing",
    "replay_diverged",
}
"""Reasons of no score that asking again does not mend."""
KEY = os.environ.get("ATROPOS_ENVS_API_KEY")
HEADERS = {"Authorization": f"Bearer {KEY}"} if KEY else {}

Json = dict[str, Any]


@task
def gateway(
    environment: str = "npc_arena",
    url: str = "http://127.0.0.1:8000",
    params: str | Json = "{}",
    split: str = "test",
    count: int = 100,
    run: str = "inspect",
) -> Task:
    """`count` tasks of a split, by cursor: nothing is leased."""
    asked = {"run": run, "split": split, "params": json.loads(params) if isinstance(params, str) else params}
    return Task(
        dataset=MemoryDataset(run_aside(list_samples(url, environment, asked, count)), name=environment),
        solver=play(url, environment),
        scorer=score(url, environment, run),
    )


def run_aside(work: Coroutine[Any, Any, list[Sample]]) -> list[Sample]:
    """Tasks are made in an event loop or out of one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def list_samples(url: str, environment: str, asked: Json, count: int) -> list[Sample]:
    samples: list[Sample] = []
    async with httpx.AsyncClient(base_url=url, timeout=600, headers=HEADERS) as client:
        while len(samples) < count:
            body = {**asked, "purpose": "eval", "batch_size": min(256, count - len(samples)), "cursor": len(samples)}
            batch = await send(client, f"/envs/{environment}/next-batch", body)
            samples += map(build_sample, batch["tasks"])
            if batch["exhausted"] or not batch["tasks"]:
                break
    return samples


def build_sample(handed: Json) -> Sample:
    shown = {"max_turns": handed["max_turns"], "tools": handed["tools"], "task": handed["metadata"]}
    return Sample(input=[show(one) for one in handed["messages"]], id=handed["task_id"], metadata=shown)


def show(message: Json) -> ChatMessage:
    content = message.get("content") or ""
    match message["role"]:
        case "system":
            return ChatMessageSystem(content=content)
        case "assistant":
            return ChatMessageAssistant(content=content)
        case "tool":
            return ChatMessageTool(content=content, tool_call_id=message.get("tool_call_id"))
        case _:
            return ChatMessageUser(content=content)


@solver
def play(url: str, environment: str) -> Solver:
    """Plays until the environment ends the episode, or a reply is cut off. What was said is kept as it was, since it is
    replayed to be scored."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        tools = [describe_tool(one["function"]) for one in state.metadata["tools"]]
        said: list[Json] = []
        async with httpx.AsyncClient(base_url=url, timeout=600, headers=HEADERS) as client:
            for turn in itertools.count(1):
                state.output = await get_model().generate(state.messages, tools=tools)
                state.messages.append(state.output.message)
                said.append(read_output(state.output))
                if turn >= state.metadata["max_turns"] or is_cut(state.output):
                    break
                body = {"task_id": state.sample_id, "messages": said}
                told = await send(client, f"/envs/{environment}/step", body)
                said += told["messages"]
                state.messages += [show(one) for one in told["messages"]]
                if told["done"]:
                    break
        state.store.set("said", said)
        return state

    return solve


def describe_tool(function: Json) -> ToolInfo:
    return ToolInfo(
        name=function["name"],
        description=function["description"],
        parameters=ToolParams.model_validate(function["parameters"]),
    )


def read_output(output: ModelOutput) -> Json:
    calls = [
        {"id": one.id, "type": "function", "function": {"name": one.function, "arguments": one.arguments}}
        for one in output.message.tool_calls or []
    ]
    text = output.message.text.encode(errors="replace").decode()  # halves of characters are no text
    return {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}


def is_cut(output: ModelOutput) -> bool:
    return output.stop_reason in {"max_tokens", "model_length"}


@metric
def criteria() -> Metric:
    """The mean of each criterion, over the samples in which it has a value."""

    def measure(scores: list[SampleScore]) -> Mapping[str, float]:
        values: dict[str, list[float]] = {}
        for one in scores:
            for name, value in (one.score.metadata or {}).get("criteria", {}).items():
                values.setdefault(name, []).append(value)
        return {f"criteria_{name}": sum(of) / len(of) for name, of in sorted(values.items())}

    return measure


@metric
def flagged() -> Metric:
    def measure(scores: list[SampleScore]) -> float:
        flags = [bool((one.score.metadata or {}).get("flags")) for one in scores]
        return sum(flags) / len(flags) if flags else 0.0

    return measure


@metric
def judge_usd() -> Metric:
    """0 where no price is known."""

    def measure(scores: list[SampleScore]) -> float:
        return sum((one.score.metadata or {}).get("judge_usd") or 0.0 for one in scores)

    return measure


@scorer(metrics=[mean(), stderr(), criteria(), flagged(), judge_usd()])
def score(url: str, environment: str, run: str) -> Scorer:
    async def measure(state: TaskState, target: Target) -> Score:
        reply = {"messages": state.store.get("said"), "finish_reason": "length" if is_cut(state.output) else "stop"}
        groups = [{"task_id": state.sample_id, "completions": [reply]}]
        body = {"run": run, "purpose": "eval", "policy": {"model": str(state.model)}, "groups": groups}
        async with httpx.AsyncClient(base_url=url, timeout=600, headers=HEADERS) as client:
            group = await score_patiently(client, environment, body)
            if "scores" not in group:
                raise RuntimeError(f"the group was refused: {group['detail']}")
            stored = await send(client, f"/groups/{group['group_id']}")
        (own,) = group["scores"]
        about = {
            "criteria": {one["name"]: one["value"] for one in own["criteria"] if one["value"] is not None},
            "flags": own["flags"],
            "judge_usd": sum(one["cost_usd"] or 0.0 for one in stored["judgements"]),
            "group": f"{url.rstrip('/')}/view/groups/{group['group_id']}",
        }
        if own["reward"] is None:
            return Score.unscored(reason=own["reason"] or "pending", explanation=own["rationale"], metadata=about)
        return Score(value=own["reward"], explanation=own["rationale"], metadata=about)

    return measure


async def score_patiently(client: httpx.AsyncClient, environment: str, body: Json) -> Json:
    """The group, once it has its score or can have none."""
    end = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        (group,) = (await send(client, f"/envs/{environment}/score", body))["groups"]
        missing = {one["reason"] for one in group.get("scores", []) if one["reward"] is None}
        if not missing - FINAL or asyncio.get_running_loop().time() >= end:
            return dict(group)
        await asyncio.sleep(2)


async def send(client: httpx.AsyncClient, path: str, body: Json | None = None) -> Any:
    """Again while the gateway is away. An error that stays is raised, and the sample fails."""
    for attempt in itertools.count():
        try:
            answer = await (client.get(path) if body is None else client.post(path, json=body))
            if answer.status_code not in {429, 502, 503, 504} or attempt * 30 > PATIENCE_SECONDS:
                return answer.raise_for_status().json()
        except httpx.TransportError:
            if attempt * 30 > PATIENCE_SECONDS:
                raise
        await asyncio.sleep(min(2.0**attempt, 30.0))
