"""How many tasks of NPC Arena are nearly the same, with names masked and the sheet left out."""

import re
from collections import Counter, defaultdict

from app.characters.casting import Cast
from app.characters.lorebooks import split_spoken_words
from app.domain.values import Split
from app.envs.npc_arena.environment import NpcArena, NpcArenaParams

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
