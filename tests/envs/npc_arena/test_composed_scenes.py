"""Scenes composed from a card and the events of its world."""

import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.characters.casting import Cast
from app.characters.lorebooks import split_spoken_words
from app.cli.main import cli
from app.domain.values import Split
from app.envs.npc_arena.environment import NpcArena, NpcArenaParams
from tests.support.tables import read_table

NEWS = read_table(__file__, "news.yaml", tuple[str, ...])
NEAR = 0.8
"""Jaccard's index of the runs of three words."""


def write_masked_scene(cast: Cast) -> str:
    """What a scene tells the model beyond the sheet, without names."""
    scene, identity = cast.scene, cast.sheet.identity
    told = (scene.location, scene.time, scene.situation, *(event.text for event in scene.visible))
    said = (*(line.text for line in scene.history), scene.opening)
    turns = (line for turn in scene.turns for line in (turn.say, *(reaction.say for reaction in turn.when)))
    names = {identity.name, *identity.aliases, *(other.target for other in cast.sheet.relationships)}
    spelled = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.sub(rf"(?<!\w)(?:{spelled})(?!\w)", "N", "\n".join(filter(None, (*told, *said, *turns))), flags=re.I)


def find_near(texts: list[str]) -> list[tuple[int, int]]:
    """Each text that is near an earlier one, with the first such."""
    cut = [frozenset(zip(words, words[1:], words[2:], strict=False)) for words in map(split_spoken_words, texts)]
    seen: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    found: list[tuple[int, int]] = []
    for place, own in enumerate(cut):
        shared = Counter(other for run in own for other in seen[run])
        for run in own:
            seen[run].append(place)
        near = [one for one, both in shared.items() if both / (len(own) + len(cut[one]) - both) >= NEAR]
        if near:
            found.append((place, min(near)))
    return found


def list_composed_casts(arena: NpcArena, split: Split) -> list[Cast]:
    params = NpcArenaParams(turns="both", scenes="composed")
    tasks = (arena.task(split, index, params) for index in range(arena.size(split, params)))
    return [cast for cast in map(arena.find_cast, tasks) if cast is not None]


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
