"""An environment for verifiers before 0.4."""

from typing import Any

import verifiers as vf
from datasets import Dataset


async def right(completion: Any, answer: str) -> float:
    said = completion[-1]["content"]
    if said == "raise":
        raise ValueError("the reward broke")
    return float(answer in said.split())


def load_environment(count: int = 4) -> Any:
    rows = [{"question": f"What is {number} + {number}?", "answer": str(2 * number)} for number in range(count)]
    return vf.SingleTurnEnv(
        dataset=Dataset.from_list(rows), system_prompt="Answer with a number.", rubric=vf.Rubric(funcs=[right])
    )
