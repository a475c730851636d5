"""`atropos-envs db`: statistics are counted again, and a service counts what came before them."""

import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import delete, update

from app.main.application import create_app
from app.main.store import Store
from app.settings import Settings
from app.store.copy import DatabaseSize
from app.store.tables import groups, rollups, task_rollups
from tests.support.commands import ended
from tests.support.databases import connected
from tests.support.store_cases import group, record, using

GROUPS = 120


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store whose groups were stored before there were statistics."""
    url = f"sqlite:///{tmp_path / 'store.db'}"

    async def fill(store: Store) -> None:
        await store.tasks.put([record(0)])
        await store.groups.add([group(f"g{n}") for n in range(GROUPS)])

    using(url, fill)
    with connected(url) as connection:
        for table in (rollups, task_rollups):
            connection.execute(delete(table))
        connection.execute(update(groups).values(counted=0))
    return url


@pytest.mark.parametrize("options", [(), ("--continue",)])
def test_statistics_are_counted_again(url: str, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]) -> None:
    using(url, lambda store: store.statistics.count_groups(50))
    monkeypatch.setenv("ATROPOS_ENVS_DATABASE_URL", url)
    done = ended("db", "rebuild-statistics", *options)
    counted = GROUPS - 50 if options else GROUPS
    rows = [row.groups for row in using(url, lambda store: store.views.get_statistics(None, None))]
    assert (done.returncode, done.stdout, rows) == (0, f"counted {counted} groups\n", [GROUPS])


def test_a_service_counts_groups_from_before_the_upgrade(url: str) -> None:
    with TestClient(create_app(Settings(database_url=url), environments={}), base_url="http://127.0.0.1") as service:
        until = time.monotonic() + 20
        while "uncounted" in (told := service.get("/stats").json()) and time.monotonic() < until:
            time.sleep(0.01)
    assert (list(told), told["rows"][0]["groups"]) == (["rows"], GROUPS)


def test_statistics_say_what_is_not_counted_yet(url: str) -> None:
    service = TestClient(create_app(Settings(database_url=url), environments={}), base_url="http://127.0.0.1")
    service.put("/runs/run", json={})
    run = service.get("/runs/run").json()
    assert (service.get("/stats").json(), run["activity"], run["uncounted"]) == (
        {"rows": [], "uncounted": GROUPS},
        [],
        GROUPS,
    )


def test_the_size_is_said_in_words_and_as_json(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATROPOS_ENVS_DATABASE_URL", url)
    said, counted = ended("db", "size"), ended("db", "size", "--json")
    found = DatabaseSize.model_validate_json(counted.stdout)
    (run,) = found.runs
    words = ["rollouts", f"{2 * GROUPS}", "gsm8k", "database:", "growth:", "in 30 days about"]
    assert (run.stored.groups, [word for word in words if word not in said.stdout]) == (GROUPS, [])


def test_the_size_of_a_database_that_is_not_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATROPOS_ENVS_DATABASE_URL", f"sqlite:///{tmp_path / 'x.db'}")
    done = ended("db", "size")
    assert (done.returncode, done.stdout, done.stderr.splitlines()[1:]) == (
        2,
        "",
        [f"there is no store: {tmp_path / 'x.db'}"],
    )
