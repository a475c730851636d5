"""TRL's GRPOTrainer with the reward function of examples/trl_grpo.py.

Runs in the tuners' Python: URL, environment, run, file to write, steps; one process or two. Each step is a
line: rewards, advantages and rationales of its samples, and what TRL logged of it."""

import sys
from pathlib import Path
from typing import Any

from tiny import tiny_model, tiny_tokenizer
from trl import GRPOConfig, GRPOTrainer
from trl_grpo import connect, gateway_reward, prompts
from trl_steps import OPTIONS, Steps

SAMPLES, TASKS = 4, 2


def tell(samples: dict[str, list[Any]], logs: dict[str, float], step: int) -> dict[str, Any]:
    named = {"rewards": samples["rewards"], "advantages": samples["advantages"], "rationales": samples["rationale"]}
    return {"step": step, **named, "logs": {name: logs[name] for name in ("reward", "unscored")}}


def main(url: str, environment: str, run: str, record: str, steps: str) -> None:
    gateway = connect(url)
    tokenizer = tiny_tokenizer()
    told = Steps(Path(record), SAMPLES * TASKS, tell)
    told.trainer = GRPOTrainer(
        model=tiny_model(tokenizer),
        processing_class=tokenizer,
        reward_funcs=gateway_reward(gateway, environment, run, "tiny"),
        train_dataset=prompts(gateway, environment, run, count=2 * TASKS * int(steps)),
        callbacks=[told],
        args=GRPOConfig(
            max_steps=int(steps),
            per_device_train_batch_size=SAMPLES * TASKS,
            num_generations=SAMPLES,
            max_completion_length=2,
            shuffle_dataset=False,
            **OPTIONS,
        ),
    )
    told.trainer.train()


if __name__ == "__main__":
    main(*sys.argv[1:])
