"""Pages on which people write: forms, conflicts, and hostile texts that stay texts."""

import contextlib
import html
import sqlite3

import httpx
from pydantic import JsonValue

from tests.http.api.test_editions import NEW, OLD, Place
from tests.support.outline import Outline

EVIL = "</textarea></title><script>alert(1)</script>"
HOB = "/view/characters/hob_tarrant/edit"
BOOK = "/view/worlds/quay/lorebooks/coast/edit"
EVENT = "/view/worlds/quay/events/owl/edit"
REVISIONS = (
    *("events/owl/revisions?limit=1", "events/owl/revisions?before=2", "events/owl/revisions/1"),
    *("lorebooks/coast/revisions", "lorebooks/salt/revisions", "lorebooks/coast/revisions/3"),
    *("events/hen/revisions", "events/owl/revisions/3"),
)


async def send(there: Place, path: str, doing: str, text: str, stamp: object, **more: str) -> httpx.Response:
    fields = {"do": doing, "text": text.replace("\n", "\r\n"), "stamp": str(stamp), **more}
    return await there.client.post(path, data=fields, headers={"Sec-Fetch-Site": "same-origin"})


def is_harmless(reply: httpx.Response) -> bool:
    outline = Outline(reply.text)
    inline = [one for one in outline.attributes if one[1] == "style" or one[1].startswith("on")]
    return (outline.open, outline.elements.count("script"), inline) == ([], 2, [])


def read_inputs(reply: httpx.Response, *names: str) -> dict[str, str]:
    """What a browser sends of these fields where nobody changes them."""
    return {name: value for name, value in Outline(reply.text).inputs if name in names}


async def test_a_sheet_is_written_by_a_form(here: Place) -> None:
    text = (await here.client.get(f"{HOB}?format=json")).json()["text"]
    new = text.replace(OLD, NEW)
    checked = await send(here, HOB, "check", new, 0, note=f"{EVIL}\u202e", scene=EVIL)
    again = read_inputs(checked, "note", "was.note")
    assert again["note"] == f"{EVIL}⟨U+202E⟩"
    replies = [
        checked,
        await send(here, HOB, "save", new.replace("name: Hob Tarrant", f"nom: '{EVIL}'"), 0, note=EVIL),
        await send(here, HOB, "save", new, 0, **again),
        await send(here, HOB, "save", text, 0),
        await send(here, HOB, "save", text, "x"),
        await here.client.get(f"{HOB}?revision=1"),
        await here.client.get("/view/characters/no%20name/edit"),
        await send(here, "/view/characters/nobody/edit", "check", EVIL, 0),
        await here.client.post(HOB, data={"do": "save"}, headers={"Sec-Fetch-Site": "cross-site"}),
        await send(here, HOB, "withdraw", "", 1),
        await here.client.get("/view/author"),
    ]
    history = (await here.client.get(f"{HOB}?format=json")).json()["history"]
    assert [one.status_code for one in replies] == [200, 422, 303, 409, 422, 200, 404, 200, 403, 303, 200]
    assert replies[2].headers["location"] == f"{HOB}?saved=1"
    assert [is_harmless(one) for one in (*replies[:2], replies[3], replies[5], replies[7], replies[10])] == [True] * 6
    assert [(one["revision"], one["note"]) for one in history] == [(2, ""), (1, f"{EVIL}\u202e")]
    assert "identity.nom" in Outline(replies[1].text).words()


async def test_events_and_lorebooks_are_written_by_forms(here: Place) -> None:
    event = f"id: owl\ntime: '1312-04-03T09:15:00Z'\ntext: 'An owl. {EVIL}'\n"
    book = f"entries:\n  - {{id: '{EVIL}', keys: [salt], content: 'Dear. {EVIL}'}}\n"
    replies = [
        await send(here, EVENT, "save", event.replace("owl\n", "hen\n"), "new"),
        await send(here, EVENT, "save", event, "new"),
        await send(here, EVENT, "save", event.replace("An owl", "A hen"), 1),
        await send(here, EVENT, "save", event, 1),
        await here.client.get(EVENT),
        await send(here, BOOK, "check", book, "new", line="What of the salt?"),
        await send(here, BOOK, "save", "entries: 1", "new"),
        await send(here, BOOK, "save", book, "new"),
        await send(here, BOOK, "save", book, "new"),
        await here.client.get("/view/worlds/quay/write?event=owl"),
        await here.client.get("/view/worlds/quay/write?lorebook=No+name"),
        await here.client.get("/view/worlds/quay"),
        await here.client.get(f"{EVENT}?revision=1"),
        await here.client.get(f"{EVENT}?revision=3"),
        await here.client.get(f"{BOOK}?revision=1"),
    ]
    found = [one.status_code for one in replies]
    assert found == [*(422, 303, 303, 409, 200, 200, 422, 303, 409, 303, 422, 200), *(200, 404, 200)]
    harmless = (replies[0], replies[3], replies[4], replies[5], replies[12], replies[14])
    assert [is_harmless(one) for one in harmless] == [True] * 6
    assert "A hen." in replies[4].text
    assert "<del>An</del><ins>A</ins> <del>owl</del><ins>hen</ins>" in replies[4].text
    assert f"Dear. {EVIL}" in Outline(replies[5].text).words()
    with contextlib.closing(sqlite3.connect(here.database)) as connection, connection:
        connection.execute("UPDATE events SET author = ?", [EVIL])
        connection.execute("UPDATE world_revisions SET author = ?, withdrawn_by = ?, withdrawn_at = 1", [EVIL, EVIL])
    hostile = await here.client.get(EVENT)
    assert (is_harmless(hostile), hostile.text.count(html.escape(EVIL)) >= 3) == (True, True)


async def test_revisions_of_a_world_say_when_they_were_written_and_what_they_changed(here: Place) -> None:
    owl: dict[str, JsonValue] = {"id": "owl", "time": "1312-04-03T09:15:00Z", "text": f"An owl. {EVIL}"}
    await here.post("/worlds/quay/events", {"events": [owl]})
    await here.client.put("/worlds/quay/events/owl", json={**owl, "text": f"A hen. {EVIL}"})
    await here.client.delete("/worlds/quay/events/owl")
    for said in (EVIL, "salt"):
        await here.client.put("/worlds/quay/lorebooks/coast", json={"description": said})
    page, opened, book = [
        (await here.client.get(f"{path}?format=json{more}")).json()
        for path, more in ((EVENT, ""), (EVENT, "&revision=1"), (BOOK, ""))
    ]
    listed = [(await here.client.get(f"/worlds/quay/{path}")).json() for path in REVISIONS]
    newest, first = page["history"]
    assert (newest["revision"], first["revision"], newest["withdrawn_by"]) == (2, 1, "")
    assert first["at"] <= newest["at"] <= newest["withdrawn_at"]
    assert [one["text"] for one in page["difference"]["words"]["pieces"] if one["kind"] != "both"] == [
        *("An", "A", "owl", "hen")
    ]
    assert (page["difference"]["before"], "An owl" in page["difference"]["text_before"]) == (1, True)
    assert ("An owl" in opened["text"], opened["revision"], opened["difference"]) == (True, "2", None)
    assert (book["difference"]["revision"], EVIL in book["difference"]["text_before"]) == (2, True)
    assert listed[:3] == [
        {"revisions": [newest], "next_before": 2},
        {"revisions": [first], "next_before": None},
        {**first, "event": {**listed[2]["event"], **owl}},
    ]
    assert [one["revision"] for one in listed[3]["revisions"]] == [2, 1]
    assert [one["status"] for one in listed[4:]] == [404, 404, 404, 404]


async def test_a_character_is_begun_and_its_scenes_are_tried(here: Place) -> None:
    begun = await here.client.get("/view/author?id=mara_quill")
    wrong = await here.client.get("/view/author?id=No+name")
    page = await here.client.get(begun.headers["location"] + "?format=json")
    saved = await send(here, begun.headers["location"], "save", page.json()["text"], 0)
    scenes = await here.client.get("/view/characters/mara_quill/scenes/edit?format=json")
    known = {one["id"] for one in (await here.client.get("/characters")).json()["characters"]}
    assert (begun.status_code, wrong.status_code, saved.status_code) == (303, 422, 303)
    assert [one["level"] for one in page.json()["findings"] if one["level"] == "error"] == []
    assert scenes.json()["prompt"][-1]["content"]["head"] == "Who are you?"
    assert "mara_quill" in known
