"""Who waits for others that say the same, and who is forgotten."""

import asyncio
from collections.abc import Callable

import pytest

from app.domain.parts import GroupSlot
from app.service.scoring import DISCONNECT_TURNS, SampleHolders

SAMPLE = ("scope", "says this")
SLOT = GroupSlot("group", "group", (0,), open=True, holder="one")


def count_turns(holders: SampleHolders) -> int:
    """Those of the event loop that another sample waits for, which leaves then."""
    admitting, turns = holders.admit(SAMPLE), 0
    try:
        while True:
            admitting.send(None)
            turns += 1
    except StopIteration:
        holders.dismiss(SAMPLE)
        return turns


def hold(holders: SampleHolders) -> None:
    with pytest.raises(StopIteration):
        holders.admit(SAMPLE).send(None)
    holders.hold(SLOT, SAMPLE)


def release(holders: SampleHolders) -> None:
    hold(holders)
    holders.release(SLOT)
    holders.release(SLOT)


def give_up(holders: SampleHolders) -> None:
    hold(holders)
    waiting = holders.admit(SAMPLE)
    waiting.send(None)
    waiting.close()
    holders.release(SLOT)


@pytest.mark.parametrize(
    ("before", "turns"),
    [(lambda _: None, 0), (hold, DISCONNECT_TURNS), (release, 0), (give_up, 0)],
    ids=["nobody", "one that is held", "one that was released", "one that gave up"],
)
def test_a_sample_waits_for_those_that_are_here(before: Callable[[SampleHolders], None], turns: int) -> None:
    holders = SampleHolders()
    before(holders)
    assert count_turns(holders) == turns


async def test_a_sample_waits_until_it_is_written_that_another_has_left() -> None:
    holders, writing = SampleHolders(), asyncio.get_running_loop().create_future()
    holders.note_leaving(SAMPLE, writing)
    waiting = asyncio.ensure_future(holders.admit(SAMPLE))
    await asyncio.sleep(0)
    seen = [waiting.done()]
    writing.set_result(None)
    await waiting
    holders.dismiss(SAMPLE)
    assert [*seen, count_turns(holders) == 0] == [False, True]
