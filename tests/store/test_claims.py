"""Claims of work: one holder at a time, and nothing late from one that was slow."""

import asyncio

import pytest

from app.domain.errors import StoreUnavailable
from app.main.store import Store
from app.service.background import work_with_claim
from app.store.claims import Claim, ClaimStore, build_claim
from tests.support.store_cases import MovableClock


@pytest.mark.dialects
async def test_one_holder_has_the_work_until_it_is_released_or_over(store: Store, clock: MovableClock) -> None:
    claims, one, two = store.claims, build_claim("job", "prune"), build_claim("job", "prune")
    other = build_claim("look", "prune")
    taken = [await claims.take(claim, 60) for claim in (one, two, one, other)]
    clock.forward(60)
    after = [await claims.renew(one, 60), await claims.take(two, 60), await claims.renew(two, 60)]
    clock.forward(61)
    late = [await claims.take(two, 60), await claims.take(one, 60), await claims.renew(one, 60)]
    released = [await claims.release(claim) for claim in (one, two, two)]
    assert (taken, after, late, released) == (
        [True, False, True, True],
        [True, False, False],
        [True, False, False],
        [False, True, False],
    )


@pytest.mark.dialects
async def test_what_was_released_rests(store: Store, clock: MovableClock) -> None:
    claims, one, two = store.claims, build_claim("job", "prune"), build_claim("job", "prune")
    found = [await claims.take(one, 60, rest_seconds=3600), await claims.release(one)]
    found += [await claims.take(claim, 60, rest_seconds=3600) for claim in (one, two)]
    clock.forward(3600)
    found += [await claims.take(claim, 60, rest_seconds=3600) for claim in (two, one)]
    assert found == [True, True, False, False, True, False]


class Renewals(ClaimStore):
    """Answers renewals with what is left of these."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.answers = list(answers)

    async def renew(self, claim: Claim, seconds: float) -> bool:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_work_whose_claim_was_lost_is_stopped() -> None:
    """A renewal that fails is tried again."""
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("stopped")
            raise

    renewals = Renewals(True, StoreUnavailable("away"), False)
    await work_with_claim(renewals, build_claim("job", "prune"), 0.03, work)
    assert (ended, renewals.answers) == (["stopped"], [])
