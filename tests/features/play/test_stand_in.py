"""Talking without a policy: what the stand-in says, that nothing is made of it, and servers that could be named."""

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from app.characters.loading import read_sheet
from app.characters.schema import CharacterSheet, VoiceExample
from app.domain.access import AccessScope, Caller
from app.domain.errors import Conflict
from app.domain.tasks import Passage
from app.envs.npc_arena.environment import NpcArena
from app.features.play.pages import may_know_machine
from app.features.play.stand_in import STAND_IN, FoundServer, LocalServers, write_reply
from app.features.worlds.service import ConversationTurn, Moment
from app.main.application import create_app
from app.settings import PlaySettings, PolicySettings, Settings
from app.toolkit.templates import find_packaged_folder
from tests.support.chat_server import serving
from tests.support.outline import page
from tests.support.playground import serve_here
from tests.support.tables import read_table
from tests.support.talking import build_tavern_body, speaks

HOB = find_packaged_folder("character_sheets") / "hob_tarrant.yaml"
FERRY, PRICE = (
    VoiceExample(player="Is the ferry running?", reply="Nay."),
    VoiceExample(player="How much?", reply="Two."),
)
EVENT = {"id": "rope", "time": "1312-04-03T09:15:00Z", "text": "The rope of the ferry broke."}


def passage(text: str, hour: int | None, kind: str = "event") -> Passage:
    time = None if hour is None else datetime(1312, 4, 3, hour, tzinfo=UTC)
    return Passage.model_validate({"id": text, "text": text, "source": "events", "time": time, "kind": kind})


NEWS = (passage("Rain.", 8), passage("The rope broke.", 9), passage("Old lore.", None, "lore"))


def build_sheet(*examples: VoiceExample, greeting: str | None = None) -> CharacterSheet:
    sheet = read_sheet(HOB)
    return sheet.model_copy(
        update={
            "voice": sheet.voice.model_copy(update={"examples": examples}),
            "scenario": sheet.scenario.model_copy(update={"greeting": greeting}),
        }
    )


def build_moment(*said: str) -> Moment:
    lines = [ConversationTurn(role=("user", "assistant")[number % 2], content=text) for number, text in enumerate(said)]
    return Moment(character="hob", conversation=tuple(lines))


@pytest.mark.parametrize(
    ("sheet", "said", "passages", "reply"),
    [
        (build_sheet(PRICE, FERRY), ["Does the ferry run?"], NEWS, "Nay. The rope broke. (stand-in)"),
        (
            build_sheet(PRICE, FERRY),
            ["The ferry?", "Nay. The rope broke. (stand-in)", "The ferry!"],
            NEWS,
            "Two. (stand-in)",
        ),
        (build_sheet(PRICE), ["How much?", "Two.", "How much?"], (), "Two. (stand-in)"),
        (build_sheet(greeting="Get in."), ["Hob?"], (), "Get in. (stand-in)"),
        (build_sheet(), ["Hob?"], NEWS, "The rope broke. (stand-in)"),
    ],
    ids=["nearest", "not twice", "used up", "greeting", "news alone"],
)
def test_the_stand_in_says_an_example_and_the_newest_event(
    sheet: CharacterSheet, said: list[str], passages: tuple[Passage, ...], reply: str
) -> None:
    assert write_reply(sheet, build_moment(*said), passages) == reply


def test_a_sheet_without_words_is_no_voice() -> None:
    with pytest.raises(Conflict, match=r"the sheet of Hob Tarrant has no example .* `voice.examples`"):
        write_reply(build_sheet(), build_moment("Hob?"), ())


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Of a service without policies, which needs keys."""
    folder = tmp_path_factory.mktemp("stand-in")
    (folder / "sheets").mkdir()
    for sheet in (HOB, HOB.with_name("agathe_moreau.yaml")):
        shutil.copy(sheet, folder / "sheets")
    settings = Settings(
        database_url=f"sqlite:///{folder}/store.db", character_sheets=folder / "sheets", api_key=SecretStr("admin")
    )
    with serve_here(settings, NpcArena) as client:
        client.headers["Authorization"] = "Bearer admin"
        client.post("/worlds/drowned_coast/events", json={"events": [EVENT]}).raise_for_status()
        yield client


def test_a_service_without_policies_answers_and_stores_nothing(client: TestClient) -> None:
    asked = build_tavern_body("hob_tarrant/drowned_coast", ("user", "Is it safe out there today?"), stream=False)
    answer = client.post("/play/v1/chat/completions", json=asked).json()
    told = answer["play"]
    streamed = client.post("/play/v1/chat/completions", json={**asked, "stream": True}).text
    helper = client.post("/play/v1/chat/completions", json={**asked, "play": {"kind": "raw"}})
    text = "Nay. *He tests the rope.* Safer than yesterday. The rope of the ferry broke. (stand-in)"
    assert (answer["choices"][0]["message"]["content"], json.dumps(text)[1:-1] in streamed) == (text, True)
    assert (told["policy"], told["turn"], told["not_kept"]) == (STAND_IN, None, "turns of the stand-in are not stored")
    assert (helper.status_code, "name a policy" in helper.json()["error"]["message"]) == (422, True)
    models = [one["id"] for one in client.get("/play/v1/models").json()["data"]]
    assert models[:2] == ["agathe_moreau@stand-in", "hob_tarrant@stand-in"]
    assert client.delete("/play/v1/turns").json() == {"removed": 0}


def test_clients_and_the_page_are_told_that_an_ai_answers_where_the_settings_say_so(
    client: TestClient, tmp_path: Path
) -> None:
    notice = "Played by an <AI>."
    sheets = shutil.copytree(HOB.parent, tmp_path / "sheets", ignore=lambda _, names: {*names} - {HOB.name})
    settings = Settings(
        database_url=f"sqlite:///{tmp_path}/store.db",
        character_sheets=sheets,
        play=PlaySettings(ai=True, notice=notice),
    )
    asked = build_tavern_body("hob_tarrant", ("user", "Is it safe out there today?"), stream=False)
    with serve_here(settings, NpcArena) as telling:
        told = [_list_told(one, asked) for one in (telling, client)]
        shown = [page(one.get("/view/talk")).words().count(notice) for one in (telling, client)]
    everywhere = {"ai": True, "notice": notice}
    assert (told, shown) == ([[{"ai": True}, *[everywhere] * 3], [{}] * 4], [1, 0])


def _list_told(client: TestClient, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """What a model, a whole reply, and the first event of a stream say of an AI; no other event says it."""
    models = client.get("/play/v1/models").json()
    reply = client.post("/play/v1/chat/completions", json=asked).json()
    stream = client.post("/play/v1/chat/completions", json={**asked, "stream": True}).text
    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
    found = [
        {name: one[name] for name in ("ai", "notice") if name in one} for one in (models["data"][0], reply, *events)
    ]
    assert not any(found[3:])
    notice = {"notice": models["notice"]} if "notice" in models else {}
    return [*found[:3], {**found[0], **notice}]


def test_the_page_names_the_stand_in_and_judges_what_is_not_stored(client: TestClient) -> None:
    begun = client.get("/view/talk?character=hob_tarrant")
    player = client.post("/admin/keys", json={"name": "player", "scopes": ["talk"]}).json()["secret"]
    seen = page(client.get("/view/talk", headers={"Authorization": f"Bearer {player}"})).words()
    form = {"character": "hob_tarrant", "world": "drowned_coast", "policy": STAND_IN}
    said = page(client.post("/view/talk/say", data={**form, "line": "Is it safe?", "store": "true"}))
    hidden = {name: value for name, value in said.inputs if name in {"conversation", "replies"}}
    judged = page(client.post("/view/talk/author/judge", data={**form, **hidden, "go_on": "Aye."})).words()
    refused = page(client.post("/view/talk/author/judge", data={**form, "replies": "[{}]"}), 422).words()
    assert "<option selected>drowned_coast</option>" in begun.text
    assert ("policies: my-model:" in page(begun).words(), "policies: my-model:" in seen) == (True, False)
    assert (
        "No model to talk to yet: the stand-in answers." in seen,
        "answers from the sheet's examples, no model" in said.words(),
    ) == (
        True,
        True,
    )
    assert "offline judge: counts words, for trying things only" in judged
    assert "replies.0.reply_id: missing" in refused


def test_the_stand_ins_name_is_taken() -> None:
    policies = {STAND_IN: PolicySettings(base_url="http://127.0.0.1:9/v1", model="m")}
    with pytest.raises(ValueError, match=r"policies\.stand-in: the name of the built-in stand-in"):
        create_app(Settings(policies=policies), environments={NpcArena.name: NpcArena})


def find(*ports: int, own: tuple[int, ...] = ()) -> Any:
    return asyncio.run(LocalServers([("LM Studio", port) for port in ports], own).find())


def test_a_server_on_this_machine_is_offered_by_name() -> None:
    with serving(speaks(), models=["qwen: 1", "x" * 201]) as server, serving(speaks()) as other:
        (found,) = find(server.server_address[1], other.server_address[1], 9)
        own = find(server.server_address[1], own=(server.server_address[1],))
    assert (found, own) == (FoundServer("LM Studio", server.url, ("qwen: 1",)), ())
    assert found.block == f"policies:\n  lm-studio:\n    base_url: {server.url}\n    model: 'qwen: 1'\n"


@pytest.mark.parametrize(
    "reply",
    [None, b"", b"HTTP/1.1 200 OK\r\n\r\n<html>", b"x" * 1_000_000],
    ids=["silence", "nothing", "a page", "much"],
)
async def test_what_is_no_list_of_models_is_not_offered(reply: bytes | None) -> None:
    """Nor is one that says nothing for long."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if reply is None:
            await reader.read()
        else:
            writer.write(reply)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        assert await LocalServers([("Ollama", server.sockets[0].getsockname()[1])], ()).find() == ()


async def test_a_look_is_remembered_for_some_seconds() -> None:
    now, looks = [0.0], 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal looks
        looks += 1
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        servers = LocalServers([("Ollama", server.sockets[0].getsockname()[1])], (), lambda: now[0])
        told = []
        for now[0] in (0.0, 9.0, 10.5, 30.0):
            await servers.find()
            told.append(looks)
        assert told == [1, 1, 2, 3]


@pytest.mark.parametrize(
    ("scopes", "peer", "knows"),
    read_table(__file__, "machine_told.yaml", list[tuple[set[AccessScope] | None, str, bool]]),
)
def test_only_who_runs_the_service_is_told_what_else_runs_on_the_machine(
    scopes: set[AccessScope] | None, peer: str, knows: bool
) -> None:
    caller = None if scopes is None else Caller("ada", frozenset(scopes))
    assert may_know_machine(caller, peer) == knows


@pytest.mark.parametrize(
    ("query", "chosen"),
    read_table(__file__, "met_in_worlds.yaml", list[tuple[str, list[str]]]),
)
def test_a_character_is_met_in_a_world_whose_events_name_it(client: TestClient, query: str, chosen: list[str]) -> None:
    """Where there is the world of its sheet, that one is chosen: this key does not see it."""
    client.post("/worlds/reedgate/events", json={"events": [EVENT]}).raise_for_status()
    client.put("/worlds/reedgate-2", json={"parent": "reedgate"}).raise_for_status()
    key = {"name": f"visitor{len(query)}", "scopes": ["talk"], "bounds": {"worlds": ["reedgate*"]}}
    visitor = client.post("/admin/keys", json=key).json()["secret"]
    seen = client.get(f"/view/talk{query}", headers={"Authorization": f"Bearer {visitor}"}).text
    assert re.findall("<option[^>]* selected>([^<]*)<", seen) == chosen
