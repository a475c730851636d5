"""Degradation series: a good reply with one, two and three faults. No additional fault may raise its reward."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.domain.judging import JudgeRequest, Rubric
from app.judges.corruption import MUTATIONS, Mutation, Specimen, Spoiling, Templates, request_of
from app.judges.orders import opaque_ids

STEPS: Final = 3


@dataclass(frozen=True)
class Ladder:
    """`rungs`: the good reply first, then each with one more fault."""

    specimen: Specimen
    rungs: tuple[str, ...]

    def request(self, rubric: Rubric, *, downwards: bool) -> JudgeRequest:
        """All rungs at once. The ids are opaque and the same in both orders."""
        ids = opaque_ids(f"ladder {self.specimen.cast.scene.id}", self.rungs)
        texts = self.rungs if downwards else self.rungs[::-1]
        return request_of(self.specimen, rubric, tuple(self.specimen.candidate(ids[text], text) for text in texts))


def ladders(found: Sequence[Specimen], templates: Templates, seed: int = 0) -> tuple[Ladder, ...]:
    """One for each case that admits enough faults. The same seed gives the same ladders."""
    built = (_ladder(specimen, templates, seed) for specimen in found)
    return tuple(ladder for ladder in built if len(ladder.rungs) == STEPS + 1)


def _ladder(specimen: Specimen, templates: Templates, seed: int) -> Ladder:
    chance = random.Random(f"{seed} ladder {specimen.cast.scene.id}")  # noqa: S311
    adding = [mutation for mutation in MUTATIONS if mutation.adds]
    rungs = [specimen.clean]
    for mutation in chance.sample(adding, len(adding)):
        if len(rungs) > STEPS:
            break
        worse = _worse(mutation, replace(specimen, clean=rungs[-1]), templates, chance)
        if worse is not None and worse not in rungs:
            rungs.append(worse)
    return Ladder(specimen, tuple(rungs))


def _worse(mutation: Mutation, specimen: Specimen, templates: Templates, chance: random.Random) -> str | None:
    texts = templates.get(specimen.language, {}).get(mutation.name, ())
    return mutation.make(Spoiling(specimen, texts, chance))
