"""Worlds over HTTP: what is refused, pages, lorebooks of other tools, why something would be told, prompts of games.
The rest is in docs/semantics.md and docs/worlds.md."""

import itertools
import ssl
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest
from pydantic import JsonValue, TypeAdapter

from app.domain.worlds import RetrievalExplanation
from tests.support.gateways import Gateways
from tests.support.tables import read_table

JSON = TypeAdapter[JsonValue](JsonValue)
Document = dict[str, JsonValue]
NO_AUTHORITIES: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For loopback without TLS: each call would read all certificates anew."""

ROPE: Document = {
    "id": "rope",
    "time": "1312-04-03T09:15:00Z",
    "text": "The rope of the ferry broke at Reedgate.",
    "importance": 7,
}
TAX: Document = {"id": "tax", "time": "1312-04-03T10:30:00Z", "text": "The bailiff put a new tax on salt."}
BRIDGE: Document = {
    "id": "bridge",
    "time": "1312-04-03T11:00:00Z",
    "text": "The Margravine ordered a bridge at Reedgate to end the ferry.",
    "visibility": ["ottoline_vesk"],
    "leak_terms": ["toll bridge"],
}
SPLICED: Document = {
    "id": "spliced",
    "time": "1312-04-03T15:00:00Z",
    "text": "The rope of the ferry is spliced.",
    "supersedes": "rope",
}
NOON = "1312-04-03T12:00:00Z"
ASKS = "Is the ferry running?"


@dataclass(frozen=True)
class Told:
    """One world of a gateway."""

    url: str
    name: str

    def ask(self, method: str, path: str = "", body: JsonValue = None, **query: str) -> httpx.Response:
        content = None if body is None else JSON.dump_json(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        address = f"{self.url}/worlds/{self.name}{path}"
        return httpx.request(
            method, address, content=content, headers=headers, params=query, timeout=120, verify=NO_AUTHORITIES
        )

    def tell(self, *events: JsonValue) -> httpx.Response:
        return self.ask("POST", "/events", {"events": list(events)})

    def ids(self) -> list[str]:
        return [event["id"] for event in self.ask("GET", "/events").raise_for_status().json()["events"]]

    def explained(self, **query: str) -> RetrievalExplanation:
        return RetrievalExplanation.model_validate(self.ask("GET", "/events", **query).raise_for_status().json())

    def context(self, said: str, **more: JsonValue) -> httpx.Response:
        line: Document = {"role": "user", "content": said}
        body: Document = {"character": "hob_tarrant", "conversation": [line], **more}
        return self.ask("POST", "/context", body)


def fields_of(reply: httpx.Response) -> tuple[int, list[str]]:
    return reply.status_code, [error["field"] for error in reply.json()["errors"]]


pytestmark = pytest.mark.xdist_group("examples of the document")
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def url(gateways: Gateways) -> str:
    return gateways.of().url


@pytest.fixture
def world(url: str) -> Told:
    """Nothing was told of it."""
    return Told(url, f"coast-{next(_numbers)}")


def hand_out(world: Told, **more: JsonValue) -> httpx.Response:
    body = {"batch_size": 1, "params": {"world": world.name}, **more}
    return httpx.post(f"{world.url}/envs/npc_arena/next-batch", json=body, timeout=120)


REFUSED = read_table(__file__, "refused_worlds.yaml", dict[str, Any])


def test_what_makes_no_sense_is_refused_by_field_and_begins_no_world(world: Told) -> None:
    wrong = [(world.tell(TAX, ROPE | change), f"body.events[1].{field}") for change, field in REFUSED["events"]]
    wrong += [(world.ask("PUT", "/lorebooks/coast", book), field) for book, field in REFUSED["books"]]
    wrong += [(world.tell(*[ROPE] * count), "body.events") for count in (0, 1001)]
    absent = world.ask("GET").status_code
    world.tell(ROPE).raise_for_status()
    wrong += [(world.ask("GET", "/events", **query), field) for query, field in REFUSED["queries"]]
    moment: Document = {"character": "hob_tarrant", "conversation": [{"role": "user", "content": "Well?"}]}
    wrong += [(world.ask("POST", "/context", moment | change), field) for change, field in REFUSED["moments"]]
    wrong.append((world.ask("PUT", "/events/tax", ROPE), "body.id"))
    naive: Document = {"parent": world.name, "at": "1312-04-03T13:00:00"}
    wrong.append((Told(world.url, f"{world.name}-naive").ask("PUT", "", naive), "body.at"))
    told = [(field, *fields_of(reply)) for reply, field in wrong]
    assert [one for one in told if one[1] != 422 or not one[2][0].startswith(one[0])] == []
    assert (absent, world.ids()) == (404, ["rope"])


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"entries": [{}] * 5001}, "entries"),
        ({"entries": {str(number): {} for number in range(5001)}}, "entries"),
        ({"spec": "lorebook_v3", "data": {"entries": [{}] * 5001}}, "data.entries"),
    ],
)
def test_too_many_entries_are_refused_before_any_is_read(world: Told, given: JsonValue, field: str) -> None:
    reply = world.ask("PUT", "/lorebooks/coast", given)
    assert (reply.status_code, reply.json()["detail"]) == (413, f"{field}: more than 5000 entries")


def test_a_mistyped_world_is_told_the_nearest_one(world: Told) -> None:
    """Wherever a request names it: in the path, as a parent, in the parameters of tasks."""
    world.tell(ROPE).raise_for_status()
    other = Told(world.url, f"{world.name}x")
    replies = [
        other.ask("GET"),
        *(other.ask("GET", path) for path in ("/events", "/events?q=x", "/lorebooks")),
        other.context("Well?"),
        other.ask("PUT", "/events/rope", ROPE),
        other.ask("DELETE", "/lorebooks/reeds"),
        Told(world.url, f"{world.name}-loaded").ask("PUT", "", {"parent": other.name}),
        hand_out(other),
    ]
    near = f"; did you mean {world.name!r}?"
    found = [(reply.status_code, near in reply.json()["detail"]) for reply in replies]
    assert found == [(404, True)] * 8 + [(422, True)]


LORE = "The road is drowned."
ENTRY: Document = {"keys": ["milestone"], "content": LORE, "extensions": {}, "enabled": True, "insertion_order": 3}


@pytest.mark.parametrize(
    ("book", "source"),
    [
        ({"entries": [{"id": "road", "keys": ["milestone"], "content": LORE}]}, None),
        (
            {"spec": "lorebook_v3", "data": {"extensions": {}, "entries": [ENTRY | {"use_regex": False}]}},
            "lorebook V3",
        ),
        ({"name": "W", "data": [{"key": "milestone", "insertorder": 1, "content": LORE}]}, "RisuAI lorebook"),
        ({"entries": [{"keys": ["milestone"], "content": LORE, "disable": False}]}, "lorebook V2"),
    ],
)
def test_lore_of_any_form_comes_up_when_it_is_spoken_of_and_says_why(
    world: Told, book: Document, source: str | None
) -> None:
    told = world.ask("PUT", "/lorebooks/coast", book).raise_for_status().json()
    spoken, silent = (world.context(said).json()["passages"] for said in ("That old milestone?", "Nice salt."))
    (lore,) = world.explained(character="hob_tarrant", q="That old milestone?").lore
    assert (told["entries"], told["read_as"] and told["read_as"]["source"]) == (1, source)
    assert [(one["source"], one["text"]) for one in spoken] == [("lorebook/coast", LORE)]
    assert (silent, lore.lorebook, "milestone" in lore.because, lore.told) == ([], "coast", True, True)


def test_what_would_be_told_is_explained(world: Told) -> None:
    world.tell(ROPE, TAX, BRIDGE, SPLICED).raise_for_status()
    asked = [
        world.explained(character="hob_tarrant", as_of=NOON, q=ASKS),
        world.explained(character="hob_tarrant", q=ASKS),
        world.explained(character="ottoline_vesk", as_of=NOON, q=ASKS),
        world.explained(as_of=NOON, q=ASKS),
    ]
    assert [{(one.event.id, one.reason, one.by) for one in explained.hidden} for explained in asked] == [
        {("bridge", "not_visible", None), ("spliced", "future", None)},
        {("bridge", "not_visible", None), ("rope", "superseded", "spliced")},
        {("spliced", "future", None)},
        {("bridge", "not_visible", None), ("spliced", "future", None)},
    ]
    told = [{one.event.id for one in explained.events if one.told} for explained in asked]
    assert told == [{"rope", "tax"}, {"spliced", "tax"}, {"rope", "tax", "bridge"}, {"rope", "tax"}]
    assert [{passage.id for passage in explained.context.passages} for explained in asked] == told


def test_what_is_explained_is_what_the_prompt_has_chance_included_and_asking_stores_nothing(world: Told) -> None:
    world.tell(ROPE, TAX).raise_for_status()
    entries: list[JsonValue] = [
        {"id": f"lore{number}", "keys": ["ferry"], "content": f"Lore {number}.", "probability": 0.5}
        for number in range(16)
    ]
    world.ask("PUT", "/lorebooks/coast", {"entries": entries}).raise_for_status()
    before = [world.ask("GET", path).json() for path in ("", "/events")]
    explained = [passage.id for passage in world.explained(character="hob_tarrant", q=f" {ASKS}").context.passages]
    prompted = [passage["id"] for passage in world.context(ASKS).raise_for_status().json()["passages"]]
    assert (explained, 2 < len(prompted) < 18) == (prompted, True)
    assert [world.ask("GET", path).json() for path in ("", "/events")] == before


def test_a_game_gets_the_prompt_of_a_task_and_nothing_that_its_character_cannot_know(world: Told) -> None:
    """Of the task whose scene is set by nothing but the player's line."""
    world.tell(ROPE, TAX, BRIDGE, SPLICED).raise_for_status()
    staging: Document = {"as_of": NOON, "player_name": "Maren", "reply_words": 30}
    params: Document = {"world": world.name, **staging}
    asked = hand_out(world, cursor=0, params=params, select={"scene": ["hob_tarrant-ladys_ferry"]})
    (task,) = asked.raise_for_status().json()["tasks"]
    stored = httpx.get(f"{world.url}/tasks/{task['task_id']}").raise_for_status().json()
    context = world.context(task["messages"][-1]["content"], **staging).raise_for_status().json()
    assert (context["messages"], context["passages"]) == (task["messages"], stored["passages"])
    assert {passage["id"] for passage in context["passages"]} == {"rope", "tax"}
    assert [text in str(context) for text in ("Margravine ordered", "toll bridge", "spliced")] == [False] * 3


def test_an_event_can_be_what_is_answered(world: Told) -> None:
    world.tell(ROPE).raise_for_status()
    said: list[JsonValue] = [{"role": "user", "content": "Two, please."}, {"role": "assistant", "content": "Get in."}]
    body: Document = {"character": "hob_tarrant", "conversation": said, "event": "The new rope snaps."}
    messages = world.ask("POST", "/context", body).raise_for_status().json()["messages"]
    assert (messages[1:3], "The new rope snaps." in messages[3]["content"], len(messages)) == (said, True, 4)


def test_every_example_of_the_document_works(url: str) -> None:
    """In an order in which each finds what it names."""
    paths = httpx.get(f"{url}/openapi.json", timeout=60).raise_for_status().json()["paths"]
    shown = [(method.upper(), path) for path in paths if path.startswith("/worlds") for method in paths[path]]
    methods = ("POST", "PUT", "PATCH", "GET", "DELETE")
    shown.sort(key=lambda one: (methods.index(one[0]), one[1].endswith("/context"), -len(one[1])))
    # What was deleted has earlier texts. A world that is closed takes nothing more.
    shown.sort(key=lambda one: ("earlier" in one[1]) + 2 * (one == ("DELETE", "/worlds/{world}")))
    statuses = {one: show(url, *one, paths[one[1]][one[0].lower()]) for one in shown}
    others = {one: status for one, status in statuses.items() if status != 200}
    # Without a key nobody is an admin.
    assert (len(shown), others) == (21, {("POST", "/worlds/{world}/reopen"): 403})


def show(url: str, method: str, path: str, operation: dict[str, Any]) -> int:
    """The status of what Swagger UI sends when one only presses Execute."""
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", str(parameter["schema"]["examples"][0]))
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    bodies = [example["value"] for example in content.get("examples", {}).values()]
    return httpx.request(method, f"{url}{path}", json=bodies[0] if bodies else None, timeout=120).status_code
