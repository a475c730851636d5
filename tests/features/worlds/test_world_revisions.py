"""Who wrote an event or a lorebook of a world, and what it was before."""

from collections.abc import Sequence

import pytest

from app.domain.worlds import ListedWriting, Lorebook
from app.features.worlds import store_worlds
from app.features.worlds.store import EventStore
from app.features.worlds.store_worlds import LorebookStore
from app.main.store import Store
from tests.features.worlds.test_store import event
from tests.support.store_cases import using

pytestmark = pytest.mark.dialects

OLD, NEW = "The bridge fell.", "The bridge held."
Told = list[tuple[int, str | None, str | None]]


def tell(listed: Sequence[ListedWriting]) -> Told:
    """Number, author and who withdrew it. Raises unless times are known where they must be."""
    assert all(one.at is not None and (one.withdrawn_at is None) == (one.withdrawn_by is None) for one in listed)
    return [(one.revision, one.author, one.withdrawn_by) for one in listed]


async def test_every_revision_of_an_event_says_who_wrote_it_and_what_it_was(store: Store) -> None:
    events = store.part(EventStore)
    await events.add_events("town", [event("a"), event("other")], "game")
    await events.add_events("town", [event("a")], "game again")
    await events.correct("town", event("a", text=NEW), author="ada")
    await events.correct("town", event("a", text=NEW), author="says the same")
    for author in ("bob", "withdraws it twice"):
        await events.withdraw("town", "a", author)
    withdrawn = tell(await events.list_revisions("town", "a", 9))
    await events.correct("town", event("a", text=NEW), author="")
    found = [await events.get_revision("town", "a", number) for number in range(5)]
    assert (
        withdrawn,
        tell(await events.list_revisions("town", "a", 9)),
        [tell(await events.list_revisions("town", "a", 1, before)) for before in (3, 2, 1)],
        [one and (one.revision, one.author, one.withdrawn_by, one.event.text) for one in found],
        [await events.list_revisions(*asked, 9) for asked in (("town", "b"), ("nowhere", "a"), ("\x00", "a"))],
        [await events.get_revision(*asked, 1) for asked in (("town", "b"), ("nowhere", "a"), ("town", "\ud800"))],
        tell(await events.list_revisions("town", "other", 9)),
    ) == (
        [(2, "ada", "bob"), (1, "game", None)],
        [(3, "", None), (2, "ada", "bob"), (1, "game", None)],
        [[(2, "ada", "bob")], [(1, "game", None)], []],
        [None, (1, "game", None, OLD), (2, "ada", "bob", NEW), (3, "", None, NEW), None],
        [[], [], []],
        [None, None, None],
        [(1, "game", None)],
    )


async def test_a_branch_lists_its_own_revisions_and_those_before_it(store: Store) -> None:
    events = store.part(EventStore)
    await events.add_events("town", [event("a")], "game")
    await events.correct("town", event("a", text="It swayed."), author="ada")
    for branch in ("own", "kept", "without"):
        await events.branch(branch, "town", event("a", 9).time)
    await events.branch("inner", "without", event("a", 9).time)
    inherited = tell(await events.list_revisions("inner", "a", 9))
    await events.correct("own", event("a", text=NEW), author="bob")
    await events.withdraw("without", "a", "eve")
    await events.correct("town", event("a", text="It leans."), author="dan")
    worlds = ("town", "own", "kept", "without", "inner")
    before = [await events.get_revision("own", "a", number) for number in (1, 2)]
    assert (
        inherited,
        {world: tell(await events.list_revisions(world, "a", 9)) for world in worlds},
        [one and one.event.text for one in before],
        [tell(await events.list_revisions("own", "a", 1, before)) for before in (9, 3, 2, 1)],
    ) == (
        [(2, "ada", None), (1, "game", None)],
        {
            "town": [(3, "dan", None), (2, "ada", None), (1, "game", None)],
            "own": [(3, "bob", None), (2, "ada", None), (1, "game", None)],
            "kept": [(2, "ada", None), (1, "game", None)],
            "without": [(2, "ada", "eve"), (1, "game", None)],
            "inner": [(2, "ada", "eve"), (1, "game", None)],
        },
        [OLD, "It swayed."],
        [[(3, "bob", None)], [(2, "ada", None)], [(1, "game", None)], []],
    )


@pytest.mark.parametrize("hour", [0, 20])
def test_what_a_branch_withdrew_stays_what_it_was_there(store_url: str, hour: int) -> None:
    """Also where the parent moves the event past the time of the branch."""

    async def scenario(store: Store) -> object:
        events = store.part(EventStore)
        await events.add_events("town", [event("a")], "game")
        await events.branch("save", "town", event("a", 9).time)
        await events.withdraw("save", "a", "eve")
        await events.correct("town", event("a", hour, NEW), author="ada")
        seen = await events.find_event("save", "a")
        later = await events.get_revision("save", "a", 2)
        again = await events.withdraw("save", "a", "bob")
        back = await events.correct("save", event("a", text="It sways."), based_on=1, author="dan")
        found = await events.find_event("save", "a")
        return (
            seen and (seen.event.text, seen.revision, seen.is_withdrawn),
            later,
            again,
            back,
            found and (found.event.text, found.is_withdrawn),
            tell(await events.list_revisions("save", "a", 9)),
            tell(await events.list_revisions("town", "a", 9)),
        )

    assert using(store_url, scenario) == (
        (OLD, 1, True),
        None,
        True,
        2,
        ("It sways.", False),
        [(2, "dan", None), (1, "game", "eve")],
        [(2, "ada", None), (1, "game", None)],
    )


@pytest.mark.parametrize("hour", [0, 20])
def test_what_a_branch_lost_with_its_parent_stays_what_it_was_there(store_url: str, hour: int) -> None:
    """Also where the parent brings it back past the time of the branch, and then at its time again."""

    async def scenario(store: Store) -> object:
        events = store.part(EventStore)
        await events.add_events("town", [event("a")], "game")
        await events.branch("save", "town", event("a", 9).time)
        await events.branch("inner", "save", event("a", 9).time)
        await events.withdraw("town", "a", "eve")
        await events.branch("without", "town", event("a", 9).time)
        await events.correct("town", event("a", hour, NEW), author="ada")
        await events.branch("later", "town", event("a", 20).time)
        await events.withdraw("town", "a", "eve")
        await events.correct("town", event("a", text="It leans."), author="ada")
        branches = ("save", "inner", "without", "later")
        seen = {world: await events.find_event(world, "a") for world in branches}
        listed = {world: tell(await events.list_revisions(world, "a", 9)) for world in branches}
        newest = await events.get_revision("save", "a", 3)
        back = await events.correct("save", event("a", text="It sways."), based_on=1, author="dan")
        return (
            {world: one and (one.event.text, one.revision, one.is_withdrawn) for world, one in seen.items()},
            listed,
            newest,
            (back, tell(await events.list_revisions("save", "a", 9))),
        )

    lost, again = [(1, "game", "eve")], [(2, "ada", "eve"), (1, "game", "eve")]
    assert using(store_url, scenario) == (
        {**dict.fromkeys(("save", "inner", "without"), (OLD, 1, True)), "later": (NEW, 2, True)},
        {**dict.fromkeys(("save", "inner", "without"), lost), "later": again},
        None,
        (2, [(2, "dan", None), *lost]),
    )


async def test_every_revision_of_a_lorebook_says_who_wrote_it_and_what_it_was(store: Store) -> None:
    books = store.part(LorebookStore)
    for said, author in (("one", "ada"), ("one", "says the same"), ("two", "bob")):
        await books.put("town", "b", Lorebook(description=said), author=author)
    await store.part(EventStore).branch("save", "town", event("a").time)
    inherited = tell(await books.list_revisions("save", "b", 9))
    await books.remove("town", "b", "eve")
    removed = tell(await books.list_revisions("town", "b", 9))
    await books.put("town", "b", Lorebook(description="three"))
    found = [await books.get_revision("town", "b", number) for number in range(5)]
    two = [(2, "bob", None), (1, "ada", None)]
    assert (
        inherited,
        removed,
        tell(await books.list_revisions("town", "b", 9)),
        tell(await books.list_revisions("town", "b", 1, 3)),
        [one and (one.revision, one.author, one.lorebook.description) for one in found],
        [await books.list_revisions(*asked, 9) for asked in (("town", "c"), ("nowhere", "b"), ("town", "\x00"))],
    ) == (
        two,
        [(2, "bob", "eve"), (1, "ada", None)],
        [(3, "", None), (2, "bob", "eve"), (1, "ada", None)],
        [(2, "bob", "eve")],
        [None, (1, "ada", "one"), (2, "bob", "two"), (3, "", "three"), None],
        [[], [], []],
    )


def test_only_the_newest_revisions_are_kept(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_worlds, "KEPT_REVISIONS", 3)

    async def scenario(store: Store) -> object:
        events, books = store.part(EventStore), store.part(LorebookStore)
        await events.add_events("town", [event("a"), event("b")])
        for number in range(7):
            await events.correct("town", event("a", text=f"{number} carts."))
            await books.put("town", "a", Lorebook(description=str(number)))
        listed = (
            await events.list_revisions("town", "a", 9),
            await books.list_revisions("town", "a", 9),
            await events.list_revisions("town", "b", 9),
        )
        return [[one.revision for one in some] for some in listed]

    assert using(store_url, scenario) == [[8, 7, 6, 5], [7, 6, 5, 4], [1]]
