"""Scenes as rows of a data set: what a spreadsheet may say, what is refused, and the tasks that come of it."""

import asyncio
import csv
import json
from pathlib import Path
from typing import Any

import pytest

from app.characters.loading import read_sheets
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import EnvironmentUnavailable
from app.domain.runs import ScoringOptions
from app.domain.tasks import Completion, DatasetSource
from app.envs.npc_arena.environment import NpcArena, NpcArenaParams
from app.judges.chat_judge import ScriptedJudge
from app.judges.panel import ConfiguredPanels
from app.ports.environment import Tools
from app.toolkit.templates import find_packaged_folder
from tests.envs.npc_arena.test_traps import TOOLS
from tests.support.tables import read_table

TABLE = read_table(__file__, "scene_rows.yaml", tuple[tuple[dict[str, Any], str], ...])

PLAIN = {"character": "hob_tarrant", "player": "Can you take me across before dark?"}
RICH = {
    "character": "ottoline_vesk",
    "event": "The noon bell rings eleven strokes.",
    "history": "player: Good morning.\nnpc: Is it?",
    "turns": "Who is it for?\nAnd who rang it?",
    "visible": json.dumps([{"id": "bell", "time": "noon", "text": "The bell rang eleven strokes."}]),
    "kind": "recent_event",
    "exemplar": "Eleven. I counted them as well.",
    "notes": "She knows whom it is for.",
}


def write_csv(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=sorted({name for row in rows for name in row}))
        writer.writeheader()
        writer.writerows(rows)
    return path


def open_arena(path: Path, cache: Path) -> NpcArena:
    sources = {"npc_arena": {"mine": DatasetSource(source=str(path))}}
    return NpcArena.open(ConfiguredDatasets(sources, hub_cache=cache))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "rows"
    made.mkdir()
    return made


def test_a_spreadsheet_of_scenes_is_served(folder: Path, tmp_path: Path) -> None:
    write_csv(folder / "train.csv", [PLAIN, RICH])
    arena = open_arena(folder, tmp_path)
    tasks = [arena.task("train", index, NpcArenaParams()) for index in range(arena.size("train", NpcArenaParams()))]
    shown = [(task.messages[-1].content, task.max_turns, task.metadata["character"]) for task in tasks]
    assert shown == [
        ("Can you take me across before dark?", 1, "hob_tarrant"),
        ("[The noon bell rings eleven strokes.]", 3, "ottoline_vesk"),
    ]
    assert [(gold := arena.gold(task)) and gold.text for task in tasks] == [None, RICH["exemplar"]]


def test_rows_have_earlier_conversations_and_other_characters_and_their_exemplars_are_right(
    folder: Path, tmp_path: Path
) -> None:
    earlier = [{"when": "two days ago", "lines": [{"speaker": "player", "text": "He sails on Sunday."}]}]
    tempting = [{"say": "Who?", "why": "It was said."}]
    remembered = {"memory": {"must_recall": [["Sunday"]], "tempting": tempting}, "exemplar": "Sunday, tha said."}
    lines = [{"speaker": "npc", "text": "Sit."}, {"speaker": "Wren", "text": "Is it deep?"}]
    held_out = next(one.id for one in read_sheets(find_packaged_folder("character_sheets")) if one.meta.held_out)
    others = [{"name": "Wren", "here": "She coils."}, {"name": "Lady", "sheet": held_out, "here": "She waits."}]
    seat = {"lines": lines, "exemplar": "Deep enough.", "tempting": tempting}
    company = {"character": "hob_tarrant", "others": others, "seat": seat}
    rows = [{**PLAIN, "player": "When does he sail?", "earlier": earlier, **remembered}, company]
    cells = [{name: one if isinstance(one, str) else json.dumps(one) for name, one in row.items()} for row in rows]
    for split in ("train", "test"):
        write_csv(folder / f"{split}.csv", cells)
    arena = open_arena(folder, tmp_path)
    assert [arena.size(split, NpcArenaParams()) for split in ("train", "test")] == [1, 2]
    told = []
    for task in (arena.task("test", index, NpcArenaParams()) for index in range(2)):
        (score,) = asyncio.run(arena.score(task, [arena.gold(task) or Completion(text="")], TOOLS))
        part = score.criteria[-1]
        told.append((task.metadata["scene_kind"], len(task.messages), part.name, part.value))
    assert told == [("memory", 2, "recall", 1.0), ("company", 4, "turn_taking", 1.0)]


def test_tasks_without_rows_are_as_before(folder: Path, tmp_path: Path) -> None:
    write_csv(folder / "train.csv", [PLAIN])
    with_rows = open_arena(folder, tmp_path)
    without = NpcArena.read(find_packaged_folder("character_sheets"))
    chosen = NpcArenaParams(dataset="built-in")
    places = range(0, without.size("train", NpcArenaParams()), 400)
    bare = [without.task("train", index, NpcArenaParams()) for index in places]
    own = [with_rows.task("train", index, chosen) for index in places]
    assert [task.messages for task in own] == [task.messages for task in bare]


def test_a_row_is_judged_as_a_scene_of_a_file(folder: Path, tmp_path: Path) -> None:
    (folder / "test.jsonl").write_text(json.dumps(PLAIN) + "\n", encoding="utf-8")
    arena = open_arena(folder, tmp_path)
    task = arena.task("test", 0, NpcArenaParams())
    judge = ScriptedJudge(lambda request, count: {one.id: 0.5 for one in request.candidates}, "judge")
    panels = ConfiguredPanels({"judge": judge}, {}, fallback=("judge",))
    panel = panels.build_panel("npc_arena", ScoringOptions())
    scores = asyncio.run(arena.score(task, [Completion(text="For two coppers, aye.")], Tools(panel=panel)))
    assert [score.outcome for score in scores] == ["scored"]


def test_who_is_held_out_is_in_no_task_of_training(folder: Path, tmp_path: Path) -> None:
    sheets = read_sheets(find_packaged_folder("character_sheets"))
    held_out = next(sheet.id for sheet in sheets if sheet.meta.held_out)
    write_csv(folder / "train.csv", [{**PLAIN, "character": held_out}, PLAIN])
    write_csv(folder / "test.csv", [{**PLAIN, "character": held_out}])
    arena = open_arena(folder, tmp_path)
    sizes = [arena.size(split, NpcArenaParams()) for split in ("train", "test")]
    left_out = arena.count_left_out("mine", "train")
    assert (sizes, left_out) == ([1, 1], {"its character is held out of training": 1})


@pytest.mark.parametrize(("row", "told"), [*TABLE, ({"player": "x" * 50_000}, "line 3.*`player`: wanted is text")])
def test_a_wrong_row_is_named_by_file_line_and_column(
    folder: Path, tmp_path: Path, row: dict[str, Any], told: str
) -> None:
    write_csv(folder / "train.csv", [PLAIN, {**PLAIN, "player": "Again?", **row}])
    with pytest.raises(EnvironmentUnavailable, match=told):
        open_arena(folder, tmp_path)
