"""What is done for ever: at its pace, and whatever fails once."""

import asyncio
import logging

import pytest

from app.domain.errors import StoreUnavailable
from app.service.background import repeat


async def test_work_goes_on_after_failures_and_says_how_long_it_rests(caplog: pytest.LogCaptureFixture) -> None:
    outcomes: list[float | Exception | None] = [0.0, StoreUnavailable("the disk is full"), ZeroDivisionError("0"), None]
    done = asyncio.Event()

    async def work() -> float | None:
        if not outcomes:
            done.set()
            return 60.0
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    with caplog.at_level(logging.WARNING, "app.service.background"):
        looping = asyncio.create_task(repeat(work, 0.001, "counting failed"))
        await done.wait()
        looping.cancel()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "counting failed; this is tried again: the disk is full"),
        ("ERROR", "counting failed; this is tried again"),
    ]
