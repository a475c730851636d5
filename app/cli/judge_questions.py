"""Questions for checking judges: exemplars of the bundled characters, and perturbations of them."""

import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from app.characters.casting import Cast
from app.characters.loading import read_scenes, read_sheets
from app.domain.judging import Rubric
from app.domain.values import Split
from app.envs.npc_arena.environment import NpcArena, NpcArenaParams
from app.judges.degradation import build_ladders
from app.judges.gold_cases import GoldCase
from app.judges.meta_evaluation import CheckQuestions
from app.judges.perturbations import MUTATIONS, Templates, load_packaged_templates
from app.judges.perturbed_pairs import build_gold_cases, build_pairs, sample_one_per_character, sample_seldom_pairs
from app.toolkit.package_data import find_packaged_folder

SHORT_CHARACTERS: Final = 8
SHORT_REPEATS: Final = 3
SHORT_LADDERS: Final = 1

_SPLITS: tuple[Split, ...] = ("train", "test")


@cache
def load_packaged_specimens() -> tuple[GoldCase, ...]:
    """EnvironmentUnavailable when a bundled sheet or scene is broken."""
    return collect_specimens(NpcArena.read(find_packaged_folder("character_sheets")))


def load_specimens(sheets: Path, scenes: Path) -> tuple[GoldCase, ...]:
    """Specimens of the characters and scenes in these folders. GatewayError naming the file and field of an error."""
    return collect_specimens(NpcArena(read_sheets(sheets), read_scenes(scenes), sheets.name))


def build_packaged_questions(sheets: int, votes: int, seed: int, rubric: Rubric | None = None) -> CheckQuestions:
    """Questions about one reply of each of `sheets` random characters, plus as many of each rare perturbation."""
    found = load_packaged_specimens()
    chosen, templates = sample_one_per_character(found, sheets, seed), load_packaged_templates()
    asked = build_questions(chosen, templates, votes, seed, rubric)
    return replace(asked, pairs=(*asked.pairs, *sample_seldom_pairs(found, chosen, templates, sheets, seed)))


def build_short_questions(seed: int, rubric: Rubric | None = None) -> CheckQuestions:
    """About 50 questions: one pair of each mutation, a few equal replies and degradation ladders, no retests. For
    changes of a prompt or a rubric, in an author's own tests."""
    found = load_packaged_specimens()
    chosen, templates = sample_one_per_character(found, SHORT_CHARACTERS, seed), load_packaged_templates()
    pairs = (*build_pairs(chosen, templates, seed), *sample_seldom_pairs(found, chosen, templates, 1, seed))
    by_mutation = {pair.mutation: pair for pair in random.Random(seed).sample(pairs, len(pairs))}  # noqa: S311
    some = build_questions(chosen[:SHORT_REPEATS], templates, seed=seed, rubric=rubric)
    return replace(
        some,
        pairs=tuple(by_mutation[mutation.name] for mutation in MUTATIONS if mutation.name in by_mutation),
        ladders=some.ladders[:SHORT_LADDERS],
        retest_every=0,
    )


def build_questions(
    chosen: tuple[GoldCase, ...], templates: Templates, votes: int = 1, seed: int = 0, rubric: Rubric | None = None
) -> CheckQuestions:
    """Without a `rubric` by the one of NPC Arena."""
    rubric = rubric or NpcArena.rubric
    if rubric is None:
        raise ValueError("NPC Arena has no rubric")
    return CheckQuestions(
        pairs=build_pairs(chosen, templates, seed),
        twice=chosen,
        ladders=build_ladders(chosen, templates, seed),
        rubric=rubric,
        votes=votes,
    )


def collect_specimens(arena: NpcArena) -> tuple[GoldCase, ...]:
    staged: list[tuple[Cast, str]] = []
    for split in _SPLITS:
        for index in range(arena.size(split, NpcArenaParams())):
            task = arena.task(split, index, NpcArenaParams())
            cast = arena.find_cast(task)
            if cast is not None and cast.exemplar is not None:
                staged.append((cast, task.messages[0].content or ""))
    return build_gold_cases(staged)
