"""A folder of characters brings its scenes, lorebooks and worlds; shipped scenes fill up."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.characters.loading import read_scenes, read_sheets
from app.characters.lorebooks import split_spoken_words
from app.characters.scenes import SceneReaction
from app.characters.schema import CharacterSheet
from app.cli.main import cli
from app.domain.errors import EnvironmentUnavailable
from app.domain.tasks import Task
from app.domain.values import Split
from app.envs.npc_arena.environment import PACKAGED_SCENES, NpcArena, NpcArenaParams
from app.toolkit.templates import find_packaged_folder

HOB = (find_packaged_folder("character_sheets") / "hob_tarrant.yaml").read_text(encoding="utf-8")
SCENES = """
character: mara
scenes:
  - {id: mara-lamp, kind: small_talk, split: train, player: Is the lamp lit?, exemplar: It is lit. Sit.}
  - {id: mara-oil, kind: small_talk, split: test, player: Who brings the oil?}
"""
BOOK = "entries: [{id: lamp, keys: [lamp], content: The lamp of Saint Brice is never put out.}]"
WORLD = """
world: lamplands
events: [{id: wick, time: "1312-04-03T09:15:00Z", text: "The wick was changed."}]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of one character, with all that it may bring."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    sheets = tmp_path / "my_sheets"
    files = {
        "mara.yaml": HOB.replace("id: hob_tarrant", "id: mara"),
        "scenes/mara.yaml": SCENES,
        "lorebooks/mara.yaml": BOOK,
        "worlds/lamplands.yaml": WORLD,
    }
    for name, text in files.items():
        (sheets / name).parent.mkdir(parents=True, exist_ok=True)
        (sheets / name).write_text(text, encoding="utf-8")
    return sheets


def run(*arguments: str, sheets: Path | None = None) -> Result:
    env = {} if sheets is None else {"ATROPOS_ENVS_CHARACTER_SHEETS": str(sheets)}
    return CliRunner().invoke(cli, list(arguments), env=env)


def list_tasks(arena: NpcArena, split: Split) -> list[Task]:
    params = NpcArenaParams(turns="both")
    return [arena.task(split, index, params) for index in range(arena.size(split, params))]


def list_scenes(arena: NpcArena, kind: str) -> set[object]:
    splits: tuple[Split, ...] = ("train", "test")
    tasks = [task for split in splits for task in list_tasks(arena, split)]
    return {task.metadata["scene"] for task in tasks if task.metadata["scene_kind"] == kind}


def test_its_scenes_come_first_and_shipped_ones_fill_up(folder: Path) -> None:
    arena = NpcArena.read(folder)
    small_talk, insults = list_scenes(arena, "small_talk"), list_scenes(arena, "insult")
    assert (small_talk, {str(scene).partition("-")[0] for scene in insults}) == (
        {"mara-lamp", "mara-oil", "episode-tremor"},  # an episode is of another form
        {"generic"},
    )


def test_its_lorebook_is_the_characters(folder: Path) -> None:
    arena = NpcArena.read(folder)
    lamp = next(task for task in list_tasks(arena, "train") if task.metadata["scene"] == "mara-lamp")
    assert "The lamp of Saint Brice is never put out." in (lamp.messages[0].content or "")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("lorebooks/nobody.yaml", BOOK, "there is no sheet 'nobody'"),
        ("lorebooks/mra.yaml", BOOK, "there is no sheet 'mra'; did you mean 'mara'?"),
        ("lorebooks/mara.yaml", "entries: 3", "lorebooks/mara.yaml: entries"),
        ("scenes/mara.yaml", "scenes: []", "mara.yaml: scenes"),
    ],
)
def test_what_is_broken_is_named(folder: Path, name: str, text: str, says: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(EnvironmentUnavailable, match=says):
        NpcArena.read(folder)
    assert run("sheets", "check", str(folder)).exit_code == 2


def test_a_scene_of_its_own_is_tried(folder: Path) -> None:
    beside = run("sheets", "try", str(folder / "mara.yaml"), "--scene", "mara-lamp", "--prompt")
    elsewhere = folder.rename(folder.with_name("other"))
    moved = (elsewhere / "scenes").rename(elsewhere.with_name("moved"))
    given = run("sheets", "try", str(elsewhere / "mara.yaml"), "--scene", "mara-oil", "--scenes", str(moved))
    unknown = run("sheets", "try", str(elsewhere / "mara.yaml"), "--scene", "mara-oil")
    assert "The lamp of Saint Brice is never put out." in beside.output
    shown = ("user: Is the lamp lit?" in beside.output, "user: Who brings the oil?" in given.output)
    assert (shown, unknown.exit_code) == ((True, True), 2)


def test_the_configured_folder_is_tried_by_id(folder: Path) -> None:
    assert "user: Is the lamp lit?" in run("sheets", "try", "mara", "--scene", "mara-lamp", sheets=folder).output


@pytest.mark.parametrize("given", [(), ("--scenes", "my_sheets/scenes")])
def test_generic_scenes_count_in_a_check(folder: Path, given: tuple[str, ...]) -> None:
    report = json.loads(run("sheets", "check", str(folder), *given, "--json").stdout)
    told = [finding["message"] for finding in report["findings"]]
    assert (report["errors"], [text for text in told if "generic" in text or "no scenes of its own" in text]) == (0, [])


def test_a_japanese_sheet_gets_scenes_and_rules_in_its_language() -> None:
    sheet = read_sheets(find_packaged_folder("character_sheets"))[0]
    japanese = sheet.model_copy(update={"voice": sheet.voice.model_copy(update={"language": "ja"})})
    arena = NpcArena([japanese], (), fallback=read_scenes(PACKAGED_SCENES))
    prompts = [task.messages[0].content or "" for task in list_tasks(arena, "train")]
    assert (len(prompts) > 5, all("# 規則" in prompt and "# Rules" not in prompt for prompt in prompts)) == (True, True)


@pytest.mark.parametrize(
    ("rating", "said"), [("everyone", "children included"), ("teen", "a reader of thirteen"), ("mature", None)]
)
def test_the_content_rating_is_told(rating: str, said: str | None) -> None:
    sheet = read_sheets(find_packaged_folder("character_sheets"))[0]
    told = {**sheet.model_dump(), "boundaries": {"content_rating": rating, "forbidden_topics": ["the toll"]}}
    arena = NpcArena([CharacterSheet.model_validate(told)], (), fallback=read_scenes(PACKAGED_SCENES))
    prompt = list_tasks(arena, "train")[0].messages[0].content or ""
    assert ("No talk about the toll." in prompt, "fit for" in prompt, (said or "") in prompt) == (
        True,
        said is not None,
        True,
    )


@pytest.mark.parametrize(("reply", "met"), [("ええ、灯りはつけましたよ。", True), ("知りませんね。", False)])
def test_a_condition_is_found_in_a_text_without_spaces(reply: str, met: bool) -> None:
    reaction = SceneReaction(any_of=("灯り",), say="誰が？")
    assert reaction.matches_reply(f" {' '.join(split_spoken_words(reply))} ") == met
