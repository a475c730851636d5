"""An environment whose scores fail for some answers: what begins with a capital letter cannot be scored, a small letter
earns 1, all else nothing."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import BaseModel

from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Task
from app.domain.values import Split
from app.ports.environment import Environment, Tools


class Odd(Environment):
    name: ClassVar[str] = "odd"
    version: ClassVar[str] = "1"

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        return Task(messages=(Message(role="user", content=f"{split} {index}: say a letter"),))

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        return [_score(completion.answer) for completion in group]

    def gold(self, task: Task) -> Completion:
        return Completion(text="a")


def _score(answer: str) -> Score:
    if answer[:1].isascii() and answer[:1].isupper():
        return Score(outcome="unscored", reason="verifier_killed", rationale="nobody could say")
    reward = float(answer[:1].isascii() and answer[:1].islower())
    return Score(outcome="scored", reward=reward, gate=1.0, absolute=reward, rationale=f"{reward}")
