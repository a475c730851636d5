"""The index of events: few segments, the same on both databases, and made anew where there are none."""

import random
from pathlib import Path

import pytest
from sqlalchemy import delete, select

from app.features.worlds.store import EventStore
from app.features.worlds.store_search import PostedEvent, PostingKey, add_postings
from app.features.worlds.store_worlds import compute_sequence, segment_pages, segments
from app.main.store import Store
from tests.features.worlds.test_store import about, event, ids, searched
from tests.features.worlds.test_store_search import at, question, some_event
from tests.support.databases import Postgres, connected
from tests.support.store_cases import using
from tests.support.tiers import examples

pytestmark = pytest.mark.dialects


@pytest.fixture(params=["whole", "paged"])
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Segments as they are, or as very large ones would be, with next to no cache."""
    if request.param == "paged":
        monkeypatch.setattr("app.features.worlds.store_segments.PAGE", 4)
        monkeypatch.setattr("app.features.worlds.store_segments.MAX_UNPAGED", 8)
        monkeypatch.setattr("app.features.worlds.store_segments.MAX_EVENTS", 60)
        monkeypatch.setattr("app.features.worlds.store_segments.MAX_CACHED_BYTES", 400)
    return str(request.param)


KEY = PostingKey(9 << 24, 5 << 44)
"""With the bits that every index keeps."""


def test_a_world_has_few_segments_whatever_the_batches_are(store_url: str) -> None:
    with connected(store_url) as connection:
        for number in range(700):
            add_postings(connection, [PostedEvent(compute_sequence(1, number), number, [KEY])])
        sizes = list(connection.execute(select(segments.c.events).order_by(segments.c.number)).scalars())
    assert sizes == [512, 128, 32, 16, 8, 4]


MANY = examples(1200, fewest=250)


async def _tell_random_world(store: Store) -> list[object]:
    """And asks of it all the while."""
    events = store.part(EventStore)
    chance = random.Random(5)
    told = [some_event(chance, number) for number in range(MANY)]
    chance.shuffle(told)
    found: list[object] = []
    for first in range(0, len(told), 70):
        await events.add_events("w-0", told[first : first + 70])
        found.append(await events.search(question(chance, "w")))
    await events.branch("w-1", "w-0", at(30))
    await events.branch("w-2", "w-1", at(20))
    for number in chance.sample(range(MANY), MANY // 12):
        await events.withdraw(chance.choice(("w-0", "w-1")), f"e{number}")
        changed = some_event(chance, number)
        await events.correct(chance.choice(("w-0", "w-1", "w-2")), changed)
        found.append(await events.search(question(chance, "w")))
    return [*found, *[await events.search(question(chance, "w")) for _ in range(30)]]


@pytest.mark.usefixtures("layout")
def test_both_databases_find_the_same(tmp_path: Path, postgres: Postgres) -> None:
    urls = f"sqlite:///{tmp_path / 'store.db'}", postgres.migrated()
    ours, theirs = (using(url, _tell_random_world) for url in urls)
    assert ours == theirs


def _remove_index(url: str) -> None:
    with connected(url) as connection:
        for table in (segments, segment_pages):
            connection.execute(delete(table))


def _list_segments(url: str) -> list[tuple[int, int]]:
    with connected(url) as connection:
        rows = connection.execute(select(segments.c.world, segments.c.events).order_by(segments.c.world)).all()
    return [(world, size) for world, size in rows]


def test_a_start_indexes_worlds_that_have_no_index(store_url: str) -> None:
    """Once: a world whose events are all withdrawn has an index too."""

    async def tell(store: Store) -> None:
        events = store.part(EventStore)
        await events.add_events("town", [event("a"), event("b", 1), event("gone", 2)])
        await events.branch("save", "town", at(10_000))
        await events.add_events("save", [event("own", 3)])
        await events.add_events("empty", [event("only")])
        await events.withdraw("town", "gone")
        await events.withdraw("empty", "only")

    async def look(store: Store) -> object:
        return [ids(await searched(store, about(world, "bridge"))) for world in ("town", "save", "empty")]

    using(store_url, tell)
    _remove_index(store_url)
    found = [using(store_url, look) for _ in range(2)]
    assert (found, _list_segments(store_url)) == (
        [[["b", "a"], ["own", "b", "a"], []]] * 2,
        [(1, 2), (2, 1), (3, 0)],
    )
