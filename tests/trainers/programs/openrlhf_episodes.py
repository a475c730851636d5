"""OpenRLHF's own multi-turn executor plays episodes through examples/openrlhf_agent.py, without torch.

Takes the folder of OpenRLHF's wheel, a file with the job, a file for what OpenRLHF was given. All samples of a prompt
start together in one executor, as its rollout actor does it. A token is a character.
"""

import asyncio
import os
import sys
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from job_files import answer, in_turns
from openrlhf_rewards import Tokenizer, package

END, CUT = "\x03", "<cut>"


class ChatTokenizer(Tokenizer):
    """With ChatML turns that end with one character."""

    all_special_ids = (ord(END),)

    def apply_chat_template(self, messages: list[dict[str, str]], **_: object) -> str:
        return "".join(f"<{one['role']}>\n{one['content']}{END}\n" for one in messages) + "<assistant>\n"


class Engine:
    """Says what it was told to say; a call tells a sample by its turn to ask."""

    def __init__(self, replies: list[list[str]]) -> None:
        self._waiting = [iter(said) for said in replies]
        self._players: dict[asyncio.Task[Any] | None, Any] = {}

    async def generate(self, ids: list[int], params: Any, **_: object) -> SimpleNamespace:
        player = asyncio.current_task()
        if player not in self._players:
            self._players[player] = self._waiting.pop(0)
        reply = next(self._players[player])
        text = reply.removesuffix(CUT) + END * (not reply.endswith(CUT))
        tokens = list(map(ord, text))[: params.max_tokens]
        reason = "stop" if tokens[-1:] == [ord(END)] else "length"
        logprobs = [{token: SimpleNamespace(logprob=-0.5)} for token in tokens]
        output = SimpleNamespace(token_ids=tokens, text=text.rstrip(END), finish_reason=reason, logprobs=logprobs)
        return SimpleNamespace(outputs=[output])


async def play_group(executor: Any, group: dict[str, Any], length: int) -> list[dict[str, Any]]:
    """As `RolloutRayActor.generate_responses` does, but for errors, which end OpenRLHF's run and are told here."""
    row, tokenizer, engine = group["row"], ChatTokenizer(), Engine(group["replies"])
    prompt = tokenizer.apply_chat_template(row["prompt"])
    params = SimpleNamespace(max_tokens=None, logprobs=1)
    playing = [executor.execute(prompt, row["label"], params, length, tokenizer, engine) for _ in group["replies"]]
    return [describe(one) for one in await asyncio.gather(*playing, return_exceptions=True)]


def describe(played: Any) -> dict[str, Any]:
    if isinstance(played, BaseException):
        return {"error": str(played)}
    tokens, ranges = played["observation_tokens"], played["action_ranges"]
    sampled = {place for first, last in ranges for place in range(first, last)}
    return {
        "reward": played["reward"],
        "scores": played["scores"],
        "logged": played["extra_logs"],
        "trained": "".join(chr(tokens[place]) for place in sorted(sampled)),
        "whole": "".join(map(chr, tokens)),
        "log_probs": [-0.5 if place in sampled else 0.0 for place in range(len(tokens))] == played["rollout_log_probs"],
        "tokens": len(tokens),
    }


async def main(job: dict[str, Any]) -> dict[str, Any]:
    folder = sys.argv[1]
    package("openrlhf", f"{folder}/openrlhf")
    package("openrlhf.utils", f"{folder}/openrlhf/utils")
    os.environ |= {"ATROPOS_ENVS_URL": job["gateway"], "ATROPOS_ENVS_RUN": job["run"]}
    agent = import_module("openrlhf_agent")
    vars(agent)["PATIENCE_SECONDS"] = job["patience_seconds"]
    executor = agent.AgentExecutor()
    groups = await in_turns(lambda group: play_group(executor, group, job["length"]), job["groups"])
    return {"groups": groups, "left": len(executor.starting)}


if __name__ == "__main__":
    answer(main)
