"""Whether calibrated values follow a policy that gets better, under judges that a plain score cannot be trusted with.

A policy whose replies have a mean quality from -2 to 2 (in standard deviations of its first replies) is judged
on the judge's own scale, half and wholly on a curve over what it is shown, and after a silent jump of its leniency.
References are 1.5 below, at and above 0, but not just so: their true levels vary with a standard deviation of .3,
which the gateway does not know. `python -m benchmarks.calibration_scale`.
"""

import argparse
import asyncio
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from app.domain.judging import Case
from app.domain.scores import LEVELS, ReferenceKind, References
from app.judges.panel import JudgePanel
from benchmarks.simulated_judges import MILD, RUBRIC, Faults, Reading, Reply, SimulatedJudge, correlate, perceive

QUALITY_PER_LEVEL: Final = 5.0
"""Standard deviations of quality in one unit of the scale: a reply of .5 has quality 0, an exemplar 1.5."""
UNKNOWN: Final = 0.3
"""Standard deviation of the references' true quality around what the gateway takes it for."""
MEANS: Final = (-2.0, -1.0, 0.0, 1.0, 2.0)
SIZE: Final = 8
JUMP: Final = 0.5


@dataclass(frozen=True)
class Scale:
    """How a judge's levels lie: `curve` is the share of its view that is relative to what it is shown beside."""

    name: str
    curve: float = 0.0
    leniency: float = 0.0


SCALES: Final = (
    Scale("own scale"),
    Scale("half on a curve", curve=0.5),
    Scale("wholly on a curve", curve=1.0),
    Scale("own scale, leniency +.5", leniency=JUMP),
    Scale("wholly on a curve, leniency +.5", curve=1.0, leniency=JUMP),
)


@dataclass
class ScaledJudge(SimulatedJudge):
    """A simulated judge that grades on a curve, or has become more lenient."""

    scale: Scale = field(default_factory=lambda: SCALES[0])

    def perceive(self, shown: Sequence[Reply], chance: random.Random) -> Reading:
        read = perceive(self.faults, self.name, shown, chance)
        middle = math.fsum(read.values) / len(read.values)
        spread = math.sqrt(math.fsum((value - middle) ** 2 for value in read.values) / len(read.values)) or 1.0
        curve = self.scale.curve
        return Reading(
            tuple((1.0 - curve) * value + curve * (value - middle) / spread for value in read.values),
            read.leniency + self.scale.leniency,
        )


@dataclass(frozen=True)
class Recovered:
    """Of one mean of the policy. In standard deviations of quality, but for `absolute`."""

    mean: float
    calibrated: float
    true: float
    """Mean quality of the very replies."""
    absolute: float
    r: float
    """Mean correlation of rewards with quality within groups."""
    error: float
    """Root mean square of the groups' errors."""
    left_out: float
    """Share of groups without a value."""


@dataclass(frozen=True)
class SimulatedGroup:
    replies: tuple[Reply, ...]
    references: Mapping[ReferenceKind, Reply]

    @property
    def by_text(self) -> dict[str, Reply]:
        return {reply.text: reply for reply in chain(self.replies, self.references.values())}


def make_group(mean: float, number: int) -> SimulatedGroup:
    chance = random.Random(f"calibration {mean} {number}")

    def make_reply(name: str, quality: float) -> Reply:
        return Reply(f"{name} {chance.getrandbits(40):010x}", quality)

    return SimulatedGroup(
        tuple(make_reply("reply", chance.gauss(mean, 1.0)) for _ in range(SIZE)),
        {
            kind: make_reply("reply", QUALITY_PER_LEVEL * (level - LEVELS["plain"]) + chance.gauss(0.0, UNKNOWN))
            for kind, level in LEVELS.items()
        },
    )


async def measure(scale: Scale, mean: float, groups: int, faults: Faults = MILD, first: int = 0) -> Recovered:
    read = [
        await _judge_group(scale, faults, make_group(mean, number), f"{scale.name} {number}")
        for number in range(first, first + groups)
    ]
    valued = [one for one in read if one.values]
    return Recovered(
        mean=mean,
        calibrated=_average([_average(one.values) for one in valued]),
        true=_average([_average(one.qualities) for one in read]),
        absolute=_average([_average(one.absolutes) for one in read]),
        r=_average([correlate(one.rewards, one.qualities) for one in read]),
        error=math.sqrt(_average([(_average(one.values) - _average(one.qualities)) ** 2 for one in valued])),
        left_out=1.0 - len(valued) / len(read),
    )


@dataclass(frozen=True)
class _JudgedGroup:
    qualities: tuple[float, ...]
    values: tuple[float, ...]
    rewards: tuple[float, ...]
    absolutes: tuple[float, ...]


async def _judge_group(scale: Scale, faults: Faults, group: SimulatedGroup, key: str) -> _JudgedGroup:
    judge = ScaledJudge(group.by_text, faults, scale=scale)
    panel = JudgePanel([judge], 0.5)
    case = Case(key=key, rubric=RUBRIC, document={}, candidates=tuple(reply.text for reply in group.replies))
    scores = (await panel.judge(case)).scores
    told = References(replies={kind: reply.text for kind, reply in group.references.items()})
    found = (await panel.calibrate(case, told)).values
    levels = [
        QUALITY_PER_LEVEL * (one.value - LEVELS["plain"])
        for one in found
        if one is not None and not isinstance(one, str)
    ]
    return _JudgedGroup(
        tuple(reply.quality for reply in group.replies),
        tuple(levels),
        tuple(score.reward or 0.0 for score in scores),
        tuple(score.absolute or 0.0 for score in scores),
    )


def _average(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--noise", type=float, default=MILD.noise, help="of a reply in one call of the judge")
    parser.add_argument("--first", type=int, default=0, help="number of the first group: another one draws others")
    given = parser.parse_args()
    faults = replace(MILD, noise=given.noise)
    print("| judge | policy's mean | calibrated | absolute | r in groups | error of one group | left out |")
    print("|---|---|---|---|---|---|---|")
    for scale in SCALES:
        for mean in MEANS:
            one = asyncio.run(measure(scale, mean, 300, faults, given.first))
            print(
                f"| {scale.name} | {one.true:+.2f} | {one.calibrated:+.2f} | {one.absolute:.2f} | {one.r:.2f} | "
                f"{one.error:.2f} | {one.left_out:.1%} |"
            )


if __name__ == "__main__":
    main()
