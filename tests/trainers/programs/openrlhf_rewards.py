"""OpenRLHF's own rollout of one prompt, of which all but the model and its tokenizer are OpenRLHF's.

Reads a job from standard input: the address of the rewards, a prompt, its label, and answers with how each ended.
Writes what OpenRLHF made of each. A token is a character.
"""

import asyncio
import json
import sys
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any


def package(name: str, folder: str) -> None:
    """Stands for a package whose own beginning would load torch."""
    module = ModuleType(name)
    module.__path__ = [folder]
    sys.modules[name] = module


class Ids(list[int]):
    def tolist(self) -> list[int]:
        return list(self)


class Tokenizer:
    def __call__(self, text: str, **_: object) -> dict[str, list[Ids]]:
        return {"input_ids": [Ids(map(ord, text))]}

    def decode(self, tokens: list[int], skip_special_tokens: bool) -> str:
        assert not skip_special_tokens
        return "".join(map(chr, tokens))


class Engine:
    """Says what it was told to say, one after the other."""

    def __init__(self, answers: list[tuple[str, str]]) -> None:
        self._answers = iter(answers)

    async def generate(self, *_: object, **__: object) -> SimpleNamespace:
        text, reason = next(self._answers)
        output = SimpleNamespace(token_ids=list(map(ord, text)), finish_reason=reason, logprobs=None)
        return SimpleNamespace(outputs=[output])


async def main(folder: str, job: dict[str, Any]) -> list[dict[str, Any]]:
    package("openrlhf", f"{folder}/openrlhf")
    package("openrlhf.utils", f"{folder}/openrlhf/utils")
    executor = import_module("openrlhf.utils.agent").SingleTurnAgentExecutor(job["urls"])
    engine, tokenizer = Engine(job["answers"]), Tokenizer()
    sampling = SimpleNamespace(max_tokens=None, logprobs=None)
    rollouts: list[dict[str, Any]] = await asyncio.gather(
        *(executor.execute(job["prompt"], job["label"], sampling, 100_000, tokenizer, engine) for _ in job["answers"])
    )
    return rollouts


if __name__ == "__main__":
    rollouts = asyncio.run(main(sys.argv[1], json.load(sys.stdin)))
    told = [{name: one[name] for name in ("reward", "scores", "extra_logs", "truncated")} for one in rollouts]
    sys.stdout.write(json.dumps(told))
