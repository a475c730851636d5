"""People label on a page, blind, without JavaScript."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode

import httpx
import pytest

from app.domain.access import AccessScope, Caller, KeyBounds
from app.features.labels.pages import LabelForm, tell_task
from app.http.web.api_keys import KeyRing
from tests.support.labelling import store_groups
from tests.support.outline import Outline

FORM = {"content-type": "application/x-www-form-urlencoded"}


async def press(client: httpx.AsyncClient, act: str, **fields: str) -> Outline:
    body = urlencode({"labeller": "ada", "environment": "arena", "act": act, **fields})
    told = await client.post("/view/label", content=body, headers=FORM)
    assert told.status_code == 200, told.text
    outline = Outline(told.text)
    assert (outline.open, outline.elements.count("script")) == ([], 1)
    return outline


def read_fields(page: Outline) -> dict[str, str]:
    """The hidden fields of the item's form."""
    names = [value for tag, name, value in page.attributes if (tag, name) == ("input", "name")]
    values = [value for tag, name, value in page.attributes if (tag, name) == ("input", "value")]
    return dict(zip(names, values, strict=False)) if "lease" in names else {}


async def count_labels(client: httpx.AsyncClient) -> Mapping[str, int]:
    counts: dict[str, int] = (await client.get("/judges/judge/agreement")).json()["labels"]
    return counts


@pytest.mark.parametrize(
    ("replies", "reason", "said"),
    [
        (2, "", "Which reply is better?"),
        (1, "", "How good is this reply?"),
        (0, "all groups are labelled", "All groups are labelled."),
    ],
)
def test_a_single_reply_is_not_compared(replies: int, reason: str, said: str) -> None:
    assert tell_task(replies, reason) == said


async def test_a_pair_is_labelled_skipped_and_taken_back(client: httpx.AsyncClient) -> None:
    await store_groups(client, 3)
    assert "Begin" in (await client.get("/view/label?labeller=ada&environment=arena")).text
    begun = await press(client, "next")
    assert "Left for you 3 of 3 groups" in begun.words(), "the one in hand among them"
    first = read_fields(begun)
    same = read_fields(await press(client, "next"))
    assert first["lease"] == same["lease"] != ""
    said = {name: first[name] for name in ("lease", "group", "rubric", "shown", "first", "second")}
    empty = await press(client, "send", **said, comment="a long thought")
    assert "the label is empty: give an order, a pair or replies" in empty.words()
    assert ("input", "value", "a long thought") in empty.attributes
    assert read_fields(empty)["shown"] == first["shown"]
    more = {"choice": "second", "defect.first": "yes", "level.first.quality": "1", "level.second.quality": "none"}
    page = await press(client, "send", **said, **more)
    assert ("Stored." in page.words(), await count_labels(client)) == (True, {"queue": 1})
    row = (await client.get("/export?shape=labels")).json()
    told = [row[name] for name in ("chosen_id", "rejected_id", "rejected_levels", "rejected_defect")]
    assert told == [first["second"], first["first"], '{"quality":1}', True]
    second = read_fields(page)
    label = re.findall(r"label_[0-9a-f]{32}", str(page.attributes))[0]
    back = read_fields(await press(client, "undo", label=label))
    assert (back["lease"], await count_labels(client)) == (first["lease"], {})
    skipped = read_fields(await press(client, "skip", lease=first["lease"]))
    assert skipped["lease"] == second["lease"]


async def test_a_chosen_group_is_labelled_blind_and_then_shown(client: httpx.AsyncClient) -> None:
    (group,) = await store_groups(client, 1)
    page = Outline((await client.get(f"/view/label?group={group}&labeller=ada")).text)
    assert "not counted in agreement" in page.words()
    assert f"/view/label?group={group}" in Outline((await client.get(f"/view/groups/{group}")).text).links()
    body = {"labeller": "ada", "act": "send", "group": group, "first": f"{group}-0", "second": f"{group}-1"}
    told = await client.post("/view/label", content=urlencode(body | {"choice": "equal"}), headers=FORM)
    assert (told.status_code, told.headers["location"]) == (303, f"/view/groups/{group}")
    assert await count_labels(client) == {"own_pick": 1}
    lost = await client.get("/view/label?group=group_nobody")
    assert (lost.status_code, "there is no group group_nobody" in lost.text) == (404, True)
    evil = await client.post("/view/label", content=urlencode({"labeller": "<b>x</b>"}), headers=FORM)
    assert (evil.status_code, "<b>x" in evil.text) == (422, False)
    bodies = (b"comment=" + b"x" * 100_001, b"&".join([b"a=b"] * 2_001), b"labeller=%ff")
    odd = [(await client.post("/view/label", content=body, headers=FORM)).status_code for body in bodies]
    assert odd == [413, 422, 422]


async def test_the_page_of_a_group_lists_its_labels_to_keys_that_may_read_it(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, other = await store_groups(client, 2)
    body: dict[str, Any] = {"labeller": "ada", "pair": {"better": f"{group}-1", "worse": f"{group}-0"}}
    replies = {
        f"{group}-0": {"levels": {"quality": 1}, "defect": True},
        f"{group}-1": {"levels": {"quality": None}},
    }
    for labeller, more in (("bob", {}), ("ada", {"replies": replies, "comment": "<script>alert(1)</script>"})):
        await client.post(f"/groups/{group}/labels", json=body | {"labeller": labeller, **more})
    page, bare = [await client.get(f"/view/groups/{one}") for one in (group, other)]
    outline = Outline(page.text)
    told = (await client.get(f"/view/groups/{group}?format=json")).json()["labels"]
    assert (outline.open, outline.elements.count("script"), 'id="labels"' in bare.text) == ([], 1, False)
    found = "1: quality 1; 1: a defect; 2: quality does not apply" in page.text, told[1]["labeller"]
    assert found == (True, "bob")
    assert [(one["labeller"], one["order"], one["is_blind"]) for one in told] == [
        *(("ada", "2 > 1", False), ("bob", "2 > 1", False))
    ]
    assert "<script>alert(1)</script>" in outline.words()
    monkeypatch.setattr(KeyRing, "anonymous", False)
    statuses = []
    asked: tuple[tuple[AccessScope, str], ...] = (("read", "a"), ("read", "b"), ("label", "a"))
    for scope, run in asked:
        caller = Caller("eve", frozenset([scope]), KeyBounds(runs=(run,)))
        monkeypatch.setattr(KeyRing, "find_caller", lambda *_, caller=caller: caller)
        seen = await client.get(f"/view/groups/{group}", headers={"Authorization": "Bearer any"})
        statuses.append((seen.status_code, "2 &gt; 1" in seen.text))
    assert statuses == [(200, True), (404, False), (403, False)]


@pytest.mark.parametrize(
    ("sent", "replies"),
    [
        ("choice=first", {}),
        ("choice=first&defect.second=no", {"b": {"levels": {}, "defect": False}}),
        ("level.first.x=4&level.first.y=none&level.first.z=", {"a": {"levels": {"x": 4, "y": None}, "defect": None}}),
    ],
)
def test_what_a_form_says_of_replies(sent: str, replies: dict[str, Any]) -> None:
    form = LabelForm.from_fields(parse_qs(f"labeller=ada&first=a&second=b&shown=nan&{sent}"), None)
    label = form.build_label(100.0)
    assert ({name: one.model_dump() for name, one in label.replies.items()}, label.seconds) == (replies, None)
