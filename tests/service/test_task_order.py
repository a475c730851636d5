"""The order in which a stream visits tasks: every index once an epoch, the same everywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.runs import Slot
from app.service.task_order import BLOCK_SIZE, ENDLESS_OFFSETS, derive_seed, order_by_weight, order_tasks
from app.store.leases import SlotLocator

SEEDS = st.integers(0, 2**53 - 1)


def indexes(locate: SlotLocator, count: int, first: int = 0) -> list[int | None]:
    slots = [locate(position) for position in range(first, first + count)]
    return [None if slot is None else slot.index for slot in slots]


@given(size=st.integers(1, 60), seed=SEEDS, epoch=st.integers(0, 5))
def test_every_epoch_visits_every_index_once(size: int, seed: int, epoch: int) -> None:
    locate = order_tasks(size, seed, one_epoch=False)
    first = epoch * size
    slots = [locate(position) for position in range(first, first + size)]
    assert [(slot.position, slot.epoch) for slot in slots if slot] == [(first + n, epoch) for n in range(size)]
    assert sorted(slot.index for slot in slots if slot) == list(range(size))


def test_the_order_is_the_same_in_every_process_and_version_of_python() -> None:
    locate = order_tasks(8, derive_seed("my-run"), one_epoch=False)
    assert (derive_seed("my-run"), indexes(locate, 16)) == (
        198856631325800,
        [0, 4, 5, 7, 6, 1, 2, 3, 0, 3, 7, 5, 1, 6, 4, 2],
    )


def test_epochs_and_runs_have_orders_of_their_own() -> None:
    one, other = (order_tasks(50, seed, one_epoch=False) for seed in (1, 2))
    orders = [tuple(indexes(one, 50)), tuple(indexes(one, 50, first=50)), tuple(indexes(other, 50))]
    assert len(set(orders)) == 3


@pytest.mark.parametrize(
    ("locate", "seen"),
    [
        pytest.param(order_tasks(3, None, one_epoch=False), [0, 1, 2, 0, 1], id="without a seed the natural order"),
        pytest.param(order_tasks(3, None, one_epoch=True), [0, 1, 2, None, None], id="one epoch ends"),
        pytest.param(
            order_tasks(9, None, one_epoch=True, chosen=(2, 5)),
            [2, 5, None, None, None],
            id="a choice narrows the epoch",
        ),
        pytest.param(order_tasks(0, None, one_epoch=False), [None] * 5, id="nothing to visit"),
        pytest.param(order_tasks(0, 7, one_epoch=True), [None] * 5, id="nothing to visit, seeded"),
        pytest.param(order_tasks(None, None, one_epoch=False), [0, 1, 2, 3, 4], id="endless"),
        pytest.param(order_tasks(None, None, one_epoch=True), [0, 1, 2, 3, 4], id="endless has no epoch to end"),
    ],
)
def test_where_a_stream_leads(locate: SlotLocator, seen: list[int | None]) -> None:
    assert indexes(locate, 5) == seen


@given(seed=SEEDS, chosen=st.sets(st.integers(0, 99), min_size=1, max_size=20))
def test_a_seeded_choice_is_visited_once_an_epoch(seed: int, chosen: set[int]) -> None:
    locate = order_tasks(100, seed, one_epoch=True, chosen=tuple(sorted(chosen)))
    assert sorted(index for index in indexes(locate, 100) if index is not None) == sorted(chosen)


@given(seed=SEEDS, position=st.integers(0, 2**40))
def test_an_endless_stream_starts_somewhere_and_goes_on_one_by_one(seed: int, position: int) -> None:
    locate = order_tasks(None, seed, one_epoch=False)
    start = locate(0)
    assert start is not None
    assert 0 <= start.index < ENDLESS_OFFSETS
    assert locate(position) == Slot(position=position, epoch=0, index=start.index + position)
    assert start.index + position < 2**53


POOLS = st.lists(st.tuples(st.floats(0.01, 100), st.integers(1, 9)), min_size=1, max_size=6)


@given(pools=POOLS, seed=st.none() | SEEDS)
def test_weighted_pools_are_each_gone_through_before_anything_comes_again(
    pools: list[tuple[float, int]], seed: int | None
) -> None:
    members = [tuple(range(100 * number, 100 * number + size)) for number, (_, size) in enumerate(pools)]
    locate = order_by_weight([(weight, some) for (weight, _), some in zip(pools, members, strict=True)], seed)
    slots = [slot for position in range(2 * BLOCK_SIZE) if (slot := locate(position)) is not None]
    assert [slot.position for slot in slots] == list(range(2 * BLOCK_SIZE))
    for some in members:
        drawn = [(slot.epoch, slot.index) for slot in slots if slot.index in some]
        rounds = -(-len(drawn) // len(some))
        assert len(set(drawn)) == len(drawn)
        assert sorted(drawn[: len(some) * (rounds - 1)]) == [(one, n) for one in range(rounds - 1) for n in some]


def test_weights_are_shares_of_every_block_whatever_the_size_of_a_pool() -> None:
    locate = order_by_weight([(3.0, (0,)), (1.0, tuple(range(1, 40)))], 5)
    for block in (0, 1, 7):
        assert sum(index == 0 for index in indexes(locate, BLOCK_SIZE, first=block * BLOCK_SIZE)) == 750


@given(name=st.from_regex(r"[a-z0-9][a-z0-9_-]{0,63}", fullmatch=True))
def test_a_run_that_chose_no_seed_gets_one_that_json_can_carry(name: str) -> None:
    assert 0 <= derive_seed(name) < 2**53
