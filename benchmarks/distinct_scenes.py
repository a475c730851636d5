"""How many tasks of NPC Arena differ, with names masked and the sheet left out, and how many are nearly the same."""

import argparse
import re
from collections import defaultdict
from pathlib import Path

from app.characters.casting import Cast
from app.characters.lorebooks import split_spoken_words
from app.domain.values import Split
from app.envs.npc_arena.environment import NpcArena, NpcArenaParams
from app.envs.npc_arena.roster import Written
from app.toolkit.templates import find_packaged_folder

NEAR = 0.8
SHINGLE = 3
Shingles = frozenset[tuple[str, ...]]


def write_scene(cast: Cast) -> str:
    """What a scene tells the model beyond the sheet."""
    scene = cast.scene
    told = (scene.location, scene.time, scene.situation, *(event.text for event in scene.visible))
    said = (*(line.text for line in scene.history), scene.opening)
    turns = (line for turn in scene.turns for line in (turn.say, *(reaction.say for reaction in turn.when)))
    return "\n".join(filter(None, (*told, *said, *turns)))


def mask_names(text: str, names: frozenset[str]) -> str:
    spelled = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.sub(rf"(?<!\w)(?:{spelled})(?!\w)", "N", text, flags=re.IGNORECASE) if spelled else text


def list_names(cast: Cast) -> frozenset[str]:
    identity = cast.sheet.identity
    return frozenset((identity.name, *identity.aliases, *(other.target for other in cast.sheet.relationships)))


def cut_shingles(text: str) -> Shingles:
    words = split_spoken_words(text)
    return frozenset(tuple(words[at : at + SHINGLE]) for at in range(max(1, len(words) - SHINGLE + 1)))


def find_near(texts: list[Shingles]) -> list[tuple[int, int]]:
    """Each text that is near an earlier one, with the first such."""
    seen: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    found: list[tuple[int, int]] = []
    for place, own in enumerate(texts):
        shared: defaultdict[int, int] = defaultdict(int)
        for shingle in own:
            for other in seen[shingle]:
                shared[other] += 1
            seen[shingle].append(place)
        near = [one for one, both in shared.items() if both / (len(own) + len(texts[one]) - both) >= NEAR]
        if near:
            found.append((place, min(near)))
    return found


def list_casts(arena: NpcArena, split: Split, written: Written) -> list[Cast]:
    params = NpcArenaParams(turns="both", scenes=written)
    tasks = (arena.task(split, index, params) for index in range(arena.size(split, params)))
    return [cast for cast in map(arena.find_cast, tasks) if cast is not None]


def count(arena: NpcArena, written: Written) -> dict[str, int]:
    train, test = list_casts(arena, "train", written), list_casts(arena, "test", written)
    masked = [mask_names(write_scene(cast), list_names(cast)) for cast in (*train, *test)]
    near = find_near([cut_shingles(text) for text in masked])
    return {
        "train": len(train),
        "test": len(test),
        "several turns": sum(cast.scene.max_turns > 1 for cast in (*train, *test)),
        "languages": len({cast.sheet.voice.language for cast in (*train, *test)}),
        "distinct, names masked": len(set(masked)),
        "not nearly an earlier one": len(masked) - len(near),
        "near across splits": sum(first < len(train) <= place for place, first in near),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=find_packaged_folder("character_sheets"))
    arena = NpcArena.read(parser.parse_args().folder)
    kinds: tuple[Written, ...] = ("by_hand", "composed", "all")
    for written in kinds:
        print(written, count(arena, written))


if __name__ == "__main__":
    main()
