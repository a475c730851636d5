"""A learning curve in a minute or two: TRL's GRPOTrainer, the gateway's scores, and a model with random weights.

python examples/learning_curve.py problems curve-problems     # writes a data set of small sums, told as stories
ATROPOS_ENVS_DATASETS__GSM8K=curve-problems atropos-envs serve &
python examples/learning_curve.py train http://127.0.0.1:8000

You will see the mean reward rise from about 0 to about 1 in 150 steps. That shows that tasks, rewards and steps arrive
where they should. It shows nothing about the method: nine sums are no mathematics. Model and tokenizer are made here,
so nothing is downloaded. A line that commits to a number is one token.
"""

import itertools
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx
import torch
from datasets import Dataset
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer
from trl_grpo import connect, gateway_reward, prompts, send

ENVIRONMENT, RUN, MODEL = "gsm8k", "learning-curve", "one-layer-llama"
STEPS, TASKS, SAMPLES = 150, 32, 16
NAMES = ("Ada", "Ben", "Cleo", "Dov", "Ema", "Finn", "Gia", "Hugo", "Ida", "Jan")
THINGS = ("apples", "shells", "coins", "stamps", "keys", "beads", "buttons", "stones")
LEAST, MOST = 1, 3
SUMS = range(2 * LEAST, 2 * MOST + 1)
TEMPLATE = "{% for m in messages %}{{ '<' + m['role'] + '> ' + m['content'] + '\n' }}{% endfor %}<assistant> "


def write_problems(folder: Path) -> None:
    """In GSM8K's own form. Every tenth problem is for the test, where no problem of the training split is."""
    addends = range(LEAST, MOST + 1)
    rows = [
        {
            "question": f"{name} has {one} {thing} and finds {more} more. How many {thing} does {name} have now?",
            "answer": f"{one} + {more} = {one + more}\n#### {one + more}",
        }
        for name, thing, one, more in itertools.product(NAMES, THINGS, addends, addends)
    ]
    random.Random(0).shuffle(rows)  # noqa: S311
    folder.mkdir(parents=True, exist_ok=True)
    for split, part in {"test": rows[::10], "train": [row for at, row in enumerate(rows) if at % 10]}.items():
        (folder / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in part), encoding="utf-8")


def made_tokenizer(texts: Sequence[str]) -> PreTrainedTokenizerFast:
    """Its words are those of the texts."""
    split = Whitespace()
    words = sorted({word for text in texts for word, _ in split.pre_tokenize_str(text)})
    named = ["<pad>", "<end>", "<unknown>", "<system>", "<user>", "<assistant>"]
    model = WordLevel({word: number for number, word in enumerate([*named, *words])}, unk_token=named[2])
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = split
    tokenizer.add_special_tokens(named)
    tokenizer.add_tokens([AddedToken(f"#### {number}", normalized=False) for number in SUMS])
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=named[0], eos_token=named[1], unk_token=named[2], padding_side="left"
    )
    made.chat_template = TEMPLATE
    return made


def made_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=256,
            num_hidden_layers=1,
            num_attention_heads=4,
            max_position_embeddings=128,
            initializer_range=0.04,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )


def train(url: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    gateway = connect(url)
    tasks = prompts(gateway, ENVIRONMENT, RUN, TASKS * STEPS)
    tokenizer = made_tokenizer([message["content"] for row in tasks.select(range(1000)) for message in row["prompt"]])
    model = made_model(tokenizer)
    arguments = GRPOConfig(
        output_dir=RUN,
        max_steps=STEPS,
        per_device_train_batch_size=TASKS * SAMPLES,
        num_generations=SAMPLES,
        max_completion_length=1,
        learning_rate=2.5e-3,
        adam_beta2=0.99,
        entropy_coef=0.15,  # so that the first sum it gets right does not become its answer to everything
        shuffle_dataset=False,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_steps=10,
        seed=1,
    )
    GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=gateway_reward(gateway, ENVIRONMENT, RUN, MODEL),
        train_dataset=tasks,
        args=arguments,
    ).train()
    held_out = prompts(gateway, ENVIRONMENT, f"{RUN}-test", 64, split="test", purpose="eval")
    print(
        f"on {len(held_out)} problems that it was not trained on: {evaluated(gateway, model, tokenizer, held_out):.2f}"
    )


def evaluated(
    gateway: httpx.Client, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, tasks: Dataset
) -> float:
    """Mean reward of the likeliest reply to each. `purpose: eval` keeps these groups out of all training figures."""
    asked = tokenizer.apply_chat_template(list(tasks["prompt"]), padding=True, return_dict=True, return_tensors="pt")
    with torch.no_grad():
        chosen = model(**asked).logits[:, -1].argmax(-1)
    replies = [tokenizer.decode([token]) for token in chosen]
    groups = [
        {"task_id": task, "completions": [{"text": reply}]}
        for task, reply in zip(tasks["task_id"], replies, strict=True)
    ]
    body = {"run": f"{RUN}-test", "policy": {"model": MODEL, "step": STEPS}, "purpose": "eval", "groups": groups}
    rewards: list[float] = [
        group["rewards"][0] for group in send(gateway, f"/envs/{ENVIRONMENT}/score", body)["groups"]
    ]
    return sum(rewards) / len(rewards)


if __name__ == "__main__":
    if sys.argv[1] == "problems":
        write_problems(Path(sys.argv[2]))
    else:
        train(sys.argv[2])
