"""Tinker cookbook's groups over a gateway: episodes of several turns with tools, scored whole. tinker-cookbook 0.6.1.

TINKER_API_KEY=… python examples/tinker_group.py environment=mastermind model_name=Qwen/Qwen3-8B log_path=runs/first

trains; `--help` lists the options, and a training of your own takes `GatewayDatasetBuilder`. The gateway's key
comes from `ATROPOS_ENVS_API_KEY`.

Groups      `compute_group_rewards` sends the whole group in one request.
Ranks       Builders are texts and numbers, so groups may be played in other processes.
Retries     A lost reply is asked for again with the same body: what is sent twice is scored once.
Turns       Tinker adds the group's reward to those of steps. In a run with `turn_rewards` a step gives what its turn
            adds, and the group's reward is the rest.
Truncation  A reply that `max_tokens` cuts ends the episode, which is scored as it stands and says so.
No score    Of one sample: the mean of the others, so that its advantage is 0, and `unscored` is 1. Of all: after
            PATIENCE_SECONDS it raises, and `rollout_error_tolerance=True` leaves the group out of the step.
Evaluation  `eval_batches` of held-out tasks are scored on what is comparable, and are in no training figure.
Logs        `env/all/…` and `env/<environment>/…`: criteria, `absolute`, `flagged` and `unscored` (the means are
            shares), `judge_usd` (the group's dollars over its samples). Tinker averages numbers alone, so the group's
            page goes to its log.
"""

import asyncio
import json
import logging
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import chz
import httpx
from tinker import ModelInput
from tinker_cookbook import hyperparam_utils, model_info, tokenizer_utils
from tinker_cookbook.renderers import Message, Renderer, ToolCall, get_renderer
from tinker_cookbook.renderers.base import ensure_list
from tinker_cookbook.rl import train
from tinker_cookbook.rl.types import Env, EnvGroupBuilder, RLDataset, RLDatasetBuilder, StepResult, Trajectory

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

Json = dict[str, Any]
log = logging.getLogger(__name__)


class Episode(Env):
    """One sample's. What the model says reaches the gateway as the renderer reads it, tokens that end it left out."""

    def __init__(self, group: "GatewayGroup") -> None:
        self.group = group
        self.task: Json = json.loads(group.task)
        self.conversation = render_task(group.renderer, self.task)
        self.said: list[Json] = []
        self.given = 0.0
        self.cut = False

    async def initial_observation(self) -> tuple[ModelInput, Any]:
        return await self.render(), self.group.renderer.get_stop_sequences()

    async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
        message = self.parse(action)
        self.cut = (extra or {}).get("stop_reason") == "length"
        self.conversation.append(message)
        self.said.append(read_message(message))
        turns = sum(one["role"] == "assistant" for one in self.said)
        if self.cut or turns >= self.task["max_turns"]:
            return self.go_on(ModelInput.empty(), done=True)
        body = {"task_id": self.task["task_id"], "messages": self.said, "run": self.group.run}
        turn = await send(self.group.url, f"/envs/{self.group.environment}/step", body)
        if turn["done"]:
            return self.go_on(ModelInput.empty(), done=True)
        self.said += turn["messages"]
        self.conversation += [make_message(one) for one in turn["messages"]]
        part = turn.get("reward") or 0.0
        self.given += part
        return self.go_on(await self.render(), done=False, reward=part)

    def parse(self, action: list[int]) -> Message:
        """Every call has a name of its own, by which its result is known."""
        message, _ = self.group.renderer.parse_response(action)
        calls = message.get("tool_calls", [])
        names = [call.id or f"call_{len(self.said)}_{number}" for number, call in enumerate(calls)]
        if calls:
            message["tool_calls"] = [
                call.model_copy(update={"id": name}) for call, name in zip(calls, names, strict=True)
            ]
        return message

    def go_on(self, observation: ModelInput, *, done: bool, reward: float = 0.0) -> StepResult:
        stops = self.group.renderer.get_stop_sequences()
        return StepResult(reward=reward, episode_done=done, next_observation=observation, next_stop_condition=stops)

    async def render(self) -> ModelInput:
        return await asyncio.to_thread(self.group.renderer.build_generation_prompt, self.conversation)


@dataclass(frozen=True)
class GatewayGroup(EnvGroupBuilder):
    """All samples of one task. `task` is JSON, as `next-batch` gives it, and `policy`, as `score` takes it."""

    url: str
    environment: str
    run: str
    purpose: str
    policy: str
    task: str
    size: int
    renderer: Renderer

    async def make_envs(self) -> Sequence[Env]:
        return [Episode(self) for _ in range(self.size)]

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[Env]
    ) -> list[tuple[float, dict[str, float | int]]]:
        played = [episode for episode in env_group if isinstance(episode, Episode)]
        group = await self.score([describe_sample(episode) for episode in played])
        rewards = [score["reward"] for score in group["scores"]]
        scored = [reward for reward in rewards if reward is not None]
        missing = sorted({score["reason"] for score in group["scores"] if score["reward"] is None})
        if len(scored) < min(2, len(rewards)):
            raise RuntimeError(f"no score: {', '.join(missing)}")
        log.info("rewards %s: %s/view/groups/%s", rewards, self.url.rstrip("/"), group["group_id"])
        stored = await send(self.url, f"/groups/{group['group_id']}")
        usd = sum(judgement["cost_usd"] or 0.0 for judgement in stored["judgements"]) / self.size
        neutral = sum(scored) / len(scored)
        return [
            (
                (neutral if score["reward"] is None else score["reward"]) - episode.given,
                {**list_metrics(score), "judge_usd": usd},
            )
            for score, episode in zip(group["scores"], played, strict=True)
        ]

    async def score(self, samples: list[Json]) -> Json:
        """The group's scores; asked for again while some are missing that may yet come."""
        body = {"run": self.run, "purpose": self.purpose, "policy": json.loads(self.policy)}
        body["groups"] = [{"task_id": json.loads(self.task)["task_id"], "completions": samples}]
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            (group,) = (await send(self.url, f"/envs/{self.environment}/score", body))["groups"]
            if "scores" not in group:
                raise RuntimeError(f"the group was refused: {group['detail']}")
            missing = {score["reason"] for score in group["scores"] if score["reward"] is None}
            if not missing - FINAL or time.monotonic() >= end:
                return dict(group)
            await asyncio.sleep(2)

    def logging_tags(self) -> list[str]:
        return [self.environment]


class GatewayDataset(RLDataset):
    """Batch `n` is the same whenever it is asked for, so that a training which is resumed goes on where it was."""

    def __init__(self, options: "GatewayDatasetBuilder", split: str, batches: int, renderer: Renderer) -> None:
        self.options, self.split, self.batches, self.renderer = options, split, batches, renderer

    def __len__(self) -> int:
        return self.batches

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        options, evaluates = self.options, self.split == "test"
        cursor = index * options.groups_per_batch
        body = {"run": options.run, "split": self.split, "params": json.loads(options.params), "cursor": cursor}
        path = f"/envs/{options.environment}/next-batch"
        asked = {**body, "batch_size": options.groups_per_batch}
        with ThreadPoolExecutor(1) as thread:  # Tinker asks without awaiting, in its event loop
            tasks = thread.submit(asyncio.run, send(options.url, path, asked)).result()["tasks"]
        return [
            GatewayGroup(
                url=options.url,
                environment=options.environment,
                run=options.run,
                purpose="eval" if evaluates else "train",
                policy=json.dumps({"model": options.model_name} | ({} if evaluates else {"step": index})),
                task=json.dumps(task),
                size=1 if evaluates else options.group_size,
                renderer=self.renderer,
            )
            for task in tasks
        ]


@chz.chz
class GatewayDatasetBuilder(RLDatasetBuilder):
    """`params` is JSON; `model_name` may be a folder with a tokenizer."""

    environment: str
    model_name: str
    url: str = "http://127.0.0.1:8000"
    run: str = "tinker"
    params: str = "{}"
    renderer_name: str | None = None
    groups_per_batch: int = 32
    group_size: int = 8
    batches: int = 100
    eval_batches: int = 0

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        name = self.renderer_name or model_info.get_recommended_renderer_name(self.model_name)
        renderer = get_renderer(name, tokenizer_utils.get_tokenizer(self.model_name), model_name=self.model_name)
        held_out = GatewayDataset(self, "test", self.eval_batches, renderer) if self.eval_batches else None
        return GatewayDataset(self, "train", self.batches, renderer), held_out


@chz.chz
class Training(GatewayDatasetBuilder):
    """What the command takes. `learning_rate` is Tinker's advice for the model when it is not said."""

    log_path: str
    learning_rate: float | None = None
    max_tokens: int = 2048
    max_steps: int | None = None
    wandb_project: str | None = None

    def plan(self) -> train.Config:
        return train.Config(
            dataset_builder=self,
            model_name=self.model_name,
            renderer_name=self.renderer_name,
            recipe_name="atropos_envs",
            learning_rate=self.learning_rate or hyperparam_utils.get_lr(self.model_name),
            max_tokens=self.max_tokens,
            max_steps=self.max_steps,
            log_path=self.log_path,
            wandb_project=self.wandb_project,
            rollout_error_tolerance=True,
        )


def render_task(renderer: Renderer, task: Json) -> list[Message]:
    """The prompt; tools stand in its system message, as the model's family writes them."""
    messages = [make_message(one) for one in task["messages"]]
    tools = [one.get("function", one) for one in task.get("tools") or ()]
    if not tools:
        return messages
    system = [str(one["content"]) for one in messages if one["role"] == "system"]
    others = [one for one in messages if one["role"] != "system"]
    return [*renderer.create_conversation_prefix_with_tools(tools, "\n\n".join(system)), *others]


def make_message(told: Json) -> Message:
    message = Message(role=told["role"], content=told.get("content") or "")
    if told.get("tool_call_id"):
        message["tool_call_id"] = told["tool_call_id"]
    if told.get("name"):
        message["name"] = told["name"]
    if told.get("tool_calls"):
        message["tool_calls"] = [ToolCall.model_validate(call) for call in told["tool_calls"]]
    return message


def read_message(message: Message) -> Json:
    """As the gateway takes it. Calls that cannot be read stay in the text: the environment says what is wrong."""
    parts = ensure_list(message["content"])
    thoughts = [part["thinking"] for part in parts if part["type"] == "thinking"]
    texts = [part["text"] for part in parts if part["type"] == "text"]
    texts += [call.raw_text for call in message.get("unparsed_tool_calls", ())]
    said: Json = {"role": "assistant", "content": "".join(texts).encode(errors="replace").decode()}
    if thoughts:
        said["reasoning_content"] = "".join(thoughts).encode(errors="replace").decode()
    calls = [call.model_dump() for call in message.get("tool_calls", ())]
    return {**said, "tool_calls": calls} if calls else said


def describe_sample(episode: Episode) -> Json:
    return {"messages": episode.said, "finish_reason": "length" if episode.cut else "stop"}


def list_metrics(score: Json) -> dict[str, float | int]:
    named = {f"criterion_{one['name']}": one["value"] for one in score["criteria"] if one["value"] is not None}
    told = {"flagged": float(bool(score["flags"])), "unscored": float(score["reward"] is None), **named}
    if score["reward"] is None:
        return told
    absolute = score["reward"] if score["absolute"] is None else score["gate"] * score["absolute"]
    return {**told, "absolute": absolute}


async def send(url: str, path: str, body: Json | None = None) -> Json:
    """Again while the gateway is away, for PATIENCE_SECONDS. A GET without a body."""
    key = os.environ.get("ATROPOS_ENVS_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    end = time.monotonic() + PATIENCE_SECONDS
    async with httpx.AsyncClient(base_url=url.rstrip("/"), timeout=600, headers=headers) as gateway:
        while True:
            try:
                reply = await (gateway.get(path) if body is None else gateway.post(path, json=body))
                if reply.is_success:
                    return dict(reply.json())
                said = f"{path} answers {reply.status_code}: {reply.text}"
                if reply.status_code < 500 and reply.status_code != 429:
                    raise ValueError(said)
            except httpx.TransportError as error:
                said = f"{path} does not answer: {error!r}"
            if time.monotonic() >= end:
                raise RuntimeError(said)
            await asyncio.sleep(2)


if __name__ == "__main__":
    asyncio.run(train.main(chz.entrypoint(Training).plan()))
