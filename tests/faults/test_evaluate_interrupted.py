"""An evaluation that is interrupted, whoever by: the next start asks for exactly what is missing."""

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from app.cli.evaluate.session import derive_seed
from tests.support.chat_server import ChatServer, Received, Reply
from tests.support.chat_server import serving as serving_policy
from tests.support.data_sets import numbered_rows
from tests.support.evaluating import SAMPLES, Policy, answered_in, arguments, attempts_in, evaluate, report_in, seeds_of
from tests.support.forked_programs import Program
from tests.support.gateways import Gateways
from tests.support.interrupted_processing import Programs
from tests.support.serving import free_port, serving

ROWS = 30
SECONDS = 0.2
"""What an answer takes."""
ALL = {(place, sample) for place in range(ROWS) for sample in range(SAMPLES)}


@contextmanager
def slow_policy() -> Iterator[ChatServer]:
    answers = Policy(lambda row: SAMPLES)

    def slow(number: int, received: Received) -> Reply:
        return Reply(answers(number, received).body, seconds=SECONDS if number else 0.0)

    with serving_policy(slow) as server:
        yield server


def start(programs: Programs, url: str, policy: str, out: Path, run: str) -> Program:
    return programs.start("app.cli", *arguments(url, policy, out, "--run", run, "--concurrency", "4"))


def wait_for(url: str, out: Path, count: int) -> None:
    """Until the gateway holds so many answers."""
    ends = time.monotonic() + 120
    while len(answered_in(url, out)) < count and time.monotonic() < ends:
        time.sleep(0.02)


def asked_twice(answered: set[tuple[int, int]], again: Counter[int]) -> set[tuple[int, int]]:
    return {(place, sample) for place, sample in answered if derive_seed(0, place, sample, 0) in again}


def interrupt_twice(program: Program) -> None:
    for _ in range(2):
        program.send_signal(signal.SIGINT)
        time.sleep(0.1)


STOPS: dict[str, tuple[Callable[[Program], None], int]] = {
    "killed": (lambda program: program.kill(), -signal.SIGKILL),
    "Ctrl-C": (lambda program: program.send_signal(signal.SIGINT), 130),
    "Ctrl-C twice": (interrupt_twice, 130),
}


@pytest.mark.parametrize("stop", ["killed", *(pytest.param(name, marks=pytest.mark.slow) for name in [*STOPS][1:])])
def test_exactly_what_is_missing_is_asked_for(gateways: Gateways, tmp_path: Path, stop: str) -> None:
    """And what was done before Ctrl-C is reported."""
    gateway, out, run = gateways.of_rows(ROWS), tmp_path / "out", f"stop-{list(STOPS).index(stop)}"
    how, exit_code = STOPS[stop]
    with slow_policy() as policy, Programs(tmp_path) as programs:
        first = start(programs, gateway.url, policy.url, out, run)
        wait_for(gateway.url, out, 40)
        how(first)
        code, told = first.wait(120), programs.told
        answered, reported = answered_in(gateway.url, out), report_in(out)
    with slow_policy() as policy:
        last = evaluate(gateway.url, policy.url, out, "--run", run, "--concurrency", "4")
        again = seeds_of(policy.received)
    groups = httpx.get(f"{gateway.url}/groups?purpose=eval&run={run}&limit=500").json()["groups"]
    assert (
        code,
        40 <= len(answered) < len(ALL),
        asked_twice(answered, again),
        again == Counter(derive_seed(0, *missing, 0) for missing in ALL - answered),
        last.exit_code,
        {(one.place, one.sample): one.reward for one in last.attempts},
        (len(groups), sum(group["size"] for group in groups)),
    ) == (exit_code, True, set(), True, 0, dict.fromkeys(ALL, 1.0), (ROWS, len(ALL))), told + last.told
    if stop == "Ctrl-C":
        assert reported is not None
        assert (reported.complete, reported.counts.made) == (False, len(answered))


@pytest.mark.slow
def test_a_policy_and_a_gateway_that_go_away_are_waited_for(tmp_path: Path) -> None:
    out, port, policy_port, rows = tmp_path / "out", free_port(), free_port(), 100
    settings = {"ATROPOS_ENVS_DATASETS__GSM8K": str(numbered_rows(tmp_path / "data", rows))}
    with Programs(tmp_path) as programs, serving(tmp_path, port=port, settings=settings) as gateway:
        policy = programs.policy(policy_port)
        program = start(programs, gateway.url, f"http://127.0.0.1:{policy_port}/v1", out, "away")
        wait_for(gateway.url, out, 40)
        policy.kill()
        policy.wait()
        at_policy_kill = len(answered_in(gateway.url, out))
        programs.policy(policy_port)
        wait_for(gateway.url, out, at_policy_kill + 40)
        at_kill = len(answered_in(gateway.url, out))
        gateway.kill()
        with serving(tmp_path, port=port, settings=settings):
            code, told = program.wait(200), programs.told
    rewards = {(one.place, one.sample): one.reward for one in attempts_in(out)}
    expected = dict.fromkeys(((place, sample) for place in range(rows) for sample in range(SAMPLES)), 1.0)
    between = 40 <= at_policy_kill < at_kill < len(expected)
    assert (code, between, rewards) == (0, True, expected), told
