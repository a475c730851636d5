"""What a world tells of itself: why something would be told, the prompt of a moment, and the tasks of a run."""

import httpx
import pytest
from pydantic import JsonValue

from tests.support.sample_worlds import ASKS, BRIDGE, NOON, ROPE, SPLICED, TAX, Document, Told, fields_of

pytestmark = pytest.mark.xdist_group("worlds")


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


def test_what_is_explained_is_what_the_prompt_has_chance_included(world: Told) -> None:
    world.tell(ROPE, TAX).raise_for_status()
    entries: list[JsonValue] = [
        {"id": f"lore{number}", "keys": ["ferry"], "content": f"Lore {number}.", "probability": 0.5}
        for number in range(16)
    ]
    world.ask("PUT", "/lorebooks/coast", {"entries": entries}).raise_for_status()
    explained = [passage.id for passage in world.explained(character="hob_tarrant", q=f" {ASKS}").context.passages]
    prompted = [passage["id"] for passage in world.context(ASKS).raise_for_status().json()["passages"]]
    assert (explained, 2 < len(prompted) < 18) == (prompted, True)


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
    reply = httpx.post(f"{url}/envs/npc_arena/next-batch", json=asked, timeout=120).raise_for_status().json()
    (task,) = reply["tasks"]
    prompt: str = task["messages"][0]["content"]
    return prompt


def test_a_game_gets_the_prompt_of_a_task(world: Told) -> None:
    """The one whose scene is set by nothing but the player's line."""
    world.tell(ROPE, TAX, BRIDGE).raise_for_status()
    params: Document = {"world": world.name, "as_of": NOON, "player_name": "Maren", "reply_words": 30}
    asked: Document = {"cursor": 0, "batch_size": 1, "params": params, "select": {"scene": ["hob_tarrant-ladys_ferry"]}}
    reply = httpx.post(f"{world.url}/envs/npc_arena/next-batch", json=asked, timeout=120).raise_for_status().json()
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
