"""TRL's SFTTrainer, DPOTrainer and KTOTrainer on files as the gateway exports them.

Runs in the tuners' Python: shape, file. Loads it with `datasets`, trains for a few steps and says what was read."""

import json
import math
import sys

from datasets import load_dataset
from tiny import tiny_model, tiny_tokenizer
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer
from trl_steps import OPTIONS

TRAINERS = {"sft": (SFTTrainer, SFTConfig), "dpo": (DPOTrainer, DPOConfig), "kto": (KTOTrainer, KTOConfig)}


def main(shape: str, file: str) -> None:
    reader = "parquet" if file.endswith(".parquet") else "json"
    rows = load_dataset(reader, data_files=file, split="train")
    trainer, config = TRAINERS[shape]
    arguments = {"max_steps": 2, "per_device_train_batch_size": 2, "max_length": 4096, **OPTIONS}
    tokenizer = tiny_tokenizer()
    reference = {} if shape == "sft" else {"ref_model": tiny_model(tokenizer)}
    training = trainer(
        model=tiny_model(tokenizer),
        processing_class=tokenizer,
        train_dataset=rows,
        args=config(**arguments),
        **reference,
    )
    training.train()
    losses = [log["loss"] for log in training.state.log_history if "loss" in log]
    texts = [tokenizer.decode(row[name]) for row in training.train_dataset for name in row if name.endswith("ids")]
    calls, offers = (sum(sign in text for text in texts) for sign in ('<tool_call>\n{"name": "', '"parameters": {'))
    told = {"rows": len(rows), "losses": sum(map(math.isfinite, losses)), "calls": calls, "offers": offers}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
