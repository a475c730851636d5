"""Samples whose trainer names their places and tells a repeated one by its bytes; groups that nobody scores again."""

import asyncio
from dataclasses import replace

import pytest

from app.domain.errors import NotFound
from app.domain.groups import Group
from app.domain.parts import GroupSlot
from app.domain.scores import Score
from app.main.store import Store
from app.store.group_rows import GroupToStore
from tests.store.test_groups import refused
from tests.store.test_parts import WINDOWS, sample, shown
from tests.support.store_cases import opened, record


@pytest.fixture(autouse=True)
async def put_task(store: Store) -> None:
    await store.tasks.put([record(0)])


async def take(store: Store, place: int | None, fingerprint: str, size: int = 2, text: str = "a") -> GroupSlot:
    named = replace(sample(text, size), place=place, fingerprint=fingerprint)
    return await store.parts.assign_slot(named, WINDOWS)


def where(*seats: GroupSlot) -> list[tuple[int, int]]:
    """Of each the number of its group, in the order of their first seats, and its place."""
    groups = list(dict.fromkeys(seat.group_id for seat in seats))
    return [(groups.index(seat.group_id), seat.places[0]) for seat in seats]


async def test_a_place_that_another_has_begins_the_next_group(store: Store) -> None:
    seats = [await take(store, place, name) for place, name in ((1, "a"), (1, "b"), (0, "c"), (0, "d"), (1, "e"))]
    assert where(*seats) == [(0, 1), (1, 1), (1, 0), (2, 0), (2, 1)]
    assert [[shown(group)[0] for group in seat.begun] for seat in seats] == [
        *([], [], [["0:a", "1:a"]]),
        *([], [["0:a", "1:a"]]),
    ]


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize("place", [0, None])
async def test_a_sample_that_comes_again_keeps_its_place_whoever_holds_it(
    store: Store, answered: bool, place: int | None
) -> None:
    """While the first is held, after it was answered or has left, and in a group that is closed."""
    first = await take(store, place, "a")
    held = await take(store, place, "a")
    await store.parts.release_slot(held, answered=answered)
    released = await take(store, place, "a")
    other = await take(store, None if place is None else 1, "b")
    closed = await take(store, place, "a")
    assert where(first, held, released, other, closed) == [(0, 0)] * 3 + [(0, 1), (0, 0)]
    assert [seat.open for seat in (first, held, released, other, closed)] == [True] * 3 + [False] * 2
    assert where(first, await take(store, place, "c")) == [(0, 0), (1, 0)]


async def test_a_sample_that_comes_twice_at_once_has_one_place_in_the_group_that_is_open(store: Store) -> None:
    first = await take(store, 0, "a", size=3)
    one, other = await asyncio.gather(take(store, 1, "b", size=3), take(store, 1, "b", size=3))
    assert where(first, one, other) == [(0, 0), (0, 1), (0, 1)]
    assert [one.open, other.open, one.holder == other.holder] == [True, True, False]


@pytest.mark.dialects
async def test_two_replicas_count_a_sample_once(store: Store, store_url: str) -> None:
    async with opened(store_url) as other:
        seats = await asyncio.gather(*(take(one, 0, "a") for one in (store, other) * 4))
        last = await take(other, 1, "b")
    assert (set(where(*seats, last)), [shown(group)[0] for group in last.begun]) == ({(0, 0), (0, 1)}, [["0:a", "1:a"]])


async def test_a_masked_group_is_never_scored_again(store: Store) -> None:
    (group,) = (await take(store, 0, "a", size=1)).begun
    pending = await store.groups.mask(group.group_id)
    failed = group.merge_scores([Score.unscored("judge_failed")])
    await store.groups.finish([GroupToStore(failed)])
    masked = await store.groups.mask(group.group_id)
    again = await store.groups.mask(group.group_id)
    (late,) = await store.groups.finish([GroupToStore(group.merge_scores([Score.exact(True)]))])
    assert [facts(one) for one in (pending, masked, again, late)] == [
        ("pending", (), False),
        *[("unscored", ("masked",), True)] * 3,
    ]


async def test_a_scored_group_is_not_masked(store: Store) -> None:
    (group,) = (await take(store, 0, "a", size=1)).begun
    await store.groups.finish([GroupToStore(group.merge_scores([Score.exact(True)]))])
    assert facts(await store.groups.mask(group.group_id)) == ("scored", (), True)
    assert isinstance(await refused(store.groups.mask("group_none")), NotFound)


def facts(group: Group) -> tuple[str, tuple[str, ...], bool]:
    return group.outcome, group.flags, group.is_final
