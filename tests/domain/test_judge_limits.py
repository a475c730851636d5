"""What the processes of a database are given of a judge's limits: never more together than it has."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from app.domain.judge_limits import (
    BURST_SECONDS,
    COOLDOWN_SECONDS,
    LEASE_SECONDS,
    NOTICE_SECONDS,
    BreakerNews,
    CallFeedback,
    CallLimits,
    LimitsExchange,
    LimitsGrant,
    SharedLimits,
    compute_shares,
    exchange_limits,
)
from tests.support.tables import read_table
from tests.support.tiers import examples

CALL_SECONDS = 5.0


@dataclass
class Shared:
    """A state, a clock, and what was last given."""

    limits: CallLimits = field(default_factory=lambda: CallLimits(64, call_seconds=CALL_SECONDS))
    state: SharedLimits = field(default_factory=SharedLimits)
    at: float = 1_000.0
    gone: Collection[str] = ()

    def ask(self, holder: str = "a", **asked: object) -> LimitsGrant:
        wanted = LimitsExchange("big", holder, self.limits)
        self.state, grant = exchange_limits(
            self.state,
            replace(wanted, **asked),  # type: ignore[arg-type]
            round(self.at * 1e6),
            self.gone.__contains__,
        )
        return grant


def test_429_shrinks_the_limit_once_per_episode_of_all_processes() -> None:
    shared, seen = Shared(), []
    for seconds, holder, retry_after in ((0.0, "a", 0.0), (1.0, "b", 0.0), (15.0, "a", 100.0), (99.0, "b", 0.0)):
        shared.at += seconds
        grant = shared.ask(holder, feedback=CallFeedback(rate_limited=True, retry_after=retry_after))
        seen.append((grant.limit, grant.quiet_seconds))
    shared.at += COOLDOWN_SECONDS
    seen.append((shared.ask(feedback=CallFeedback(rate_limited=True)).limit, 0.0))
    assert seen == [(51, 0.0), (51, 0.0), (40, 100.0), (40, 1.0), (32, 0.0)]


def test_it_never_falls_below_one() -> None:
    shared = Shared(CallLimits(2))
    for _ in range(5):
        shared.at += COOLDOWN_SECONDS
        limit = shared.ask(feedback=CallFeedback(rate_limited=True)).limit
    assert limit == 1


def test_it_grows_by_one_after_a_clean_round_of_all_and_not_beyond_its_ceiling() -> None:
    shared = Shared(CallLimits(10))
    grown = [shared.ask(feedback=CallFeedback(rate_limited=True)).limit]
    grown.append(shared.ask(feedback=CallFeedback(succeeded=99)).limit)
    shared.at += COOLDOWN_SECONDS
    grown += [shared.ask(holder, feedback=CallFeedback(succeeded=4)).limit for holder in "abababab"]
    assert (grown, shared.state.learned) == ([8, 8, 8, 9, 9, 9, 10, 10, 10, 10], None)


def test_other_faults_stop_growth_and_shrink_nothing() -> None:
    shared = Shared(CallLimits(5))
    shared.ask(feedback=CallFeedback(rate_limited=True))
    shared.at += COOLDOWN_SECONDS
    shared.ask(feedback=CallFeedback(failed=True))
    held = shared.ask("b", feedback=CallFeedback(succeeded=50)).limit
    shared.at += COOLDOWN_SECONDS
    assert (held, shared.ask("b", feedback=CallFeedback(succeeded=4)).limit) == (4, 5)


@pytest.mark.parametrize(
    ("wanted", "capacity", "shares"),
    read_table(__file__, "slots.yaml", list[tuple[dict[str, int], int, list[int]]]),
    ids=str,
)
def test_slots_are_split_evenly_by_what_is_wanted(wanted: dict[str, int], capacity: int, shares: list[int]) -> None:
    assert list(compute_shares(wanted, capacity, turn=0).values()) == shares


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 90), max_size=9), st.integers(0, 64))
def test_shares_add_up_and_everybody_has_a_turn(wanted: dict[str, int], capacity: int) -> None:
    rounds = [compute_shares(wanted, capacity, turn) for turn in range(9)]
    assert all(sum(shares.values()) <= capacity for shares in rounds)
    served = {name for shares in rounds for name, share in shares.items() if share > 0}
    assert served == ({name for name, count in wanted.items() if count > 0} if capacity else set())


def test_the_slots_of_a_dead_process_are_free_when_its_calls_have_ended() -> None:
    shared = Shared()
    shared.ask("dead", wanted=64)
    seen = [shared.ask("b", wanted=64).slots]
    shared.at += LEASE_SECONDS
    seen.append(shared.ask("b", wanted=64).slots)
    shared.at += CALL_SECONDS
    seen.append(shared.ask("b", wanted=64).slots)
    assert seen == [0, 0, 64]


def test_the_slots_and_the_probe_of_a_process_that_is_gone_are_free_once_servers_notice() -> None:
    shared = Shared()
    shared.ask("dead", wanted=64, news=BreakerNews("opened", 0.0, 5, "it answered 500"), wants_probe=True)
    shared.gone = {"dead"}
    grants = [shared.ask("b", wanted=64, wants_probe=True)]
    shared.at += NOTICE_SECONDS
    grants.append(shared.ask("b", wanted=64))
    assert [(grant.slots, grant.breaker and grant.breaker.probe) for grant in grants] == [(0, "you"), (64, "you")]


def test_an_open_breaker_is_open_for_all_with_one_probe() -> None:
    shared = Shared()
    shared.ask("a", news=BreakerNews("opened", 30.0, 5, "it answered 500"))
    opened = shared.ask("b", wants_probe=True).breaker
    shared.at += 30.0
    probes = [shared.ask(holder, wants_probe=True).breaker for holder in "bab"]
    shared.ask("b", news=BreakerNews("given_up"))
    probes.append(shared.ask("a", wants_probe=True).breaker)
    shared.at += CALL_SECONDS
    probes.append(shared.ask("b", wants_probe=True).breaker)
    closed = [shared.ask("b", news=BreakerNews("closed")).breaker, shared.ask("a").breaker]
    assert opened is not None
    assert (opened.seconds, opened.failures, opened.trouble, opened.probe) == (30.0, 5, "it answered 500", "nobody")
    assert [breaker and breaker.probe for breaker in probes] == ["you", "another", "you", "you", "you"]
    assert closed == [None, None]


@given(
    st.floats(1, 6000),
    st.lists(st.tuples(st.floats(0, 30), st.floats(0, 500), st.sampled_from("abc")), min_size=1, max_size=40),
)
def test_no_stretch_of_time_sees_more_than_its_rate_and_one_burst(
    per_minute: float, asked: list[tuple[float, float, str]]
) -> None:
    shared = Shared(CallLimits(64, requests_per_minute=per_minute))
    given_at: list[tuple[float, float]] = []
    for pause, units, holder in asked:
        shared.at += pause
        given_at.append((shared.at, shared.ask(holder, wanted=1, requests=units).requests))
    burst = max(1.0, per_minute / 60 * BURST_SECONDS)
    for begin in range(len(given_at)):
        for end in range(begin, len(given_at)):
            within = sum(units for _, units in given_at[begin : end + 1])
            seconds = given_at[end][0] - given_at[begin][0]
            assert within <= (burst + seconds * per_minute / 60) * (1 + 1e-6) + 1e-4
    assert all(one[0] <= other[0] for one, other in pairwise(given_at))


def test_what_is_given_back_is_there_for_others() -> None:
    shared = Shared(CallLimits(64, tokens_per_minute=60))
    drawn = [shared.ask("a", wanted=1, tokens=units).tokens for units in (15.0, 5.0)]
    shared.ask("a", tokens=-6.0)
    assert [*drawn, shared.ask("b", wanted=1, tokens=9.0).tokens] == [15.0, 0.0, 6.0]


@dataclass
class Process:
    """One process as the lease keeps its promises: it starts calls only within its slots and before they expire."""

    holder: str
    slots: int = 0
    held: int = 0
    until: float = 0.0
    queued: int = 0
    calls: list[float] = field(default_factory=list)
    """When each call ends at the latest."""


LIMIT = 7


class Processes(RuleBasedStateMachine):
    """However processes ask, die, hang and hold back, their calls together stay within the limit."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = Shared(CallLimits(LIMIT, call_seconds=CALL_SECONDS))
        self.processes = {name: Process(name) for name in "abcd"}
        self.abandoned: list[float] = []

    @rule(name=st.sampled_from("abcd"), lost=st.booleans(), holds_back=st.booleans(), told=st.integers(0, 9))
    def exchange(self, name: str, lost: bool, holds_back: bool, told: int) -> None:
        one, at = self.processes[name], self.shared.at
        in_flight = len(one.calls)
        one.held = in_flight if holds_back or at >= one.until else max(in_flight, one.held)
        one.slots = min(one.slots, one.held)
        feedback = CallFeedback(rate_limited=told == 0, succeeded=told)
        wanted = in_flight + one.queued
        grant = self.shared.ask(one.holder, in_flight=in_flight, kept=one.held, wanted=wanted, feedback=feedback)
        if not lost:
            one.slots, one.held, one.until = grant.slots, grant.held, at + LEASE_SECONDS

    @rule(name=st.sampled_from("abcd"), count=st.integers(1, 10))
    def arrive(self, name: str, count: int) -> None:
        one = self.processes[name]
        one.queued += count

    @rule(name=st.sampled_from("abcd"))
    def begin(self, name: str) -> None:
        one = self.processes[name]
        while one.queued and self.shared.at < one.until and len(one.calls) < one.slots:
            one.queued -= 1
            one.calls.append(self.shared.at + CALL_SECONDS)

    @rule(name=st.sampled_from("abcd"))
    def end(self, name: str) -> None:
        del self.processes[name].calls[:1]

    @rule(name=st.sampled_from("abcd"))
    def die(self, name: str) -> None:
        """Its calls go on at the provider until they end; another process takes its place."""
        self.abandoned += self.processes[name].calls
        self.processes[name] = Process(f"{self.processes[name].holder}+")

    @rule(name=st.sampled_from("abcd"))
    def die_on_the_same_host(self, name: str) -> None:
        """The others see that it is gone, and the provider ends its calls in time."""
        noticed = self.shared.at + NOTICE_SECONDS
        self.shared.gone = {*self.shared.gone, self.processes[name].holder}
        self.abandoned += [min(end, noticed) for end in self.processes[name].calls]
        self.processes[name] = Process(f"{self.processes[name].holder}+")

    @rule(seconds=st.sampled_from((0.2, 1.0, CALL_SECONDS, LEASE_SECONDS)))
    def wait(self, seconds: float) -> None:
        self.shared.at += seconds
        for one in self.processes.values():
            one.calls = [end for end in one.calls if end > self.shared.at]
        self.abandoned = [end for end in self.abandoned if end > self.shared.at]

    @invariant()
    def never_more_than_the_limit(self) -> None:
        assert len(self.abandoned) + sum(len(one.calls) for one in self.processes.values()) <= LIMIT

    @rule()
    def everybody_is_served(self) -> None:
        """Once all keep asking and their calls end, each that has waiting calls gets a slot."""
        waiting = {name for name, one in self.processes.items() if one.queued}
        for _ in range(30):
            self.wait(CALL_SECONDS)
            for name in self.processes:
                self.exchange(name, lost=False, holds_back=True, told=1)
                before = self.processes[name].queued
                self.begin(name)
                if self.processes[name].queued < before:
                    waiting.discard(name)
        assert waiting == set()


TestProcesses = Processes.TestCase
TestProcesses.settings = hypothesis_settings(max_examples=examples(50), stateful_step_count=40, deadline=None)
