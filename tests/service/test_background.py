"""What is done for ever: at its pace, and whatever fails once."""

import asyncio
import logging

import pytest

from app.domain.errors import StoreUnavailable
from app.domain.retention import Pruned, PrunePlan
from app.main.store import Store
from app.service.background import Pruner, PruneSchedule, Report, repeat, size_batch
from app.store.claims import build_claim
from tests.support.store_cases import MovableClock


async def test_work_goes_on_after_failures_whatever_it_returns(caplog: pytest.LogCaptureFixture) -> None:
    outcomes: list[object] = [False, StoreUnavailable("the disk is full"), ZeroDivisionError("0"), 0.0]
    done = asyncio.Event()

    async def work() -> object:
        if not outcomes:
            done.set()
            await asyncio.Event().wait()
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


async def test_what_work_returns_is_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that took `False` for one would never rest."""
    pauses: list[float] = []

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise asyncio.CancelledError

    outcomes = iter((False, 0.0, ZeroDivisionError()))

    async def work() -> object:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr("app.service.background.asyncio.sleep", note)
    with pytest.raises(asyncio.CancelledError):
        await repeat(work, 5.0, "counting failed", failed_seconds=60.0)
    assert pauses == [5.0, 5.0, 60.0]


async def test_pruning_that_failed_is_taken_up_when_its_claim_is_over(store: Store, clock: MovableClock) -> None:
    """And what was done waits for its time."""
    outcomes: list[Exception | None] = [StoreUnavailable("away"), None]
    began: list[int] = []

    class Faulty(Pruner):
        async def prune(self, plan: PrunePlan, report: Report) -> Pruned:
            began.append(len(began))
            if (outcome := outcomes.pop(0)) is not None:
                raise outcome
            return Pruned()

    pruner, schedule = Faulty(store.retention, store.claims), PruneSchedule(older_than_seconds=60.0)
    with pytest.raises(StoreUnavailable):
        await pruner.prune_if_due(schedule, build_claim("job", "prune"))
    for seconds in (1, 120, 3600):
        clock.forward(seconds)
        await pruner.prune_if_due(schedule, build_claim("job", "prune"))
    assert (began, outcomes) == ([0, 1], [])


@pytest.mark.parametrize(
    ("former", "seconds", "groups"),
    [
        *((8, 0.01, 16), (256, 0.05, 512), (512, 0.05, 512)),
        *((64, 0.25, 64), (64, 1.0, 16), (64, 100.0, 8), (8, 100.0, 8), (8, 0.0, 16)),
    ],
)
def test_batches_of_what_is_removed_grow_with_what_fits_into_their_time(
    former: int, seconds: float, groups: int
) -> None:
    """Of small groups hundreds go at once, of large ones a few, and never more than twice as many as before."""
    assert size_batch(former, seconds) == groups
