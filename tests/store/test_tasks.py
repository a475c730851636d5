"""Tasks and the contexts frozen for them."""

import asyncio

import pytest

from app.domain.groups import TaskPrompt, TaskRecord
from app.domain.tasks import Context, FunctionSpec, Message, Passage, TaskKey, ToolSpec, Withheld
from app.main.store import Store
from tests.support.store_cases import START, opened, record, stream

CONTEXT = Context(
    passages=(Passage(id="e1", text="The mill burned.\x00 \U0001f525", source="events", time=START),),
    withheld=(Withheld(id="e2", reason="secret"),),
)


def told(text: str) -> Context:
    return Context(passages=(Passage(id=text, text=text, source="lore"),))


@pytest.mark.dialects
async def test_a_task_comes_back_as_it_was_given(store: Store) -> None:
    whole = TaskRecord(
        task_id="task_whole",
        key=TaskKey(
            environment="npc_arena",
            version="2",
            data_digest="d",
            split="test",
            index=2**53 - 1,
            params={"z": [1, None, "\x00"], "a": {"deep": 1.5}},
            context=CONTEXT,
        ),
        prompt=TaskPrompt(
            messages=(Message(role="system", content="\x00\U0001f9d9"), Message(role="user", content=None)),
            tools=(ToolSpec(function=FunctionSpec(name="look", parameters={"type": "object"})),),
            max_turns=4,
            metadata={"character": "bettany", "score": None},
        ),
    )
    await store.tasks.put([whole, record(1), whole])
    assert await store.tasks.get(["task_whole", "task_1", "task_none", "\x00", "\ud83d"]) == {
        "task_whole": whole,
        "task_1": record(1),
    }


async def test_a_known_task_is_left_as_it_is(store: Store) -> None:
    await store.tasks.put([record(0, "first")])
    await store.tasks.put([record(0, "second"), record(1, "first")])
    assert await store.tasks.get(["task_0", "task_1"]) == {"task_0": record(0, "first"), "task_1": record(1, "first")}


async def test_tasks_that_are_not_stored_are_found(store: Store) -> None:
    await store.tasks.put([record(0)])
    assert await store.tasks.find_missing(["task_0", "task_1", "\x00"]) == {"task_1", "\x00"}


@pytest.mark.dialects
async def test_replicas_may_store_the_same_tasks_at_once(store: Store, store_url: str) -> None:
    records = [record(index) for index in range(20)]
    async with opened(store_url) as replica:
        turns = [records, records[::-1]] * 4
        await asyncio.gather(*(side.tasks.put(turn) for turn in turns for side in (store, replica)))
    assert await store.tasks.get([one.task_id for one in records]) == {one.task_id: one for one in records}


async def test_the_first_context_of_a_place_is_kept(store: Store) -> None:
    first = await store.tasks.freeze_contexts(stream(), {(0, 1): CONTEXT, (1, 1): told("next epoch")})
    second = await store.tasks.freeze_contexts(stream(), {(0, 1): told("too late"), (0, 2): Context()})
    elsewhere = await store.tasks.freeze_contexts(stream(digest="other"), {(0, 1): told("another stream")})
    found = await store.tasks.get_frozen_contexts(stream(), [(0, 1), (0, 2), (0, 3), (1, 1)])
    assert (first, second, elsewhere, found, await store.tasks.get_frozen_contexts(stream(run="other"), [(0, 1)])) == (
        {(0, 1): CONTEXT, (1, 1): told("next epoch")},
        {(0, 1): CONTEXT, (0, 2): Context()},
        {(0, 1): told("another stream")},
        {(0, 1): CONTEXT, (0, 2): Context(), (1, 1): told("next epoch")},
        {},
    )
