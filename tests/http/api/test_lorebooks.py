"""Lorebooks over HTTP: ours and other tools', kept with a world and met in prompts."""

import httpx
import pytest
from pydantic import JsonValue

from app.domain.worlds import Lorebook

pytestmark = pytest.mark.xdist_group("worlds")

Document = dict[str, JsonValue]

COAST: Document = {
    "name": "The Drowned Coast",
    "entries": [
        {"id": "road", "keys": ["milestone"], "content": "The Queen's Road has lain under water for a lifetime."},
        {"id": "levy", "keys": ["salt"], "secondary_keys": ["levy"], "content": "The levy was doubled this spring."},
    ],
}
CHARACTER_BOOK: Document = {
    "name": "Coast",
    "extensions": {},
    "entries": [
        {
            "keys": ["milestone"],
            "content": "The road is drowned.",
            "extensions": {},
            "enabled": True,
            "insertion_order": 3,
        }
    ],
}
LOREBOOK_V3: Document = {
    "spec": "lorebook_v3",
    "data": {
        "extensions": {},
        "entries": [
            {
                "keys": ["milestone"],
                "content": "The road is drowned.",
                "extensions": {},
                "enabled": True,
                "insertion_order": 3,
                "use_regex": False,
            }
        ],
    },
}
WORLD_INFO: Document = {
    "entries": {
        "0": {"uid": 0, "key": ["milestone"], "keysecondary": [], "content": "The road is drowned.", "order": 3}
    }
}


@pytest.fixture(name="url")
def _url(worlds_url: str) -> str:
    return worlds_url


def put(url: str, world: str, book: JsonValue, name: str = "coast") -> httpx.Response:
    return httpx.put(f"{url}/worlds/{world}/lorebooks/{name}", json=book, timeout=120)


def passages(url: str, world: str, said: str) -> list[tuple[str, str]]:
    body = {"character": "hob_tarrant", "conversation": [{"role": "user", "content": said}]}
    context = httpx.post(f"{url}/worlds/{world}/context", json=body, timeout=120).raise_for_status().json()
    return [(passage["source"], passage["text"]) for passage in context["passages"]]


def test_a_lorebook_is_kept_as_it_was_given_and_replaced(url: str) -> None:
    first = put(url, "kept", COAST)
    again = put(url, "kept", {"entries": []})
    put(url, "kept", COAST, "other").raise_for_status()
    listed = httpx.get(f"{url}/worlds/kept/lorebooks").raise_for_status().json()["lorebooks"]
    one = httpx.get(f"{url}/worlds/kept/lorebooks/other").raise_for_status().json()
    assert [reply.json() for reply in (first, again)] == [
        {"name": "coast", "entries": 2, "read_as": None},
        {"name": "coast", "entries": 0, "read_as": None},
    ]
    assert {name: Lorebook.model_validate(book) for name, book in listed.items()} == {
        "coast": Lorebook(),
        "other": Lorebook.model_validate(COAST),
    }
    assert Lorebook.model_validate(one) == Lorebook.model_validate(COAST)


def test_lore_comes_up_when_it_is_spoken_of_and_says_why(url: str) -> None:
    put(url, "spoken", COAST).raise_for_status()
    query = {"character": "hob_tarrant", "q": "What is that old milestone?"}
    explained = httpx.get(f"{url}/worlds/spoken/events", params=query).raise_for_status().json()
    (lore,) = explained["lore"]
    assert (lore["lorebook"], lore["entry"], "milestone" in lore["because"], lore["told"]) == (
        "coast",
        "road",
        True,
        True,
    )
    assert passages(url, "spoken", "What is that old milestone?") == [
        ("lorebook/coast", "The Queen's Road has lain under water for a lifetime.")
    ]
    assert passages(url, "spoken", "Nice salt.") == []


@pytest.mark.parametrize(
    ("given", "source"),
    [(CHARACTER_BOOK, "lorebook V2"), (LOREBOOK_V3, "lorebook V3"), (WORLD_INFO, "world info")],
)
def test_lorebooks_of_other_tools_are_read(url: str, given: Document, source: str) -> None:
    world = source.lower().replace(" ", "-")
    reply = put(url, world, given).raise_for_status().json()
    assert (reply["entries"], reply["read_as"]["source"]) == (1, source)
    assert passages(url, world, "A milestone!") == [("lorebook/coast", "The road is drowned.")]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"entries": [{"id": "x"}]}, "body.entries[0].content"),
        ({"entries": [{"id": "x", "content": "y", "colour": "red"}]}, "body.entries[0].colour"),
        ({"entries": [{"id": "x", "content": "y", "probability": 2}]}, "body.entries[0].probability"),
        ({"colour": "red"}, "body.colour"),
        ({"entries": [{"id": "x", "content": "y", "regex": True, "keys": ["a", "(b"]}]}, "entries[0].keys[1]"),
        ({"entries": [{"id": "x", "content": "y"}, {"id": "x", "content": "z"}]}, "entries[1].id"),
        ({"spec": "chara_card_v2", "data": {}}, "spec"),
        ({"spec": "lorebook_v3", "data": []}, "data"),
        ({"entries": [{"insertion_order": 1, "keys": "x", "content": "y"}]}, "entries[0].keys"),
    ],
)
def test_a_lorebook_that_is_none_is_refused_by_field(url: str, given: JsonValue, field: str) -> None:
    reply = put(url, "refused", given)
    assert (reply.status_code, [error["field"] for error in reply.json()["errors"]]) == (422, [field])
    assert httpx.get(f"{url}/worlds/refused").status_code == 404


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"entries": [{}] * 5001}, "entries"),
        ({"entries": {str(number): {} for number in range(5001)}}, "entries"),
        ({"spec": "lorebook_v3", "data": {"entries": [{}] * 5001}}, "data.entries"),
    ],
)
def test_too_many_entries_are_refused_before_any_is_read(url: str, given: JsonValue, field: str) -> None:
    reply = put(url, "refused", given)
    assert (reply.status_code, reply.json()["detail"]) == (413, f"{field}: more than 5000 entries")


def test_a_branch_has_the_books_of_its_past_until_it_has_its_own(url: str) -> None:
    put(url, "past", COAST).raise_for_status()
    branch = {"parent": "past", "at": "1312-04-03T12:00:00Z"}
    httpx.put(f"{url}/worlds/past-loaded", json=branch).raise_for_status()
    shared = passages(url, "past-loaded", "A milestone!")
    put(url, "past-loaded", {"entries": []}).raise_for_status()
    own = passages(url, "past-loaded", "A milestone!")
    removed = [httpx.delete(f"{url}/worlds/past-loaded/lorebooks/coast") for _ in range(2)]
    assert (len(shared), own, passages(url, "past-loaded", "A milestone!")) == (1, [], shared)
    assert [reply.status_code for reply in removed] == [200, 404]


@pytest.mark.parametrize("path", ["/worlds/nowhere/lorebooks/coast", "/worlds/there/lorebooks/none"])
def test_a_lorebook_that_is_not_there_is_not_found(url: str, path: str) -> None:
    put(url, "there", COAST).raise_for_status()
    assert [httpx.request(method, url + path).status_code for method in ("GET", "DELETE")] == [404, 404]
