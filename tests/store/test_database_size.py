"""The size of a store: what fills it, how fast it grows, and what a vacuum would do, by pages or by some rows."""

from datetime import timedelta
from pathlib import Path
from random import Random
from string import ascii_letters

import pytest
from sqlalchemy import text

from app.domain.errors import StoreUnavailable
from app.domain.groups import Group
from app.domain.tasks import Completion
from app.main.store import Store
from app.store import copy
from app.store.copy import DatabaseSize, measure_database
from app.store.group_rows import GroupToStore
from app.store.statements import to_micros
from tests.support.databases import MIGRATIONS, connected
from tests.support.store_cases import START, group, record, using

pytestmark = pytest.mark.dialects

LETTERS = 4_000
NOW = START + timedelta(days=10)


def long_group(number: int, days: float, run: str) -> GroupToStore:
    short: Group = group(f"{run}{number}", run=run).group
    said = Completion(text="".join(Random(number).choices(ascii_letters, k=LETTERS)))  # PostgreSQL compresses others
    rollouts = tuple(one.model_copy(update={"completion": said}) for one in short.rollouts)
    return GroupToStore(short.model_copy(update={"rollouts": rollouts, "created_at": START + timedelta(days=days)}))


async def fill(store: Store) -> None:
    """A run that is over, and one that got ten groups a day in the last seven days."""
    await store.tasks.put([record(0)])
    await store.groups.add([long_group(n, 0.0, "over") for n in range(50)])
    await store.groups.add([long_group(n, 3.05 + n / 10, "busy") for n in range(69)])


def measure(url: str) -> DatabaseSize:
    return measure_database(url, MIGRATIONS, to_micros(NOW))


def judge_by_texts(found: DatabaseSize) -> list[object]:
    """Estimates are near what was written."""
    sizes = {table.table: table.bytes for table in found.tables}
    texts = 119 * 2 * LETTERS
    a_day = 69 / 7 * 2 * LETTERS
    return [
        0.95 * texts < sizes["rollouts"] < 1.6 * texts,
        [(each.stored.run, each.stored.groups, each.stored.rollouts) for each in found.runs],
        all(LETTERS * 2 < each.stored.bytes / each.stored.groups < LETTERS * 2.4 for each in found.runs),
        [each.bytes_per_day > 0 for each in found.runs],
        a_day < found.bytes_per_day < 1.2 * a_day,
        found.forecast_bytes - found.bytes + found.free_bytes == 30 * found.bytes_per_day,
    ]


EXPECTED = [True, [("busy", 69, 138), ("over", 50, 100)], True, [True, False], True, True]


def test_bytes_are_those_of_the_texts(store_url: str) -> None:
    using(store_url, fill)
    found = measure(store_url)
    assert (found.measured_by, judge_by_texts(found), found.advice) == ("pages", EXPECTED, ())


@pytest.mark.parametrize("why", ["a large file", "no dbstat"])
def test_without_counted_pages_rows_are_looked_at(sqlite_url: str, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    using(sqlite_url, fill)
    if why == "a large file":
        monkeypatch.setattr(copy, "PAGES_COUNTED_UP_TO", 0)
    else:
        monkeypatch.setattr(copy, "_PAGES", "SELECT * FROM not_built_in")
    found = measure(sqlite_url)
    assert (found.measured_by, judge_by_texts(found)) == ("estimate", EXPECTED)


def test_room_that_nothing_fills_is_advised_about(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    using(sqlite_url, fill)
    monkeypatch.setattr(copy, "LEAST_FREE_BYTES", 100_000)
    with connected(sqlite_url) as connection:
        connection.execute(text("DELETE FROM rollouts"))
    found = measure(sqlite_url)
    assert (found.free_bytes > 900_000, [line.partition(":")[0][:24] for line in found.advice]) == (
        True,
        ["Much of the file is free"],
    )


def test_a_database_that_cannot_be_read_is_one_sentence(tmp_path: Path, empty_url: str) -> None:
    urls = [f"sqlite:///{tmp_path / 'none' / 'x.db'}", "postgresql://nobody@127.0.0.1:1/none"]
    (tmp_path / "text.db").write_text("this is no database, however long it may be" * 100)
    urls.append(f"sqlite:///{tmp_path / 'text.db'}")
    if empty_url.startswith("postgresql"):
        urls.append(empty_url)
    said: list[str] = []
    for url in urls:
        with pytest.raises(StoreUnavailable) as refused:
            measure(url)
        said.append(str(refused.value))
    begins = ["there is no store", "the database cannot be reached", "the database cannot be reached", "the store has"]
    assert [line[: len(begin)] for line, begin in zip(said, begins, strict=False)] == begins[: len(said)]
    assert all("\n" not in line for line in said)
