"""slime's own rollout of a group plays episodes through examples/slime_generate.py.

Takes the folder of slime's source, a file with the job, a file for what slime was given. Its model server and router,
and the state that holds a tokenizer, are stood in for; the rest is slime's.
"""

import asyncio
import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from job_files import answer, in_turns
from tiny import tiny_tokenizer

TOKENIZER = tiny_tokenizer()
SAMPLING = Namespace(
    partial_rollout=False,
    mask_offpolicy_in_partial_rollout=False,
    group_rm=True,
    custom_generate_function_path="slime_generate.generate",
    custom_rm_path="slime_generate.reward",
    rollout_sample_hook_path=[],
    sglang_enable_deterministic_inference=False,
    sglang_router_ip="127.0.0.1",
    sglang_router_port=1,
    router_policy="consistent_hashing",
    sglang_speculative_algorithm=None,
)


class State:
    """Stands for `GenerateState`, which loads a model's tokenizer."""

    aborted = False
    tokenizer = TOKENIZER
    semaphore = asyncio.Semaphore(64)

    def __init__(self, args: Namespace) -> None:
        pass

    @contextmanager
    def dp_rank_context(self) -> Iterator[int]:
        yield 0


class Router:
    """Answers a sample, told by its session, with its next reply."""

    def __init__(self) -> None:
        self.replies: dict[str, Iterator[str]] = {}

    async def post(self, url: str, body: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
        reply = next(self.replies[headers["X-SMG-Routing-Key"]])
        ids = TOKENIZER.encode(reply.removesuffix("<cut>") + "<|im_end|>" * (not reply.endswith("<cut>")))
        ids = ids[: body["sampling_params"]["max_new_tokens"]]
        ended = ids[-1:] == [TOKENIZER.eos_token_id]
        told = {
            "output_token_logprobs": [[-0.5, token] for token in ids],
            "finish_reason": {"type": "stop" if ended else "length"},
        }
        return {"text": TOKENIZER.decode(ids), "meta_info": told}


async def play_group(
    rollout: Any, files: Any, router: Router, group: dict[str, Any], length: int
) -> list[dict[str, Any]]:
    row, tools = group["row"], json.loads(group["row"]["tools"])
    prompt = TOKENIZER.apply_chat_template(
        row["prompt"], tools=tools or None, tokenize=False, add_generation_prompt=True
    )
    samples = []
    for place, said in enumerate(group["replies"]):
        session = f"{row['metadata']['task_id']}-{place}"
        router.replies[session] = iter(said)
        samples.append(rollout.Sample(index=place, prompt=prompt, metadata=dict(row["metadata"]), session_id=session))
    try:
        played = await rollout.generate_and_rm_group(SAMPLING, samples, {"max_new_tokens": length})
    except Exception as error:  # slime's rollout ends with it
        return [{"error": str(error)} for _ in samples]
    kept = files.keep(SAMPLING, played)
    return [describe(sample) if kept.keep else {"error": f"no score: dropped as {kept.reason}"} for sample in played]


def describe(sample: Any) -> dict[str, Any]:
    response = sample.tokens[-sample.response_length :]
    return {
        "reward": sample.reward,
        "logged": sample.metadata,
        "trained": TOKENIZER.decode([token for token, mask in zip(response, sample.loss_mask, strict=True) if mask]),
        "whole": TOKENIZER.decode(sample.tokens),
        "log_probs": [-0.5 * mask for mask in sample.loss_mask] == sample.rollout_log_probs,
        "tokens": sample.response_length,
    }


async def main(job: dict[str, Any]) -> dict[str, Any]:
    sys.path.append(sys.argv[1])
    sys.modules["sglang_router"] = ModuleType("sglang_router")
    rollout = import_module("slime.rollout.sglang_rollout")
    vars(rollout)["GenerateState"] = State
    files = import_module("slime_generate")
    os.environ |= {"ATROPOS_ENVS_URL": job["gateway"], "ATROPOS_ENVS_RUN": job["run"]}
    vars(files)["PATIENCE_SECONDS"] = job["patience_seconds"]
    SAMPLING.dynamic_sampling_filter_path = "slime_generate.keep" if job["run"].endswith("down") else None
    router = Router()
    vars(files)["post"] = router.post
    groups = await in_turns(lambda group: play_group(rollout, files, router, group, job["length"]), job["groups"])
    return {"groups": groups, "left": 0}


if __name__ == "__main__":
    answer(main)
