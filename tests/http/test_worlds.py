"""Worlds over HTTP: told, asked about, branched, and met again in tasks and prompts; on both databases."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from pydantic import JsonValue, TypeAdapter

from app.domain.worlds import Event, Explained, World
from tests.databases import Postgres
from tests.serving import serving

JSON = TypeAdapter[JsonValue](JsonValue)
Document = dict[str, JsonValue]

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
        return httpx.request(method, address, content=content, headers=headers, params=query, timeout=30)

    def tell(self, *events: JsonValue) -> httpx.Response:
        return self.ask("POST", "/events", {"events": list(events)})

    def ids(self) -> list[str]:
        return [event["id"] for event in self.ask("GET", "/events").raise_for_status().json()["events"]]

    def branch(self, name: str, at: str) -> "Told":
        other = Told(self.url, name)
        other.ask("PUT", "", {"parent": self.name, "at": at}).raise_for_status()
        return other

    def explained(self, **query: str) -> Explained:
        return Explained.model_validate(self.ask("GET", "/events", **query).raise_for_status().json())

    def context(self, said: str, **more: JsonValue) -> httpx.Response:
        line: Document = {"role": "user", "content": said}
        body: Document = {"character": "hob_tarrant", "conversation": [line], **more}
        return self.ask("POST", "/context", body)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings: dict[str, str] = {}
    if request.param == "postgresql":
        postgres: Postgres = request.getfixturevalue("postgres")
        settings = {"ATROPOS_ENVS_DATABASE_URL": postgres.empty()}
    with serving(tmp_path_factory.mktemp("worlds"), settings=settings) as gateway:
        yield gateway.url


_numbers = itertools.count(1)


@pytest.fixture
def world(url: str) -> Told:
    """Nothing was told of it."""
    return Told(url, f"coast-{next(_numbers)}")


def fields_of(reply: httpx.Response) -> tuple[int, list[str]]:
    return reply.status_code, [error["field"] for error in reply.json()["errors"]]


def test_what_was_told_is_listed_by_its_own_time(world: Told) -> None:
    told = [world.tell(SPLICED, ROPE).json(), world.tell(TAX).json()]
    listed = world.ask("GET", "/events").json()
    events = [Event.model_validate(event) for event in listed["events"]]
    assert told == [{"new": 2, "known": 0}, {"new": 1, "known": 0}]
    assert (events, listed["next_before"]) == ([Event.model_validate(one) for one in (SPLICED, TAX, ROPE)], None)


def test_pages_hold_every_event_once(world: Told) -> None:
    world.tell(*({**ROPE, "id": f"e{number:02}"} for number in range(25))).raise_for_status()
    pages: list[list[str]] = []
    before: dict[str, str] = {}
    while len(pages) < 5:
        page = world.ask("GET", "/events", limit="10", **before).raise_for_status().json()
        pages.append([event["id"] for event in page["events"]])
        if page["next_before"] is None:
            break
        before = {"before": page["next_before"]}
    assert pages == [[f"e{n:02}" for n in range(last, first, -1)] for last, first in ((24, 14), (14, 4), (4, -1))]


def test_the_same_again_is_known_and_another_content_is_refused_whole(world: Told) -> None:
    world.tell(ROPE, TAX).raise_for_status()
    again = world.tell(ROPE, SPLICED, {**TAX, "time": "1312-04-03T12:30:00+02:00"})
    other = world.tell(BRIDGE, {**ROPE, "importance": 8})
    assert (again.status_code, again.json()) == (200, {"new": 1, "known": 2})
    assert (fields_of(other), other.json()["code"]) == ((409, ["events[1].id"]), "conflict")
    assert world.ids() == ["spliced", "tax", "rope"]


@pytest.mark.parametrize(
    ("wrong", "field", "message"),
    [
        ({"time": "1312-04-03T09:15:00"}, "time", "time zone"),
        ({"time": 1_900_000_000}, "time", "ISO 8601"),
        ({"id": "a rope"}, "id", "match pattern"),
        ({"text": ""}, "text", "at least 1 character"),
        ({"importance": 11}, "importance", "less than or equal to 10"),
        ({"importance": True}, "importance", "valid integer"),
        ({"visibility": "everybody"}, "visibility", "'public'"),
        ({"visibility": [""]}, "visibility", "at least 1 character"),
        ({"colour": "red"}, "colour", "not permitted"),
        ({"valid_to": "9999-12-31T23:59:59-10:00"}, "valid_to", "years 1 to 9999"),
    ],
)
def test_one_wrong_event_refuses_all_and_is_named(world: Told, wrong: Document, field: str, message: str) -> None:
    reply = world.tell(TAX, ROPE | wrong)
    problem = reply.json()
    assert (reply.status_code, problem["errors"][0]["field"].startswith(f"body.events[1].{field}")) == (422, True)
    assert message in " ".join(error["message"] for error in problem["errors"])
    assert world.ask("GET").status_code == 404


@pytest.mark.parametrize("count", [0, 1001])
def test_a_request_holds_1_to_1000_events(world: Told, count: int) -> None:
    reply = world.tell(*({**ROPE, "id": f"e{number}"} for number in range(count)))
    assert fields_of(reply) == (422, ["body.events"])


def test_an_event_that_was_taken_back_never_happened(world: Told) -> None:
    world.tell(ROPE, TAX).raise_for_status()
    taken = [world.ask("DELETE", "/events/tax") for _ in range(2)]
    never = [world.ask("DELETE", "/events/never"), Told(world.url, "nowhere").ask("DELETE", "/events/tax")]
    world.tell(TAX).raise_for_status()
    assert [(reply.status_code, reply.json()) for reply in taken] == [(200, {"withdrawn": "tax"})] * 2
    assert ([reply.status_code for reply in never], world.ids()) == ([404, 404], ["rope"])


def test_a_branch_shares_the_past_and_nothing_else(world: Told) -> None:
    world.tell(ROPE, TAX, BRIDGE).raise_for_status()
    loaded = world.branch(f"{world.name}-loaded", "1312-04-03T10:30:00Z")
    loaded.tell(SPLICED).raise_for_status()
    world.tell({**SPLICED, "id": "late"}).raise_for_status()
    one = World.model_validate(loaded.ask("GET").json())
    assert (world.ids(), loaded.ids()) == (["late", "bridge", "tax", "rope"], ["spliced", "tax", "rope"])
    assert (one.parent, one.events, one.newest) == (world.name, 1, Event.model_validate(SPLICED).time)


def test_a_branch_is_the_same_again_or_refused(world: Told) -> None:
    world.tell(ROPE).raise_for_status()
    name = f"{world.name}-loaded"
    loaded = world.branch(name, NOON)
    again = loaded.ask("PUT", "", {"parent": world.name, "at": "1312-04-03T14:00:00+02:00"})
    later = loaded.ask("PUT", "", {"parent": world.name, "at": "1312-04-03T13:00:00Z"})
    orphan = Told(world.url, f"{name}-2").ask("PUT", "", {"parent": "nowhere", "at": NOON})
    naive = Told(world.url, f"{name}-3").ask("PUT", "", {"parent": world.name, "at": "1312-04-03T13:00:00"})
    assert [reply.status_code for reply in (again, later, orphan)] == [200, 409, 404]
    assert fields_of(naive) == (422, ["body.at"])


def test_worlds_are_listed_by_name_in_pages(world: Told) -> None:
    world.tell(ROPE).raise_for_status()
    names = sorted(f"{world.name}-{letter}" for letter in "abc")
    for name in names:
        world.branch(name, NOON)
    pages: list[str] = []
    after: str | None = world.name
    while after is not None and after < f"{world.name}-c":
        page = httpx.get(f"{world.url}/worlds", params={"after": after, "limit": 2}).raise_for_status().json()
        pages += [one["name"] for one in page["worlds"]]
        after = page["next_after"]
    assert [name for name in pages if name.startswith(f"{world.name}-")] == names


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


def test_parts_of_a_score_are_shown(world: Told) -> None:
    world.tell(ROPE, TAX).raise_for_status()
    rope, tax = sorted(world.explained(q="Broke Reedgate?").events, key=lambda one: one.event.id)
    assert (rope.importance, rope.relevance, tax.recency) == (1, 1, 1)
    assert [one.score for one in (rope, tax)] == [one.recency + one.importance + one.relevance for one in (rope, tax)]
    assert ("text" in rope.ways, "text" in tax.ways) == (True, False)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"as_of": NOON}, "query.as_of"),
        ({"q": "x", "before": "1312-04-03T09:15:00Z,rope"}, "query.before"),
        ({"before": "rope"}, "query.before"),
        ({"before": "1312-04-03T09:15:00Z"}, "query.before"),
        ({"q": "x", "as_of": "1312-04-03T12:00:00"}, "query.as_of"),
        ({"character": "nobody"}, "query.character"),
        ({"character": "No Body"}, "query.character"),
        ({"limit": "0"}, "query.limit"),
        ({"Q": "x"}, "query.Q"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_by_field(world: Told, query: dict[str, str], field: str) -> None:
    world.tell(ROPE).raise_for_status()
    assert fields_of(world.ask("GET", "/events", **query)) == (422, [field])


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("GET", "/events", None),
        ("GET", "/events?q=x", None),
        ("GET", "/lorebooks", None),
        ("POST", "/context", {"character": "hob_tarrant", "conversation": [{"role": "user", "content": "Well?"}]}),
    ],
)
def test_a_world_of_which_nothing_was_told_is_not_there(world: Told, method: str, path: str, body: JsonValue) -> None:
    reply = world.ask(method, path, body)
    assert (reply.status_code, reply.json()["code"]) == (404, "not_found")


def test_the_very_next_batch_knows_what_was_told(world: Told) -> None:
    world.tell(ROPE).raise_for_status()
    asked: Document = {
        "run": world.name,
        "batch_size": 1,
        "params": {"world": world.name},
        "select": {"character": ["hob_tarrant"]},
    }
    before = batch(world.url, asked)
    world.tell(TAX, BRIDGE).raise_for_status()
    after = batch(world.url, asked)
    shown = [[str(one["text"]) in prompt for one in (ROPE, TAX, BRIDGE)] for prompt in (before, after)]
    assert shown == [[True, False, False], [True, True, False]]


def batch(url: str, asked: JsonValue) -> str:
    reply = httpx.post(f"{url}/envs/npc_arena/next-batch", json=asked, timeout=30).raise_for_status().json()
    (task,) = reply["tasks"]
    prompt: str = task["messages"][0]["content"]
    return prompt


def test_a_game_gets_the_prompt_of_a_task(world: Told) -> None:
    """The one whose scene is set by nothing but the player's line."""
    world.tell(ROPE, TAX, BRIDGE).raise_for_status()
    params: Document = {"world": world.name, "as_of": NOON, "player_name": "Maren", "reply_words": 30}
    asked: Document = {"cursor": 0, "batch_size": 1, "params": params, "select": {"scene": ["hob_tarrant-ladys_ferry"]}}
    reply = httpx.post(f"{world.url}/envs/npc_arena/next-batch", json=asked, timeout=30).raise_for_status().json()
    (task,) = reply["tasks"]
    stored = httpx.get(f"{world.url}/tasks/{task['task_id']}").raise_for_status().json()
    staging = {name: params[name] for name in ("as_of", "player_name", "reply_words")}
    context = world.context(task["messages"][-1]["content"], **staging).raise_for_status().json()
    assert (context["messages"], context["passages"]) == (task["messages"], stored["passages"])
    assert {passage["id"] for passage in context["passages"]} == {"rope", "tax"}


def test_a_game_is_not_told_what_its_character_cannot_know(world: Told) -> None:
    world.tell(ROPE, BRIDGE, SPLICED).raise_for_status()
    reply = world.context("Is there a bridge over the ferry's crossing?", as_of=NOON).raise_for_status().text
    assert [text in reply for text in ("Margravine ordered", "toll bridge", "spliced", "broke at Reedgate")] == [
        False,
        False,
        False,
        True,
    ]


def test_asking_stores_nothing(world: Told) -> None:
    world.tell(ROPE).raise_for_status()
    before = everything(world)
    world.context(ASKS).raise_for_status()
    world.explained(character="hob_tarrant", q=ASKS)
    assert everything(world) == before


def everything(world: Told) -> list[JsonValue]:
    paths = ("/runs", "/groups", "/stats", f"/worlds/{world.name}", f"/worlds/{world.name}/events")
    return [httpx.get(f"{world.url}{path}").raise_for_status().json() for path in paths]


def test_the_same_moment_gives_the_same_bytes(world: Told) -> None:
    world.tell(ROPE, TAX).raise_for_status()
    assert len({world.context(ASKS).raise_for_status().content for _ in range(3)}) == 1


def test_an_event_can_be_what_is_answered(world: Told) -> None:
    world.tell(ROPE).raise_for_status()
    said: list[JsonValue] = [{"role": "user", "content": "Two, please."}, {"role": "assistant", "content": "Get in."}]
    body: Document = {"character": "hob_tarrant", "conversation": said, "event": "The new rope snaps."}
    messages = world.ask("POST", "/context", body).raise_for_status().json()["messages"]
    assert (messages[1:3], "The new rope snaps." in messages[3]["content"], len(messages)) == (said, True, 4)


USER: Document = {"role": "user", "content": "Well?"}
NPC: Document = {"role": "assistant", "content": "Aye."}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"character": "nobody"}, "character"),
        ({"character": "No Body"}, "body.character"),
        ({"conversation": []}, "body"),
        ({"conversation": [USER, NPC]}, "body"),
        ({"conversation": [NPC, USER]}, "body"),
        ({"conversation": [USER], "event": "It rains."}, "body"),
        ({"conversation": [{"role": "system", "content": "x"}]}, "body.conversation[0].role"),
        ({"conversation": [{"role": "user", "content": " "}]}, "body.conversation[0].content"),
        ({"as_of": "1312-04-03T12:00:00"}, "body.as_of"),
        ({"reply_words": 5}, "body.reply_words"),
        ({"player_name": "M\n# Rules"}, "body.player_name"),
        ({"world": "elsewhere"}, "body.world"),
    ],
)
def test_a_moment_that_is_none_is_refused_by_field(world: Told, change: Document, field: str) -> None:
    world.tell(ROPE).raise_for_status()
    body: Document = {"character": "hob_tarrant", "conversation": [USER], **change}
    assert fields_of(world.ask("POST", "/context", body)) == (422, [field])


SHOWN = (
    ("POST", "/worlds/{world}/events"),
    ("PUT", "/worlds/{world}/lorebooks/{book}"),
    ("PUT", "/worlds/{world}"),
    ("POST", "/worlds/{world}/context"),
    ("GET", "/worlds"),
    ("GET", "/worlds/{world}"),
    ("GET", "/worlds/{world}/events"),
    ("GET", "/worlds/{world}/lorebooks"),
    ("GET", "/worlds/{world}/lorebooks/{book}"),
    ("DELETE", "/worlds/{world}/events/{event}"),
    ("DELETE", "/worlds/{world}/lorebooks/{book}"),
)


def test_every_example_of_the_document_works(url: str) -> None:
    paths = httpx.get(f"{url}/openapi.json").raise_for_status().json()["paths"]
    statuses = [shown(url, method, path, paths[path][method.lower()]) for method, path in SHOWN]
    assert {(method.upper(), path) for path in paths if path.startswith("/worlds") for method in paths[path]} == set(
        SHOWN
    )
    assert statuses == [200] * len(SHOWN)


def shown(url: str, method: str, path: str, operation: dict[str, Any]) -> int:
    """The status of what Swagger UI sends when one only presses Execute."""
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", parameter["schema"]["examples"][0])
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    bodies = [example["value"] for example in content.get("examples", {}).values()]
    return httpx.request(method, f"{url}{path}", json=bodies[0] if bodies else None, timeout=30).status_code
