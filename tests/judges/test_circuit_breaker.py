"""A judge that fails again and again is left alone, then asked once."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from app.judges.configuration import ReadingFailed
from app.judges.limits import CircuitBreaker
from tests.judges.test_limits import Hand
from tests.support.tiers import examples

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
