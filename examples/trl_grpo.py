"""The gateway as the reward function of TRL's GRPOTrainer.

python examples/trl_grpo.py http://127.0.0.1:8000 gsm8k Qwen/Qwen3-0.6B

`--help` lists the options: run, params, LoRA, held-out tasks, steps, tokens of a reply. Without a graphics card it
trains on the processor.

You will see rewards, criteria, flags and the share without a score in TRL's log, and groups in the gateway's viewer.

It works under `accelerate launch` too: every process takes the same tasks and sends what it sampled. To keep a group in
one process, make `per_device_train_batch_size` a multiple of `num_generations`.
"""

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import httpx
import torch
from datasets import Dataset
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer, ModelConfig, get_peft_config

PATIENCE_SECONDS = 900
GROUPS_A_REQUEST = 256
"""The most that the gateway takes in one request."""
UNSCORED: dict[str, Any] = {
    "reward": None,
    "rationale": "the gateway was away",
    "flags": [],
    "criteria": [],
    "page": "",
}


def connect(url: str) -> httpx.Client:
    key = os.environ.get("ATROPOS_ENVS_API_KEY")
    return httpx.Client(base_url=url, timeout=600, headers={"Authorization": f"Bearer {key}"} if key else {})


def send(gateway: httpx.Client, path: str, body: dict[str, Any] | None = None) -> Any:
    """Again while the gateway is away: what is sent twice is scored once. An error that stays is raised."""
    for attempt in itertools.count():
        pause = min(2.0**attempt, 30.0)
        try:
            answer = gateway.get(path) if body is None else gateway.post(path, json=body)
            if answer.status_code not in {429, 502, 503, 504} or attempt * 30 > PATIENCE_SECONDS:
                return answer.raise_for_status().json()
        except httpx.TransportError:
            if attempt * 30 > PATIENCE_SECONDS:
                raise
        time.sleep(pause)


def prompts(gateway: httpx.Client, environment: str, run: str, count: int, **asked: object) -> Dataset:
    """The first tasks of a run, the same for every process. `asked` may hold `split`, `params`, `select`; those of an
    `eval_dataset` are asked for with `purpose="eval"`, and their scores are in no training figure. They come in the
    order of their split, the same in every run: the order of a run is its own."""
    rows: list[dict[str, object]] = []
    purpose = asked.get("purpose", "train")
    order = {"run": run} if purpose == "train" else {}
    while len(rows) < count:
        body = {**order, "cursor": len(rows), "batch_size": min(256, count - len(rows)), **asked}
        tasks = send(gateway, f"/envs/{environment}/next-batch", body)["tasks"]
        rows += [{"prompt": task["messages"], "task_id": task["task_id"], "purpose": purpose} for task in tasks]
        if not tasks:
            break
    return Dataset.from_list(rows)


def gateway_reward(
    gateway: httpx.Client, environment: str, run: str, model: str, ends: Collection[int] = ()
) -> Callable[..., list[float | None]]:
    """A reward function. The samples of a prompt follow one another and are scored as one group; None is a sample
    without a score, which TRL leaves out of the group's mean. With `ends`, the ids of the tokens that end a reply, the
    gateway knows which replies were cut off, and pays nothing for those."""

    seen: dict[str, float] = {}

    def reward(
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        task_id: Sequence[str],
        purpose: Sequence[str],
        trainer_state: Any,
        log_extra: Callable[[str, list[Any]], None],
        log_metric: Callable[[str, float], None],
        **_: object,
    ) -> list[float | None]:
        said = [one if isinstance(one, str) else one[-1]["content"] for one in completions]
        samples = [{"text": text} for text in said]
        if ends:
            for sample, ids in zip(samples, completion_ids, strict=True):
                sample["finish_reason"] = "stop" if ids and ids[-1] in ends else "length"
        about = {"run": run, "policy": {"model": model, "step": trainer_state.global_step}, "purpose": purpose[0]}
        scores = score(gateway, f"/envs/{environment}/score", about, list(zip(task_id, samples, strict=True)))
        log_columns(scores, log_extra)
        log_figures({**figures(scores), **dollars(gateway, run, scores)}, seen, log_metric)
        return [one["reward"] for one in scores]

    reward.__name__ = environment
    return reward


def score(
    gateway: httpx.Client, path: str, about: dict[str, Any], samples: Sequence[tuple[str, dict[str, Any] | None]]
) -> list[dict[str, Any]]:
    """The scores of samples and their tasks. Those of one task that follow one another are a group. What is None was
    broken off, not by the model: it is not sent."""
    groups = [
        {"task_id": task, "completions": [sample for _, sample in members]}
        for task, members in itertools.groupby((one for one in samples if one[1] is not None), lambda one: one[0])
    ]
    scores = []
    for first in range(0, len(groups), GROUPS_A_REQUEST):
        some = groups[first : first + GROUPS_A_REQUEST]
        scored = send(gateway, path, {**about, "groups": some})["groups"]
        for group, sent in zip(scored, some, strict=True):
            scores += scores_of(gateway, group, sent)
    answers = iter(scores)
    return [UNSCORED if sample is None else next(answers) for _, sample in samples]


def scores_of(gateway: httpx.Client, group: dict[str, Any], sent: dict[str, Any]) -> list[dict[str, Any]]:
    """With the address of the group's page. A group that could not be taken (its `detail` says why) has no scores; the
    others of its request have theirs."""
    if "scores" not in group:
        return [{**UNSCORED, "rationale": group["detail"]} for _ in sent["completions"]]
    page = f"{str(gateway.base_url).rstrip('/')}/view/groups/{group['group_id']}"
    return [{**one, "page": page} for one in group["scores"]]


def log_columns(scores: Sequence[dict[str, Any]], log_extra: Callable[[str, list[Any]], None]) -> None:
    """Of the table of completions."""
    log_extra("rationale", [one["rationale"] for one in scores])
    log_extra("flags", [" ".join(one["flags"]) for one in scores])
    log_extra("group", [one["page"] for one in scores])


def figures(scores: Sequence[dict[str, Any]], of: str = "") -> dict[str, float]:
    """The share without a score and with each flag, and the mean of each criterion."""
    flags = {flag for one in scores for flag in one["flags"]}
    values: dict[str, list[float]] = {}
    for criterion in itertools.chain.from_iterable(one["criteria"] for one in scores):
        if criterion["value"] is not None:
            values.setdefault(criterion["name"], []).append(criterion["value"])
    return {
        f"{of}unscored": sum(one["reward"] is None for one in scores) / len(scores),
        **{f"{of}flags/{flag}": sum(flag in one["flags"] for one in scores) / len(scores) for flag in flags},
        **{f"{of}criteria/{name}": sum(found) / len(found) for name, found in values.items()},
    }


def dollars(gateway: httpx.Client, run: str, scores: Sequence[dict[str, Any]]) -> dict[str, float]:
    """What the run's judges have cost so far; nothing where they have no prices."""
    spent = send(gateway, f"/runs/{run}")["judging"]["usd"] if any(one["page"] for one in scores) else None
    return {} if spent is None else {"judge_usd": spent}


def log_figures(found: dict[str, float], seen: dict[str, float], log_metric: Callable[[str, float], None]) -> None:
    """A flag that was seen once stays in the log, as 0 where nothing has it."""
    for name, value in {**seen, **found}.items():
        log_metric(name, value)
    seen.update(dict.fromkeys((name for name in found if "flags/" in name), 0.0))


def hardware() -> dict[str, Any]:
    """Options of GRPOConfig. A processor has no use for bfloat16, and less need of room than of time."""
    on_card = torch.accelerator.is_available()
    return {"use_cpu": not on_card, "bf16": on_card, "gradient_checkpointing": on_card}


def read_arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a model on an environment of the gateway.")
    parser.add_argument("url")
    parser.add_argument("environment")
    parser.add_argument("model", help="name or folder")
    parser.add_argument("--run", default="trl")
    parser.add_argument("--params", type=json.loads, default={}, help="of the environment, as a JSON object")
    parser.add_argument("--lora", type=int, default=0, help="rank of a LoRA to train in place of the model; needs peft")
    parser.add_argument("--held-out", type=int, default=0, help="tasks of the test split to evaluate on")
    parser.add_argument("--steps", type=int, default=-1)
    parser.add_argument("--tokens", type=int, default=512, help="most of a reply")
    return parser.parse_args(given)


def main(*given: str) -> None:
    wanted = read_arguments(given)
    gateway, named = connect(wanted.url), (wanted.environment, wanted.run)
    held_out = wanted.held_out and prompts(
        gateway, *named, count=wanted.held_out, split="test", purpose="eval", params=wanted.params
    )
    ends = {AutoTokenizer.from_pretrained(wanted.model).eos_token_id}
    trainer = GRPOTrainer(
        model=wanted.model,
        reward_funcs=gateway_reward(gateway, *named, wanted.model, ends),
        train_dataset=prompts(gateway, *named, count=1000, params=wanted.params),
        eval_dataset=held_out or None,
        peft_config=get_peft_config(
            ModelConfig(
                use_peft=wanted.lora > 0, lora_r=wanted.lora, lora_target_modules=["all-linear"], lora_dropout=0.0
            )
        ),
        args=GRPOConfig(
            output_dir=wanted.run,
            max_steps=wanted.steps,
            per_device_train_batch_size=8,
            num_generations=8,  # so one group is in memory at a time, and four make a step
            gradient_accumulation_steps=4,
            max_completion_length=wanted.tokens,
            learning_rate=1e-4 if wanted.lora else 1e-6,  # a LoRA begins at nothing
            eval_strategy="steps" if held_out else "no",
            eval_on_start=bool(held_out),
            log_completions=True,
            **hardware(),
        ),
    )
    trainer.train()


if __name__ == "__main__":
    main(*sys.argv[1:])
