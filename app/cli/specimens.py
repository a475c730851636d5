"""What judges are checked by: replies of the characters that ship, in their scenes, and what spoils them."""

from app.domain.values import Split
from app.envs.npc_arena import NpcArena, Params
from app.judges.corruption import Specimen, one_each, packaged_templates, pairs, specimens
from app.judges.measuring import Questions
from app.packaged import packaged_folder
from app.sheets.casting import Cast

_SPLITS: tuple[Split, ...] = ("train", "test")


def packaged_specimens() -> tuple[Specimen, ...]:
    """EnvironmentUnavailable when a sheet or a scene that ships is broken."""
    return specimens_of(NpcArena.read(packaged_folder("character_sheets")))


def packaged_questions(sheets: int, votes: int, seed: int) -> Questions:
    """About one reply of each of so many characters, drawn by `seed`."""
    if NpcArena.rubric is None:
        raise ValueError("NPC Arena has no rubric")
    chosen = one_each(packaged_specimens(), sheets, seed)
    return Questions(pairs(chosen, packaged_templates(), seed), chosen, NpcArena.rubric, votes)


def specimens_of(arena: NpcArena) -> tuple[Specimen, ...]:
    staged: list[tuple[Cast, str]] = []
    for split in _SPLITS:
        for index in range(arena.size(split, Params())):
            task = arena.task(split, index, Params())
            cast = arena.cast(task)
            if cast is not None and cast.exemplar is not None:
                staged.append((cast, task.messages[0].content or ""))
    return specimens(staged)
