"""NPC Arena as it ships, read once for all tests: they look at it and change nothing."""

from functools import cache

from app.characters.casting import Cast
from app.domain.tasks import Task
from app.domain.values import Split
from app.envs.npc_arena.environment import NpcArena, NpcArenaParams
from app.envs.npc_arena.roster import Turns
from app.toolkit.templates import find_packaged_folder

SPLITS: tuple[Split, ...] = ("train", "test")


@cache
def packaged_arena() -> NpcArena:
    return NpcArena.read(find_packaged_folder("character_sheets"))


@cache
def packaged_tasks(turns: Turns = "single") -> tuple[tuple[Cast, Task], ...]:
    """Of both splits, each with what it is made from."""
    arena, params = packaged_arena(), NpcArenaParams(turns=turns)
    tasks = [arena.task(split, index, params) for split in SPLITS for index in range(arena.size(split, params))]
    return tuple((cast, task) for task in tasks if (cast := arena.find_cast(task)) is not None)
