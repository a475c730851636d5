"""How the scores of a judged group were made, as the panel writes it down while it makes them.

The record holds every number that a score is made of, so that the score follows from it alone: `compute_parts` is what
the panel itself makes scores by. It grows with the group: a few numbers for each candidate and criterion, one for each
candidate and judge, and the place of each reading once or, for a defect that it reports, once more.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from app.domain.scores import combine
from app.domain.values import Frozen

NEUTRAL: Final = 0.5
"""The standing that neither raises nor lowers a reward."""

WhyLeftOut = Literal["unusable", "lacks_its_mirror", "too_few_readings", "decides_defects"]
"""Why the verdicts of a reading without an error are not among those that scores are means of. `unusable`: it did not
judge what it was asked. `lacks_its_mirror`: the reverse order could not be read. `too_few_readings`: those of its judge
were not enough for an order. `decides_defects`: it was asked about divided defects, and counts for these alone."""


class JudgeShare(Frozen):
    """What one judge, or several that share their orders, say of the order. `standings` follow the candidates, before
    they are shrunk; there are none where nothing was compared."""

    judges: tuple[str, ...]
    readings: tuple[int, ...]
    """Places among the group's judgements."""
    grades: bool = True
    """False for a reward model, whose standings are not shrunk."""
    reliability: float = 1.0
    standings: tuple[float, ...] = ()

    def list_relatives(self) -> tuple[float, ...]:
        """The standings, shrunk towards the middle by the reliability."""
        if not self.grades:
            return self.standings
        return tuple([NEUTRAL + self.reliability * (standing - NEUTRAL) for standing in self.standings])


class CountedDefect(Frozen):
    """A defect and who reports it. It `counts` when more than half of the readings of the candidate do."""

    code: str
    reported: tuple[int, ...]
    """Places among the group's judgements."""
    counts: bool = False
    cap: float | None = None
    """The most that a reward with this defect may be; null where it sets no bound."""


class CandidateMaking(Frozen):
    """`means` follow the criteria of the group: the mean of the readings, null where the criterion does not apply."""

    candidate: str
    means: tuple[float | None, ...]
    unmet: tuple[str, ...] = ()
    """Criteria that count as 0 whatever their mean, since what they require is not there."""
    gate: float = 1.0
    """0 where a counted defect confirms a hint of the gates."""
    readings: int = 0
    """How many readings its defects are counted in."""
    defects: tuple[CountedDefect, ...] = ()


@dataclass(frozen=True)
class ScoreParts:
    reward: float
    gate: float
    absolute: float
    relative: float
    relative_weight: float
    cap: float


class GroupMaking(Frozen):
    """`shares` that hold no readings of the rubric are of reward models."""

    relative_weight: float
    criteria: Mapping[str, float]
    """The weight of each criterion in the absolute part."""
    shares: tuple[JudgeShare, ...]
    candidates: tuple[CandidateMaking, ...]
    left_out: Mapping[int, WhyLeftOut] = {}
    """By their places among the group's judgements, readings without an error that are in no share."""

    def compute_parts(self) -> tuple[ScoreParts, ...]:
        """The parts of each candidate's score."""
        relatives = None if len(self.candidates) == 1 else self._average_standings()
        return tuple(
            [
                self._compute_parts(made, None if relatives is None else relatives[index])
                for index, made in enumerate(self.candidates)
            ]
        )

    def _compute_parts(self, made: CandidateMaking, standing: float | None) -> ScoreParts:
        values = [
            (weight, 0.0 if name in made.unmet else value)
            for (name, weight), value in zip(self.criteria.items(), made.means, strict=True)
        ]
        absolute = min(1.0, math.fsum([weight * value for weight, value in values if value is not None]))
        relative = absolute if standing is None else standing
        cap = min((each.cap for each in made.defects if each.counts and each.cap is not None), default=1.0)
        reward = combine(made.gate, absolute, relative, self.relative_weight, cap)
        return ScoreParts(reward, made.gate, absolute, relative, self.relative_weight, cap)

    def _average_standings(self) -> tuple[float, ...]:
        """The means over the judges, each weighted by its reliability."""
        weighted = [(share.reliability, share.list_relatives()) for share in self.shares if share.standings]
        total = math.fsum([weight for weight, _ in weighted])
        if total == 0:
            return (NEUTRAL,) * len(self.candidates)
        return tuple(
            [
                math.fsum([weight * relatives[index] for weight, relatives in weighted]) / total
                for index in range(len(self.candidates))
            ]
        )

    def move_readings(self, move: Callable[[int], int]) -> "GroupMaking":
        """The same where the judgement that was at place n is at `move(n)`."""
        return self.model_copy(
            update={
                "shares": tuple(
                    [share.model_copy(update={"readings": tuple(map(move, share.readings))}) for share in self.shares]
                ),
                "candidates": tuple([_move_reports(made, move) if made.defects else made for made in self.candidates]),
                "left_out": {move(place): why for place, why in self.left_out.items()},
            }
        )


def _move_reports(made: CandidateMaking, move: Callable[[int], int]) -> CandidateMaking:
    moved = [defect.model_copy(update={"reported": tuple(map(move, defect.reported))}) for defect in made.defects]
    return made.model_copy(update={"defects": tuple(moved)})
