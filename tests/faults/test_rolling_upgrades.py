"""Stores of the release before, from the project's own history, and a schema that expands while a service runs."""

import io
import json
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from app.store.migration import LIFTED_BY, migrate, read_revision
from tests.store.test_migrations import EXPANSION, extend_migrations
from tests.support.careful_trainer import CarefulTrainer
from tests.support.databases import MIGRATIONS, connected
from tests.support.serving import ROOT, Served, serving
from tests.support.tables import read_table

pytestmark = pytest.mark.slow

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


def fill(url: str) -> CarefulTrainer:
    """Something of everything that a release keeps."""
    trainer = CarefulTrainer(url, "before", text="caf\u00e9")
    trainer.score(3)
    trainer.score(2, "npc_arena")
    trainer.tell(WORLD, "The mill burned down.")
    with httpx.Client(base_url=url, timeout=60) as client:
        ask = {"run": "before", "batch_size": 3, "lease_seconds": 600}
        tasks = client.post("/envs/gsm8k/next-batch", json=ask).raise_for_status().json()["tasks"]
        send(client, tasks[0], ("#### 1", "#### 2"), policy={"model": "caf\u00e9", "step": 3})
        send(client, tasks[1], ("#### 1",), part={"key": "half", "index": 0, "size": 2})
        label = {"labeller": "ada", "defect": True}
        client.post(f"/rollouts/{list(trainer.acknowledged)[-1]}-0/labels", json=label).raise_for_status()
    return trainer


def send(client: httpx.Client, task: dict[str, str], texts: Sequence[str], **more: object) -> httpx.Response:
    group = {
        "task_id": task["task_id"],
        "lease_id": task["lease_id"],
        "completions": [{"text": text} for text in texts],
    }
    own = {name: value for name, value in more.items() if name == "part"}
    whole = {name: value for name, value in more.items() if name != "part"}
    body = {"groups": [group | own], "run": "before", "wait_seconds": 0, **whole}
    return client.post("/envs/gsm8k/score", json=body).raise_for_status()


ALL = "/groups?run=before"
SEARCHES = (ALL, "/groups?model=caf%C3%A9", "/groups?flag=late")
LOOKS = (
    "/stats?run=before",
    "/stats?by=character&env=npc_arena",
    "/runs/before",
    "/export?run=before",
    "/export?shape=labels",
    f"/worlds/{WORLD}/events?q=mill",
)


def look(url: str) -> dict[str, object]:
    """What a service tells of what is stored."""
    with httpx.Client(base_url=url, timeout=60) as client:
        told: dict[str, object] = {path: client.get(path).text for path in LOOKS}
        # How many groups a search looks at is another matter: the index of texts is written behind.
        found = {path: client.get(path).json()["groups"] for path in SEARCHES}
        return told | found | {one["group_id"]: client.get(f"/groups/{one['group_id']}").json() for one in found[ALL]}


def keep_fields(told: object, today: object) -> object:
    """What is told today, without the fields that rows of statistics did not have."""
    if not (isinstance(told, str) and told.startswith('{"rows":')):
        return today
    former, now = json.loads(told), json.loads(str(today))
    pairs = zip(former["rows"], now["rows"], strict=True)
    rows = [{name: row.get(name) for name in fields} for fields, row in pairs]
    return told if {**now, "rows": rows} == former else today


@pytest.mark.parametrize("empty_url", ["sqlite", "postgresql"], indirect=True)
def test_a_store_of_the_release_before_is_lifted_whole(empty_url: str, tmp_path: Path) -> None:
    release = read_release(LIFTED_BY, tmp_path / "release")
    with serving_release(release, tmp_path / "former", empty_url) as former:
        trainer = fill(former.url)
        before = look(former.url)
    with serving_release(ROOT, tmp_path / "today", empty_url) as today:
        after = look(today.url)
        trainer.url = today.url
        trainer.score(1)
        kept = trainer.read_scored(today.url)
    differ = {path: (told, after[path]) for path, told in before.items() if told != keep_fields(told, after[path])}
    assert differ == {}
    assert kept == trainer.acknowledged


@pytest.mark.parametrize("empty_url", ["sqlite", "postgresql"], indirect=True)
def test_a_release_serves_on_while_the_next_one_expands_its_schema(empty_url: str, tmp_path: Path) -> None:
    with serving_release(ROOT, tmp_path / "former", empty_url) as former, Load(former.url) as load:
        load.go_on(STEPS)
        migrate(empty_url, extend_migrations(tmp_path, EXPANSION))
        load.go_on(STEPS)
        with serving_release(ROOT, tmp_path / "again", empty_url) as again, Load(again.url) as other:
            load.go_on(STEPS)
            other.go_on(STEPS)
            assert (load.errors, other.errors) == ([], [])
    with serving_release(ROOT, tmp_path / "alone", empty_url) as alone:
        scored = load.trainer.acknowledged | other.trainer.acknowledged
        kept = load.trainer.read_scored(alone.url) | other.trainer.read_scored(alone.url)
        told = load.trainer.read_told(alone.url, WORLD)
    assert (kept, told >= load.trainer.told) == (scored, True)


TWO_TABLES = read_table(__file__, "two_tables.yaml", str)
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
    longer = extend_migrations(tmp_path, TWO_TABLES)
    migrate(empty_url, MIGRATIONS)
    with ThreadPoolExecutor(1) as threads, connected(empty_url) as reader:
        reader.execute(text("SELECT * FROM worlds"))
        migrating = threads.submit(migrate, empty_url, longer)
        while not reader.execute(WAITING).scalar():
            time.sleep(0.01)
        reader.execute(text("SELECT * FROM groups"))
        reader.commit()
        migrating.result()
    with connected(empty_url) as connection:
        found = read_revision(connection)
    assert (found, "begins again" in caplog.text) == ("9999", True)
