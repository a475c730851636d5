"""Keys and browsers on both databases, and lists of what is within the bounds of a key."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, event

from app.domain.access import KeyBounds, KeyOptions, SignIn
from app.domain.errors import Conflict
from app.domain.groups import GroupFilter
from app.main.store import Store
from app.service.access import KeyAdmin
from app.store import search
from tests.support.store_cases import group, record
from tests.support.tables import read_table

NOW = datetime.now(UTC)


async def test_a_key_is_kept_changed_and_recorded(store: Store) -> None:
    admin = KeyAdmin(store.keys)
    await admin.create(KeyOptions(name="ada", bounds=KeyBounds(runs=("ada-*",))), "command line")
    await admin.rotate("ada", 60, "command line")
    with pytest.raises(Conflict):
        await admin.create(KeyOptions(name="ada"), "command line")
    (key,) = (await store.keys.load()).named
    actions: list[str] = [action.action for _, action in await admin.list_actions(None, 10)]
    kept, digests = [key.name, *key.bounds.runs], key.list_digests(NOW)
    assert (kept, actions, len(digests)) == (["ada", "ada-*"], ["rotate", "create"], 2)


async def test_browsers_that_are_over_are_removed(store: Store) -> None:
    seen = []
    for name, hours in (("old", -1), ("new", 1), ("newest", 2)):
        await store.keys.add_sign_in(SignIn(name, "of-a-key", NOW + timedelta(hours=hours)), 20)
        seen.append(tuple(sorted(await store.keys.find_sign_ins(["old", "new", "newest"]))))
    await store.keys.remove_sign_in("new")
    left = [*await store.keys.find_sign_ins(["old", "new", "newest"])]
    assert (seen, left) == ([("old",), ("new",), ("new", "newest")], ["newest"])


async def test_a_key_has_so_many_browsers_and_no_more(store: Store) -> None:
    tried = (("a", "one", 1), ("over", "one", -1), ("b", "one", 1), ("c", "one", 1), ("d", "two", 1))
    told = [
        await store.keys.add_sign_in(SignIn(name, key, NOW + timedelta(hours=hours)), 2) for name, key, hours in tried
    ]
    kept = sorted(await store.keys.find_sign_ins([name for name, *_ in tried]))
    full = [await store.keys.has_sign_ins(key, 2) for key in ("one", "two", "three")]
    assert (told, kept, full) == ([True, True, True, False, True], ["a", "b", "d"], [True, False, False])


async def test_browsers_of_a_batch_lock_their_keys_in_one_order(store: Store) -> None:
    """Two replicas would otherwise wait for each other."""
    keys, stored = ("two", "three", "one"), list[str]()

    def note(_c: object, _cursor: object, statement: str, parameters: object, _context: object, _many: bool) -> None:
        if statement.lstrip().startswith("INSERT INTO sign_ins"):
            stored.extend(key for key in keys if key in str(parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        late = NOW + timedelta(hours=1)
        await asyncio.gather(*(store.keys.add_sign_in(SignIn(f"{n}", key, late), 2) for n, key in enumerate(keys)))
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert stored == ["one", "three", "two"]


WITHIN = read_table(__file__, "keys.yaml", list[tuple[tuple[str, ...], list[str]]])


@pytest.mark.dialects
async def test_a_listing_is_within_the_names(store: Store) -> None:
    await store.tasks.put([record(0)])
    names = ("ada-1", "ada-2", "ada_3", "Ada-1", "bob", None)
    await store.groups.add([group(f"group-{place}", run=run) for place, run in enumerate(names)])
    pages = [(patterns, await store.views.find_groups(GroupFilter(runs=patterns))) for patterns, _ in WITHIN]
    assert [
        (patterns, sorted(one.run for one in page.groups if one.run is not None)) for patterns, page in pages
    ] == WITHIN


@pytest.mark.dialects
@pytest.mark.parametrize("most_read", [32, 1])
async def test_a_listing_within_names_has_pages(store: Store, monkeypatch: pytest.MonkeyPatch, most_read: int) -> None:
    """Whether runs are few, and each is read, or many."""
    monkeypatch.setattr(search, "MOST_RUNS_READ", most_read)
    within = GroupFilter(runs=("a*", "c"), limit=2)
    narrowed = {"environments": ("gsm8k",), "min_mean": 0.5, "limit": 9}
    await store.tasks.put([record(0)])
    await store.groups.add([group(f"{run}{n}", run=run) for n in range(2) for run in ("a1", "a2", "b", "c")])
    pages = []
    for changed in ({}, {"before": 6}, {"before": 3}, {"after": 4}, narrowed):
        found = await store.views.find_groups(within.model_copy(update=changed))
        pages.append(([one.group_id for one in found.groups], found.next_before))
    assert pages == [
        (["c1", "a21"], 6),
        (["a11", "c0"], 4),
        (["a20", "a10"], None),
        (["a11", "a21"], 6),
        (["c1", "a21", "a11", "c0", "a20", "a10"], None),
    ]
