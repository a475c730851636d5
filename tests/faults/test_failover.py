"""The primary of PostgreSQL is killed under load and its standby promoted, while two gateways go on."""

import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.support.careful_trainer import CarefulTrainer
from tests.support.databases import Postgres
from tests.support.serving import serving
from tests.support.standby import running_pair

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
