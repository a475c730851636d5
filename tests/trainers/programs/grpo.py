"""TRL's GRPOTrainer with the reward function of examples/trl_grpo.py.

Runs in the tuners' Python: URL, environment, run, file to write, steps; one process or two. Each step is a
line: rewards, advantages and rationales of its samples, and what TRL logged of it. The run's name tells whether the
gateway hears of cut replies, and whether TRL evaluates at the end."""

import json
import sys
from pathlib import Path

from tiny import tiny_model, tiny_tokenizer
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import GRPOConfig, GRPOTrainer
from trl_grpo import connect, gateway_reward, prompts

SAMPLES, TASKS = 4, 2


class Written(TrainerCallback):  # type: ignore[misc]
    def __init__(self, record: Path) -> None:
        self.trainer: GRPOTrainer
        self._record = record

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: dict[str, float], **_: object
    ) -> None:
        if "reward" not in logs or not state.is_world_process_zero:
            return
        kept = self.trainer._logs
        (rewards,) = kept["rewards"].values()
        samples = {"rewards": rewards, "advantages": kept["advantages"], "rationales": kept["extra"]["rationale"]}
        row = {
            "step": state.global_step,
            **{name: list(values)[-SAMPLES * TASKS * args.world_size :] for name, values in samples.items()},
            "logs": {name: logs[name] for name in ("reward", "unscored")},
        }
        with self._record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def main(url: str, environment: str, run: str, record: str, steps: str) -> None:
    gateway = connect(url)
    tokenizer = tiny_tokenizer()
    written = Written(Path(record))
    written.trainer = GRPOTrainer(
        model=tiny_model(tokenizer),
        processing_class=tokenizer,
        reward_funcs=gateway_reward(
            gateway, environment, run, "tiny", ends={tokenizer.eos_token_id} if run == "cut" else ()
        ),
        train_dataset=prompts(gateway, environment, run, count=2 * TASKS * int(steps)),
        callbacks=[written],
        args=GRPOConfig(
            output_dir="out",
            max_steps=int(steps),
            per_device_train_batch_size=SAMPLES * TASKS,
            num_generations=SAMPLES,
            max_completion_length=2,
            shuffle_dataset=False,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            save_strategy="no",
            report_to="none",
            logging_steps=1,
        ),
    )
    written.trainer.train()
    if run == "evaluated":
        written.trainer.evaluate(prompts(gateway, environment, run, TASKS, split="test", purpose="eval"))


if __name__ == "__main__":
    main(*sys.argv[1:])
