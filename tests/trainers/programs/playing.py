"""TRL's GRPOTrainer with the episodes and the reward function of examples/trl_environment.py; what the model says is
given.

Runs in the tuners' Python: a file with URL, run, files of rows, the right turns of each task, how often a reply of the
gateway gets lost, and how often a step fails for good; file to write, of which each line is a step."""

import json
import random
import sys
from itertools import compress
from pathlib import Path
from typing import Any

import httpx
from datasets import load_dataset
from tiny import tiny_model, tiny_tokenizer
from trl import GRPOConfig, GRPOTrainer
from trl_environment import Episode, Tool, episode_reward, factories, kind
from trl_steps import OPTIONS, Steps

SAMPLES, TASKS = 4, 4


class Failing(httpx.HTTPTransport):
    """Loses some of the replies on the way back, and refuses some steps."""

    def __init__(self, lost: int, broken: int) -> None:
        super().__init__()
        self._lost, self._broken, self._sent, self._steps = lost, broken, 0, 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._steps += request.url.path.endswith("/step")
        if self._broken and request.url.path.endswith("/step") and self._steps % self._broken == 0:
            return httpx.Response(500)
        answer = super().handle_request(request)
        self._sent += 1
        if self._lost and self._sent % self._lost == 0:
            answer.read()
            raise httpx.ReadError("lost")
        return answer


class Given(GRPOTrainer):  # type: ignore[misc]
    """In the place of a model that generates: mostly the right turn of a task, by a tool where there are several."""

    def __init__(self, gold: dict[str, list[dict[str, Any]]], tokenizer: Any, **options: Any) -> None:
        super().__init__(processing_class=tokenizer, **options)
        self._gold, self._ends, self._random = gold, tokenizer.eos_token, random.Random(0)

    def _generate_single_turn(
        self, prompt_ids: list[list[int]], *_: object, **__: object
    ) -> tuple[list[list[int]], None]:
        return [self._encode(self._say(self._tokenizer.decode(ids))) for ids in prompt_ids], None

    def _tool_call_loop(self, *given: Any) -> Any:
        """Keeps what the mask leaves to be trained on, beside what else is kept of samples."""
        masks, _, completion_ids, *_ = told = super()._tool_call_loop(*given)
        kept = [compress(ids, mask) for ids, mask in zip(completion_ids, masks, strict=True)]
        self._log_completion_extra("trained", [self._tokenizer.decode([*ids]) for ids in kept])
        return told

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text + (self._ends if not text or self._random.random() < 0.95 else ""))
        return ids

    def _say(self, heard: str) -> str:
        turns = next((turns for asked, turns in self._gold.items() if asked in heard), [])
        number = heard.count("<|im_start|>assistant") - 1
        several = '"name": "reply"' in heard
        luck = self._random.random()
        if luck < 0.15 or number >= max(len(turns), 3):
            return self._random.choice(["Hm.", "I could not say, friend, and would not.", "<tool_call>\n{", ""])
        right = number < len(turns) and luck < 0.8
        turn: dict[str, Any] = turns[number] if right else {"text": "No. <answer>AAB</answer>", "tool_calls": []}
        calls = [call["function"] for call in turn["tool_calls"]] or (
            [{"name": "reply", "arguments": {"text": turn["text"]}}] if several else []
        )
        return "\n".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls) or str(turn["text"])


def tools_of(episode: Episode) -> list[Tool]:
    """In the order in which TRL shows them."""
    return [tool for _, tool in sorted(vars(episode).items()) if isinstance(tool, Tool)]


def tell(samples: dict[str, list[Any]], logs: dict[str, float], step: int) -> dict[str, Any]:
    table = {name: values for name, values in samples.items() if name not in {"rewards", "advantages"}}
    return {"rewards": samples["rewards"], "table": table, "logs": logs}


def main(job: dict[str, Any], record: Path) -> None:
    gateway = httpx.Client(base_url=job["url"], timeout=600, transport=Failing(job["lost"], job["broken"]))
    rows = load_dataset("json", data_files=job["files"], split="train")
    made = factories(gateway, rows)
    shown = [json.dumps(tools_of(factory()), ensure_ascii=False) for factory in made.values()]
    asked = {message["content"] for row in rows for message in row["prompt"]}
    tokenizer = tiny_tokenizer([*asked, *(text for text in shown if text != "[]")])
    told = Steps(record, SAMPLES * TASKS, tell)
    told.trainer = Given(
        job["gold"],
        tokenizer,
        model=tiny_model(tokenizer),
        reward_funcs=episode_reward(gateway, job["run"], "tiny", ends={tokenizer.eos_token_id}),
        environment_factory=made,
        train_dataset=rows.map(lambda row: {"environment": kind(row)}).remove_columns("tools"),
        callbacks=[told],
        args=GRPOConfig(
            max_steps=len(rows) // TASKS,
            per_device_train_batch_size=SAMPLES * TASKS,
            num_generations=SAMPLES,
            max_completion_length=4000,
            **OPTIONS,
        ),
    )
    told.trainer.train()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2]))
