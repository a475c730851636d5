"""What one, two and four processes of one service cost and bring on PostgreSQL: `python -m benchmarks.processes`, some
four minutes.

All services run at once, each on a database of its own of one server; the rounds take turns, so that whatever else the
machine does is shared. Processor time is that of all processes of a service, and beside it that of PostgreSQL's.
"""

import argparse
import contextlib
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import psycopg

from benchmarks.load import Load, post, send_all
from benchmarks.results import BenchmarkFigure, count_rounds, run
from benchmarks.scoring import ENV, build_requests
from tests.support.databases import Postgres, running_server
from tests.support.serving import Served, serving

CONNECTIONS: Final = 8
ROUNDS: Final = 4
COUNTS: Final = (1, 2, 4)
TASKS_A_REQUEST: Final = 32
WARM_UP: Final = 2
"""Rounds."""
SAMPLE_SECONDS: Final = 0.02
TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Work:
    name: str
    requests: int
    """Of a round."""
    build: Callable[[str, int], list[bytes]]


@dataclass(frozen=True)
class Service:
    processes: int
    served: Served
    database: str


@dataclass(frozen=True)
class Round:
    load: Load
    service_seconds: float
    server_seconds: float
    """Processor time of PostgreSQL."""
    deadlocks: int
    waits: Counter[str]
    """How many of the looks found a session that waits, by what for."""
    looks: int

    @property
    def share_waiting(self) -> float:
        """Of looks, in percent: those that found a wait for another session's lock."""
        locks = sum(seen for name, seen in self.waits.items() if name.startswith("Lock:"))
        return 100 * min(1.0, locks / max(1, self.looks))


def build_next_batches(_: str, count: int) -> list[bytes]:
    """All of one run, whose rows everybody wants."""
    return [post(f"/envs/{ENV}/next-batch", {"batch_size": TASKS_A_REQUEST, "run": "bench"}) for _ in range(count)]


WORKS: Final = (
    Work("score, 16 groups of 8", 30, lambda url, count: build_requests(url, count, 16)),
    Work("score, 1 group of 8", 200, lambda url, count: build_requests(url, count, 1)),
    Work(f"next-batch, {TASKS_A_REQUEST} leased tasks", 40, build_next_batches),
)


@contextlib.contextmanager
def running(counts: Sequence[int]) -> Iterator[tuple[list[Service], int]]:
    """The services, and the process id of PostgreSQL."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running_server())
        databases = Postgres(server.get_uri())
        services = []
        for count in counts:
            folder, database = Path(stack.enter_context(tempfile.TemporaryDirectory())), databases.migrated()
            settings = {"ATROPOS_ENVS_DATABASE_URL": database, "ATROPOS_ENVS_PROCESSES": str(count)}
            served = stack.enter_context(serving(folder, settings=settings, python=sys.executable))
            services.append(Service(count, served, database))
        yield services, server.get_pid() or 0


def measure_work(work: Work, services: Sequence[Service], server: int, rounds: int) -> dict[int, list[Round]]:
    """By the number of processes. The first rounds of each are not counted: every process prepares its statements."""
    found: dict[int, list[Round]] = {service.processes: [] for service in services}
    requests = {one.processes: work.build(one.served.url, work.requests * (rounds + WARM_UP)) for one in services}
    for number in count_rounds(f"processes, {work.name}", rounds + WARM_UP):
        turn = number % len(services)
        for service in (*services[turn:], *services[:turn]):
            portion = requests[service.processes][number * work.requests : (number + 1) * work.requests]
            found[service.processes].append(_measure_once(service, server, portion))
    return {processes: counted[WARM_UP:] for processes, counted in found.items()}


def _measure_once(service: Service, server: int, requests: Sequence[bytes]) -> Round:
    with psycopg.connect(service.database, autocommit=True) as connection:
        before = _count_deadlocks(connection)
        used = _processor_seconds(service.served.process.pid), _processor_seconds(server)
        with _watching(connection) as waits:
            load = send_all(service.served.url, requests, CONNECTIONS)
        now = _processor_seconds(service.served.process.pid), _processor_seconds(server)
        after = _count_deadlocks(connection)
    looks = waits.pop("looks", 0)
    return Round(load, now[0] - used[0], now[1] - used[1], after - before, waits, looks)


def _count_deadlocks(connection: "psycopg.Connection[tuple[int]]") -> int:
    connection.execute("SELECT pg_stat_clear_snapshot()")
    row = connection.execute(
        "SELECT deadlocks::int FROM pg_stat_database WHERE datname = current_database()"
    ).fetchone()
    assert row is not None
    return row[0]


@contextlib.contextmanager
def _watching(connection: "psycopg.Connection[tuple[int]]") -> Iterator[Counter[str]]:
    """Counts looks, and those at sessions of the database that wait for a lock or for the disk."""
    seen: Counter[str] = Counter()
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            rows = connection.execute(
                "SELECT DISTINCT wait_event_type || ':' || wait_event FROM pg_stat_activity "
                "WHERE datname = current_database() AND wait_event_type IN ('Lock', 'LWLock', 'IO')"
            ).fetchall()
            seen.update(["looks", *(str(row[0]) for row in rows)])

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def _processor_seconds(root: int) -> float:
    """Of a process and all that it started and that still runs, and of those of them that ended."""
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            total += sum(int(one) for one in fields[11:15])
            for task in Path(f"/proc/{pid}/task").iterdir():
                waiting += map(int, (task / "children").read_text(encoding="utf-8").split())
    return total / TICKS


def measure(counts: Sequence[int] = COUNTS, rounds: int = ROUNDS) -> list[BenchmarkFigure]:
    with running(counts) as (services, server):
        return [
            figure
            for work in WORKS
            for processes, found in measure_work(work, services, server, rounds).items()
            for figure in _list_figures(work, processes, found)
        ]


def _list_figures(work: Work, processes: int, rounds: Sequence[Round]) -> Iterator[BenchmarkFigure]:
    of = partial(BenchmarkFigure.of, f"{work.name}: {processes} process{'es' if processes > 1 else ''}")
    seconds = (("processor time a request", "service_seconds"), ("PostgreSQL's", "server_seconds"))
    for column, name in seconds:
        yield of([getattr(one, name) / work.requests * 1e3 for one in rounds], "ms", column=column)
    yield of([work.requests / one.load.seconds for one in rounds], column="requests a second")
    for share in (0.5, 0.99):
        yield of([one.load.percentile(share) * 1e3 for one in rounds], "ms", column=f"p{share * 100:.0f}")
    yield of([sum(one.deadlocks for one in rounds)], at_most=0, column="deadlocks")
    yield of([one.share_waiting for one in rounds], "%", column="looks that found a wait for a lock")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each service, for each kind of request")
    parser.add_argument("--processes", type=int, nargs="+", default=COUNTS)
    chosen, rest = parser.parse_known_args()
    run("processes", partial(measure, chosen.processes, chosen.rounds), rest)


if __name__ == "__main__":
    main()
