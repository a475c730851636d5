"""Atropos 0.4.0 from both of its sides, as requests."""

from typing import Any

import httpx

Group = dict[str, Any]

SECONDS = 60.0


def made(number: int, size: int) -> Group:
    """A group with all fourteen fields, told from others by `number`."""
    tokens = [[7, 7, number % 30_000, sequence, number // 30_000] for sequence in range(size)]
    return {
        "tokens": tokens,
        "masks": [[-100, -100, *sequence[2:]] for sequence in tokens],
        "scores": [number + sequence / 16 for sequence in range(size)],
        "advantages": [[0.5, 0.25, 0.125, 0.0, -1.0] for _ in tokens],
        "ref_logprobs": [[-0.5] * 5 for _ in tokens],
        "messages": [
            [{"role": "user", "content": f"task {number}"}, {"role": "assistant", "content": f"{number} {sequence}"}]
            for sequence in range(size)
        ],
        "generation_params": {"temperature": 0.75},
        "inference_logprobs": [[1.0, 1.0, -0.25, -0.5, -0.75] for _ in tokens],
        "overrides": [{"set_advantage_to_zero": sequence == 1} for sequence in range(size)],
        "group_overrides": {"temperature": 0.5},
        "images": [f"image {number}"],
        "env_id": None,
        "distill_token_ids": [[[token, token + 1] for token in sequence] for sequence in tokens],
        "distill_logprobs": [[[-0.25, -1.5] for _ in sequence] for sequence in tokens],
    }


def get(url: str, path: str) -> Any:
    answer = httpx.get(f"{url}{path}", timeout=SECONDS)
    answer.raise_for_status()
    return answer.json()


def register(url: str, batch_size: int) -> None:
    registration = {
        "wandb_group": "group",
        "wandb_project": "project",
        "batch_size": batch_size,
        "max_token_len": 512,
        "checkpoint_dir": "checkpoints",
        "save_checkpoint_interval": 100,
        "starting_step": 0,
        "num_steps": 100,
    }
    httpx.post(f"{url}/register", json=registration, timeout=SECONDS).raise_for_status()


def post(url: str, *groups: Group) -> None:
    for group in groups:
        httpx.post(f"{url}/scored_data", json=group, timeout=SECONDS).raise_for_status()


def status_env(url: str, env_id: int) -> dict[str, Any]:
    """A GET with a body, as environments send it."""
    told: dict[str, Any] = httpx.request("GET", f"{url}/status-env", json={"env_id": env_id}, timeout=SECONDS).json()
    return told


def take(url: str) -> list[Group] | None:
    """None when there is no batch yet."""
    batch: list[Group] | None = get(url, "/batch")["batch"]
    return batch


def take_all(url: str) -> list[list[Group]]:
    """Every batch until there is none."""
    batches = []
    while (batch := take(url)) is not None:
        batches.append(batch)
    return batches
