"""Four processes on one database before one judge, of which one is killed: together they never exceed its limit."""

import asyncio
import subprocess
import sys
import time
from collections import Counter

import pytest

from app.judges.chat_judge import ChatJudge
from tests.judges.test_limits_on_the_wire import Busy, asked
from tests.support.chat_server import ChatServer, serving
from tests.support.databases import Postgres
from tests.support.event_loop import closed_after
from tests.support.judge_cases import config
from tests.support.serving import ROOT
from tests.support.store_cases import opened

LIMIT = 64
READINGS = 400
CALL_SECONDS = 0.3


async def judge_all(database: str, server: str, first: int) -> Counter[str]:
    """What one process does: its errors by their words."""
    async with opened(database) as store:
        chosen = config(server, max_concurrency=LIMIT, deadline_seconds=8.0, queue_seconds=200.0)
        async with closed_after(ChatJudge(chosen, store.judge_cache)) as judge:
            found = await asyncio.gather(*(judge.judge(asked(first + number)) for number in range(READINGS)))
    return Counter(judgement.error or "" for judgement in found)


def started(database: str, server: ChatServer, place: int) -> "subprocess.Popen[str]":
    program = [sys.executable, "-m", "tests.faults.test_shared_limits", database, server.url, str(place * READINGS)]
    return subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def wait_for_calls(server: ChatServer, count: int) -> None:
    end = time.monotonic() + 60
    while len(server.received) < count and time.monotonic() < end:
        time.sleep(0.02)


@pytest.mark.slow
def test_four_processes_keep_within_one_limit_though_one_is_killed(postgres: Postgres) -> None:
    """Another process does the work of the one that was killed, so every process ends without an error."""
    database, busy = postgres.migrated(), Busy(seconds=CALL_SECONDS)
    with serving(busy) as server:
        processes = [started(database, server, place) for place in range(4)]
        try:
            wait_for_calls(server, 2 * LIMIT)
            processes[0].kill()
            processes.append(started(database, server, 0))
            told = [process.communicate(timeout=240)[0].strip() for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    assert told[1:] == [str(Counter({"": READINGS}))] * 4
    assert (processes[0].returncode, busy.most) == (-9, LIMIT)


if __name__ == "__main__":
    sys.stdout.write(f"{asyncio.run(judge_all(sys.argv[1], sys.argv[2], int(sys.argv[3])))}\n")
