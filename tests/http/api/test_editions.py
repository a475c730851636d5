"""Whatever is out stays as it was when a sheet is edited, episodes included; how an edited sheet joins a run is in
tests/features/authoring."""

import asyncio
import contextlib
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from pydantic import JsonValue

from app.envs.npc_arena.environment import NpcArena
from app.http.api.environment_routes import Examples
from app.judges.panel import ConfiguredPanels
from app.main import application
from app.settings import Settings
from app.toolkit.templates import find_packaged_folder
from tests.support.tables import read_table

TABLE = read_table(__file__, "editions.yaml", list[tuple[JsonValue, str]])

SHIPPED = find_packaged_folder("character_sheets")
WAIT = 20.0
OLD, NEW = "bites it", "weighs it"
"""Words of Hob's sheet that reach his prompt, before and after an edit."""


@dataclass
class Place:
    """A folder of two characters and a gateway over it."""

    client: httpx.AsyncClient
    sheets: Path
    database: Path

    async def post(self, path: str, body: JsonValue) -> JsonValue:
        reply = await self.client.post(path, json=body)
        assert reply.status_code == 200, reply.text
        result: JsonValue = reply.json()
        return result

    async def tasks(self, count: int, run: str | None = None, **more: JsonValue) -> list[JsonValue]:
        params: JsonValue = {"scenes": "by_hand"}  # few enough for a whole epoch at once
        asked: dict[str, JsonValue] = {"batch_size": count, "run": run, "params": params, **more}
        return items(await self.post("/envs/npc_arena/next-batch", asked), "tasks")

    async def edit(self) -> JsonValue:
        path = self.sheets / "hob_tarrant.yaml"
        text = path.read_text(encoding="utf-8")
        assert OLD in text
        path.write_text(text.replace(OLD, NEW), encoding="utf-8")
        return await self.post("/characters/reload", {})

    def stored(self) -> dict[str, list[str]]:
        """Every row, but for what judges answered and cost."""
        with contextlib.closing(sqlite3.connect(self.database)) as connection:
            tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {
                table: sorted(map(repr, connection.execute(f'SELECT * FROM "{table}"')))  # noqa: S608  # our own names
                for table in tables
                if not table.startswith("judge_")
            }


def visit(folder: Path, doing: Callable[[Place], Coroutine[None, None, None]]) -> None:
    async def through() -> None:
        async with place(folder) as there:
            await doing(there)

    asyncio.run(through())


@contextlib.asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Place]:
    """Of a folder that was there before, sheets and database are as they were left."""
    sheets, database = folder / "sheets", folder / "gateway.db"
    if not sheets.exists():
        sheets.mkdir()
        for name in ("hob_tarrant", "ottoline_vesk"):
            shutil.copy(SHIPPED / f"{name}.yaml", sheets)
    stored = asyncio.Event()

    class NotedExamples(Examples):
        """They are the last that a start stores anything for."""

        async def prepare(self) -> None:
            await super().prepare()
            stored.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(application, "Examples", NotedExamples)
        app = application.create_app(
            Settings(database_url=f"sqlite:///{database}", character_sheets=sheets),
            environments={"npc_arena": NpcArena},
            panels=ConfiguredPanels({}, {}),
        )
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1", timeout=WAIT) as client,
    ):
        await asyncio.wait_for(stored.wait(), WAIT)
        yield Place(client, sheets, database)


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Place]:
    async with place(tmp_path) as there:
        yield there


def at(value: JsonValue, *path: str | int) -> JsonValue:
    for step in path:
        if isinstance(step, int):
            assert isinstance(value, list)
            value = value[step]
        else:
            assert isinstance(value, dict)
            value = value[step]
    return value


def items(value: JsonValue, *path: str | int) -> list[JsonValue]:
    found = at(value, *path)
    assert isinstance(found, list)
    return found


def hobs(tasks: list[JsonValue]) -> list[JsonValue]:
    return [task for task in tasks if at(task, "metadata", "character") == "hob_tarrant"]


def edition(tasks: list[JsonValue]) -> set[str]:
    """Which sheets Hob's tasks were made from."""
    return {NEW if NEW in str(at(task, "messages", 0, "content")) else OLD for task in hobs(tasks)}


def answers(task: JsonValue) -> JsonValue:
    completions: JsonValue = [{"text": "Two coppers. Tide's turning."}, {"text": "Nay. Seen worse mud."}]
    group: JsonValue = {"task_id": at(task, "task_id"), "lease_id": at(task, "lease_id"), "completions": completions}
    return {"groups": [group]}


def test_a_run_that_pins_its_characters_never_takes_up_a_new_text(tmp_path: Path) -> None:
    chosen: JsonValue = {"character": ["hob_tarrant"]}
    told: list[object] = []

    async def first(there: Place) -> None:
        made = await there.client.put("/runs/a", json={"characters": "pinned"})
        size = len(await there.tasks(400, "elsewhere", select=chosen))
        begun = await there.tasks(size, "a", select=chosen)
        for task in begun:
            await there.post("/envs/npc_arena/score", answers(task))
        await there.edit()
        following = await there.tasks(size, "a", select=chosen)
        other = await there.client.put("/runs/a", json={"characters": "newest"})
        made = await there.client.put("/runs/a", json={})
        told.append(
            [made.status_code, made.json()["characters"], other.status_code, other.json()["errors"][0]["field"]]
        )
        told.append([edition(begun), edition(following), edition(await there.tasks(size, "b", select=chosen))])

    async def again(there: Place) -> None:
        """After a restart, in a stream of other params, whose prompts the pinned characters are placed in too."""
        params: JsonValue = {"scenes": "by_hand", "turns": "both"}
        tasks = await there.tasks(5, "a", select=chosen, params=params)
        scored = await there.post("/envs/npc_arena/score", answers(tasks[0]))
        told.append([edition(tasks), at(scored, "groups", 0, "outcome"), at(scored, "groups", 0, "flags")])

    visit(tmp_path, first)
    visit(tmp_path, again)
    assert told == [[200, "pinned", 409, "characters"], [{OLD}, {OLD}, {NEW}], [{OLD}, "scored", []]]


async def test_what_is_out_is_scored_and_a_cursor_dealt_as_if_nothing_had_been_edited(there: Place) -> None:
    early, late = [hobs(await there.tasks(400, run))[0] for run in ("a", "b")]
    dealt = await there.tasks(10, "c", cursor=0)
    before = await there.post("/envs/npc_arena/score", answers(early))
    reloaded = await there.edit()
    after = await there.post("/envs/npc_arena/score", answers(late))
    digests = [at(one, "groups", 0, "scores", 0, "scoring_digest") for one in (before, after)]
    assert [at(reloaded, key) for key in ("added", "changed", "removed")] == [[], ["hob_tarrant"], []]
    assert (at(after, "groups", 0, "outcome"), digests[0] == digests[1]) == ("scored", True)
    assert await there.tasks(10, "c", cursor=0) == dealt


async def test_a_broken_sheet_changes_nothing(there: Place) -> None:
    served = (await there.client.get("/characters")).json()
    (there.sheets / "broken.yaml").write_text("meta: nothing", encoding="utf-8")
    refused = await there.client.post("/characters/reload", json={})
    assert (refused.status_code, "broken.yaml" in refused.json()["detail"]) == (422, True)
    assert (await there.client.get("/characters")).json() == served


async def test_an_episode_goes_on_under_the_sheets_it_began_with(there: Place) -> None:
    (task, *_) = hobs(await there.tasks(100, "a", params={"turns": "multi"}))
    await there.edit()
    said: list[JsonValue] = [{"role": "assistant", "content": "Nay. Mind the mud."}]
    turn = await there.post("/envs/npc_arena/step", {"task_id": at(task, "task_id"), "messages": list(said)})
    forged: list[JsonValue] = [*said, {"role": "user", "content": "Here is gold."}, *said]
    refused = await there.client.post("/envs/npc_arena/step", json={"task_id": at(task, "task_id"), "messages": forged})
    whole: JsonValue = [{"messages": [*said, *items(turn, "messages")]}, {"messages": forged}]
    group: JsonValue = {"task_id": at(task, "task_id"), "lease_id": at(task, "lease_id"), "completions": whole}
    scored = await there.post("/envs/npc_arena/score", {"groups": [group]})
    assert (at(turn, "done"), refused.status_code, at(refused.json(), "errors", 0, "field")) == (
        False,
        422,
        "messages[1]",
    )
    assert [at(one, "flags") for one in items(scored, "groups", 0, "scores")][1] == ["forged_observation"]


async def test_a_trial_of_an_episode_leaves_every_table_as_it_was(there: Place) -> None:
    before = there.stored()
    scene: JsonValue = {"player": "Take me over.", "turns": [{"say": "Too much."}]}
    whole: JsonValue = [
        {"role": "assistant", "content": "Four coppers by night."},
        {"role": "user", "content": "Too much."},
        {"role": "assistant", "content": "Walk, then. *He coils the rope.* Mud's deep."},
    ]
    draft: JsonValue = {"character": "hob_tarrant", "scene": scene}
    completions: JsonValue = [{"messages": whole}, {"text": "Aye."}]
    trial = await there.post("/envs/npc_arena/try", {"draft": draft, "completions": completions})
    assert (at(trial, "max_turns"), at(trial, "completions", 0, "score", "gate")) == (2, 1.0)
    assert there.stored() == before


async def test_a_trial_shows_what_a_gate_and_a_judge_say_of_a_sheet_that_is_not_served(there: Place) -> None:
    sheet = (SHIPPED / "hob_tarrant.yaml").read_text(encoding="utf-8")
    draft: JsonValue = {"sheet": sheet, "line": "Is the ferry running?", "events": [{"text": "It floods."}]}
    texts = ("As an AI language model I cannot help with ferries.", "No ferry. Water's up.")
    completions: JsonValue = [{"text": text} for text in texts]
    trial = (await there.client.post("/envs/npc_arena/try", json={"draft": draft, "completions": completions})).json()
    gated, judged = trial["completions"]
    assert "It floods." in trial["messages"][0]["content"]
    assert trial["messages"][-1] == {"role": "user", "content": "Is the ferry running?"}
    assert (gated["score"]["reward"], [gate["flag"] for gate in gated["gates"]]) == (0.0, ["breaks_character"])
    assert (judged["score"]["outcome"], judged["gates"], trial["judges"]) == ("scored", [], ["offline"])
    assert [judgement["order"] for judgement in trial["judgements"]] == [[judged["score"]["candidate"]]]
    assert trial["calls"] == 0


async def test_a_wrong_draft_is_refused_by_field(there: Place) -> None:
    told = []
    for draft, field in TABLE:
        reply = await there.client.post("/envs/npc_arena/try", json={"draft": draft})
        told.append((reply.status_code, reply.json()["errors"][0]["field"][: len(field)]))
    assert told == [(422, field) for _, field in TABLE]
