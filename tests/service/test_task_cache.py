"""Tasks that are kept: none is made or written again without need, and none is lost that the store has lost."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import ClassVar

import pytest
from pydantic import BaseModel, TypeAdapter
from sqlalchemy import delete

from app.domain.errors import GatewayError
from app.domain.runs import Lease, Slot
from app.domain.scores import Score
from app.domain.tasks import Completion, FunctionSpec, Message, Task, ToolSpec
from app.domain.values import Split
from app.main.store import Store
from app.ports.environment import Environment, Tools
from app.service.catalogue import ServedEnvironment
from app.service.requests import TaskBatch
from app.service.task_cache import DealtBatch, MadeTask, TaskCache, TasksAhead, build_record, rebuild_task
from app.service.task_order import build_label_lookup
from app.store.tables import prompts, tasks
from tests.support.databases import connected
from tests.support.store_cases import cycle, group, record, stream


class Plain(Environment):
    name: ClassVar[str] = "plain"
    version: ClassVar[str] = "1"

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        return Task(messages=(Message(role="user", content=f"{split} {index}"),))

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        return []


class Ended(Plain):
    """Its tasks come from an iterator, which ends."""

    name: ClassVar[str] = "ended"
    stats_label: ClassVar[str | None] = "kind"
    costly_first_task: ClassVar[bool] = False

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        return next(iter(()))


class EndedInThread(Ended):
    """The first task of a process is made in a thread."""

    costly_first_task: ClassVar[bool] = True


def made(index: int = 0) -> MadeTask:
    stored = record(index, f"Question {index}?")
    return MadeTask(stored, Task(messages=stored.prompt.messages))


def prune(url: str) -> None:
    """As a restored backup or a replica that lagged: the tasks and their prompts are gone."""
    with connected(url) as connection:
        connection.execute(delete(tasks))
        connection.execute(delete(prompts))


@pytest.fixture
def store_url(sqlite_url: str) -> str:
    return sqlite_url


async def test_of_kept_tasks_a_lease_says_which_are_stored_and_the_others_are_stored_again(
    store: Store, store_url: str
) -> None:
    hosted = ServedEnvironment.from_environment(Plain())
    every = {"task_0", "task_1", "task_2"}
    cache = TaskCache(store.tasks)
    naming = partial(cache.name_tasks, hosted, "train", "{}")
    for index in range(3):
        cache.keep_made((hosted, "train", "{}", index), made(index))
    said, found = [], []
    await cache.put([made(0), made(1)])
    for number in range(2):
        if number:
            prune(store_url)
        leased = await store.tasks.lease(stream(), 4, 0, cycle(4), None, naming)
        said.append(leased.stored)
        await cache.put([made(index) for index in range(3)], leased.stored)
        found.append(set(await store.tasks.get([f"task_{index}" for index in range(3)])))
    assert (said, found) == ([frozenset({"task_0", "task_1"}), frozenset()], [every, every])


async def test_a_group_of_a_task_that_was_pruned_after_its_hand_out_is_stored_with_it(
    store: Store, store_url: str
) -> None:
    cache = TaskCache(store.tasks)
    await cache.put([made(0)])
    await cache.put([made(0)], {"task_0"})
    prune(store_url)
    added = await cache.write_with_tasks(["task_0"], lambda: store.groups.add([group()]))
    assert ([one.group_id for one in added], set(await store.tasks.get(["task_0"]))) == (["group"], {"task_0"})


def test_a_task_is_kept_for_the_data_that_it_was_made_from() -> None:
    cache = TaskCache(tasks=None)  # type: ignore[arg-type]  # nothing is stored here
    before, after = (ServedEnvironment.from_environment(Plain()) for _ in range(2))
    cache.keep_made((before, "train", "{}", 0), made())
    assert cache.find_made([(before, "train", "{}", 0), (after, "train", "{}", 0)]) == [made(), None]


@pytest.mark.parametrize("kind", [Ended, EndedInThread])
async def test_an_iterator_of_an_environment_that_ended_is_said(kind: type[Ended]) -> None:
    """StopIteration in a thread would be waited for without end, and be another error in a coroutine."""
    hosted = ServedEnvironment.from_environment(kind())
    params = hosted.environment.Params()
    label = build_label_lookup(hosted, "train", params)
    stored = build_record(hosted, stream().model_copy(update={"params": {}}), 7, Plain().task("train", 7, params), None)
    acts: list[Callable[[], Awaitable[object]]] = [
        lambda: TasksAhead().build([(hosted.environment, 7)], "train", params),
        lambda: asyncio.to_thread(rebuild_task, hosted, stored),
        lambda: asyncio.to_thread(label, 7),
    ]
    told = []
    for act in acts:
        with pytest.raises(GatewayError) as error:
            async with asyncio.timeout(5):
                await act()
        told.append(error.value.detail)
    assert told == ["ended made no task 7 of train: an iterator in its `task` had ended (StopIteration)"] * 3


def rich() -> MadeTask:
    task = Task(
        messages=(
            Message(role="system", content='Say "lease_id":null} \\ \n \U0001f9d9'),
            Message(role="user", content=None, name="ada"),
        ),
        tools=(ToolSpec(function=FunctionSpec(name="look", parameters={"type": "object"})),),
        max_turns=3,
        metadata={"lease_expires_at": None, "number": 1.5, "text": "\x00é", "list": [True, {}]},
    )
    hosted = ServedEnvironment.from_environment(Plain())
    return MadeTask(build_record(hosted, stream(), 7, task, None), task)


LEASE = Lease(
    lease_id="lease_" + "0a" * 16,
    slot=Slot(position=0, epoch=0, index=7),
    expires_at=datetime(2026, 1, 2, 3, 4, 5, 60, tzinfo=UTC),
)
LATER = replace(LEASE, expires_at=datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC))


@pytest.mark.parametrize(
    "batch",
    [
        DealtBatch(tasks=(), next_cursor=None, exhausted=True),
        DealtBatch(tasks=(), next_cursor=None, exhausted=False, paced=True),
        DealtBatch(tasks=((rich(), None), (made(), None)), next_cursor=2**40, exhausted=False),
        DealtBatch(
            tasks=((rich(), LEASE), (made(), LATER), (made(1), LEASE)),
            next_cursor=None,
            exhausted=False,
            warnings=('nearly "all" used',),
        ),
    ],
    ids=["empty", "paced", "by cursor", "leased"],
)
def test_a_batch_is_written_as_its_model_is(batch: DealtBatch) -> None:
    whole = TypeAdapter(TaskBatch).dump_json(batch.to_task_batch())
    assert [batch.to_json() for _ in range(2)] == [whole, whole]
