"""Ctrl-C: what is in hand is finished, or left to the next start; either way nothing is lost."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chat_server import ChatServer, Received, Reply
from tests.support.chat_server import serving as serving_policy
from tests.support.gateways import Gateways
from tests.support.policy_server import answers_rows, script
from tests.support.processing import arguments, lines_of
from tests.support.serving import ROOT, Served

pytestmark = pytest.mark.slow

ROWS = 40
SECONDS = 0.4
"""What an answer takes."""


@pytest.fixture(scope="module")
def gateway(gateways: Gateways) -> Served:
    return gateways.of_rows(ROWS)


@pytest.fixture
def policy() -> Iterator[ChatServer]:
    def slow(number: int, received: Received) -> Reply:
        return Reply(script(answers_rows)(number, received).body, seconds=SECONDS if number else 0.0)

    with serving_policy(slow) as server:
        yield server


def started(gateway: Served, policy: ChatServer, out: Path, run: str) -> "subprocess.Popen[str]":
    """A task whose hand-out was cut off comes back when its lease is over."""
    how = ["--env", "gsm8k", "--split", "test", "--run", run, "--group-size", "2", "--concurrency", "4"]
    how += ["--lease-seconds", "10"]
    command = [sys.executable, "-m", "app.cli", *arguments(gateway.url, policy.url, out, *how)]
    environment = {**os.environ, "COLUMNS": "300"}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def wait_for_requests(policy: ChatServer, count: int) -> None:
    ends = time.monotonic() + 60
    while len(policy.received) < count and time.monotonic() < ends:
        time.sleep(0.01)


def test_once_finishes_what_is_in_hand(gateway: Served, policy: ChatServer, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    first = started(gateway, policy, out, "once")
    wait_for_requests(policy, 6)
    first.send_signal(signal.SIGINT)
    told, _ = first.communicate(timeout=60)
    written, asked = len(lines_of(out)), len(policy.received) - 1
    second = started(gateway, policy, out, "once")
    second.communicate(timeout=120)
    tasks = Counter(line.task_id for line in lines_of(out))
    ends = (first.returncode, second.returncode, "run the same command again to resume" in told)
    assert (ends, written == asked, list(tasks.values())) == ((130, 0, True), True, [1] * ROWS), told


def test_twice_leaves_it_to_the_next_start(gateway: Served, policy: ChatServer, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    first = started(gateway, policy, out, "twice")
    wait_for_requests(policy, 6)
    for _ in range(2):
        first.send_signal(signal.SIGINT)
        time.sleep(0.05)
    told, _ = first.communicate(timeout=60)
    written, asked = len(lines_of(out)), len(policy.received) - 1
    second = started(gateway, policy, out, "twice")
    second.communicate(timeout=120)
    tasks = Counter(line.task_id for line in lines_of(out))
    ends = (first.returncode, second.returncode)
    assert (ends, written < asked, list(tasks.values())) == ((130, 0), True, [1] * ROWS), told
