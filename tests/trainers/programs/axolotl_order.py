"""What Axolotl's plugin for Atropos sends, in its order: a thread asks for batches from the start, the trainer
registers later. Its address is a host and a port, to which paths are joined.

Runs in the trainers' Python: host with scheme, port, file to write, batch size, batches."""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import requests

REGISTERS_AFTER_SECONDS = 1.5


def shared(sequences: list[list[int]]) -> int:
    """So many tokens begin all of them: the plugin takes these for the prompt."""
    length = min(len(sequence) for sequence in sequences)
    return next((at for at in range(length) if len({sequence[at] for sequence in sequences}) > 1), length)


def rows(batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made = []
    for group in batch:
        dropped = [override.get("set_advantage_to_zero", False) for override in group["overrides"] or []]
        cut = shared(group["tokens"])
        for number, (tokens, score) in enumerate(zip(group["tokens"], group["scores"], strict=True)):
            zero = number < len(dropped) and dropped[number]
            made.append({"prompt": tokens[:cut], "completion": tokens[cut:], "score": 0 if zero else score})
    return made


def ask(host: str, port: int, record: str, batches: int) -> None:
    while batches:
        data = requests.get(f"{host}:{port}/batch", timeout=10).json()
        if data["batch"] is None:
            time.sleep(0.2)
            continue
        batches -= bool(data["batch"])
        with Path(record).open("a", encoding="utf-8") as file:
            file.write(json.dumps(rows(data["batch"])) + "\n")
        time.sleep(0.2)


def main(host: str, port: int, record: str, batch_size: int, batches: int) -> None:
    asking = threading.Thread(target=ask, args=(host, port, record, batches))
    asking.start()
    time.sleep(REGISTERS_AFTER_SECONDS)
    registration: dict[str, Any] = {
        "wandb_group": "default",
        "wandb_project": "plugin",
        "batch_size": batch_size,
        "max_token_len": 512,
        "starting_step": 0,
        "checkpoint_dir": "out",
        "save_checkpoint_interval": 100,
        "num_steps": batches,
    }
    requests.post(f"{host}:{port}/register", json=registration, timeout=10)
    asking.join()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
