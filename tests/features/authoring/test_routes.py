"""Sheets and scenes that authors write over HTTP: checked, kept as revisions, and in force on every replica."""

import asyncio
import io
import zipfile
from pathlib import Path

import httpx
import pytest
import yaml
from pydantic import JsonValue

from app.features.authoring import service
from tests.features.authoring.conftest import pack
from tests.http.api.test_editions import NEW, OLD, answers, at, edition, items, place, visit
from tests.http.api.test_editions import Place as Gateway

HOB = "/characters/hob_tarrant"
CARD = Path("examples/mara_quill.json").read_bytes()
CHOSEN: JsonValue = {"character": ["hob_tarrant"]}
SCENES = Path(__file__).with_name("owl_scenes.yaml").read_text(encoding="utf-8")


async def get(there: Gateway, path: str) -> JsonValue:
    reply = await there.client.get(path)
    assert reply.status_code == 200, reply.text
    result: JsonValue = reply.json()
    return result


async def read(there: Gateway) -> str:
    return str(at(await get(there, f"{HOB}/text"), "text"))


async def write(there: Gateway, text: str, revision: int, path: str = HOB) -> httpx.Response:
    return await there.client.put(path, json={"text": text, "revision": revision, "note": "shorter"})


async def wait_for(there: Gateway, word: str) -> None:
    for _ in range(400):
        if word in await read(there):
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the other replica has not noticed")


def test_a_written_sheet_joins_a_run_with_its_next_epoch_on_every_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "POLL_SECONDS", 0.05)

    async def doing(here: Gateway) -> None:
        async with place(tmp_path) as there:
            size = len(await here.tasks(400, "elsewhere", select=CHOSEN))
            begun = await here.tasks(size // 2, "a", select=CHOSEN)
            saved = await write(here, (await read(here)).replace(OLD, NEW), 0)
            assert (saved.status_code, at(saved.json(), "revision"), at(saved.json(), "is_new")) == (200, 1, True)
            await wait_for(there, NEW)
            rest = await there.tasks(size - size // 2, "a", select=CHOSEN)
            scored = [await there.post("/envs/npc_arena/score", answers(task)) for task in (*begun, *rest)]
            following = await there.tasks(size, "a", select=CHOSEN)
            scored.append(await there.post("/envs/npc_arena/score", answers(following[0])))
        assert [edition(tasks) for tasks in (begun, rest, following)] == [{OLD}, {OLD}, {NEW}]
        flagged = [("scoring_changed" in items(one, "groups", 0, "flags")) for one in scored]
        assert flagged == [False] * size + [True]
        assert {at(one, "groups", 0, "outcome") for one in scored} == {"scored"}

    visit(tmp_path, doing)


def test_what_was_written_outlives_a_restart_and_is_taken_back(tmp_path: Path) -> None:
    """And tasks of before the first scenes are scored after it."""
    out: list[JsonValue] = []

    async def first(here: Gateway) -> None:
        out.extend(await here.tasks(1, "b", select=CHOSEN))
        written = [
            await write(here, (await read(here)).replace(OLD, NEW), 0),
            await write(here, SCENES, 0, f"{HOB}/scenes"),
        ]
        assert [reply.status_code for reply in written] == [200, 200]

    async def second(here: Gateway) -> None:
        scored = await here.post("/envs/npc_arena/score", answers(out[0]))
        told = [edition(await here.tasks(400, select=CHOSEN))]
        again = await write(here, await read(here), 1)
        withdrawn = await here.client.delete(HOB)
        told.append(edition(await here.tasks(400, select=CHOSEN)))
        kept = await get(here, f"{HOB}/revisions")
        assert (at(scored, "groups", 0, "outcome"), told) == ("scored", [{NEW}, {OLD}])
        assert [at(one, "is_new") for one in (again.json(), withdrawn.json())] == [False, True]
        assert [(at(one, "revision"), at(one, "note")) for one in items(kept, "revisions")] == [(2, ""), (1, "shorter")]
        assert NEW in str(at(await get(here, f"{HOB}/revisions/1"), "text"))

    visit(tmp_path, first)
    visit(tmp_path, second)


async def test_a_broken_text_is_refused_with_line_and_field_and_nothing_is_stored(here: Gateway) -> None:
    text = await read(here)
    broken = await write(here, text.replace("schema_version: 1", "schema_version: one"), 0)
    stale = await write(here, text.replace(OLD, NEW), 3)
    unknown = await here.client.get("/characters/nobody/text")
    checked = await here.post(f"{HOB}/check", {"text": text.replace("identity:", "identities:")})
    empty = await here.post(f"{HOB}/check", {"text": "", "scene": "none"})
    assert (broken.status_code, stale.status_code, unknown.status_code) == (422, 409, 404)
    assert (at(empty, "errors"), "an empty text was given" in str(at(empty, "no_prompt"))) == (1, True)
    assert [at(one, "field") for one in items(broken.json(), "errors")] == ["hob_tarrant.yaml:2: meta.schema_version"]
    assert (at(checked, "errors"), at(checked, "prompt")) == (2, [])
    assert await get(here, f"{HOB}/revisions") == {"revisions": [], "next_before": None}
    assert await read(here) == text


async def test_scenes_are_written_and_their_prompt_is_seen_before(here: Gateway) -> None:
    asked = await here.tasks(400, "b", select=CHOSEN)
    checked = await here.post(f"{HOB}/scenes/check", {"text": SCENES})
    saved = await write(here, SCENES, 0, f"{HOB}/scenes")
    broken = await write(here, SCENES.replace("split: train", "split: no"), 1, f"{HOB}/scenes")
    lines = {str(at(task, "messages", -1, "content")) for task in await here.tasks(400, select=CHOSEN)}
    scored = await here.post("/envs/npc_arena/score", answers(asked[0]))
    assert [at(message, "content") for message in items(checked, "prompt")][-1] == "Did you hear the owl?"
    assert (saved.status_code, broken.status_code) == (200, 422)
    assert ("Did you hear the owl?" in lines, len(lines) < len(asked) + 1) == (True, True)
    assert at(scored, "groups", 0, "outcome") == "scored"


async def test_a_folder_goes_out_and_comes_in_as_one_archive(here: Gateway) -> None:
    whole = await here.client.get("/characters/archive")
    with zipfile.ZipFile(io.BytesIO(whole.content)) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    texts |= {"hob_tarrant.yaml": texts["hob_tarrant.yaml"].replace(OLD, NEW), "scenes/hob_tarrant.yaml": SCENES}
    posted = [
        await here.client.post("/characters/archive", content=pack(one), params={"force": force})
        for one, force in (
            ({**texts, "ottoline_vesk.yaml": "meta: 1"}, False),
            ({f"mine/{name}": text for name, text in texts.items()} | {"mine/readme.txt": "hi"}, False),
            (texts, False),
            (texts, True),
            ({"readme.txt": "hi"}, False),
        )
    ]
    posted.append(await here.client.post("/characters/archive", content=b"no zip"))
    saved = {at(one, "file"): at(one, "is_new") for one in items(posted[1].json(), "saved")}
    assert [reply.status_code for reply in posted] == [422, 200, 409, 200, 422, 422]
    assert saved == {"hob_tarrant.yaml": True, "ottoline_vesk.yaml": False, "scenes/hob_tarrant.yaml": True}
    assert at(posted[1].json(), "left_out") == ["readme.txt"]
    assert [at(one, "is_new") for one in items(posted[3].json(), "saved")] == [False, False, False]


async def test_sheets_of_one_archive_are_checked_together(here: Gateway) -> None:
    def move(text: str, other: str) -> str:
        """To another world, where somebody else of the archive lives."""
        sheet = yaml.safe_load(text)
        sheet["meta"]["world"] = "elsewhere"
        sheet["relationships"] = [
            {"target": "A friend", "target_id": other, "type": "friend", "attitude": "warm", "trust": 1}
        ]
        return yaml.safe_dump(sheet)

    hob = await read(here)
    ottoline = str(at(await get(here, "/characters/ottoline_vesk/text"), "text"))
    new = hob.replace("hob_tarrant", "mara_quill")
    texts = {
        "hob_tarrant.yaml": move(hob, "ottoline_vesk"),
        "ottoline_vesk.yaml": move(ottoline, "mara_quill"),
        "mara_quill.yaml": move(new, "hob_tarrant"),
        "scenes/hob_tarrant.yaml": SCENES,
    }
    alone = await write(here, texts["hob_tarrant.yaml"], 0)
    together = await here.client.post("/characters/archive", content=pack(texts))
    warned = {
        str(at(one, "file")): [str(at(each, "message")) for each in items(one, "warnings")]
        for one in items(together.json(), "saved")
    }
    told = [(any("there is no sheet" in one for one in warned[file])) for file in sorted(texts)]
    assert (alone.status_code, together.status_code, told) == (422, 200, [False] * 4), together.text
    none = "no scenes of its own: it plays the generic scenes alone"
    assert [none in warned[file] for file in ("hob_tarrant.yaml", "mara_quill.yaml")] == [False, True]


async def test_a_card_is_read_as_a_sheet_that_can_be_saved(here: Gateway) -> None:
    read_as = (await here.client.post("/characters/import", content=CARD)).json()
    saved = await write(here, str(at(read_as, "text")), 0, f"/characters/{at(read_as, 'id')}")
    known = {at(one, "id") for one in items(await get(here, "/characters"), "characters")}
    edited = await get(here, "/view/characters/mara_quill/edit?format=json")
    rows = {str(at(row, 0)): str(at(row, 1)) for row in items(edited, "imported", "rows")}
    page = (await here.client.get("/view/characters/mara_quill/edit")).text
    assert (at(read_as, "kind"), saved.status_code, "mara_quill" in known) == ("sheet", 200, True)
    assert (rows["data.name"], rows["data.creator_notes"]) == ("used", "kept, not used")
    assert str(at(read_as, "text")).index("identity:") < str(at(read_as, "text")).index("meta:")
    assert page.index("what became of each field") < page.index("The original card")
