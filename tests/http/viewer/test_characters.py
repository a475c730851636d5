"""Pages of characters, over a real store: sheets, checks, scenes, curves, best and worst replies."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest
from fastapi import FastAPI

from app.characters.scenes import Scene
from app.characters.schema import CharacterSheet, Core, CounterExample, Identity, Meta, SheetSecret, Voice
from app.characters.sheet_checks import SheetFinding
from app.domain.authored_files import ListedDraft
from app.domain.runs import Policy
from app.domain.scores import Score
from app.http.viewer.character_pages import CharacterPages, create_character_pages_router
from app.http.viewer.pages import create_viewer_router
from app.http.web.api_keys import KeyRing
from app.http.web.middleware import MiddlewareOptions, install_middleware
from app.main.store import Store
from tests.support.outline import Outline, find_said
from tests.support.store_cases import group, record, using

Check = Callable[[], Awaitable[Sequence[SheetFinding]]]
EVIL = "</title><script>alert(1)</script>"
SHEET = CharacterSheet(
    meta=Meta(schema_version=1, id="hob", licence="MIT", genre=EVIL, world="ford", summary=EVIL, held_out=True),
    identity=Identity(name=f"Hob {EVIL}"),
    core=Core(traits=("slow", EVIL)),
    voice=Voice(counter_examples=(CounterExample(reply="Okay!", why="He has never said okay."),)),
    secrets=(SheetSecret(id="rope", text="The rope is rotten.", reveal_if="He is paid.", leak_terms=("rotten",)),),
)
SCENE = Scene(id="ford", kind="voice", split="test", player=f"Is the water high? {EVIL}")
FINDINGS = [
    SheetFinding(file="sheets/hob.yaml", line=3, field="core", level="warning", message=EVIL),
    SheetFinding(file="sheets/hobart.yaml", line=1, field="core", level="error", message="another's"),
]


async def find_findings() -> Sequence[SheetFinding]:
    return FINDINGS


async def lose_files() -> Sequence[SheetFinding]:
    raise OSError("no such folder")


def list_sheets() -> Sequence[CharacterSheet]:
    return [SHEET]


def list_scenes(character: str) -> Sequence[Scene]:
    return [SCENE] if character == "hob" else []


async def fill(store: Store) -> None:
    plain = record(1)
    key = plain.key.model_copy(update={"environment": "npc_arena"})
    prompt = plain.prompt.model_copy(update={"metadata": {"scene": "ford"}})
    await store.tasks.put([record(0), plain.model_copy(update={"label": "hob", "key": key, "prompt": prompt})])
    for step, reward in enumerate((0.25, 0.75)):
        told = Score(
            outcome="scored", reward=reward, gate=1.0, absolute=reward, rationale=f"because of {reward} {EVIL}"
        )
        build = partial(
            group, task_id="task_1", run=f"r{step}", environment="npc_arena", policy=Policy(model="m", step=step)
        )
        partly = build(f"group_{step:032x}", [told, Score.unscored("budget")])
        await store.groups.add(
            [partly, build(f"group_{step + 9:032x}", [told, told]), group(f"group_{step + 20:032x}")]
        )


PATHS = (
    "/view/characters",
    "/view/characters?format=json",
    "/view/characters/hob",
    "/view/characters/hob?format=json",
    "/view/characters/hob?run=r1",
    "/view/characters/hob?run=r1&format=json",
    "/view/characters/hob/portrait",
    "/view/characters/nobody/portrait",
    *(f"/view/characters/{name}{twin}" for name in ("nobody", "%3Cscript%3E", "%00") for twin in ("", "?format=json")),
)
LOST = "/view/characters/hob?lost"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, httpx.Response]:
    """Each is visited once."""
    database = tmp_path_factory.mktemp("characters") / "store.db"

    async def visit_all(store: Store) -> dict[str, httpx.Response]:
        await fill(store)
        picture = database.with_name("hob.png")
        picture.write_bytes(b"picture")
        return await visit(store, find_findings, picture, *PATHS) | await visit(store, lose_files, picture, LOST)

    return using(f"sqlite:///{database}", visit_all)


async def list_nothing() -> Sequence[ListedDraft]:
    return ()


async def visit(store: Store, check: Check, picture: Path, *paths: str) -> dict[str, httpx.Response]:
    pages = CharacterPages(
        "npc_arena",
        list_sheets,
        list_scenes,
        list_nothing,
        check,
        store.views,
        list_portraits=lambda: dict.fromkeys(("hob", "nobody"), picture),
    )
    app = FastAPI()
    app.include_router(create_viewer_router(store.views, sections=[partial(create_character_pages_router, pages)]))
    install_middleware(app, MiddlewareOptions(KeyRing((), anonymous=True)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as client:
        return {path: await client.get(path) for path in paths}


def test_a_character_is_data_too_and_one_run_narrows_it(pages: dict[str, httpx.Response]) -> None:
    told, narrow = (pages[f"/view/characters/hob?{query}format=json"].json() for query in ("", "run=r1&"))
    (curve,) = [each for each in told["curves"] if each["name"] == "absolute"]
    assert {
        "held_out": told["card"]["held_out"],
        "findings": [finding["line"] for finding in told["findings"]],
        "scenes": [scene["id"] for scene in told["scenes"]],
        "curves": [(each["name"], [point["step"] for point in each["points"]]) for each in curve["curves"]],
        "best": [reply["card"]["reward"] for reply in told["replies"]["best"]],
        "worst": [reply["card"]["reward"] for reply in told["replies"]["worst"]],
        "groups": told["totals"]["groups"],
    } == {
        "held_out": True,
        "findings": [3],
        "scenes": ["ford"],
        "curves": [("r0", [0]), ("r1", [1])],
        "best": ["0.750"],
        "worst": ["0.250"],
        "groups": 4,
    }
    names = {curve["name"] for each in narrow["curves"] for curve in each["curves"]}
    assert (names, [reply["group"]["run"] for reply in narrow["replies"]["best"]]) == ({"r1"}, ["r1"])


def test_the_gallery_and_a_character_say_one_thing_each(pages: dict[str, httpx.Response]) -> None:
    paths = ("/view/characters", "/view/characters/hob", LOST)
    assert [find_said(pages[path].text) for path in paths] == [
        "1 character. Warnings in 1 sheet.",
        "4 training groups, mean reward 0.50. The sheet has 1 warning.",
        "4 training groups, mean reward 0.50. No errors.",
    ]


def test_scenes_of_a_character_lead_to_their_groups(pages: dict[str, httpx.Response]) -> None:
    outline = Outline(pages["/view/characters/hob?run=r1"].text)
    wanted = {"environment": "npc_arena", "run": "r1", "label": "hob", "scene": "ford", "purpose": "train"}
    assert f"/view/groups?{urlencode(wanted)}" in outline.links()
    assert "ford voice test 1" in outline.words()


def test_a_character_shows_its_sheet_and_what_is_to_be_said_against_it(pages: dict[str, httpx.Response]) -> None:
    words = Outline(pages["/view/characters/hob"].text).words()
    wanted = ("held out: test split only", f"warning line 3 core {EVIL}", "traits: – slow", "leak terms: – rotten")
    assert [one for one in wanted if one not in words] == []
    assert "another's" not in words
    assert "/view/characters/hob" in Outline(pages["/view/characters"].text).links()
    (row,) = pages["/view/characters?format=json"].json()["characters"]
    counted = ("scenes", "errors", "warnings", "reward", "has_portrait")
    assert [row["card"]["id"], *(row[name] for name in counted)] == ["hob", 1, 0, 1, 0.5, True]
    assert "0.500 mean reward · 1 scene" in Outline(pages["/view/characters"].text).words()
    picture, none = pages["/view/characters/hob/portrait"], pages["/view/characters/nobody/portrait"]
    assert (picture.content, picture.headers["content-type"], none.status_code) == (b"picture", "image/png", 404)
    assert "No errors." in Outline(pages[LOST].text).words()


@pytest.mark.parametrize("name", ["nobody", "%3Cscript%3E", "%00"])
def test_a_character_that_is_not_there_is_a_page_and_a_problem(pages: dict[str, httpx.Response], name: str) -> None:
    assert "There is no such character" in Outline(pages[f"/view/characters/{name}"].text).words()
    assert pages[f"/view/characters/{name}?format=json"].status_code == 404
