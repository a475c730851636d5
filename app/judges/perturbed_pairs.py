"""Pairs of a good reply and a spoilt one, drawn from gold cases."""

import random
from collections.abc import Iterator, Sequence

from app.characters.casting import (
    Cast,
)
from app.judges.gold_cases import GoldCase
from app.judges.perturbations import MUTATIONS, Mutation, PerturbationContext, PerturbedPair, Templates


def build_gold_cases(prompts: Sequence[tuple[Cast, str]]) -> tuple[GoldCase, ...]:
    """Builds a case for each character in a scene that has an exemplary reply, in the given order."""
    good = [(cast, cast.exemplar, prompt) for cast, prompt in prompts if cast.exemplar is not None]
    clean_in = {cast.scene.id: clean for cast, clean, _ in good}
    facing = {cast.scene.id: cast.scene.counterfactual_of for cast, _, _ in good if cast.scene.counterfactual_of}
    facing |= {factual: scene for scene, factual in facing.items()}
    return tuple(
        GoldCase(
            cast=cast,
            clean=clean,
            prompt=prompt,
            otherwise=clean_in.get(facing.get(cast.scene.id, "")),
            rivals=tuple(
                dict.fromkeys(
                    other
                    for rival, other, _ in good
                    if rival.sheet.id != cast.sheet.id and rival.sheet.voice.language == cast.sheet.voice.language
                )
            )
            or cast.sheet.probes.distractors,
        )
        for cast, clean, prompt in good
    )


def sample_one_per_character(found: Sequence[GoldCase], sheets: int, seed: int) -> tuple[GoldCase, ...]:
    """Samples one case for each of `sheets` characters, with `seed`."""
    chance = random.Random(f"{seed} characters")  # noqa: S311
    by_sheet: dict[str, list[GoldCase]] = {}
    for specimen in sorted(found, key=lambda each: (each.cast.sheet.id, each.cast.scene.id)):
        by_sheet.setdefault(specimen.cast.sheet.id, []).append(specimen)
    chosen = chance.sample(sorted(by_sheet), min(sheets, len(by_sheet)))
    return tuple(chance.choice(by_sheet[name]) for name in chosen)


def build_pairs(
    found: Sequence[GoldCase], templates: Templates, seed: int = 0, mutations: Sequence[Mutation] = MUTATIONS
) -> tuple[PerturbedPair, ...]:
    """Applies every mutation to every case it fits. The same seed gives the same pairs."""
    return tuple(_iterate_pairs(found, templates, seed, mutations))


def sample_seldom_pairs(
    found: Sequence[GoldCase], but: Sequence[GoldCase], templates: Templates, most: int, seed: int = 0
) -> tuple[PerturbedPair, ...]:
    """Samples up to `most` pairs of each seldom mutation with `seed`, from cases whose scenes are not in `but`."""
    scenes = {specimen.cast.scene.id for specimen in but}
    rest = [specimen for specimen in found if specimen.cast.scene.id not in scenes]
    drawn: list[PerturbedPair] = []
    for mutation in (mutation for mutation in MUTATIONS if mutation.seldom):
        chance = random.Random(f"{seed} {mutation.name}")  # noqa: S311
        made = build_pairs(rest, templates, seed, (mutation,))
        drawn += chance.sample(made, min(most, len(made)))
    return tuple(drawn)


def _iterate_pairs(
    found: Sequence[GoldCase], templates: Templates, seed: int, mutations: Sequence[Mutation]
) -> Iterator[PerturbedPair]:
    for specimen in found:
        for mutation in mutations:
            chance = random.Random(f"{seed} {mutation.name} {specimen.cast.scene.id}")  # noqa: S311
            texts = templates.get(specimen.language, {}).get(mutation.name, ())
            spoilt = mutation.make(PerturbationContext(specimen, texts, chance))
            if spoilt is not None and spoilt != specimen.clean:
                yield PerturbedPair(mutation.name, specimen, spoilt)
