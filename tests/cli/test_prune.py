"""`atropos-envs prune` says what would go, asks, and removes it; a service does so by itself where that is set."""

import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from app.domain.groups import Group
from app.main.application import create_app
from app.main.store import Store
from app.settings import Settings
from app.store.tables import groups
from tests.support.commands import Ended, ended
from tests.support.databases import connected
from tests.support.store_cases import START, group, record, using
from tests.support.tables import read_table

TABLE = read_table(__file__, "prune.yaml", tuple[tuple[tuple[str, ...], str], ...])


def give_tokens(group: Group) -> Group:
    said = [one.completion.model_copy(update={"token_ids": (1, 2, 3)}) for one in group.rollouts]
    members = [one.model_copy(update={"completion": each}) for one, each in zip(group.rollouts, said, strict=True)]
    return group.model_copy(update={"rollouts": tuple(members)})


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with groups of three runs that are far older than any clock, and an evaluation."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    items = [group(f"g{n}", run=("one", "two", "twig")[n % 3]) for n in range(30)]
    items.append(group("eval", purpose="eval"))
    old = [give_tokens(one.group).model_copy(update={"created_at": START - timedelta(days=900)}) for one in items]

    async def fill(store: Store) -> None:
        await store.tasks.put([record(0)])
        await store.groups.add([type(items[0])(one) for one in old])

    using(url, fill)
    monkeypatch.setenv("ATROPOS_ENVS_DATABASE_URL", url)
    return url


def read_groups(url: str) -> Sequence[str]:
    return sorted(using(url, lambda store: store.groups.find([*(f"g{n}" for n in range(30)), "eval"])))


def list_lines(done: Ended) -> list[str]:
    return [line.partition(", about ")[0] for line in done.stdout.splitlines()]


def test_a_dry_run_says_what_would_go(url: str) -> None:
    done = ended("prune", "--older-than", "30d", "--run", "tw*", "--dry-run")
    assert (list_lines(done), len(read_groups(url))) == (
        [
            "twig, gsm8k, train: 10 groups, 20 rollouts",
            "two, gsm8k, train: 10 groups, 20 rollouts",
            "to remove: 20 groups, 40 rollouts",
            "and of the same age: leases",
        ],
        31,
    )


def test_what_was_said_goes_and_nothing_else(url: str) -> None:
    done = ended("prune", "--older-than", "30d", "--run", "one", "--yes")
    again = ended("prune", "--older-than", "4w", "--yes")
    kept = "kept: 1 groups of another purpose, such as evaluations"
    assert (list_lines(done)[-1], kept in list_lines(again), list_lines(again)[-1], read_groups(url)) == (
        "removed 10 groups, 20 rollouts",
        True,
        "removed 20 groups, 40 rollouts",
        ["eval"],
    )


def read_reduced(url: str) -> list[str]:
    with connected(url) as connection:
        found = connection.execute(select(groups.c.group_id).where(groups.c.reduced.is_not(None))).scalars().all()
    return sorted(found)


def test_parts_are_replaced_by_digests_after_a_dry_run_said_which(url: str) -> None:
    asked = ("prune", "--keep", "texts", "--older-than", "2h", "--run", "tw*")
    dry, none = ended(*asked, "--dry-run"), read_reduced(url)
    done, again = ended(*asked, "--yes"), ended(*asked, "--yes")
    assert (list_lines(dry), none, list_lines(done)[-1], list_lines(again), len(read_reduced(url))) == (
        ["twig, gsm8k: 10 groups, 20 rollouts", "two, gsm8k: 10 groups, 20 rollouts", "to reduce: 20 groups"],
        [],
        "reduced 20 groups, 40 rollouts",
        ["to reduce: 0 groups"],
        20,
    )


def test_it_asks_and_takes_no_for_an_answer(url: str) -> None:
    done = ended("prune", "--older-than", "30d")  # there is nobody to say yes
    assert (done.returncode, len(read_groups(url))) == (1, 31)


@pytest.mark.parametrize(("options", "said"), TABLE)
def test_what_cannot_be_meant_is_refused(url: str, options: tuple[str, ...], said: str) -> None:
    done = ended("prune", *options, "--yes")
    assert (done.returncode, done.stderr.startswith(said), len(read_groups(url))) == (2, True, 31)


def test_a_service_removes_what_is_old_where_that_is_set(url: str) -> None:
    settings = Settings.model_validate({"database_url": url, "retention": {"older_than_days": 30, "runs": ["t*"]}})
    with TestClient(create_app(settings, environments={}), base_url="http://127.0.0.1") as service:
        until = time.monotonic() + 20
        while len(left := service.get("/groups").json()["groups"]) > 11 and time.monotonic() < until:
            time.sleep(0.01)
    assert sorted({each["run"] for each in left}) == ["one", "run"]


def test_a_service_reduces_what_is_old_where_that_is_set(url: str) -> None:
    keep = {"level": "texts", "after_hours": 2}
    settings = Settings.model_validate({"database_url": url, "retention": {"keep": keep}})
    with TestClient(create_app(settings, environments={}), base_url="http://127.0.0.1"):
        until = time.monotonic() + 20
        while len(reduced := read_reduced(url)) < 30 and time.monotonic() < until:
            time.sleep(0.01)
    assert reduced == sorted(f"g{n}" for n in range(30))
