"""Work on the event loop that takes turns."""

import asyncio
import time

import pytest

from app.judges.limits import await_turn_at_judging, take_turn_at_gates


async def test_everybody_gets_a_turn_in_a_pass_of_its_own_and_in_the_order_of_asking() -> None:
    """Judges do not wait for the groups at the gates."""
    seen: list[str] = []

    async def pass_gates(number: int) -> None:
        async with take_turn_at_gates():
            seen.append(f"gates {number}")

    async def judge() -> None:
        await await_turn_at_judging()
        seen.append("judge")

    async def go_round() -> None:
        while True:
            seen.append("")
            await asyncio.sleep(0)

    other = asyncio.create_task(go_round())
    await asyncio.gather(*map(pass_gates, range(4)), judge())
    other.cancel()
    said = " ".join(each or "|" for each in seen)
    assert [turn.split() for turn in said.split("|") if turn.strip()] == [
        *(["gates", "0", "judge"], ["gates", "1"], ["gates", "2"], ["gates", "3"])
    ]


async def test_who_gives_up_before_a_turn_holds_up_nobody() -> None:
    ended: list[int] = []

    async def one(number: int) -> None:
        await await_turn_at_judging()
        time.sleep(0.005)  # noqa: ASYNC251  # holds up the loop, as a large prompt does
        ended.append(number)

    tasks = [asyncio.create_task(one(number)) for number in range(12)]
    await asyncio.sleep(0)
    for task in tasks[1:-1]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await one(12)
    assert ended == [0, 11, 12]


async def test_what_goes_wrong_in_a_turn_ends_it() -> None:
    with pytest.raises(ValueError, match="broken"):
        async with take_turn_at_gates():
            raise ValueError("broken")
    async with take_turn_at_gates():
        pass  # who comes next is not kept waiting
