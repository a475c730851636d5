"""Slots of a judge that a dead process left behind are free at once, those of a process that may live are not."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from app.domain.judge_limits import NOTICE_SECONDS, CallLimits, LimitsExchange
from app.main.store import Store
from app.store.judge_limits import ProcessIdentity, identify_process, is_gone
from tests.support.store_cases import MovableClock

PRINT_IDENTITY = (
    "from app.store.judge_limits import identify_process; print(identify_process().name_holder('x'), flush=True)"
)


def identified() -> ProcessIdentity:
    own = identify_process()
    assert own is not None
    return own


def reused(own: ProcessIdentity) -> ProcessIdentity:
    return replace(own, started=own.started - 1)


def elsewhere(own: ProcessIdentity) -> ProcessIdentity:
    return replace(reused(own), host="another")


@pytest.mark.parametrize(
    ("build", "gone"),
    [(lambda own: own, False), (reused, True), (elsewhere, False)],
    ids=["alive", "its number was given to another", "of another host"],
)
def test_a_process_is_told_by_host_number_and_start(
    build: Callable[[ProcessIdentity], ProcessIdentity], gone: bool
) -> None:
    assert is_gone(build(identified()).name_holder("x")) is gone


@pytest.mark.parametrize("name", ["x", "x@", "x@host/1", "x@host/1/2/3", "x@host/-1/2"])
def test_a_holder_of_an_unknown_process_is_not_gone(name: str) -> None:
    assert not is_gone(name)


def test_a_killed_process_is_gone_before_and_after_it_is_waited_for() -> None:
    program = [sys.executable, "-c", f"{PRINT_IDENTITY}; input()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        holder = process.stdout.readline().strip()
        seen = [is_gone(holder)]
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is dead; nobody has waited for it
        seen.append(is_gone(holder))
    seen.append(is_gone(holder))
    assert seen == [False, True, True]


@pytest.mark.parametrize(
    ("build", "slots"),
    [(lambda own: own, [0, 0]), (reused, [0, 4]), (elsewhere, [0, 0])],
    ids=["alive", "dead", "of another host"],
)
async def test_slots_are_free_once_their_process_is_gone(
    store: Store,
    clock: MovableClock,
    monkeypatch: pytest.MonkeyPatch,
    build: Callable[[ProcessIdentity], ProcessIdentity],
    slots: list[int],
) -> None:
    asked = LimitsExchange("big", "a", CallLimits(4), wanted=4)
    own = identified()
    with monkeypatch.context() as patched:
        patched.setattr("app.store.judge_limits.identify_process", lambda: build(own))
        await store.judge_cache.exchange_limits(asked)
    given = [(await store.judge_cache.exchange_limits(replace(asked, holder="b"))).slots]
    clock.forward(NOTICE_SECONDS)
    assert [*given, (await store.judge_cache.exchange_limits(replace(asked, holder="b"))).slots] == slots
