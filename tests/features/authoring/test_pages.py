"""Pages on which people write: forms, conflicts, and hostile texts that stay texts."""

import contextlib
import re
import sqlite3
from pathlib import Path

import httpx
from pydantic import JsonValue

from app.characters.sheet_forms import SheetForm, write_sheet
from tests.features.authoring.conftest import pack
from tests.http.api.test_editions import NEW, OLD, Place
from tests.support.outline import Outline, find_said

EVIL = "</textarea></title><script>alert(1)</script>"
HOB = "/view/characters/hob_tarrant/edit"
BOOK = "/view/worlds/quay/lorebooks/coast/edit"
EVENT = "/view/worlds/quay/events/owl/edit"
CARD = Path("examples/mara_quill.json").read_text(encoding="utf-8")
BO = (("bo", "B"), ("bo", "Another."))


async def send(there: Place, path: str, doing: str, text: str, stamp: object, **more: str) -> httpx.Response:
    fields = {"do": doing, "text": text.replace("\n", "\r\n"), "stamp": str(stamp), **more}
    return await there.client.post(path, data=fields, headers={"Sec-Fetch-Site": "same-origin"})


def read_stamp(reply: httpx.Response) -> str:
    return read_inputs(reply, "stamp")["stamp"]


def read_inputs(reply: httpx.Response, *names: str) -> dict[str, str]:
    """What a browser sends of these fields where nobody changes them."""
    return {name: value for name, value in Outline(reply.text).inputs if name in names}


async def test_a_sheet_is_drafted_and_published_by_a_form(here: Place) -> None:
    text = (await here.client.get(f"{HOB}?format=json")).json()["text"]
    new = text.replace(OLD, NEW)
    checked = await send(here, HOB, "check", new, "0.", note=f"{EVIL}\u202e", scene=EVIL)
    again = read_inputs(checked, "note", "was.note")
    assert again["note"] == f"{EVIL}⟨U+202E⟩"
    broken = new.replace("name: Hob Tarrant", f"nom: '{EVIL}'")
    replies = [
        checked,
        await send(here, HOB, "publish", broken, "0.", note=EVIL),
        await send(here, HOB, "save", broken, "0."),
        await send(here, HOB, "save", new, "0."),
        await send(here, HOB, "publish", new, read_stamp(await here.client.get(HOB)), **again),
        await send(here, HOB, "publish", text, "0."),
        await send(here, HOB, "save", text, "x"),
        await here.client.get(f"{HOB}?revision=1"),
        await here.client.get("/view/characters/no%20name/edit"),
        await send(here, "/view/characters/nobody/edit", "check", EVIL, "0."),
        await here.client.post(HOB, data={"do": "save"}, headers={"Sec-Fetch-Site": "cross-site"}),
        await send(here, HOB, "withdraw", "", "1."),
        await here.client.get("/view/author"),
        await send(here, HOB, "form", text, "2."),
    ]
    data = (await here.client.get(f"{HOB}?format=json")).json()
    found = [one.status_code for one in replies]
    assert found == [200, 422, 303, 409, 303, 409, 422, 200, 404, 200, 403, 303, 200, 422]
    assert [replies[at].headers["location"] for at in (2, 4)] == [f"{HOB}?done=draft", f"{HOB}?saved=1"]
    assert [(one["revision"], one["note"]) for one in data["history"]] == [(2, ""), (1, f"{EVIL}\u202e")]
    assert (data["publishing"]["draft"], "identity.nom" in Outline(replies[1].text).words()) == (None, True)
    assert "No form: the sheet says more than ten fields hold" in Outline(replies[13].text).words()


async def test_events_and_lorebooks_are_written_by_forms(here: Place) -> None:
    event = f"id: owl\ntime: '1312-04-03T09:15:00Z'\ntext: 'An owl. {EVIL}'\n"
    book = f"entries:\n  - {{id: '{EVIL}', keys: [salt], content: 'Dear. {EVIL}'}}\n"
    replies = [
        await send(here, EVENT, "save", event.replace("owl\n", "hen\n"), "new"),
        await send(here, EVENT, "save", event, "new"),
        await send(here, EVENT, "save", event.replace("An owl", "A hen"), read_stamp(await here.client.get(EVENT))),
        await send(here, EVENT, "save", event, "what nobody read"),
        await here.client.get(EVENT),
        await send(here, BOOK, "check", book, "new", line="What of the salt?"),
        await send(here, BOOK, "save", "entries: 1", "new"),
        await send(here, BOOK, "save", book, "new"),
        await send(here, BOOK, "save", book, "new"),
        await here.client.get("/view/worlds/quay"),
        await here.client.get(f"{EVENT}?earlier=1"),
        await here.client.get(f"{EVENT}?earlier=3"),
        await here.client.get(f"{BOOK}?line=salt"),
    ]
    found = [one.status_code for one in replies]
    assert found == [*(422, 303, 303, 409, 200, 200, 422, 303, 409, 200), *(200, 404, 200)]
    assert ("A hen." in replies[4].text, "An owl." in replies[4].text, "An owl." in replies[10].text) == (
        True,
        False,
        True,
    )
    assert f"Dear. {EVIL}" in Outline(replies[5].text).words()


async def test_earlier_texts_of_a_world_are_listed_and_restored(here: Place) -> None:
    owl: dict[str, JsonValue] = {"id": "owl", "time": "1312-04-03T09:15:00Z", "text": f"An owl. {EVIL}"}
    await here.post("/worlds/quay/events", {"events": [owl]})
    await here.client.put("/worlds/quay/events/owl", json={**owl, "text": f"A hen. {EVIL}"})
    await here.client.delete("/worlds/quay/events/owl")
    for said in (EVIL, "salt"):
        await here.client.put("/worlds/quay/lorebooks/coast", json={"description": said})
    page, opened, book = [
        (await here.client.get(f"{path}?format=json{more}")).json()
        for path, more in ((EVENT, ""), (EVENT, "&earlier=1"), (BOOK, ""))
    ]
    events, books = "/worlds/quay/events", "/worlds/quay/lorebooks"
    listed = [
        (await here.client.get(path)).json()
        for path in (
            *(f"{events}/owl/earlier?limit=1", f"{events}/owl/earlier?before=2", f"{events}/owl/earlier/1"),
            *(f"{events}/hen/earlier", f"{events}/owl/earlier/3", f"{books}/owl/earlier/1"),
        )
    ]
    restored = [
        (await here.client.post(f"{path}/restore")).json()
        for path in (f"{events}/owl/earlier/1", f"{books}/coast/earlier/1", f"{events}/owl/earlier/9")
    ]
    now = [(await here.client.get(path)).json() for path in (events, f"{books}/coast")]
    newest, first = page["history"]
    assert (newest["replaced_by"], newest["written_at"] <= newest["replaced_at"]) == ("", True)
    assert ("An owl" in opened["text"], opened["revision"] == page["revision"], len(book["history"])) == (True, True, 1)
    assert listed[:4] == [
        {"texts": [newest], "next_before": 2},
        {"texts": [first], "next_before": None},
        {**first, "content": {**listed[2]["content"], **owl}},
        {"texts": [], "next_before": None},
    ]
    assert [one["status"] for one in (*listed[4:], restored[2])] == [404, 404, 404]
    assert restored[:2] == [{"restored": "owl"}, {"restored": "coast"}]
    assert (now[0]["events"][0]["text"], now[1]["description"]) == (owl["text"], EVIL)


FIELDS = {
    "name": f"Mara {EVIL}",
    "who": "Keeps the lamp.",
    "lines.0.player": "Are you lonely?",
    "lines.0.reply": "I've a lamp.",
    "language": "en",
    "rating": "teen",
}


async def test_a_character_is_begun_in_a_form_talked_to_as_a_draft_and_published(here: Place) -> None:
    async def post(path: str, doing: str, **more: str) -> httpx.Response:
        fields = {**FIELDS, "do": doing, **more}
        return await here.client.post(path, data=fields, headers={"Sec-Fetch-Site": "same-origin"})

    async def ask(character: str) -> httpx.Response:
        draft: JsonValue = {"character": character, "line": "Who are you?"}
        return await here.client.post("/envs/npc_arena/try", json={"draft": draft, "own_draft": True})

    replies = [
        await post("/view/author", "save", name=" ", rating=EVIL),
        await post("/view/author", "check"),
        await post("/view/author", "sheet"),
        await post("/view/author", "save"),
        await post("/view/author", "save"),
    ]
    form = replies[3].headers["location"].partition("?")[0]
    character = form.split("/")[3]
    page = await here.client.get(f"{form}?done=draft")
    tried, published = await ask(character), await here.client.get("/characters")
    line = {"character": f"draft:{character}", "policy": "stand-in", "line": "Are you lonely?"}
    talked = await here.client.post("/view/talk/say", data=line, headers={"Sec-Fetch-Site": "same-origin"})
    assert [word in Outline(talked.text).words() for word in (f"{character} (your draft)", "I've a lamp.")] == [
        True
    ] * 2
    replies.append(await post(form, "save", stamp=read_stamp(page), who=f"Tends the light. {EVIL}"))
    replies += [
        await post(form, doing, stamp=read_stamp(page), who="Lost.") for doing in ("save", "publish", "discard")
    ]
    kept = await here.client.get(f"{form}?format=json")
    drafts = (await here.client.get("/view/author?format=json")).json()["drafts"]
    gallery = (await here.client.get("/view/characters?format=json")).json()["drafts"]
    led = [
        await here.client.get(path) for path in (f"/view/characters/{character}", "/view/characters/hob_tarrant/form")
    ]
    assert gallery == [{"character": character, "name": FIELDS["name"]}]
    assert [one.headers["location"] for one in led] == [form, HOB]
    said = [find_said(one.text) for one in (await here.client.get("/view/author"), page, await here.client.get(HOB))]
    assert [re.sub(r" of \d{4}-\S+ \S+\.", "", one) for one in said] == [
        "Ten fields make a character. Name and who are enough to begin.",
        "Your draft Not published yet.",
        "Published: the file in the folder.",
    ]
    assert f"/view/talk?character=draft%3A{character}" in page.text
    replies.append(
        await post(form, "publish", stamp=read_stamp(await here.client.get(form)), who=kept.json()["form"]["who"])
    )
    known = {one["id"] for one in (await here.client.get("/characters")).json()["characters"]}
    scenes = await here.client.get(f"/view/characters/{character}/scenes/edit?format=json")
    offered = await here.client.get(form)
    replies.append(await post(form, "withdraw", stamp=read_stamp(offered)))
    after = await here.client.get(replies[-1].headers["location"])
    listed = (await here.client.get("/view/author?format=json")).json()["characters"][-1]
    assert ["Go back to the file" in offered.text, "Unpublish now" in offered.text] == [False, True]
    assert ["The text is unpublished" in after.text, "Tends the light." in after.text] == [True, True]
    assert listed == {"id": character, "sheet": "unpublished", "scenes": "none"}
    assert [one.status_code for one in replies] == [422, 200, 200, 303, 422, 303, 409, 409, 409, 303, 303]
    assert "Keeps the lamp." in tried.json()["messages"][0]["content"]
    assert (character in published.text, character in known, drafts) == (False, True, [FIELDS["name"]])
    assert kept.json()["form"]["who"] == f"Tends the light. {EVIL}"
    assert scenes.json()["prompt"][-1]["content"]["head"] == "Who are you?"
    assert [name for name, text in (("name", replies[0]), ("taken", replies[4])) if "is " not in text.text] == []


async def test_what_is_in_a_zip_becomes_drafts_which_are_published_together(here: Place) -> None:
    async def bring(content: bytes) -> httpx.Response:
        return await here.client.post("/view/author/archive", content=content, headers={"Accept": "text/html"})

    async def publish(*drafts: str) -> httpx.Response:
        headers = {"Sec-Fetch-Site": "same-origin"}
        return await here.client.post("/view/author/publish", data={"draft": [*drafts]}, headers=headers)

    hob = (await here.client.get(f"{HOB}?format=json")).json()["text"]
    ann, bo, bo_again = (write_sheet(SheetForm(name="X", who=who), name) for name, who in (("ann", "A"), *BO))
    texts = {"hob_tarrant.yaml": hob, "ann.yaml": ann, f"{EVIL}.JSON": CARD, "a.png": EVIL, EVIL: ""}
    pages = [
        await bring(pack(texts)),
        await bring(pack({"bo.yaml": bo})),
        await bring(pack({"ann.yaml": ann, "bo.yaml": bo_again})),
        await bring(b"no zip"),
    ]
    brought = (await here.client.post("/view/author/archive?format=json", content=pack(texts))).json()["brought"]
    drafts = (await here.client.get("/view/author?format=json")).json()["drafts"]
    before = (await here.client.get("/characters")).text
    sent = [one["draft"] for one in brought if one["draft"]]
    failed = [await publish(*sent, f"{'0' * 64} bo.yaml"), await publish(EVIL), await publish()]
    published = await publish(*sent)
    done = Outline((await here.client.get(published.headers["location"])).text).words()
    after = (await here.client.get("/characters")).json()["characters"]
    assert [one.status_code for one in (*pages, *failed, published)] == [200, 200, 200, 422, 409, 409, 422, 303]
    assert [(one["name"], one["path"], one["why"]) for one in brought] == [
        ("ann.yaml", "/view/characters/ann/form", ""),
        ("hob_tarrant.yaml", "", "published already, with this text"),
        (f"{EVIL}.JSON", "/view/characters/mara_quill/form", ""),
        ("a.png", "", "this is no card: neither a PNG image, a CHARX archive nor JSON"),
        (EVIL, "", "neither a sheet, scenes nor a card"),
    ]
    assert "you keep another draft of it, which was not replaced" in Outline(pages[2].text).words()
    assert (drafts, "mara_quill" in before, "Published: 2 texts." in done) == (["X", "X", "Mara Quill"], False, True)
    assert {"ann", "mara_quill"} <= {one["id"] for one in after}
    assert (await here.client.get("/view/author?format=json")).json()["drafts"] == ["X"]


async def test_a_draft_speaks_only_where_its_author_asks_for_it(here: Place) -> None:
    text = (await here.client.get(f"{HOB}?format=json")).json()["text"]
    line: JsonValue = {"role": "user", "content": "Who are you?"}
    moment: JsonValue = {"character": "hob_tarrant", "conversation": [line]}
    event: JsonValue = {"id": "owl", "time": "1312-04-03T09:15:00Z", "text": "An owl."}
    await here.post("/worlds/quay/events", {"events": [event]})
    form = {"character": "draft:hob_tarrant", "policy": "stand-in", "line": "Who are you?"}
    tried: JsonValue = {"draft": {"character": "hob_tarrant", "line": "Who are you?"}, "own_draft": True}
    published = await here.post("/worlds/quay/context", moment)

    async def ask_for_draft() -> list[httpx.Response]:
        talked = await here.client.post("/view/talk/say", data=form, headers={"Sec-Fetch-Site": "same-origin"})
        return [talked, await here.client.post("/envs/npc_arena/try", json=tried)]

    missing = await ask_for_draft()
    await send(here, HOB, "save", text.replace(OLD, NEW), "0.")
    sound = await ask_for_draft()
    await send(here, HOB, "save", "meta: {id: broken", read_stamp(await here.client.get(HOB)))
    broken = await ask_for_draft()
    game = await here.client.post(
        "/play/v1/chat/completions", json={"model": "hob_tarrant", "messages": [line], "stream": False}
    )
    asked = [one.status_code for one in (*missing, *sound, *broken, game)]
    assert asked == [404, 422, 200, 200, 422, 422, 200]
    assert await here.post("/worlds/quay/context", moment) == published
    assert ["you keep no draft of hob_tarrant" in missing[1].text, *(NEW in one.text for one in sound)] == [True] * 3
    assert ["your draft of hob_tarrant cannot be used" in one.text for one in broken] == [True] * 2
    with contextlib.closing(sqlite3.connect(here.database)) as connection, connection:
        connection.execute("UPDATE authored_drafts SET author = 'somebody'")
    page = (await here.client.get(f"{HOB}?format=json")).json()
    assert ([one.status_code for one in await ask_for_draft()], page["text"], page["publishing"]["draft"]) == (
        [404, 422],
        text,
        None,
    )


async def test_the_page_of_a_draft_names_the_trainings_that_publishing_changes_until_they_are_finished(
    here: Place,
) -> None:
    async def list_trainings() -> object:
        return (await here.client.get(f"{HOB}?format=json")).json()["publishing"]["trainings"]

    task = (await here.tasks(1, "designing", select={"character": ["hob_tarrant"]}))[0]
    assert isinstance(task, dict)
    group: JsonValue = {"task_id": task["task_id"], "lease_id": task["lease_id"], "completions": [{"text": ""}]}
    await here.post("/envs/npc_arena/score", {"groups": [group]})
    running = await list_trainings()
    (await here.client.put("/runs/designing", json={"health": {"finished": True}})).raise_for_status()
    assert (running, await list_trainings()) == (["designing"], [])
