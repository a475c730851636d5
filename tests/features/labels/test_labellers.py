"""The labeller is the caller: a label has the name of the key that made it, and of the person for whom it was made."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.domain.labels import Labeller
from app.features.labels.store import LabelQueue, LabelStore
from app.main.store import Store
from tests.features.labels.test_store import ENVIRONMENTS, fill, label, lease
from tests.support.labelling import labelled_gateway, store_groups
from tests.support.outline import Outline

OWNER = "gw_of-the-settings"
Keys = dict[str, dict[str, str]]
"""By name: the headers of a request with that key."""


@asynccontextmanager
async def keyed(database: Path | str, *names: str) -> AsyncIterator[tuple[httpx.AsyncClient, Keys]]:
    """A gateway that needs keys, with one of each name that reads and labels."""
    async with labelled_gateway(database, api_key=OWNER) as client:
        keys: Keys = {}
        for name in names:
            asked = {"name": name, "scopes": ["read", "label", "author"]}
            secret = (await client.post("/admin/keys", json=asked)).raise_for_status().json()["secret"]
            keys[name] = {"Authorization": f"Bearer {secret}"}
        yield client, keys


async def list_labels(client: httpx.AsyncClient, group: str) -> list[tuple[str, str, bool, str]]:
    """Newest first: by whom, for whom, whether that is known, and the order."""
    told = (await client.get(f"/view/groups/{group}?format=json")).json()["labels"]
    return [(one["labeller"], one["on_behalf_of"], one["verified"], one["order"]) for one in told]


def order(group: str, *places: int, **more: Any) -> dict[str, Any]:
    return {"order": [[f"{group}-{place}"] for place in places], **more}


async def test_a_label_has_the_name_of_its_key_and_another_name_is_refused(sqlite_url: str) -> None:
    async with keyed(sqlite_url, "ada", "bob") as (client, keys):
        (group,) = await store_groups(client, 1)
        path, label = f"/groups/{group}/labels", order(group, 0, 1)
        told = [
            await client.post(path, json=label | more, headers=keys[key])
            for key, more in (
                ("ada", {}),
                ("ada", {"labeller": "ada"}),
                ("bob", {"labeller": "ada"}),
                ("bob", {"labeller": "mallory"}),
                ("bob", {"on_behalf_of": "ada"}),
                ("bob", {"on_behalf_of": "a\n"}),
            )
        ]
        first = told[0].json()["label_id"]
        assert [(one.status_code, one.json().get("label_id") == first) for one in told] == [
            *((200, True), (200, True)),
            *((422, False), (422, False)),
            *((200, False), (422, False)),
        ]
        assert [one["field"] for one in told[3].json()["errors"]] == ["labeller"]
        assert await list_labels(client, group) == [("bob", "ada", True, "1 > 2"), ("ada", "", True, "1 > 2")]


async def test_people_who_share_a_key_stay_apart(sqlite_url: str) -> None:
    """A label of the same person replaces the former one, and nobody gets what another holds."""
    async with keyed(sqlite_url, "tool") as (client, keys):
        (group,) = await store_groups(client, 1)
        for person, places in (("ann", (0, 1)), ("ben", (1, 0)), ("ann", (1, 0)), (None, (0, 1))):
            body = order(group, *places) | {"on_behalf_of": person}
            (await client.post(f"/groups/{group}/labels", json=body, headers=keys["tool"])).raise_for_status()
        (other,) = await store_groups(client, 1, 1)
        held = [
            (await client.post("/labels/next", json={"on_behalf_of": person}, headers=keys["tool"])).json()["item"]
            for person in ("cy", "dan", "cy")
        ]
        skips = [
            await client.post("/labels/skip", json={"on_behalf_of": person, "lease_id": held[0]["lease_id"]})
            for person in ("cy",)
        ]
        mine = {"on_behalf_of": "cy", "lease_id": held[0]["lease_id"]}
        skips.append(await client.post("/labels/skip", json=mine | {"on_behalf_of": "dan"}, headers=keys["tool"]))
        skips.append(await client.post("/labels/skip", json=mine, headers=keys["tool"]))
        ids = {None if item is None else item["lease_id"] for item in held}
        assert (held[0] == held[2], {group, other} >= {held[0]["group_id"]}, len(ids)) == (True, True, 2)
        assert [one.status_code for one in skips] == [409, 409, 200]
        assert await list_labels(client, group) == [
            ("tool", "", True, "1 > 2"),
            ("tool", "ann", True, "2 > 1"),
            ("tool", "ben", True, "2 > 1"),
        ]
        rows = (await client.get("/export?shape=labels")).text
        assert [rows.count(f'"on_behalf_of":"{person}","verified":true') for person in ("ann", "ben", "")] == [1, 1, 1]


async def test_only_its_key_or_an_admin_takes_a_label_back(sqlite_url: str) -> None:
    async with keyed(sqlite_url, "ada", "bob") as (client, keys):
        groups = await store_groups(client, 2)
        made = [
            await client.post(f"/groups/{one}/labels", json=order(one, 0, 1, on_behalf_of="x"), headers=keys["ada"])
            for one in groups
        ]
        ids = [one.json()["label_id"] for one in made]
        tries = [
            *((keys["bob"], ids[0], query) for query in ("", "?labeller=ada", "?labeller=bob")),
            *((keys["ada"], ids[0], ""), (keys["ada"], ids[0], ""), ({}, ids[1], "")),
        ]
        told = [await client.delete(f"/labels/{one}{query}", headers=headers) for headers, one, query in tries]
        assert [one.status_code for one in told] == [404, 422, 404, 200, 404, 200]


async def test_labels_of_a_time_without_keys_are_unverified_and_only_an_admin_takes_them_back(database: Path) -> None:
    async with labelled_gateway(database) as client:
        (group,) = await store_groups(client, 1)
        nobody = await client.post(f"/groups/{group}/labels", json=order(group, 0, 1))
        made = await client.post(f"/groups/{group}/labels", json=order(group, 0, 1, labeller="ada"))
        label = made.json()["label_id"]
        assert (nobody.status_code, nobody.json()["errors"][0]["field"]) == (422, "labeller")
    async with keyed(database, "ada") as (client, keys):
        told = [await client.delete(f"/labels/{label}", headers=keys["ada"])]
        again = await client.post(f"/groups/{group}/labels", json=order(group, 1, 0), headers=keys["ada"])
        both = await list_labels(client, group)
        told.append(await client.delete(f"/labels/{label}"))
        left = await list_labels(client, group)
        page = (await client.get(f"/view/groups/{group}")).text
    assert ([one.status_code for one in told], again.status_code) == ([404, 200], 200)
    assert (both, left) == ([("ada", "", True, "2 > 1"), ("ada", "", False, "1 > 2")], both[:1])
    assert "unverified" not in page


async def test_the_page_labels_as_the_key_for_whom_it_is_told(sqlite_url: str) -> None:
    async with keyed(sqlite_url, "ada") as (client, keys):
        (group,) = await store_groups(client, 1)
        browser = keys["ada"] | {"Origin": "http://127.0.0.1"}
        page = await client.get(f"/view/label?group={group}&labeller=eve", headers=browser)
        names = {value for tag, name, value in Outline(page.text).attributes if (tag, name) == ("input", "name")}
        form = {"labeller": "eve", "on_behalf_of": "ann", "act": "send", "choice": "first"}
        sides = {"group": group, "first": f"{group}-0", "second": f"{group}-1"}
        sent = await client.post("/view/label", data=form | sides, headers=browser)
        shown = Outline((await client.get(f"/view/groups/{group}", headers=browser)).text).words()
        assert ("You label as ada" in Outline(page.text).words(), "labeller" in names, sent.status_code) == (
            True,
            False,
            303,
        )
        assert ("ada for ann" in shown, await list_labels(client, group)) == (True, [("ada", "ann", True, "1 > 2")])


async def test_imported_choices_have_the_name_of_their_key(sqlite_url: str) -> None:
    chosen = {"prompt": [{"role": "user", "content": "Who goes there?"}], "chosen": "A friend.", "rejected": ["Me."]}
    async with keyed(sqlite_url, "ada") as (client, keys):
        body = {"choices": [{"kind": "pair", "choice": chosen}], "on_behalf_of": "sam"}
        other = await client.post("/labels/import", json=body | {"labeller": "eve"}, headers=keys["ada"])
        (await client.post("/labels/import", json=body, headers=keys["ada"])).raise_for_status()
        row = (await client.get("/export?shape=labels")).json()
    assert (other.status_code, row["labeller"], row["on_behalf_of"], row["verified"]) == (422, "ada", "sam", True)


@pytest.mark.dialects
async def test_an_admin_gives_the_item_of_a_label_to_others(store: Store) -> None:
    """Also where its labeller has seen the scores: who planted a label could keep it for ever otherwise."""
    ada, admin = Labeller("ada", verified=True), Labeller("owner", verified=True)
    queue, labels = store.part(LabelQueue), store.part(LabelStore)
    await fill(store, 1)
    await queue.claim(lease("l", "ada", "g0").model_copy(update={"verified": True}), 60)
    made = label("one", "ada").model_copy(update={"verified": True})
    shown = await labels.put(made, "l", merge=False, show_judge=True)
    gone = await labels.withdraw("one", admin, 60, is_admin=True)
    left = [await queue.draw_uniform(ENVIRONMENTS, None, by) for by in (ada, Labeller("ada"), Labeller("bob"))]
    assert (shown.saw_judge, gone.state, [one is not None for one in left]) == (True, "withdrawn", [False, True, True])


@pytest.mark.dialects
async def test_nobody_gives_a_second_label_to_what_may_be_their_own(store: Store) -> None:
    """A name without a key may be that of whoever has a key of that name now, or for whom a tool labels."""
    queue, put = store.part(LabelQueue), store.part(LabelStore).put
    await fill(store, 1)
    await queue.claim(lease("l", "ada", "g0", wanted=2), 60)
    await put(label("one", "ada"), "l", merge=False, show_judge=False)
    people = (
        Labeller("ada", verified=True),
        Labeller("tool", "ada", verified=True),
        Labeller("ada"),
        Labeller("tool", "bob", verified=True),
        Labeller("bob"),
    )
    found = [await queue.find_awaiting_second(by, ENVIRONMENTS, None) for by in people]
    assert [one is not None for one in found] == [False, False, False, True, True]
