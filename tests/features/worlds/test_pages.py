"""Pages of worlds and of what was retrieved, over the whole service."""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from app.envs.npc_arena.environment import NpcArena
from app.main.application import create_app
from app.settings import Settings
from tests.support.outline import page
from tests.support.playground import serve_here
from tests.support.tables import read_table

TABLE = read_table(__file__, "pages.yaml", tuple[tuple[str, int, str], ...])

SHOWN = read_table(__file__, "shown_world.yaml", dict[str, Any])
EVENTS: list[dict[str, Any]] = SHOWN["events"]
WHY = "/view/worlds/coast/why?character=hob_tarrant&as_of=1312-04-03T12:00&q=Is+the+ferry+running%3F"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    database = tmp_path_factory.mktemp("pages") / "store.db"
    with serve_here(Settings(database_url=f"sqlite:///{database}"), NpcArena) as client:
        client.post("/worlds/coast/events", json={"events": EVENTS}).raise_for_status()
        client.put("/worlds/coast/lorebooks/coast", json=SHOWN["book"]).raise_for_status()
        at = "1312-04-03T10:00:00Z"
        client.put("/worlds/loaded", json={"parent": "coast", "at": at}).raise_for_status()
        yield client


@pytest.mark.parametrize("told", SHOWN["pages"].values(), ids=SHOWN["pages"])
def test_pages_say_what_is_there_in_its_order(client: TestClient, told: dict[str, Any]) -> None:
    said = told["said"]
    words, places = page(client.get(told["path"])).words(), [0]
    for one in said:
        places.append(words.find(one, places[-1]))
    found = dict(zip(said, places[1:], strict=True)), [one for one in told.get("unsaid", ()) if one in words]
    assert found == ({one: place for one, place in zip(said, places[1:], strict=True) if place >= 0}, [])


def test_older_events_are_on_the_pages_that_follow(client: TestClient) -> None:
    events = [{**EVENTS[1], "id": f"e{number:03}"} for number in range(120)]
    client.post("/worlds/long/events", json={"events": events}).raise_for_status()
    paths = ["/view/worlds/long"]
    sizes = []
    while paths:
        outline = page(client.get(paths.pop()))
        sizes.append(outline.elements.count("li"))
        paths += [link for link in outline.links() if "before=" in link]
    assert sizes == [50, 50, 20]


def test_the_prompt_is_the_one_that_a_game_would_get(client: TestClient) -> None:
    said = [{"role": "user", "content": "Is the ferry running?"}]
    body = {"character": "hob_tarrant", "conversation": said, "as_of": "1312-04-03T12:00:00Z"}
    context = client.post("/worlds/coast/context", json=body).raise_for_status().json()
    shown = re.findall(r"<pre [^>]*>\n(.*?)</pre>", client.get(WHY).text.split('id="prompt"')[1], re.DOTALL)
    assert html.unescape("".join(shown)) == "".join(message["content"] for message in context["messages"])


@pytest.mark.parametrize(("path", "status", "said"), TABLE)
def test_what_makes_no_sense_is_a_page_too(client: TestClient, path: str, status: int, said: str) -> None:
    assert said in page(client.get(path), status).words()


def test_a_line_that_nobody_changed_is_sent_as_it_came(client: TestClient) -> None:
    once = client.get(f"{WHY}\u202e%00")
    again = client.get(WHY.partition("?")[0], params=httpx.QueryParams(tuple(page(once).inputs)))
    assert ("was.q" in str(again.url), again.text) == (True, once.text)
    assert again.url.params["was.q"] == "Is the ferry running?\u202e\x00"


def test_an_empty_store_says_how_to_begin(tmp_path: Path) -> None:
    app = create_app(Settings(database_url=f"sqlite:///{tmp_path / 'store.db'}"), environments={})
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        words = page(client.get("/view/worlds")).words()
    assert (
        "No world yet: a world begins with its first event." in words,
        "http://127.0.0.1:8000/worlds/my_game/events" in words,
    ) == (True, True)


def test_a_group_shows_what_was_retrieved_and_what_was_held_back(client: TestClient) -> None:
    asked = {
        "cursor": 0,
        "batch_size": 1,
        "params": {"world": "coast", "as_of": "1312-04-03T12:00:00Z"},
        "select": {"scene": ["hob_tarrant-ladys_ferry"]},
    }
    (task,) = client.post("/envs/npc_arena/next-batch", json=asked).raise_for_status().json()["tasks"]
    scored = {"groups": [{"task_id": task["task_id"], "completions": [{"text": "Two coppers."}]}]}
    (group,) = client.post("/envs/npc_arena/score", json=scored).raise_for_status().json()["groups"]
    stored = client.get(f"/tasks/{task['task_id']}").raise_for_status().json()
    words = page(client.get(f"/view/groups/{group['group_id']}")).words()
    texts = [passage["text"] for passage in stored["passages"]]
    assert len(texts) == 2
    shown = words[words.index("Retrieved: 2 passages as of 1312-04-03 12:00:00") : words.index("Task id and metadata")]
    assert [text in shown for text in texts] == [True, True]
    assert "not visible to the character bridge · leak terms: toll bridge" in shown
