"""What verl's recipe for Atropos sends, in its order: is it there, register, then ask for batches, every group of which
it takes apart strictly.

Runs in the trainers' Python: URL, file to write, batch size, batches."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import requests


def main(url: str, record: str, batch_size: int, batches: int) -> None:
    session = requests.Session()
    session.get(f"{url}/status", timeout=5).raise_for_status()
    registration: dict[str, Any] = {
        "wandb_group": "verl",
        "wandb_project": "recipe",
        "batch_size": batch_size,
        "max_token_len": 512,
        "starting_step": 0,
        "checkpoint_dir": "checkpoints",
        "save_checkpoint_interval": 100,
        "num_steps": batches,
    }
    answer = session.post(f"{url}/register", json=registration, timeout=30)
    answer.raise_for_status()
    if not answer.json().get("uuid"):
        raise RuntimeError(answer.text)
    while batches:
        answer = session.get(f"{url}/batch", timeout=30)
        answer.raise_for_status()
        batch = answer.json().get("batch", [])
        if batch is None:
            time.sleep(0.2)
            continue
        sequences = [
            one for group in batch for one in zip(group["tokens"], group["masks"], group["scores"], strict=True)
        ]
        if not sequences:
            raise ValueError("a batch without sequences")
        with Path(record).open("a", encoding="utf-8") as file:
            file.write(json.dumps(batch) + "\n")
        batches -= 1


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:5]))
