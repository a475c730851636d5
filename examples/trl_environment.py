"""All environments of the gateway in one run of TRL's GRPOTrainer: single replies, games, conversations and tools.

atropos-envs tasks rows.jsonl --env npc_arena --env tool_agent --env mastermind --count 1000
python examples/trl_environment.py http://127.0.0.1:8000 Qwen/Qwen3-0.6B rows.jsonl

You will see the reward of each environment in TRL's log.

Turns: TRL goes on only after a tool call, so a task of several turns has the extra tool `reply`.
Groups: the samples of a prompt are scored in one request.
Ranks: each scores what it sampled; let `per_device_train_batch_size` be a multiple of `num_generations`.
Retries: `send` asks again for a quarter of an hour. What is sent twice is scored once.
Truncation: a cut reply is sent as such, and earns 0 unless the run says otherwise.
No score: None, which TRL leaves out of the group's mean. So is an episode that the gateway's absence broke off.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

import httpx
from datasets import Dataset, load_dataset
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer
from trl_grpo import connect, dollars, figures, hardware, log_columns, log_figures, score, send

REPLY = {
    "type": "function",
    "function": {
        "name": "reply",
        "description": "Says something and returns the answer to it. What is said without a tool is the last word.",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string", "description": "All that is said."}},
            "required": ["text"],
        },
    },
}


class Tool(dict[str, Any]):
    """A schema, as chat templates read it, that TRL can call."""

    def __init__(self, schema: dict[str, Any], call: Callable[[str, dict[str, Any]], str]) -> None:
        super().__init__(schema)
        self.__name__: str = schema["function"]["name"]
        self._call = call

    def __call__(self, /, **arguments: Any) -> str:
        return self._call(self.__name__, arguments)


class Episode:
    """One sample at a time: TRL keeps one of these for each that it draws, and offers the public methods to the model,
    but for `reset`. Tools take their places, so that the model is shown the environment's own schemas."""

    def __init__(
        self, gateway: httpx.Client, environment: str, several_turns: bool, tools: list[dict[str, Any]]
    ) -> None:
        self._gateway, self._environment, self._several_turns = gateway, environment, several_turns
        for schema in tools:
            tool = Tool(schema, self._call)
            setattr(self, tool.__name__, tool)
        self.reset("")

    def reset(self, task_id: str, **_: object) -> None:
        self._task_id, self._over, self._lost = task_id, False, False
        self._id = uuid4().hex  # in ids of calls: samples with equal calls are episodes of their own
        self._transcript: list[dict[str, Any]] = []

    def _call(self, name: str, arguments: dict[str, Any]) -> str:
        if self._over or self._lost or not self._several_turns:
            return "Nothing more is heard here."
        call = {"id": f"call_{self._id}_{len(self._transcript)}", **call_of(name, arguments)}
        said = {"content": text_of(arguments["text"])} if name == "reply" else {"tool_calls": [call]}
        self._transcript.append({"role": "assistant", **said})
        self._lost = True  # TRL would give an error to the model, as if it were its own
        body = {"task_id": self._task_id, "messages": self._transcript}
        turn = send(self._gateway, f"/envs/{self._environment}/step", body)
        self._lost, self._over = False, turn["done"]
        self._transcript += turn["messages"]
        return "\n".join(message["content"] for message in turn["messages"]) or "Nothing more is heard here."

    def _played(
        self, completion: Sequence[dict[str, Any]], ids: Sequence[int], ends: Collection[int]
    ) -> dict[str, Any] | None:
        """What is sent to be scored. None when the gateway failed on the way, which is not the model's doing."""
        if self._lost:
            return None
        first, last = completion[0], completion[-1]
        if not self._several_turns:  # its words and all of its calls; what follows those is no part of it
            transcript, cut = [spoken(first)], len(completion) == 1 and ids[-1] not in ends
        elif self._over or last["role"] != "assistant" or last.get("tool_calls"):
            transcript, cut = self._transcript or [spoken(first)], False
        else:
            transcript, cut = [*self._transcript, spoken(last)], ids[-1] not in ends
        return {"messages": transcript, "finish_reason": "length" if cut else "stop"}


def text_of(said: object) -> str:
    """JSON can hold halves of characters, which are no text."""
    return str(said).encode(errors="replace").decode()


def call_of(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def spoken(message: dict[str, Any]) -> dict[str, Any]:
    calls = [call_of(**call["function"]) for call in message.get("tool_calls") or []]
    return {"role": "assistant", "content": message.get("content") or "", **({"tool_calls": calls} if calls else {})}


def kind(row: dict[str, Any]) -> str:
    """TRL shows the same tools wherever the column `environment` is the same."""
    shown = hashlib.sha256(row["tools"].encode()).hexdigest()[:8]
    return f"{row['environment']}-{shown}{'-turns' * (row['max_turns'] > 1)}"


def factories(gateway: httpx.Client, rows: Dataset) -> dict[str, Callable[[], Episode]]:
    """One for each kind of row."""
    made: dict[str, Callable[[], Episode]] = {}
    for row in rows.select_columns(["environment", "tools", "max_turns"]):
        name, several = row["environment"], row["max_turns"] > 1
        tools = json.loads(row["tools"]) + [REPLY] * several
        places = {schema["function"]["name"]: lambda self: None for schema in tools}
        made[kind(row)] = partial(type("Played", (Episode,), places), gateway, name, several, tools)
    return made


def episode_reward(
    gateway: httpx.Client, run: str, model: str, ends: Collection[int]
) -> Callable[..., list[float | None]]:
    """Scores the episodes of a prompt as one group. `get_reward` of an environment would see one alone. `ends` are the
    ids of the tokens that end a reply."""
    seen: dict[str, float] = {}

    def reward(
        environments: Sequence[Episode],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        task_id: Sequence[str],
        purpose: Sequence[str],
        trainer_state: Any,
        log_extra: Callable[[str, list[Any]], None],
        log_metric: Callable[[str, float], None],
        **_: object,
    ) -> list[float | None]:
        played = [
            episode._played(said, ids, ends)
            for episode, said, ids in zip(environments, completions, completion_ids, strict=True)
        ]
        about = {"run": run, "policy": {"model": model, "step": trainer_state.global_step}, "purpose": purpose[0]}
        scores = score(gateway, "/score", about, list(zip(task_id, played, strict=True)))
        log_columns(scores, log_extra)
        found = dollars(gateway, run, scores)
        for name in {episode._environment for episode in environments}:
            own = [one for one, episode in zip(scores, environments, strict=True) if episode._environment == name]
            rewards = [one["reward"] for one in own if one["reward"] is not None]
            found |= figures(own, f"{name}/") | ({f"{name}/reward": sum(rewards) / len(rewards)} if rewards else {})
        log_figures(found, seen, log_metric)
        return [one["reward"] for one in scores]

    reward.__name__ = "gateway"
    return reward


def main(url: str, model: str, *files: str, run: str = "trl-environments") -> None:
    gateway = connect(url)
    rows = load_dataset("json", data_files=list(files), split="train")
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=episode_reward(gateway, run, model, ends={AutoTokenizer.from_pretrained(model).eos_token_id}),
        environment_factory=factories(gateway, rows),
        train_dataset=rows.map(lambda row: {"environment": kind(row)}).remove_columns("tools"),
        args=GRPOConfig(
            output_dir=run,
            per_device_train_batch_size=8,
            num_generations=8,
            max_completion_length=4096,
            log_completions=True,
            **hardware(),
        ),
    )
    trainer.train()


if __name__ == "__main__":
    main(*sys.argv[1:])
