"""Which group the queue asks a person for next, and with which probability. Pure."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.domain.labels import Arm, ItemCandidate, QueueDraw, QueueStratum

RANDOM_LABELS: Final = 100
"""Until there are so many labels drawn at random, at least half of all are."""
FIRST_SHARE: Final = 0.5
LATER_SHARE: Final = 0.25
"""Share drawn at random. It bounds the weights: no label counts more than four times an average one."""
SECOND_SHARE: Final = 0.2
"""Share of the items that two people label, blind to each other."""


@dataclass(frozen=True)
class DrawnItem:
    group_id: str
    draw: QueueDraw


def compute_random_share(drawn: Mapping[Arm, int]) -> float:
    """The probability that the next draw is a random one. It is 1 where half of the labels would not be random
    otherwise, so what is stored is always the probability that the draw really had."""
    at_random, targeted = drawn.get("random", 0), drawn.get("targeted", 0)
    if at_random >= RANDOM_LABELS:
        return LATER_SHARE
    return 1.0 if at_random <= targeted else FIRST_SHARE


def choose_stratum(strata: Sequence[QueueStratum], chance: random.Random) -> QueueStratum | None:
    """Runs and environments get labels by the groups that are left. None where nothing is left."""
    open_ones = [one for one in strata if one.left > 0]
    if not open_ones:
        return None
    return chance.choices(open_ones, weights=[one.left for one in open_ones])[0]


def draw_item(
    candidates: Sequence[ItemCandidate], stratum: QueueStratum, share: float, lease_id: str, chance: random.Random
) -> DrawnItem:
    """Draws one of the candidates, which are a random part of what is left of the stratum. `share` is the probability
    of the random arm."""
    targets = [one for one in candidates if one.reasons]
    if not targets:
        share = 1.0
    arm: Arm = "random" if chance.random() < share else "targeted"
    chosen = chance.choice(candidates if arm == "random" else targets)
    left = max(stratum.left, len(candidates))
    plain = share / left
    aimed = plain + (1 - share) / len(targets) * len(candidates) / left if targets else plain
    own, other = (aimed, plain) if chosen.reasons else (plain, aimed)
    return DrawnItem(
        chosen.group_id,
        QueueDraw(
            lease_id=lease_id,
            arm=arm,
            reasons=chosen.reasons,
            probability=min(1.0, own),
            other_probability=min(1.0, other),
            population=max(stratum.population, left),
        ),
    )
