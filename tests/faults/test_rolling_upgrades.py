"""Former releases, from the project's own history, on a store that today's release migrates."""

import io
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from app.store.migration import find_newest_revision, migrate, read_revision
from tests.store.test_migrations import connected
from tests.support.careful_trainer import CarefulTrainer
from tests.support.databases import MIGRATIONS
from tests.support.serving import ROOT, Served, serving

pytestmark = pytest.mark.slow

BEFORE_THE_RULE = "415bfe5baac47e0fa959e902657a1753879df200"
"""Of schema 0010. It takes any newer schema for one that it cannot run on."""
WITH_THE_RULE = "34af7824735559700ca590454569706b46d36839"
"""Of schema 0011. It asks the store which releases run on its schema."""
WORLD = "rolling"
STEPS = 12


def read_release(commit: str, folder: Path) -> Path:
    """The release's code in `folder`. Skips the test where the history does not have it."""
    command = ["git", "-C", str(ROOT), "archive", commit, "app", "migrations", "character_sheets", "pyproject.toml"]
    try:
        archive = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"the history has no {commit[:7]}: a shallow clone, or no repository")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder


@contextmanager
def serving_release(release: Path, folder: Path, url: str) -> Iterator[Served]:
    folder.mkdir()
    settings = {"ATROPOS_ENVS_DATABASE_URL": url, "PYTHONPATH": str(release)}
    with serving(folder, settings=settings) as served:
        yield served


class Load:
    """Everything that writes, one after the other in a thread, until it is stopped."""

    def __init__(self, url: str) -> None:
        self.trainer = CarefulTrainer(url, "rolling")
        self.rounds = 0
        self.errors: list[Exception] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def go_on(self, rounds: int) -> None:
        """Waits until so many more are done."""
        until = self.rounds + rounds
        self._wait(lambda: self.rounds >= until or bool(self.errors))

    def _wait(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + 120
        while not done() and time.monotonic() < end:
            time.sleep(0.02)

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                for environment in ("gsm8k", "npc_arena"):
                    self.trainer.score(1, environment)
                self.trainer.tell(WORLD, f"Round {self.rounds} began.")
                self.rounds += 1
        except Exception as error:
            self.errors.append(error)


@pytest.mark.parametrize(
    ("commit", "empty_url"),
    [(BEFORE_THE_RULE, "postgresql"), (WITH_THE_RULE, "sqlite"), (WITH_THE_RULE, "postgresql")],
    indirect=["empty_url"],
)
def test_a_former_release_serves_on_while_today_s_migrates_its_store(
    commit: str, empty_url: str, tmp_path: Path
) -> None:
    release = read_release(commit, tmp_path / "release")
    with serving_release(release, tmp_path / "former", empty_url) as former, Load(former.url) as load:
        load.go_on(STEPS)
        with serving_release(ROOT, tmp_path / "today", empty_url) as today, Load(today.url) as other:
            load.go_on(STEPS)
            other.go_on(STEPS)
            assert (load.errors, other.errors) == ([], [])
    with serving_release(ROOT, tmp_path / "alone", empty_url) as alone:
        scored = load.trainer.acknowledged | other.trainer.acknowledged
        kept = load.trainer.read_scored(alone.url) | other.trainer.read_scored(alone.url)
        told = load.trainer.read_told(alone.url, WORLD)
        after = CarefulTrainer(alone.url, "rolling")
        after.score(2)
    assert (kept, told >= load.trainer.told, len(after.acknowledged)) == (scored, True, 2)


TWO_TABLES = """
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{last}"


def upgrade() -> None:
    op.add_column("groups", sa.Column("later", sa.Integer(), nullable=True))
    op.add_column("worlds", sa.Column("later", sa.Integer(), nullable=True))
"""
"""Waits for the second table with the first one locked."""


WAITING = text(
    "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database"
    " WHERE datname = current_database() AND NOT granted"
)


@pytest.mark.parametrize("empty_url", ["postgresql"], indirect=True)
def test_a_migration_that_meets_a_deadlock_begins_again(
    empty_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A reader of the second table reads the first one while the migration holds it. PostgreSQL ends the migration,
    which has waited longer."""
    extended = tmp_path / "migrations"
    shutil.copytree(MIGRATIONS, extended, ignore=shutil.ignore_patterns("__pycache__"))
    (extended / "versions" / "9999_two_tables.py").write_text(TWO_TABLES.format(last=find_newest_revision(MIGRATIONS)))
    migrate(empty_url, MIGRATIONS)
    with ThreadPoolExecutor(1) as threads, connected(empty_url) as reader:
        reader.execute(text("SELECT * FROM worlds"))
        migrating = threads.submit(migrate, empty_url, extended)
        while not reader.execute(WAITING).scalar():
            time.sleep(0.01)
        reader.execute(text("SELECT * FROM groups"))
        reader.commit()
        migrating.result()
    with connected(empty_url) as connection:
        found = read_revision(connection)
    assert (found, "begins again" in caplog.text) == ("9999", True)
