"""Tasks of an environment as it was, made again from what it is now."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import ClassVar

import pytest
from pydantic import BaseModel

from app.domain.groups import TaskPrompt, TaskRecord
from app.domain.scores import Score
from app.domain.tasks import Completion, Context, Message, Passage, Task, TaskKey
from app.domain.values import Frozen, Split
from app.ports.environment import Environment, Tools
from app.service.catalogue import ServedEnvironment
from app.service.rescoring import TaskMatcher


class TavernParams(Frozen):
    tone: str = "plain"


class Tavern(Environment):
    """One task for each (guest, question), in that order; the sheet and the news stand in the system prompt."""

    name: ClassVar[str] = "tavern"
    version: ClassVar[str] = "1"
    Params: ClassVar[type[BaseModel]] = TavernParams

    def __init__(self, sheet: str, *asked: tuple[str, str]) -> None:
        self.sheet = sheet
        self.asked = asked
        self.made = 0

    @property
    def digests(self) -> Mapping[str, str]:
        return {"sheet": self.sheet}

    def size(self, split: Split, params: BaseModel) -> int | None:
        return len(self.asked)

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        self.made += 1
        guest, question = self.asked[index]
        messages = (Message(role="system", content=self.sheet), Message(role="user", content=question))
        return Task(messages=messages, metadata={"guest": guest}, reference=f"{self.sheet}: {guest}")

    def place(self, task: Task, context: Context) -> Task:
        told = " ".join(passage.text for passage in context.passages)
        system = Message(role="system", content=f"{self.sheet} {told}")
        return task.model_copy(
            update={"messages": (system, *task.messages[1:]), "reference": f"{task.reference} {told}"}
        )

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        return [Score.exact(True) for _ in group]


WHO, WHERE, WHEN = ("hob", "Who?"), ("hob", "Where?"), ("ida", "Who?")
NEWS = Context(passages=(Passage(id="1", text="Snow.", source="t"),))


def stored(index: int, *, context: Context | None = None, params: Mapping[str, str] = {"tone": "plain"}) -> TaskRecord:
    """Handed out when the tavern was this."""
    tavern = Tavern("old", WHO, WHERE)
    task = tavern.task("train", index, TavernParams())
    placed = task if context is None else tavern.place(task, context)
    key = TaskKey(
        environment="tavern",
        version="1",
        data_digest="old",
        split="train",
        index=index,
        params=dict(params),
        context=context,
    )
    return TaskRecord(task_id="task", key=key, prompt=TaskPrompt(messages=placed.messages, metadata=placed.metadata))


def remade(now: Tavern, record: TaskRecord) -> Task | None:
    return asyncio.run(TaskMatcher().find_task(ServedEnvironment.from_environment(now), record))


@pytest.mark.parametrize(
    ("now", "record", "reference"),
    [
        (Tavern("new", WHO, WHERE), stored(1), "new: hob"),
        (Tavern("new", WHEN, WHERE, WHO), stored(0), "new: hob"),
        (Tavern("new", WHERE), stored(1), "new: hob"),
        (Tavern("new", WHEN, WHO), stored(0, context=NEWS), "new: hob Snow."),
    ],
)
def test_the_stored_prompt_stands_over_the_present_reference(now: Tavern, record: TaskRecord, reference: str) -> None:
    task = remade(now, record)
    assert task is not None
    assert (task.messages, task.reference) == (record.prompt.messages, reference)


@pytest.mark.parametrize(
    ("now", "record"),
    [
        (Tavern("new", WHEN), stored(0)),
        (Tavern("new"), stored(0)),
        (Tavern("new", ("hob", "who?")), stored(0)),
        (Tavern("new", WHO), stored(0, params={"colour": "red"})),
    ],
)
def test_what_is_no_longer_asked_is_not_made(now: Tavern, record: TaskRecord) -> None:
    assert remade(now, record) is None


async def test_an_environment_is_looked_through_once() -> None:
    now = Tavern("new", *((f"guest {number}", "Who?") for number in range(200)), WHERE, WHO)
    hosted = ServedEnvironment.from_environment(now)
    remaker = TaskMatcher()
    found = await asyncio.gather(*(remaker.find_task(hosted, stored(place % 2)) for place in range(10)))
    assert [task.metadata["guest"] if task else None for task in found] == ["hob"] * 10
    assert now.made == 202 + 2 * 10
