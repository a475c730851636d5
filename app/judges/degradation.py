"""Degradation series: a good reply with one, two and three faults. No additional fault may raise its reward."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.domain.judging import JudgeRequest, Rubric
from app.judges.gold_cases import GoldCase, build_check_request
from app.judges.perturbations import MUTATIONS, Mutation, PerturbationContext, Templates
from app.judges.presentation_order import derive_opaque_ids

STEPS: Final = 3


@dataclass(frozen=True)
class DegradationLadder:
    """`rungs`: the good reply first, then each with one more fault."""

    specimen: GoldCase
    rungs: tuple[str, ...]

    def build_request(self, rubric: Rubric, *, downwards: bool) -> JudgeRequest:
        """All rungs at once. The ids are opaque and the same in both orders."""
        ids = derive_opaque_ids(f"ladder {self.specimen.cast.scene.id}", self.rungs)
        texts = self.rungs if downwards else self.rungs[::-1]
        return build_check_request(
            self.specimen, rubric, tuple(self.specimen.build_candidate(ids[text], text) for text in texts)
        )


def build_ladders(found: Sequence[GoldCase], templates: Templates, seed: int = 0) -> tuple[DegradationLadder, ...]:
    """One for each case that admits enough faults. The same seed gives the same ladders."""
    built = (_build_ladder(specimen, templates, seed) for specimen in found)
    return tuple(ladder for ladder in built if len(ladder.rungs) == STEPS + 1)


def _build_ladder(specimen: GoldCase, templates: Templates, seed: int) -> DegradationLadder:
    chance = random.Random(f"{seed} ladder {specimen.cast.scene.id}")  # noqa: S311
    adding = [mutation for mutation in MUTATIONS if mutation.adds]
    rungs = [specimen.clean]
    for mutation in chance.sample(adding, len(adding)):
        if len(rungs) > STEPS:
            break
        worse = _degrade_reply(mutation, replace(specimen, clean=rungs[-1]), templates, chance)
        if worse is not None and worse not in rungs:
            rungs.append(worse)
    return DegradationLadder(specimen, tuple(rungs))


def _degrade_reply(mutation: Mutation, specimen: GoldCase, templates: Templates, chance: random.Random) -> str | None:
    texts = templates.get(specimen.language, {}).get(mutation.name, ())
    return mutation.make(PerturbationContext(specimen, texts, chance))
