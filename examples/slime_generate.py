"""slime's generate function and group reward over a gateway: episodes of several turns with tools. slime 624b824.

atropos-envs tasks prompts.jsonl --env tool_agent --for slime_agent --count 5000
ATROPOS_ENVS_URL=http://127.0.0.1:8000 ATROPOS_ENVS_RUN=my-run PYTHONPATH=examples python train.py \
    --prompt-data prompts.jsonl --input-key prompt --tool-key tools --metadata-key metadata --apply-chat-template \
    --n-samples-per-prompt 8 --custom-generate-function-path slime_generate.generate \
    --group-rm --custom-rm-path slime_generate.reward --dynamic-sampling-filter-path slime_generate.keep …

The key comes from `ATROPOS_ENVS_API_KEY`.

Ranks       slime hands all samples of a prompt to `reward` at once, which sends them as one group.
Retries     A lost reply is asked for again with the same body: what is sent twice is scored once.
Truncation  An episode that `--rollout-max-response-len` cuts is scored as it stands, and says when its last reply was
            cut off. One that slime aborts begins anew.
No score    After PATIENCE_SECONDS `keep` has slime draw another prompt in place of the whole group, counted as
            `rollout/dynamic_filter/drop_unscored`. Without that filter it raises, which stops the training.
Evaluation  slime has none with `--group-rm`: `atropos-envs evaluate` asks the model's server.
Logs        The sample's `metadata`: criteria, `absolute`, `flagged` and `unscored` (the means are shares), `judge_usd`
            (the group's dollars over its samples; 0 where no price is known), `group_url` (the group's page).
"""

import asyncio
import os
import time
from argparse import Namespace
from typing import Any

import httpx
from slime.rollout import sglang_rollout
from slime.rollout.filter_hub.base_types import DynamicFilterOutput
from slime.utils.http_utils import post
from slime.utils.types import Sample

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


async def generate(args: Namespace, sample: Sample, sampling_params: Json) -> Sample:
    """Plays one episode. Ids are never made from the model's text: they are those that it sampled."""
    tokenizer, task = sglang_rollout.GenerateState(args).tokenizer, sample.metadata
    begin(sample, tokenizer.encode(sample.prompt, add_special_tokens=False))
    most = sampling_params["max_new_tokens"]
    by_session = getattr(args, "router_policy", None) == "consistent_hashing"
    headers = {"X-SMG-Routing-Key": sample.session_id} if by_session else None
    said: list[Json] = []
    while True:
        params = {**sampling_params, "max_new_tokens": most - sample.response_length}
        body = {"input_ids": sample.tokens, "sampling_params": params, "return_logprob": True}
        url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
        output = await post(url, body, headers=headers)
        told = output["meta_info"]
        ids = [one[1] for one in told["output_token_logprobs"]]
        log_probs = [one[0] for one in told["output_token_logprobs"]]
        sample.append_response_tokens(args, tokens=ids, log_probs=log_probs, meta_info=told, text=output["text"])
        if sample.status == Sample.Status.ABORTED:
            return sample
        end = len(ids)
        while end and ids[end - 1] in tokenizer.all_special_ids:
            end -= 1
        said.append({"role": "assistant", "content": tokenizer.decode(ids[:end], skip_special_tokens=False)})
        turns = sum(message["role"] == "assistant" for message in said)
        if sample.status == Sample.Status.TRUNCATED or turns >= task["max_turns"]:
            break
        turn = await send(f"/envs/{task['environment']}/step", {"task_id": task["task_id"], "messages": said})
        if turn["done"]:
            break
        feedback = write_feedback(tokenizer, turn["messages"], ids[end:])
        heard = tokenizer.encode(feedback, add_special_tokens=False)
        if sample.response_length + len(heard) >= most:
            sample.status = Sample.Status.TRUNCATED
            break
        sample.append_response_tokens(args, tokens=heard, trainable=False, text=feedback)
        said += turn["messages"]
    cut = told["finish_reason"]["type"] == "length"
    task["completion"] = {"messages": said, "finish_reason": "length" if cut else "stop"}
    return sample


def begin(sample: Sample, prompt: list[int]) -> None:
    """An aborted sample comes again with what it had, to which the environment's turns are lost."""
    sample.tokens, sample.response, sample.response_length = prompt, "", 0
    sample.loss_mask = sample.rollout_log_probs = None
    sample.rollout_top_p_token_ids = sample.rollout_top_p_token_offsets = sample.rollout_routed_experts = None
    sample.status = Sample.Status.PENDING


def write_feedback(tokenizer: Any, heard: list[Json], ends: list[int]) -> str:
    """What the chat template puts between this reply and the next; the reply may have ended its turn itself."""
    before = [{"role": "user", "content": "."}, {"role": "assistant", "content": MARK}]
    text = tokenizer.apply_chat_template(before + heard, tokenize=False, add_generation_prompt=True)
    return str(text.split(MARK, 1)[1].removeprefix(tokenizer.decode(ends, skip_special_tokens=False)))


async def reward(args: Namespace, samples: list[Sample], **_: Any) -> list[float]:
    """Of a whole group, in one request. 0 where `keep` throws the group away."""
    task = samples[0].metadata
    completions = [sample.metadata["completion"] for sample in samples]
    body = {"run": os.environ.get("ATROPOS_ENVS_RUN", "slime"), "purpose": task["purpose"]}
    body["groups"] = [{"task_id": task["task_id"], "completions": completions}]
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        (group,) = (await send(f"/envs/{task['environment']}/score", body))["groups"]
        if "scores" not in group:
            raise RuntimeError(f"the group was refused: {group['detail']}")
        missing = {one["reason"] for one in group["scores"] if one["reward"] is None}
        if not missing - FINAL or time.monotonic() >= end:
            break
        await asyncio.sleep(2)
    if missing and not str(args.dynamic_sampling_filter_path).endswith("slime_generate.keep"):
        raise RuntimeError(f"no score: {', '.join(sorted(missing))}")
    stored = await send(f"/groups/{group['group_id']}", None)
    usd = sum(one["cost_usd"] or 0.0 for one in stored["judgements"]) / len(samples)
    for sample, score in zip(samples, group["scores"], strict=True):
        gated = None if score["gate"] is None or score["absolute"] is None else score["gate"] * score["absolute"]
        sample.metadata |= {
            "absolute": score["reward"] if gated is None else gated,
            "flagged": float(bool(score["flags"])),
            "unscored": float(score["reward"] is None),
            "judge_usd": usd,
            "group_url": f"{gateway()}/view/groups/{group['group_id']}",
            **{f"criterion_{one['name']}": one["value"] or 0.0 for one in score["criteria"]},
        }
    return [0.0 if missing else score["reward"] for score in group["scores"]]


def keep(args: Namespace, group: list[Sample], **_: Any) -> DynamicFilterOutput:
    scored = not any(sample.metadata["unscored"] for sample in group)
    return DynamicFilterOutput(keep=scored, reason=None if scored else "unscored")


def gateway() -> str:
    return os.environ.get("ATROPOS_ENVS_URL", "http://127.0.0.1:8000").rstrip("/")


async def send(path: str, body: Json | None) -> Json:
    """Again while the gateway is away, for PATIENCE_SECONDS. A GET without a body."""
    key = os.environ.get("ATROPOS_ENVS_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    end = time.monotonic() + PATIENCE_SECONDS
    async with httpx.AsyncClient(base_url=gateway(), headers=headers, timeout=600) as client:
        while True:
            try:
                reply = await client.request("GET" if body is None else "POST", path, json=body)
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
