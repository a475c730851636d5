"""Work that several wait for: found by name while it is under way, and not after."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.domain.errors import StoreUnavailable
from app.service.requests import SingleFlight


@pytest.fixture
def flights() -> SingleFlight[int]:
    return SingleFlight("could not land")


async def test_a_flight_is_found_by_each_of_its_names_until_it_has_landed(flights: SingleFlight[int]) -> None:
    goes_on = asyncio.Event()

    async def work() -> int:
        await goes_on.wait()
        return 7

    flight = flights.start(["a", "b"], work())
    meanwhile = flights.names, flights.find(["b", "c"]) == {"b": flight}
    goes_on.set()
    assert (meanwhile, await flight, flights.names) == ((("a", "b"), True), 7, ())


async def test_one_that_took_its_place_stays_when_the_first_lands(flights: SingleFlight[int]) -> None:
    first, second = asyncio.Event(), asyncio.Event()

    async def after(event: asyncio.Event, value: int) -> int:
        await event.wait()
        return value

    one = flights.start(["a", "b"], after(first, 1))
    two = flights.start(["a"], after(second, 2))
    first.set()
    await one
    left = flights.find(["a", "b"]) == {"a": two}
    second.set()
    assert (left, await two, flights.names) == (True, 2, ())


async def fall() -> int:
    raise ZeroDivisionError("on purpose")


async def stand_still() -> int:
    raise StoreUnavailable("the disk is full")


@pytest.mark.parametrize(
    ("work", "logged"), [(fall, ["could not land: a, b"]), (stand_still, [])], ids=["a fault", "foreseen"]
)
async def test_only_what_nobody_foresaw_is_logged(
    flights: SingleFlight[int], caplog: pytest.LogCaptureFixture, work: Callable[[], Awaitable[int]], logged: list[str]
) -> None:
    (error,) = await asyncio.gather(flights.start(["a", "b"], work()), return_exceptions=True)
    assert ((isinstance(error, ZeroDivisionError | StoreUnavailable), flights.names), caplog.messages) == (
        (True, ()),
        logged,
    )


async def test_closing_cancels_what_is_under_way_and_waits_for_it(
    flights: SingleFlight[int], caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[str] = []

    async def work(name: str) -> int:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)
        return 0

    begun = [flights.start([name], work(name)) for name in ("a", "b")]
    await asyncio.sleep(0)
    await flights.close()
    assert (([flight.cancelled() for flight in begun], flights.names, sorted(ended)), caplog.messages) == (
        ([True, True], (), ["a", "b"]),
        [],
    )


async def test_the_age_of_the_oldest_flight_is_known_while_it_lasts(flights: SingleFlight[int]) -> None:
    """As `group_oldest_seconds` tells it, on which operators are alerted."""
    first, second = asyncio.Event(), asyncio.Event()
    ages = [flights.longest_seconds]
    one = flights.start(["a"], first.wait())
    await asyncio.sleep(0.05)
    two = flights.start(["b"], second.wait())
    ages.append(flights.longest_seconds)
    first.set()
    await one
    ages.append(flights.longest_seconds)
    second.set()
    await two
    before, both, younger = ages
    assert (before, both >= 0.05, younger < both, flights.longest_seconds) == (0.0, True, True, 0.0)
