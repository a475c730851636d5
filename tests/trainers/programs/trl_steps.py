"""What TRL's GRPOTrainer did in each of its steps, a line for each, and the options of every training here."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import GRPOTrainer

OPTIONS: Final[dict[str, Any]] = {
    "output_dir": "out",
    "gradient_checkpointing": False,
    "bf16": False,
    "use_cpu": True,
    "save_strategy": "no",
    "report_to": "none",
    "logging_steps": 1,
}


class Steps(TrainerCallback):  # type: ignore[misc]
    """`tell` makes a line of what the trainer keeps of `count` samples for each process, and of what it logs."""

    def __init__(
        self, record: Path, count: int, tell: Callable[[dict[str, list[Any]], dict[str, float], int], dict[str, Any]]
    ) -> None:
        self.trainer: GRPOTrainer
        self._record, self._count, self._tell = record, count, tell

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: dict[str, float], **_: object
    ) -> None:
        if "reward" not in logs or not state.is_world_process_zero:
            return
        kept = self.trainer._logs
        (rewards,) = kept["rewards"].values()
        samples = {"rewards": rewards, "advantages": kept["advantages"], **kept["extra"]}
        newest = {name: list(values)[-self._count * args.world_size :] for name, values in samples.items()}
        with self._record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self._tell(newest, logs, state.global_step)) + "\n")
