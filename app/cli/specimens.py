"""Questions for checking judges: exemplars of the bundled characters, and perturbations of them."""

from dataclasses import replace
from pathlib import Path

from app.characters.casting import Cast
from app.characters.loading import read_scenes, read_sheets
from app.domain.values import Split
from app.envs.npc_arena.environment import NpcArena, Params
from app.judges.corruption import (
    Specimen,
    Templates,
    one_each,
    packaged_templates,
    pairs,
    seldom_pairs,
    specimens,
)
from app.judges.ladders import ladders
from app.judges.measuring import Questions
from app.toolkit.package_data import packaged_folder

_SPLITS: tuple[Split, ...] = ("train", "test")


def packaged_specimens() -> tuple[Specimen, ...]:
    """EnvironmentUnavailable when a bundled sheet or scene is broken."""
    return specimens_of(NpcArena.read(packaged_folder("character_sheets")))


def specimens_in(sheets: Path, scenes: Path) -> tuple[Specimen, ...]:
    """Specimens of the characters and scenes in these folders. GatewayError naming the file and field of an error."""
    return specimens_of(NpcArena(read_sheets(sheets), read_scenes(scenes), sheets.name))


def packaged_questions(sheets: int, votes: int, seed: int) -> Questions:
    """Questions about one reply of each of `sheets` random characters, plus as many of each rare perturbation."""
    found = packaged_specimens()
    chosen, templates = one_each(found, sheets, seed), packaged_templates()
    asked = questions_about(chosen, templates, votes, seed)
    return replace(asked, pairs=(*asked.pairs, *seldom_pairs(found, chosen, templates, sheets, seed)))


def questions_about(chosen: tuple[Specimen, ...], templates: Templates, votes: int = 1, seed: int = 0) -> Questions:
    if NpcArena.rubric is None:
        raise ValueError("NPC Arena has no rubric")
    return Questions(
        pairs=pairs(chosen, templates, seed),
        twice=chosen,
        ladders=ladders(chosen, templates, seed),
        rubric=NpcArena.rubric,
        votes=votes,
    )


def specimens_of(arena: NpcArena) -> tuple[Specimen, ...]:
    staged: list[tuple[Cast, str]] = []
    for split in _SPLITS:
        for index in range(arena.size(split, Params())):
            task = arena.task(split, index, Params())
            cast = arena.cast(task)
            if cast is not None and cast.exemplar is not None:
                staged.append((cast, task.messages[0].content or ""))
    return specimens(staged)
