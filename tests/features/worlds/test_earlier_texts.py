"""What an event or a lorebook of a world said before, and who wrote and replaced it."""

from collections.abc import Sequence

import pytest

from app.domain.values import digest_of_model
from app.domain.worlds import EarlierText, Event, KnownEvent, Lorebook
from app.features.worlds import store_worlds
from app.features.worlds.store import EventStore
from app.features.worlds.store_worlds import EarlierTextStore, LorebookStore
from app.main.store import Store
from tests.features.worlds.test_store import event

pytestmark = pytest.mark.dialects

OLD, NEW = "The bridge fell.", "The bridge held."
Told = list[tuple[str, str | None, str | None]]


async def tell(store: Store, world: str, name: str = "a") -> Told:
    """What an event said before, who wrote it and who replaced it. Raises unless times are known and in order."""
    texts = store.part(EarlierTextStore)
    listed = await texts.list_earlier(world, "event", name, 9)
    times = [(one.written_at, one.replaced_at) for one in listed]
    assert all(written and replaced and written <= replaced for written, replaced in times)
    read = [await texts.get_earlier(world, "event", name, one.number) for one in listed]
    return [(one.content.text, one.author, one.replaced_by) for one in read if one and isinstance(one.content, Event)]


def number(listed: Sequence[EarlierText]) -> list[int]:
    return [one.number for one in listed]


async def test_what_an_event_said_before_is_kept(store: Store) -> None:
    events, texts = store.part(EventStore), store.part(EarlierTextStore)
    await events.add_events("town", [event("a"), event("other")], "game")
    await events.add_events("town", [event("a")], "game again")
    await events.correct("town", event("a", text=NEW), author="ada")
    await events.correct("town", event("a", text=NEW), author="says the same")
    for author in ("bob", "withdraws it twice"):
        await events.withdraw("town", "a", author)
    withdrawn = await tell(store, "town")
    await events.correct("town", event("a", text="It sways."), author="")
    back = await tell(store, "town")
    await events.correct("town", event("a"), author="eve")
    numbers = number(await texts.list_earlier("town", "event", "a", 9))
    elsewhere = [("town", "b"), ("nowhere", "a"), ("\x00", "a"), ("town", "\ud800")]
    assert (
        withdrawn,
        back,
        await tell(store, "town"),
        [number(await texts.list_earlier("town", "event", "a", 1, before)) for before in numbers],
        [await texts.list_earlier(world, "event", name, 9) for world, name in elsewhere],
        [await texts.get_earlier(world, "event", name, numbers[0]) for world, name in elsewhere],
        await texts.get_earlier("town", "lorebook", "a", numbers[0]),
        await tell(store, "town", "other"),
    ) == (
        [(NEW, "ada", "bob"), (OLD, "game", "ada")],
        [(NEW, "ada", "bob"), (OLD, "game", "ada")],
        [("It sways.", "", "eve"), (NEW, "ada", "bob"), (OLD, "game", "ada")],
        [[one] for one in numbers[1:]] + [[]],
        [[], [], [], []],
        [None, None, None, None],
        None,
        [],
    )


async def test_a_branch_lists_what_it_changed_itself(store: Store) -> None:
    events = store.part(EventStore)
    await events.add_events("town", [event("a")], "game")
    await events.correct("town", event("a", text="It swayed."), author="ada")
    for branch in ("own", "kept", "without"):
        await events.branch(branch, "town", event("a", 9).time)
    await events.correct("own", event("a", text=NEW), author="bob")
    await events.withdraw("without", "a", "eve")
    await events.correct("town", event("a", text="It leans."), author="dan")
    await events.correct("kept", event("a", text=NEW), author="dan")
    assert {world: await tell(store, world) for world in ("town", "own", "kept", "without")} == {
        "town": [("It swayed.", "ada", "dan"), (OLD, "game", "ada")],
        "own": [("It swayed.", "ada", "bob")],
        "kept": [("It swayed.", "ada", "dan")],
        "without": [("It swayed.", "ada", "eve")],
    }


@pytest.mark.parametrize("hour", [0, 20])
async def test_what_a_branch_withdrew_stays_what_it_was_there(store: Store, hour: int) -> None:
    """Also where the parent moves the event past the time of the branch."""
    events = store.part(EventStore)
    await events.add_events("town", [event("a")], "game")
    await events.branch("save", "town", event("a", 9).time)
    await events.withdraw("save", "a", "eve")
    await events.correct("town", event("a", hour, NEW), author="ada")
    seen = await events.find_event("save", "a")
    again = await events.withdraw("save", "a", "bob")
    based_on = digest_of_model(KnownEvent(event=event("a"), is_withdrawn=True))
    back = await events.correct("save", event("a", text="It sways."), based_on, "dan")
    found = await events.find_event("save", "a")
    told = (
        seen and (seen.event.text, seen.is_withdrawn),
        (again, back),
        found and (found.event.text, found.is_withdrawn),
        [await tell(store, world) for world in ("save", "town")],
    )
    assert told == (
        (OLD, True),
        (True, True),
        ("It sways.", False),
        [[(OLD, "game", "eve")], [(OLD, "game", "ada")]],
    )


@pytest.mark.parametrize("hour", [0, 20])
async def test_what_a_branch_lost_with_its_parent_stays_what_it_was_there(store: Store, hour: int) -> None:
    """Also where the parent brings it back past the time of the branch, and then at its time again."""
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
    listed = {world: await tell(store, world) for world in branches}
    based_on = digest_of_model(KnownEvent(event=event("a"), is_withdrawn=True))
    back = await events.correct("save", event("a", text="It sways."), based_on, "dan")
    inner = await events.find_event("inner", "a")
    found = (
        {world: one and (one.event.text, one.is_withdrawn) for world, one in seen.items()},
        listed,
        (back, await tell(store, "save"), inner and (inner.event.text, inner.is_withdrawn)),
    )
    lost = [(OLD, "game", "eve")]
    assert found == (
        {**dict.fromkeys(("save", "inner", "without"), (OLD, True)), "later": (NEW, True)},
        {"save": lost, "inner": [], "without": lost, "later": [(NEW, "ada", "eve")]},
        (True, lost, (OLD, True)),
    )


async def test_a_branch_brings_back_what_its_parent_withdrew(store: Store) -> None:
    """The branch has no text of its own of it, and branches of that branch lost it too."""
    events = store.part(EventStore)
    await events.add_events("town", [event("a")], "game")
    for branch, parent in (("save", "town"), ("inner", "save")):
        await events.branch(branch, parent, event("a", 9).time)
    await events.withdraw("town", "a", "eve")
    back = await events.correct("save", event("a", text=NEW), author="dan")
    seen = [await events.find_event(world, "a") for world in ("town", "save", "inner")]
    assert (back, [one and (one.event.text, one.is_withdrawn) for one in seen]) == (
        True,
        [(OLD, True), (NEW, False), (OLD, True)],
    )


async def test_what_a_lorebook_said_before_is_kept(store: Store) -> None:
    books, texts = store.part(LorebookStore), store.part(EarlierTextStore)
    for said, author in (("one", "ada"), ("one", "says the same"), ("two", "bob")):
        await books.put("town", "b", Lorebook(description=said), author=author)
    await books.remove("town", "b", "eve")
    await books.put("town", "b", Lorebook(description="three"))
    listed = await texts.list_earlier("town", "lorebook", "b", 9)
    read = [await texts.get_earlier("town", "lorebook", "b", one.number) for one in listed]
    assert (
        [one and (one.content, one.author, one.replaced_by) for one in read],
        await texts.get_earlier("town", "event", "b", listed[0].number),
    ) == ([(Lorebook(description="two"), "bob", "eve"), (Lorebook(description="one"), "ada", "bob")], None)


async def test_only_the_latest_texts_are_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_worlds, "KEPT_TEXTS", 3)
    events, books = store.part(EventStore), store.part(LorebookStore)
    texts = store.part(EarlierTextStore)
    await events.add_events("town", [event("a"), event("b")])
    await events.correct("town", event("b", text=NEW))
    for count in range(7):
        await events.correct("town", event("a", text=f"{count} carts."))
        await books.put("town", "a", Lorebook(description=str(count)))
    said = [text for text, *_ in await tell(store, "town")]
    found = said, len(await texts.list_earlier("town", "lorebook", "a", 9)), len(await tell(store, "town", "b"))
    assert found == (["5 carts.", "4 carts.", "3 carts."], 3, 1)
