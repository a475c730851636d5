"""Pages of characters, over a real store: sheets, checks, scenes, curves, best and worst replies."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from urllib.parse import urlencode

import httpx
import pytest
from fastapi import FastAPI

from app.characters.scenes import Scene
from app.characters.schema import CharacterSheet, Core, CounterExample, Identity, Meta, SheetSecret, Voice
from app.characters.sheet_checks import SheetFinding
from app.domain.runs import Policy
from app.domain.scores import Score
from app.http.viewer.character_pages import CharacterPages, create_character_pages_router
from app.http.viewer.pages import create_viewer_router
from app.http.web.api_keys import KeyRing
from app.http.web.middleware import MiddlewareOptions, install_middleware
from app.main.store import Store
from tests.support.outline import Outline
from tests.support.store_cases import group, record, using

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


def look(
    store_url: str,
    path: str,
    check: Callable[[], Awaitable[Sequence[SheetFinding]]] = find_findings,
) -> httpx.Response:
    async def scenario(store: Store) -> httpx.Response:
        await fill(store)
        pages = CharacterPages("npc_arena", list_sheets, list_scenes, check, store.views)
        app = FastAPI()
        app.include_router(create_viewer_router(store.views, sections=[partial(create_character_pages_router, pages)]))
        install_middleware(app, MiddlewareOptions(KeyRing((), anonymous=True)))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as client:
            return await client.get(path)

    return using(store_url, scenario)


def test_a_character_is_data_too(store_url: str) -> None:
    told = look(store_url, "/view/characters/hob?format=json").json()
    (curve,) = [each for each in told["curves"] if each["name"] == "absolute"]
    assert {
        "held_out": told["card"]["held_out"],
        "findings": [finding["line"] for finding in told["findings"]],
        "scenes": [scene["id"] for scene in told["scenes"]],
        "curves": [(each["name"], [point["step"] for point in each["points"]]) for each in curve["curves"]],
        "best": [reply["card"]["reward"] for reply in told["replies"]["best"]],
        "worst": [reply["card"]["reward"] for reply in told["replies"]["worst"]],
        "groups": told["totals"]["groups"],
        "scene_figures": told["scene_figures"],
    } == {
        "held_out": True,
        "findings": [3],
        "scenes": ["ford"],
        "curves": [("r0", [0]), ("r1", [1])],
        "best": ["0.750"],
        "worst": ["0.250"],
        "groups": 4,
        "scene_figures": {"ford": {"completions": 6, "absolute": 0.5}},
    }


def test_scenes_of_a_character_lead_to_their_groups_and_curves(store_url: str) -> None:
    outline = Outline(look(store_url, "/view/characters/hob?run=r1").text)
    wanted = {"environment": "npc_arena", "run": "r1", "label": "hob", "scene": "ford", "purpose": "train"}
    leads = {f"/view/groups?{urlencode(wanted)}", "/view/runs/r1?by=scene&label=hob"}
    assert leads <= set(outline.links())
    assert "ford voice test 1 3 0.750" in outline.words()


def test_a_character_shows_its_sheet_and_hostile_texts_stay_texts(store_url: str) -> None:
    outline = Outline(look(store_url, "/view/characters/hob").text)
    words = outline.words()
    assert (outline.open, outline.elements.count("script")) == ([], 1)
    assert [a for a in outline.attributes if a[1] == "style" or a[1].startswith("on")] == []
    for told in (
        f"Hob {EVIL} hob",
        "held out: test split only",
        f"warning core {EVIL} line 3",
        "traits: – slow",
        "The rope is rotten.",
        "leak terms: – rotten",
        f"Is the water high? {EVIL}",
        f"because of 0.25 {EVIL}",
    ):
        assert told in words
    assert "another's" not in words


def test_one_run_narrows_curves_and_replies(store_url: str) -> None:
    told = look(store_url, "/view/characters/hob?run=r1&format=json").json()
    names = {curve["name"] for each in told["curves"] for curve in each["curves"]}
    assert (names, [reply["group"]["run"] for reply in told["replies"]["best"]]) == ({"r1"}, ["r1"])


def test_characters_are_listed_with_what_is_to_be_said_against_them(store_url: str) -> None:
    outline = Outline(look(store_url, "/view/characters").text)
    assert "/view/characters/hob" in outline.links()
    (row,) = look(store_url, "/view/characters?format=json").json()["characters"]
    assert (row["card"]["id"], row["scenes"], row["errors"], row["warnings"]) == ("hob", 1, 0, 1)


def test_sheets_are_shown_where_their_files_are_gone(store_url: str) -> None:
    assert "Nothing to be said against it." in Outline(look(store_url, "/view/characters/hob", lose_files).text).words()


@pytest.mark.parametrize("path", ["/view/characters/nobody", "/view/characters/%3Cscript%3E", "/view/characters/%00"])
def test_a_character_that_is_not_there_is_a_page_and_a_problem(store_url: str, path: str) -> None:
    assert "There is no such character" in Outline(look(store_url, path).text).words()
    assert look(store_url, f"{path}?format=json").status_code == 404


def test_the_list_of_groups_is_found_by_character_and_keeps_its_filter(store_url: str) -> None:
    query = "environment=npc_arena&label=hob&min_mean=0.1&max_mean=x&until=2999-01-01&sort=-mean"
    outline = Outline(look(store_url, f"/view/groups?{query}").text)
    words = outline.words()
    assert "Not understood, so it filters nothing: max mean." in words
    (told,) = [link for link in outline.links() if link.startswith("/view/groups?") and "sort=mean" in link]
    assert told == "/view/groups?environment=npc_arena&label=hob&min_mean=0.1&max_mean=x&until=2999-01-01&sort=mean"


def test_a_search_in_texts_is_typed_as_a_text_and_says_what_it_does_not_have_yet(store_url: str) -> None:
    typed = f'"because of" {EVIL}'
    outline = Outline(look(store_url, f"/view/groups?{urlencode({'text': typed})}").text)
    assert "The 6 newest groups are not searched by text yet." in outline.words()
    values = [value for tag, name, value in outline.attributes if (tag, name) == ("input", "value")]
    assert (typed in values, outline.elements.count("script")) == (True, 1)
    assert (
        "Not understood, so it filters nothing: text."
        in Outline(look(store_url, "/view/groups?text=%22*").text).words()
    )
