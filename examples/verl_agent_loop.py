"""verl's agent loop over a gateway: episodes of several turns with tools, scored as whole groups. verl 0.9.1.

atropos-envs tasks train.parquet --env tool_agent --for verl_agent --count 5000
atropos-envs tasks val.parquet --env tool_agent --for verl_agent --split test --count 200
PYTHONPATH=examples python -m verl.trainer.main_ppo data.train_files=train.parquet data.val_files=val.parquet \
    actor_rollout_ref.rollout.n=8 actor_rollout_ref.rollout.calculate_log_probs=True \
    actor_rollout_ref.rollout.agent.agent_loop_config_path=agents.yaml …

agents.yaml:   - {name: gateway, _target_: verl_agent_loop.GatewayLoop, gateway: "http://127.0.0.1:8000", run: my-run}

The key comes from `ATROPOS_ENVS_API_KEY`. You will see rewards, criteria and group pages in `reward_extra_info`.

Ranks       verl plays the samples of a prompt in one process; they meet there, and the last sends the group. It needs
            `trainer.use_v1`, which is the default. What comes after GATHER_SECONDS is left out of its group.
Retries     A lost reply is asked for again with the same body: what is sent twice is scored once.
Truncation  An episode that verl cuts at `response_length` is scored as it stands. A reply whose last token is no
            special token was cut off, and says so.
No score    After PATIENCE_SECONDS the sample raises, and verl trains on the others of its group. Where fewer than two
            would be left all raise: one alone would have its bare reward as its advantage.
Validation  Rows of `--split test` are scored one by one, on what is comparable, and are in no training figure.
Logs        `reward_extra_info`: criteria (0 without a value), `absolute`, `flagged` and `unscored` (the means are
            shares), `judge_usd` (the group's dollars over its samples; 0 where no price is known), `group_url` (the
            group's page).
"""

import asyncio
import json
import os
import time
from typing import Any
from uuid import uuid4

import aiohttp
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

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

Json = dict[str, Any]


class GatewayLoop(AgentLoopBase):
    """verl makes one for each sample."""

    def __init__(self, *args: Any, gateway: str, run: str, model: str = "policy", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gateway, self.run_name, self.model = gateway.rstrip("/"), run, model

    async def run(self, sampling_params: Json, **row: Any) -> AgentLoopOutput:
        validates = row["purpose"] == "eval"
        size = 1 if validates else self.rollout_config.n
        key, place = (uuid4().hex, 0) if validates else (row["uid"], row["session_id"])
        group = GROUPS.setdefault(key, Group(size))
        try:
            began = time.monotonic()
            output, sample = await self.play(sampling_params, row)
            ended = time.monotonic()
            group.bring(place, sample)
        finally:
            group.playing -= 1
            if not group.playing:
                group.complete.set()
                GROUPS.pop(key, None)
        await asyncio.wait([asyncio.create_task(group.complete.wait())], timeout=GATHER_SECONDS)
        group.complete.set()
        if group.scoring is None:
            group.samples = dict(sorted(group.samples.items()))
            group.scoring = asyncio.create_task(self.score(row, [*group.samples.values()]))
        scores = dict(zip(group.samples, await asyncio.shield(group.scoring), strict=True))
        if scores[place]["reward"] is None:
            raise RuntimeError(f"no score: {scores[place]['reason']}")
        if sum(one["reward"] is not None for one in scores.values()) < min(2, size):
            raise RuntimeError("a sample that has lost its group has no reward")
        output.reward_score = scores[place]["reward"]
        output.metrics.generate_sequences = ended - began - output.metrics.tool_calls
        output.metrics.compute_score = time.monotonic() - ended
        output.extra_fields |= {"reward_extra_info": scores[place]["logged"], "turn_scores": [], "tool_rewards": []}
        return output

    async def play(self, sampling_params: Json, row: Json) -> tuple[AgentLoopOutput, Json]:
        """The tokens, and what was said. Ids are never made from the model's text: they are those that it sampled."""
        prompt, tools, most = list(row["raw_prompt"]), json.loads(row["tools"]), self.rollout_config.response_length
        ids = await self.ct_build_initial_tokens(prompt, tools=tools or None)
        mask: list[int] = []
        log_probs: list[float] | None = None
        said: list[Json] = []
        told: Json = {}
        asked, waited, cut = uuid4().hex, 0.0, False
        while True:
            reply = await self.server_manager.generate(
                request_id=asked, prompt_ids=ids, sampling_params=dict(sampling_params)
            )
            if not reply.token_ids:
                raise RuntimeError(f"the model's server gave no tokens: {reply.stop_reason}")
            told = reply.extra_fields | {name: told[name] for name in ("min_global_steps",) if name in told}
            fits = reply.token_ids[: most - len(mask)]
            new_log_probs = reply.log_probs[: len(fits)] if reply.log_probs else None
            merged, mask, log_probs = await self.ct_merge_assistant_token(
                ids, fits, mask, log_probs if mask else new_log_probs and [], assistant_logprobs=new_log_probs
            )
            ids = merged.token_ids
            text, cut = self.read(fits)
            said.append({"role": "assistant", "content": text})
            if cut or len(mask) >= most or len([one for one in said if one["role"] == "assistant"]) >= row["max_turns"]:
                break
            began = time.monotonic()
            turn = await self.post(f"/envs/{row['data_source']}/step", {"task_id": row["task_id"], "messages": said})
            waited += time.monotonic() - began
            if turn["done"]:
                break
            heard = [*said, *turn["messages"]]
            merged, longer, longer_log_probs = await self.ct_merge_context_msg(
                prompt + said, prompt + heard, ids, mask, log_probs, tools=tools or None
            )
            if len(longer) >= most:
                break
            ids, mask, log_probs, said = merged.token_ids, longer, longer_log_probs, heard
        output = AgentLoopOutput(
            prompt_ids=ids[: len(ids) - len(mask)],
            response_ids=ids[len(ids) - len(mask) :][:most],
            response_mask=mask[:most],
            response_logprobs=log_probs[:most] if log_probs else None,
            num_turns=1 + len(said),
            metrics=AgentLoopMetrics(tool_calls=waited),
            extra_fields=told,
        )
        return output, {"messages": said, "finish_reason": "length" if cut else "stop"}

    def read(self, ids: list[int]) -> tuple[str, bool]:
        """The reply without the tokens that end it, and whether it was cut off."""
        special, end = set(self.tokenizer.all_special_ids), len(ids)
        while end and ids[end - 1] in special:
            end -= 1
        return self.tokenizer.decode(ids[:end], skip_special_tokens=False), end == len(ids)

    async def score(self, row: Json, samples: list[Json]) -> list[Json]:
        """Of a whole group, in one request."""
        policy = {"model": self.model, "step": row.get("global_steps")}
        body = {"run": self.run_name, "policy": policy, "purpose": row["purpose"]}
        body["groups"] = [{"task_id": row["task_id"], "completions": samples}]
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            (group,) = (await self.post(f"/envs/{row['data_source']}/score", body))["groups"]
            if "scores" not in group:
                raise RuntimeError(f"the group was refused: {group['detail']}")
            missing = {one["reason"] for one in group["scores"] if one["reward"] is None}
            if not missing - FINAL or time.monotonic() >= end:
                break
            await asyncio.sleep(2)
        stored = await self.post(f"/groups/{group['group_id']}", None)
        usd = sum(one["cost_usd"] or 0.0 for one in stored["judgements"])
        names = sorted({criterion["name"] for score in group["scores"] for criterion in score["criteria"]})
        for score in group["scores"]:
            values = {criterion["name"]: criterion["value"] for criterion in score["criteria"]}
            gated = None if score["gate"] is None or score["absolute"] is None else score["gate"] * score["absolute"]
            score["logged"] = {
                "absolute": score["reward"] if gated is None else gated,
                "flagged": float(bool(score["flags"])),
                "unscored": sum(one["reward"] is None for one in group["scores"]) / len(samples),
                "judge_usd": usd / len(samples),
                "group_url": f"{self.gateway}/view/groups/{group['group_id']}",
            } | {f"criterion_{name}": values.get(name) or 0.0 for name in names}
        return list(group["scores"])

    async def post(self, path: str, body: Json | None) -> Json:
        """Again while the gateway is away, for PATIENCE_SECONDS. A GET without a body."""
        key = os.environ.get("ATROPOS_ENVS_API_KEY")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                async with (
                    aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=600)) as session,
                    session.request("GET" if body is None else "POST", self.gateway + path, json=body) as reply,
                ):
                    if reply.ok:
                        return dict(await reply.json())
                    said = f"{path} answers {reply.status}: {await reply.text()}"
                    if reply.status < 500 and reply.status != 429:
                        raise ValueError(said)
            except (TimeoutError, aiohttp.ClientError) as error:
                said = f"{path} does not answer: {error!r}"
            if time.monotonic() >= end:
                raise RuntimeError(said)
            await asyncio.sleep(2)


class Group:
    """Samples of one prompt, by their places, that are scored together."""

    def __init__(self, size: int) -> None:
        self.playing = size
        self.samples: dict[int, Json] = {}
        self.complete = asyncio.Event()
        self.scoring: asyncio.Task[list[Json]] | None = None

    def bring(self, place: int, sample: Json) -> None:
        if self.complete.is_set():
            raise RuntimeError("this sample came too late for its group")
        self.samples[place] = sample


GROUPS: dict[str, Group] = {}
"""Of this process, by verl's id of a prompt in a step."""
