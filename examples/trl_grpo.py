"""The gateway as the reward function of TRL's GRPOTrainer.

python examples/trl_grpo.py http://127.0.0.1:8000 gsm8k Qwen/Qwen3-0.6B

Works under `accelerate launch` as well: every process asks for the same tasks and sends what it sampled. So that no
group is parted between two processes, let `per_device_train_batch_size` be a multiple of `num_generations`.
"""

import itertools
import os
import sys
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import httpx
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

PATIENCE_SECONDS = 900
GROUPS_A_REQUEST = 256
"""The most that the gateway takes in one request."""


def connect(url: str) -> httpx.Client:
    key = os.environ.get("ATROPOS_ENVS_API_KEY")
    return httpx.Client(base_url=url, timeout=600, headers={"Authorization": f"Bearer {key}"} if key else {})


def send(gateway: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    """Again while the gateway is away: what is sent twice is scored once. An error that stays is raised."""
    for attempt in itertools.count():
        pause = min(2.0**attempt, 30.0)
        try:
            answer = gateway.post(path, json=body)
            if answer.status_code not in {429, 502, 503, 504} or attempt * 30 > PATIENCE_SECONDS:
                return answer.raise_for_status().json()
        except httpx.TransportError:
            if attempt * 30 > PATIENCE_SECONDS:
                raise
        time.sleep(pause)


def prompts(gateway: httpx.Client, environment: str, run: str, count: int, **asked: object) -> Dataset:
    """The first tasks of a run, the same for every process. `asked` may hold `split`, `params`, `select`; those of an
    `eval_dataset` are asked for with `purpose="eval"`, and their scores are in no training figure."""
    rows: list[dict[str, object]] = []
    while len(rows) < count:
        body = {"run": run, "cursor": len(rows), "batch_size": min(256, count - len(rows)), **asked}
        tasks = send(gateway, f"/envs/{environment}/next-batch", body)["tasks"]
        purpose = asked.get("purpose", "train")
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
        groups = [
            {"task_id": task, "completions": [sample for _, sample in members]}
            for task, members in itertools.groupby(zip(task_id, samples, strict=True), key=lambda pair: pair[0])
        ]
        policy = {"model": model, "step": trainer_state.global_step}
        scored = []
        for first in range(0, len(groups), GROUPS_A_REQUEST):
            some = groups[first : first + GROUPS_A_REQUEST]
            body = {"run": run, "policy": policy, "purpose": purpose[0], "groups": some}
            scored += send(gateway, f"/envs/{environment}/score", body)["groups"]
        scores = [score for group, sent in zip(scored, groups, strict=True) for score in scores_of(group, sent)]
        log_extra("rationale", [score["rationale"] for score in scores])
        log_metric("unscored", sum(score["reward"] is None for score in scores) / len(scores))
        for name, value in criteria(scores):
            log_metric(f"criteria/{name}", value)
        return [score["reward"] for score in scores]

    reward.__name__ = environment
    return reward


def scores_of(group: dict[str, Any], sent: dict[str, Any]) -> list[dict[str, Any]]:
    """A group that could not be taken (its `detail` says why) has no scores; the others of its request have theirs."""
    if "scores" in group:
        return list(group["scores"])
    return [{"reward": None, "rationale": group["detail"], "criteria": []} for _ in sent["completions"]]


def criteria(scores: Sequence[dict[str, Any]]) -> list[tuple[str, float]]:
    """The mean of each."""
    values: dict[str, list[float]] = {}
    for criterion in itertools.chain.from_iterable(score["criteria"] for score in scores):
        if criterion["value"] is not None:
            values.setdefault(criterion["name"], []).append(criterion["value"])
    return [(name, sum(found) / len(found)) for name, found in values.items()]


def main(url: str, environment: str, model: str, run: str = "trl") -> None:
    gateway = connect(url)
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=gateway_reward(gateway, environment, run, model),
        train_dataset=prompts(gateway, environment, run, count=1000),
        args=GRPOConfig(output_dir=run, per_device_train_batch_size=8, num_generations=8, log_completions=True),
    )
    trainer.train()


if __name__ == "__main__":
    main(*sys.argv[1:])
