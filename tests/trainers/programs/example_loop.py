"""The released example trainer's own modules, called as its training loops call them, but for the training.

Runs in the trainers' Python: URL, file to write, batch size, micro batches of a batch, steps."""

import json
import sys
from pathlib import Path
from typing import Any

from example_trainer.api import check_atropos_api, register_trainer
from example_trainer.config import TrainingConfig
from example_trainer.data import get_data

NAMES = ("tokens", "labels", "advantages", "temperatures", "logprobs")


def main(url: str, record: str, batch_size: int, accumulation: int, steps: int) -> None:
    config = TrainingConfig(
        model_name="none",
        atropos_url=url,
        batch_size=batch_size // accumulation,
        gradient_accumulation_steps=accumulation,
        seq_len=512,
        training_steps=steps,
        save_path="checkpoints",
    )
    if not check_atropos_api(url=config.atropos_url, timeout=30):
        raise RuntimeError("not reachable")
    register_trainer(config)
    batches: list[Any] = []
    for _ in range(steps):
        if len(batches) == 0:
            batches, _ = get_data(
                config.batch_size, config.seq_len, config.atropos_url, extract_inference_logprobs=True
            )
        batch = batches.pop(0)
        rows = {
            name: [row for part in parts for row in part.tolist()] for name, parts in zip(NAMES, batch, strict=True)
        }
        with Path(record).open("a", encoding="utf-8") as file:
            file.write(json.dumps(rows) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))
