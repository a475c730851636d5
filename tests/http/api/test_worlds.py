"""Worlds over HTTP: told, listed, taken back and branched; on both databases."""

from typing import Any

import httpx
import pytest

from app.domain.worlds import Event, World
from tests.support.sample_worlds import ASKS, BRIDGE, NOON, ROPE, SPLICED, TAX, Document, Told, fields_of

pytestmark = pytest.mark.xdist_group("worlds")


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
    assert f"PUT it to /worlds/{world.name}/events/rope" in other.json()["detail"]
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


def test_a_correction_is_what_is_told_from_then_on(world: Told) -> None:
    world.tell(ROPE, TAX).raise_for_status()
    before = world.context(ASKS, as_of=NOON).json()
    frayed = {**ROPE, "text": "The rope of the ferry frayed."}
    replies = [world.ask("PUT", "/events/rope", frayed) for _ in range(2)]
    after = world.context(ASKS, as_of=NOON).json()
    wrong = world.ask("PUT", "/events/tax", frayed)
    assert [reply.json() for reply in replies] == [{"corrected": "rope", "revision": 2}] * 2
    assert [
        [(passage["id"], passage["text"]) for passage in context["passages"] if passage["id"] == "rope"]
        for context in (before, after)
    ] == [[("rope", ROPE["text"])], [("rope", frayed["text"])]]
    assert fields_of(wrong) == (422, ["body.id"])


def test_a_correction_needs_an_event_and_a_world(world: Told) -> None:
    world.tell(ROPE).raise_for_status()
    replies = [one.ask("PUT", "/events/tax", TAX) for one in (world, Told(world.url, "nowhere"))]
    assert ([reply.status_code for reply in replies], world.ids()) == ([404, 404], ["rope"])


def test_a_mistyped_world_is_told_the_nearest_one(world: Told) -> None:
    """Wherever a request names it: in the path, as a parent, in the parameters of tasks."""
    world.tell(ROPE).raise_for_status()
    other = Told(world.url, f"{world.name}x")
    batch = {"batch_size": 1, "params": {"world": other.name}}
    replies = [
        other.ask("GET"),
        other.ask("PUT", "/events/rope", ROPE),
        other.ask("DELETE", "/events/rope"),
        other.ask("DELETE", "/lorebooks/reeds"),
        Told(world.url, f"{world.name}-loaded").ask("PUT", "", {"parent": other.name}),
        httpx.post(f"{world.url}/envs/npc_arena/next-batch", json=batch, timeout=60),
    ]
    near = f"; did you mean {world.name!r}?"
    assert [(reply.status_code, near in reply.json()["detail"]) for reply in replies] == [(404, True)] * 5 + [
        (422, True)
    ]


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


def test_a_closed_world_is_used_by_nothing(world: Told) -> None:
    world.tell(ROPE).raise_for_status()
    loaded = world.branch(f"{world.name}-loaded", NOON)
    made = hand_out(world).raise_for_status().json()["tasks"][0]
    closed = [world.ask("DELETE").json() for _ in range(2)]
    refused = [
        world.tell(TAX),
        world.ask("PUT", "/events/rope", ROPE),
        world.ask("DELETE", "/events/rope"),
        world.ask("PUT", "/lorebooks/coast", {}),
        Told(world.url, f"{world.name}-2").ask("PUT", "", {"parent": world.name, "at": NOON}),
        world.ask("GET", "/events", q="rope"),
        world.context(ASKS),
    ]
    scored = {"groups": [{"task_id": made["task_id"], "completions": [{"text": "Nay."}, {"text": "Aye."}]}]}
    score = httpx.post(f"{world.url}/envs/npc_arena/score", json=scored, timeout=120)
    assert (World.model_validate(closed[0]).closed_at is None, closed[1]) == (False, closed[0])
    assert [(reply.status_code, "is closed" in reply.json()["detail"]) for reply in refused] == [(409, True)] * 7
    assert fields_of(hand_out(world)) == (422, ["params.world"])
    assert (score.status_code, hand_out(loaded).status_code, world.ids()) == (200, 200, ["rope"])


def hand_out(world: Told) -> httpx.Response:
    body = {"batch_size": 1, "params": {"world": world.name}}
    return httpx.post(f"{world.url}/envs/npc_arena/next-batch", json=body, timeout=120)


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
    ("PUT", "/worlds/{world}/events/{event}"),
    ("GET", "/worlds/{world}/events/{event}/revisions"),
    ("GET", "/worlds/{world}/events/{event}/revisions/{revision}"),
    ("GET", "/worlds/{world}/lorebooks/{book}/revisions"),
    ("GET", "/worlds/{world}/lorebooks/{book}/revisions/{revision}"),
    ("DELETE", "/worlds/{world}/events/{event}"),
    ("DELETE", "/worlds/{world}/lorebooks/{book}"),
    ("DELETE", "/worlds/{world}"),
)


def test_every_example_of_the_document_works(worlds_url: str) -> None:
    paths = httpx.get(f"{worlds_url}/openapi.json", timeout=60).raise_for_status().json()["paths"]
    statuses = [shown(worlds_url, method, path, paths[path][method.lower()]) for method, path in SHOWN]
    assert {(method.upper(), path) for path in paths if path.startswith("/worlds") for method in paths[path]} == set(
        SHOWN
    )
    assert statuses == [200] * len(SHOWN)


def shown(url: str, method: str, path: str, operation: dict[str, Any]) -> int:
    """The status of what Swagger UI sends when one only presses Execute."""
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", str(parameter["schema"]["examples"][0]))
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    bodies = [example["value"] for example in content.get("examples", {}).values()]
    return httpx.request(method, f"{url}{path}", json=bodies[0] if bodies else None, timeout=120).status_code


def test_texts_come_back_as_they_were_told(world: Told) -> None:
    texts = [
        "nul \x00 and bell \x07",
        "船が夜明けに港を出た。",
        "a\u2028b\U0001f6f6",
        "'; DROP TABLE events; --",
        "%_\\",
    ]
    events: list[Document] = [{**ROPE, "id": f"e{place}", "text": text} for place, text in enumerate(texts)]
    world.tell(*events).raise_for_status()
    listed = world.ask("GET", "/events").raise_for_status().json()["events"]
    answers = [world.ask("GET", "/events", q=text).status_code for text in texts]
    assert ([event["text"] for event in reversed(listed)], answers) == (texts, [200] * len(texts))


def test_the_first_and_the_last_moment_are_moments(world: Told) -> None:
    first, last = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"
    world.tell({**ROPE, "time": first}, {**TAX, "time": last}).raise_for_status()
    one = world.ask("GET", "/events", limit="1").json()
    two = world.ask("GET", "/events", limit="1", before=one["next_before"]).json()
    told = [[one.event.id for one in world.explained(q="ferry", as_of=moment).events] for moment in (first, last)]
    branched = [world.branch(f"{world.name}-{place}", moment).ids() for place, moment in enumerate((first, last))]
    assert [one["events"][0]["time"], two["events"][0]["time"]] == [last, first]
    assert [sorted(ids) for ids in told] == [["rope"], ["rope", "tax"]]
    assert branched == [["rope"], ["tax", "rope"]]
