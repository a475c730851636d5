"""What authors wrote: revisions are added, never changed, and two authors never overwrite one another."""

import asyncio

import pytest

from app.domain.errors import Conflict
from app.features.authoring.model import AuthoredChange, AuthoredRevision, list_texts
from app.features.authoring.store import MOST_DRAFTS, AuthoredStore
from app.main.store import Store

HOB, SCENES = "hob.yaml", "scenes/hob.yaml"
ODD = "note \ud800 \x00 ⟨ü⟩"


def change(file: str, text: str | None, based_on: int = 0) -> AuthoredChange:
    return AuthoredChange(file=file, text=text, based_on=based_on)


def tell(one: AuthoredRevision | None) -> tuple[str, int, str | None, str, str]:
    assert one is not None
    return one.file, one.revision, one.text, one.author, one.note


async def test_the_newest_revision_is_in_force_and_all_are_kept(store: Store) -> None:
    authored = store.part(AuthoredStore)
    nothing = await authored.count(), await authored.load_newest()
    await authored.add([change(SCENES, "s"), change(HOB, "one")], "ada", ODD)
    await authored.add([change(HOB, "two", 1)], "bob", "")
    newest = await authored.load_newest()
    await authored.add([change(SCENES, None, 1)], "", "away")
    assert (
        nothing,
        {file: one.revision for file, one in newest.items()},
        list_texts(await authored.load_newest()),
        [tell(await authored.get(HOB, number)) for number in (2, 1)],
        [(one.revision, one.author, one.note) for one in await authored.list_revisions(HOB, 5)],
        [one.is_withdrawal for one in await authored.list_revisions(SCENES, 5)],
        [one.revision for one in await authored.list_revisions(HOB, 5, before=2)],
        [await authored.get(*asked) for asked in ((HOB, 3), ("other.yaml", 1), ("\x00", 1))],
        await authored.count(),
    ) == (
        (0, {}),
        {HOB: 2, SCENES: 1},
        {HOB: "two"},
        [(HOB, 2, "two", "bob", ""), (HOB, 1, "one", "ada", ODD)],
        [(2, "bob", ""), (1, "ada", ODD)],
        [True, False],
        [1],
        [None, None, None],
        4,
    )


@pytest.mark.parametrize("based_on", [0, 2])
async def test_a_change_of_what_another_author_has_changed_is_refused_whole(store: Store, based_on: int) -> None:
    authored = store.part(AuthoredStore)
    await authored.add([change(HOB, "one")], "ada", "")
    with pytest.raises(Conflict, match="revision 1 is stored"):
        await authored.add([change("a.yaml", "new"), change(HOB, "mine", based_on)], "bob", "")
    assert list_texts(await authored.load_newest()) == {HOB: "one"}


async def test_of_two_changes_at_once_one_is_stored(store: Store) -> None:
    authored = store.part(AuthoredStore)
    tried = [authored.add([change(HOB, text)], text, "") for text in ("a", "b", "c")]
    done = await asyncio.gather(*tried, return_exceptions=True)
    assert (sum(isinstance(one, Conflict) for one in done), await authored.count()) == (2, 1)


async def test_each_author_has_one_draft_of_a_file_and_two_browsers_do_not_overwrite_each_other(store: Store) -> None:
    authored = store.part(AuthoredStore)
    first = await authored.put_draft(HOB, "ada", "\x00 ⟨ü⟩", 0, "")
    await authored.put_draft(HOB, "", "nobody's", 2, "")
    await authored.put_draft(SCENES, "ada", "s", 0, "")
    second = await authored.put_draft(HOB, "ada", "two", 1, first.digest)
    for read in ("", first.digest):
        with pytest.raises(Conflict, match="another draft of yours"):
            await authored.put_draft(HOB, "ada", "three", 1, read)
        with pytest.raises(Conflict, match="another draft of yours"):
            await authored.remove_draft(HOB, "ada", read)
    kept = [await authored.get_draft(*asked) for asked in ((HOB, "ada"), (HOB, ""), (HOB, "bob"), ("\x00", "ada"))]
    listed = [await authored.list_drafted(author) for author in ("ada", "", "bob")]
    for file, author, read in ((HOB, "ada", second.digest), (HOB, "ada", second.digest), (HOB, "bob", "")):
        await authored.remove_draft(file, author, read)
    assert (
        (first.text, first.based_on, second.based_on),
        [None if one is None else one.text for one in kept],
        listed,
        await authored.list_drafted("ada"),
        await authored.count(),
    ) == (
        ("\x00 ⟨ü⟩", 0, 1),
        ["two", "nobody's", None, None],
        [[HOB, SCENES], [HOB], []],
        [SCENES],
        0,
    )


async def test_an_author_keeps_only_so_many_drafts(store: Store) -> None:
    authored = store.part(AuthoredStore)
    for number in range(MOST_DRAFTS):
        await authored.put_draft(f"{number}.yaml", "ada", "", 0, "")
    with pytest.raises(Conflict, match="publish or discard one first"):
        await authored.put_draft("one_more.yaml", "ada", "", 0, "")
    await authored.put_draft("one_more.yaml", "bob", "", 0, "")
