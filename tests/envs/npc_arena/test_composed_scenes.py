"""Scenes composed from a card and the events of its world."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from app.envs.npc_arena.environment import NpcArena, NpcArenaParams
from tests.support.distinct_scenes import find_near, list_composed_casts, write_masked_scene
from tests.support.tables import read_table

NEWS = read_table(__file__, "news.yaml", tuple[str, ...])

CARD = Path(__file__).parents[3] / "examples" / "mara_quill.json"
HARBOURS = ("Sallow Point", "Grey Haven", "Tarn Mouth", "Low Sound", "Cold Quay")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An imported card, and a world of fifty events."""
    sheets = tmp_path / "my_sheets"
    assert CliRunner().invoke(cli, ["sheets", "import", str(CARD), "--to", str(sheets)]).exit_code == 0
    texts = [news.format(harbour) for news in NEWS for harbour in HARBOURS]
    events = [
        f'  - {{id: e{number}, time: "1312-04-03T{number % 24:02}:15:00Z", text: "{text}"}}'
        for number, text in enumerate(texts)
    ]
    (sheets / "worlds").mkdir()
    (sheets / "worlds" / "coast.yaml").write_text("\n".join(["world: coast", "events:", *events]), encoding="utf-8")
    return sheets


def test_a_card_and_fifty_events_make_two_hundred_tasks_that_name_what_they_probe(folder: Path) -> None:
    arena = NpcArena.read(folder)
    params = NpcArenaParams(scenes="composed")
    size = arena.size("train", params)
    unnamed = [at for at in range(size) if ": " not in str(arena.task("train", at, params).metadata["probe"])]
    train, test = list_composed_casts(arena, "train"), list_composed_casts(arena, "test")
    near = find_near([write_masked_scene(cast) for cast in (*train, *test)])
    voice = sum(cast.scene.probe == "voice" for cast in train)
    assert (size >= 200, len(unnamed) <= voice, len(near) <= 0.2 * size) == (True, True, True)
    assert [pair for pair in near if pair[1] < len(train) <= pair[0]] == []
