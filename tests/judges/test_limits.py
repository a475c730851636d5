"""Calls that wait for slots and rates, and a judge that is left alone, by a clock that moves when it is told to."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from app.domain.access import Caller, work_for
from app.domain.judge_limits import compute_burst
from app.judges.configuration import ReadingFailed
from app.judges.limits import LONGEST_RUN, CallSlots, CircuitBreaker, RateCredit, hash_beginnings
from tests.support.tiers import examples


@dataclass
class Hand:
    """Of a clock."""

    at: float = 0.0

    def __call__(self) -> float:
        return self.at


def slots(limit: int, clock: Hand | None = None) -> CallSlots:
    made = CallSlots(clock or Hand(), lambda: None)
    made.grant(limit, until=10.0)
    return made


@given(
    st.integers(0, 4),
    st.lists(
        st.tuples(st.sampled_from(("arrive", "leave", "give up", "grant", "lower")), st.integers(0, 20)), max_size=60
    ),
)
def test_places_are_neither_lost_nor_given_twice(limit: int, events: list[tuple[str, int]]) -> None:
    """Whoever arrives gets a place in order, whatever others do meanwhile; nobody waits while there is room."""

    async def play() -> None:
        subject = slots(limit)
        waiting: list[asyncio.Task[None]] = []
        inside = 0
        for event, which in events:
            if event == "arrive":
                waiting.append(asyncio.create_task(subject.acquire()))
            elif event == "leave" and inside:
                subject.release()
                inside -= 1
            elif event == "give up" and waiting:
                waiting.pop(which % len(waiting)).cancel()
            elif event == "grant":
                subject.grant(which % 5, until=10.0)
            elif event == "lower":
                subject.lower(which % 5)
            if which % 2:
                continue  # several things happen before anybody gets to act
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            admitted = [task for task in waiting if task.done()]
            assert admitted == waiting[: len(admitted)], "first come, first served"
            inside += len(admitted)
            del waiting[: len(admitted)]
            assert (subject.in_flight, subject.queued) == (inside, len(waiting))
            assert not waiting or inside >= subject.limit
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert subject.queued == 0

    asyncio.run(play())


async def test_a_place_given_to_somebody_who_just_left_is_passed_on() -> None:
    subject = slots(1)
    await subject.acquire()
    first = asyncio.create_task(subject.acquire())
    second = asyncio.create_task(subject.acquire())
    await asyncio.sleep(0)
    subject.release()
    first.cancel()
    await asyncio.wait([first, second], timeout=1)
    assert (second.done() and not second.cancelled(), subject.in_flight) == (True, 1)


async def test_nobody_is_admitted_once_the_time_is_over() -> None:
    clock = Hand()
    subject = slots(1, clock)
    await subject.acquire()
    waiting = asyncio.create_task(subject.acquire())
    await asyncio.sleep(0)
    clock.at = 10.0
    subject.release()
    seen = [subject.in_flight, subject.queued, subject.limit]
    subject.grant(1, until=20.0)
    await waiting
    assert [*seen, subject.in_flight] == [0, 1, 0, 1]


async def test_whoever_stops_waiting_for_a_rate_takes_nothing() -> None:
    woken: list[float] = []
    rate = RateCredit(60, lambda: woken.append(0.0))
    rate.settle(15)
    taken = await rate.take(99)
    waiting = asyncio.create_task(rate.take(10))
    await asyncio.sleep(0)
    asked = [rate.seconds_missing, rate.compute_request(), rate.compute_request()]
    waiting.cancel()
    await asyncio.wait([waiting])
    rate.settle(3)
    told = [taken, *asked, len(woken), rate.compute_request(), rate.give_back(), compute_burst(60)]
    assert told == [15.0, 10.0, 25.0, 10.0, 1, 0.0, 3.0, 15.0]


async def test_use_beyond_the_credit_is_asked_for_and_not_given_back() -> None:
    rate = RateCredit(60, lambda: None)
    rate.settle(5)
    rate.settle(await rate.take(4) - 9)
    assert [rate.give_back(), rate.compute_request()] == [0.0, 8.0]


async def test_prompts_that_begin_alike_follow_one_another_and_nobody_waits_for_ever() -> None:
    """Groups of three characters wait in turns."""
    names = [f"{'abc'[number % 3]}{number}" for number in range(3 * (LONGEST_RUN + 4))]
    limit, order = CallSlots(lambda: 0.0, lambda: None), list[str]()
    limit.grant(1, 1.0)
    await limit.acquire()

    async def call(name: str) -> None:
        await limit.acquire(hash_beginnings(["rules" * 1000, name[0] * 5000, name]))
        order.append(name[0])
        limit.release()

    calls = [asyncio.create_task(call(name)) for name in names]
    await asyncio.sleep(0)
    limit.release()
    await asyncio.gather(*calls)
    runs = [len(list(run)) for _, run in groupby(order)]
    assert (sorted(order), len(runs)) == (sorted(name[0] for name in names), 5)
    assert runs[0] == 1 + LONGEST_RUN, "then the oldest of another character has its turn"


async def test_keys_take_turns_however_many_calls_one_of_them_has_waiting() -> None:
    subject, order = slots(1), []
    await subject.acquire()

    async def call(name: str) -> None:
        await subject.acquire(hash_beginnings([name * 5000]))
        order.append(name)
        subject.release()

    async def call_all(name: str, count: int) -> None:
        with work_for(Caller(name, frozenset())):
            await asyncio.gather(*(call(name) for _ in range(count)))

    calling = [asyncio.create_task(call_all(name, count)) for name, count in (("a", 20), ("b", 3), ("c", 1))]
    await asyncio.sleep(0.01)
    subject.release()
    await asyncio.gather(*calling)
    assert "".join(order) == "abcabab" + 17 * "a"


START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def breaker(clock: Hand, failures: int = 3, seconds: float = 30.0) -> CircuitBreaker:
    return CircuitBreaker(failures, seconds, clock, lambda: START + timedelta(seconds=clock.at))


def called(subject: CircuitBreaker, good: bool | None) -> None:
    with subject.track_call() as outcome:
        outcome.good, outcome.trouble = good, "it answered 500"


def opened(clock: Hand) -> CircuitBreaker:
    subject = breaker(clock)
    for _ in range(3):
        called(subject, False)
        clock.at += 3.0
    return subject


def test_it_opens_after_failures_in_a_row_that_last() -> None:
    clock = Hand()
    subject = opened(clock)
    assert subject.state == "open"
    with pytest.raises(ReadingFailed) as refused:
        subject.require_closed()
    assert (refused.value.failure, refused.value.detail) == (
        "unavailable",
        "circuit breaker open after 3 consecutive failures; next attempt at 2026-01-02T03:04:41Z; "
        "last failure: it answered 500",
    )


def test_a_burst_of_failures_does_not_open_it() -> None:
    clock = Hand()
    subject = breaker(clock)
    for _ in range(100):
        called(subject, False)
    assert subject.state == "closed"


def test_a_success_in_between_begins_anew() -> None:
    clock = Hand()
    subject = breaker(clock)
    for good in (False, False, True, False, False):
        called(subject, good)
        clock.at += 10
    assert subject.state == "closed"


@pytest.mark.parametrize(("good", "state"), [(True, "closed"), (False, "open"), (None, "half_open")])
def test_one_probe_decides(good: bool | None, state: str) -> None:
    clock = Hand()
    subject = opened(clock)
    clock.at += 30
    states = [subject.state]
    with subject.track_call() as outcome:
        with pytest.raises(ReadingFailed, match="next attempt after the probe in flight"):
            subject.require_closed()
        outcome.good, outcome.trouble = good, "still 500"
    assert [*states, subject.state] == ["half_open", state]


def test_a_probe_that_is_given_up_leaves_room_for_another() -> None:
    clock = Hand()
    subject = opened(clock)
    clock.at += 30
    with suppress(KeyError), subject.track_call():
        raise KeyError
    called(subject, True)
    assert subject.state == "closed"


class Machine(RuleBasedStateMachine):
    """Never two probes at once; an open breaker always comes to be asked again."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Hand()
        self.subject = breaker(self.clock, failures=2, seconds=10)

    @rule(seconds=st.floats(0, 12))
    def wait(self, seconds: float) -> None:
        self.clock.at += seconds

    @rule(good=st.sampled_from((True, False, None)))
    def call(self, good: bool | None) -> None:
        before = self.subject.state
        try:
            with self.subject.track_call() as outcome:
                if before == "half_open":
                    with pytest.raises(ReadingFailed):
                        self.subject.require_closed()
                outcome.good = good
        except ReadingFailed:
            assert before == "open"
        else:
            assert before != "open"
            assert good is not True or self.subject.state == "closed"
            assert not (before == "half_open" and good is False) or self.subject.state == "open"

    @rule()
    def patience(self) -> None:
        self.clock.at += 10
        self.subject.require_closed()


TestMachine = Machine.TestCase
TestMachine.settings = hypothesis_settings(max_examples=examples(50), deadline=None)
