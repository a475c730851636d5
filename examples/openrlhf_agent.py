"""OpenRLHF's agent over a gateway: episodes of several turns, scored as whole groups. OpenRLHF 0.11.2.

atropos-envs tasks prompts.jsonl --env mastermind --for openrlhf_agent --count 5000
ATROPOS_ENVS_URL=http://127.0.0.1:8000 ATROPOS_ENVS_RUN=my-run python -m openrlhf.cli.train_ppo_ray \
    --train.agent_func_path examples/openrlhf_agent.py --data.prompt_dataset prompts.jsonl \
    --data.input_key prompt --data.label_key label --data.apply_chat_template --rollout.n_samples_per_prompt 8 …

The key comes from `ATROPOS_ENVS_API_KEY`. OpenRLHF's template knows no tools: take tasks that write theirs into the
prompt (in `tool_agent`: `--params '{"tool_format": "hermes"}'`).

Ranks       OpenRLHF plays the samples of a prompt in one actor; they meet there, and the last sends the group. What
            comes after GATHER_SECONDS is a group of its own.
Retries     A lost reply is asked for again with the same body: what is sent twice is scored once.
Truncation  An episode that `--data.max_len` cuts is scored as it stands, and says when its last reply was cut off.
No score    After PATIENCE_SECONDS it raises, which stops the training: OpenRLHF has no word for it.
Evaluation  Rows of `--split test` are scored one by one, on what is comparable, and are in no training figure.
Logs        `extra_logs`: criteria (0 without a value), `absolute`, `flagged` and `unscored` (the means are shares),
            `judge_usd` (the group's dollars over its samples; 0 where no price is known). It takes numbers alone, so
            the group's page goes to its log, and the same names in every sample: train on one environment at a time.
"""

import asyncio
import json
import os
import time
from copy import copy, deepcopy
from typing import Any

import aiohttp
import numpy as np
from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor
from openrlhf.utils.logging_utils import init_logger

GATHER_SECONDS = 900.0
"""How long the first sample of a group waits for the last."""
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
MARK = "\N{REPLACEMENT CHARACTER}reply\N{REPLACEMENT CHARACTER}"

Json = dict[str, Any]
logger = init_logger(__name__)


class Episode(AgentInstanceBase):
    """One sample's. Stands before the model's engine too, since `step` is not told how a reply ended."""

    def __init__(self, task: Json, tokenizer: Any, engine: Any) -> None:
        self.task, self.tokenizer, self.engine = task, tokenizer, engine
        self.said: list[Json] = []
        self.reply: Any = None

    async def generate(self, *args: Any, **kwargs: Any) -> Any:
        request = await self.engine.generate(*args, **kwargs)
        self.reply = request.outputs[0]
        return request

    async def step(self, state_dict: Json, **_: Any) -> Json:
        over = {"rewards": np.float64(0.0), "environment_feedback": "", "done": True}
        ids = [*self.reply.token_ids]
        end = len(ids)
        while end and ids[end - 1] in self.tokenizer.all_special_ids:
            end -= 1
        self.said.append({"role": "assistant", "content": self.tokenizer.decode(ids[:end], skip_special_tokens=False)})
        turns = sum(message["role"] == "assistant" for message in self.said)
        if self.reply.finish_reason == "length" or turns >= self.task["max_turns"]:
            return over
        body = {"task_id": self.task["task_id"], "messages": self.said}
        turn = await send(f"/envs/{self.task['environment']}/step", body)
        if turn["done"]:
            return over
        feedback = self.write_feedback(turn["messages"], ids[end:])
        counted = self.tokenizer(text=feedback, add_special_tokens=False, return_tensors="pt")["input_ids"][0].tolist()
        if len(counted) + len(ids) >= state_dict["sampling_params"].max_tokens:
            return over
        self.said += turn["messages"]
        return {**over, "environment_feedback": feedback, "done": False}

    def write_feedback(self, heard: list[Json], ends: list[int]) -> str:
        """What the chat template puts between this reply and the next; the reply may have ended its turn itself."""
        before = [{"role": "user", "content": "."}, {"role": "assistant", "content": MARK}]
        text = self.tokenizer.apply_chat_template(before + heard, tokenize=False, add_generation_prompt=True)
        return str(text.split(MARK, 1)[1].removeprefix(self.tokenizer.decode(ends, skip_special_tokens=False)))


class Group:
    """Samples of one prompt that are scored together."""

    def __init__(self) -> None:
        self.playing = 0
        self.samples: list[Json] = []
        self.complete = asyncio.Event()
        self.scoring: asyncio.Task[list[Json]] | None = None


class AgentExecutor(MultiTurnAgentExecutor):
    """OpenRLHF asks for this name. One plays all samples of an actor."""

    def __init__(self) -> None:
        super().__init__(Episode)
        self.starting: dict[str, Group] = {}

    async def execute(
        self,
        prompt: str,
        label: str,
        sampling_params: Any,
        max_length: int,
        hf_tokenizer: Any,
        llm_engine: Any,
        images: Any = None,
    ) -> Json:
        task = json.loads(label)
        group = joined = self.join(label, alone=task["purpose"] == "eval")
        await asyncio.sleep(0)  # until the others have joined
        episode = Episode(task, hf_tokenizer, llm_engine)
        player = copy(self)
        player.agent_instance_cls = lambda: episode
        params = deepcopy(sampling_params)  # they are one for all samples, and the loop writes into them
        try:
            played: Json = await super(AgentExecutor, player).execute(
                prompt, label, params, max_length, hf_tokenizer, episode, images
            )
            if not episode.said:
                raise ValueError("--data.max_len leaves the prompt no room for a reply")
            sample = {"messages": episode.said, "finish_reason": "length" if played["truncated"] else "stop"}
            if group.complete.is_set():
                group = Group()
            group.samples.append(sample)
            place = len(group.samples) - 1
        finally:
            joined.playing -= 1
            if not joined.playing:
                joined.complete.set()
        if group is joined:
            await asyncio.wait([asyncio.create_task(group.complete.wait())], timeout=GATHER_SECONDS)
            group.complete.set()
        group.scoring = group.scoring or asyncio.create_task(score(task, group.samples))
        return {**played, **(await asyncio.shield(group.scoring))[place]}

    def join(self, label: str, alone: bool) -> Group:
        """OpenRLHF does not say how many samples there are, but starts all in one turn of the event loop: when what
        this schedules is called, they have come."""
        if alone:
            group = Group()
        else:
            if label not in self.starting:
                self.starting[label] = Group()
                asyncio.get_running_loop().call_soon(self.starting.pop, label)
            group = self.starting[label]
        group.playing += 1
        return group


async def score(task: Json, samples: list[Json]) -> list[Json]:
    """Of a whole group, in one request."""
    body = {"run": os.environ.get("ATROPOS_ENVS_RUN", "openrlhf"), "purpose": task["purpose"]}
    body["groups"] = [{"task_id": task["task_id"], "completions": samples}]
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        (group,) = (await send(f"/envs/{task['environment']}/score", body))["groups"]
        if "scores" not in group:
            raise RuntimeError(f"the group was refused: {group['detail']}")
        missing = {one["reason"] for one in group["scores"] if one["reward"] is None}
        if not missing:
            break
        if missing & FINAL or time.monotonic() >= end:
            raise RuntimeError(f"no score: {', '.join(sorted(missing))}")
        await asyncio.sleep(2)
    stored = await send(f"/groups/{group['group_id']}", None)
    usd = sum(one["cost_usd"] or 0.0 for one in stored["judgements"]) / len(samples)
    names = [one["name"] for one in (await send(f"/envs/{task['environment']}", None))["criteria"]]
    logger.info(f"rewards {group['rewards']}: {gateway()}/view/groups/{group['group_id']}")
    told = []
    for one in group["scores"]:
        values = {criterion["name"]: criterion["value"] for criterion in one["criteria"]}
        absolute = one["reward"] if one["absolute"] is None else one["gate"] * one["absolute"]
        logs = {"absolute": absolute, "flagged": float(bool(one["flags"])), "unscored": 0.0, "judge_usd": usd}
        logs |= {f"criterion_{name}": values.get(name) or 0.0 for name in names}
        told.append({"reward": one["reward"], "scores": absolute, "extra_logs": logs})
    return told


def gateway() -> str:
    return os.environ.get("ATROPOS_ENVS_URL", "http://127.0.0.1:8000").rstrip("/")


async def send(path: str, body: Json | None) -> Json:
    """Again while the gateway is away, for PATIENCE_SECONDS. A GET without a body."""
    key = os.environ.get("ATROPOS_ENVS_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            async with (
                aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=600)) as session,
                session.request("GET" if body is None else "POST", gateway() + path, json=body) as reply,
            ):
                if reply.ok:
                    return dict(await reply.json())
                said = f"{path} answers {reply.status}: {await reply.text()}"
                if reply.status < 500 and reply.status != 429:
                    raise ValueError(said)
        except (aiohttp.ClientError, TimeoutError) as error:
            said = f"{path} does not answer: {error!r}"
        if time.monotonic() >= end:
            raise RuntimeError(said)
        await asyncio.sleep(2)
