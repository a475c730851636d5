"""Judges whose scores cannot be compared over time, before groups whose quality is known."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Final

from app.domain.judging import Case, Judgement, JudgeRequest, Rubric, RubricCriterion, Verdict
from app.domain.scores import LEVELS, References
from app.judges.panel import JudgePanel

QUALITY_PER_LEVEL: Final = 5.0
"""Standard deviations of quality in one unit of the scale: a reply of .5 has quality 0, an exemplar 1.5."""
SIZE: Final = 8

RUBRIC: Final = Rubric(
    name="simulated",
    version="1",
    instructions="",
    criteria=tuple(RubricCriterion(name=f"criterion_{n}", weight=1 / 6, description="", anchors={}) for n in range(6)),
    defects=(),
)


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
    Scale("own scale, leniency +.5", leniency=0.5),
    Scale("wholly on a curve, leniency +.5", curve=1.0, leniency=0.5),
)


@dataclass
class ScaledJudge:
    """Perceives the quality of a text with noise, the same way for the same request."""

    qualities: Mapping[str, float]
    scale: Scale
    name: str = "simulated"
    model: str = "simulated-1"
    digest: str = "simulated-1"

    async def judge(self, request: JudgeRequest) -> Judgement:
        order = tuple(candidate.id for candidate in request.candidates)
        texts = [candidate.text for candidate in request.candidates]
        chance = random.Random(f"{request.mode} {request.vote} {' '.join(texts)}")
        seen = [self.qualities[text] + chance.gauss(0.0, 0.5) for text in texts]
        middle, spread, curve = fmean(seen), pstdev(seen) or 1.0, self.scale.curve
        drift = chance.gauss(self.scale.leniency, 0.3)
        values = [(1.0 - curve) * value + curve * (value - middle) / spread + drift for value in seen]

        def score(value: float) -> float:
            return min(4, max(0, round(2.0 + 0.8 * value + chance.gauss(0.0, 0.35)))) / 4

        verdicts = tuple(
            Verdict(candidate=name, scores={criterion.name: score(value) for criterion in request.rubric.criteria})
            for name, value in zip(order, values, strict=True)
        )
        ranking = tuple((name,) for _, name in sorted(zip(values, order, strict=True), reverse=True))
        return Judgement(judge=self.name, model=self.model, order=order, verdicts=verdicts, ranking=ranking)


@dataclass(frozen=True)
class Recovered:
    """Of a policy's groups, in standard deviations of quality: the mean of calibrated values, and the true one."""

    calibrated: float
    true: float
    left_out: float
    """Share of groups without a value."""


async def recover_mean(scale: Scale, mean: float, groups: int) -> Recovered:
    """References are 1.5 below, at and above 0, but not just so: the gateway does not know by how much they differ."""
    values, qualities = [], []
    for number in range(groups):
        chance = random.Random(f"calibration {mean} {number}")
        replies = {f"reply {chance.getrandbits(40):010x}": chance.gauss(mean, 1.0) for _ in range(SIZE)}
        levels = {kind: QUALITY_PER_LEVEL * (level - LEVELS["plain"]) for kind, level in LEVELS.items()}
        known = {f"known {kind} {number}": chance.gauss(level, 0.3) for kind, level in levels.items()}
        panel = JudgePanel([ScaledJudge(replies | known, scale)], 0.5)
        case = Case(key=f"{scale.name} {number}", rubric=RUBRIC, document={}, candidates=tuple(replies))
        await panel.judge(case)
        told = References(replies=dict(zip(LEVELS, known, strict=True)))
        found = [one for one in (await panel.calibrate(case, told)).values if one is not None]
        values.append([one.value for one in found if not isinstance(one, str)])
        qualities.append(fmean(replies.values()))
    valued = [fmean(group) for group in values if group]
    calibrated = QUALITY_PER_LEVEL * (fmean(valued) - LEVELS["plain"]) if valued else math.nan
    return Recovered(calibrated, fmean(qualities), 1.0 - len(valued) / groups)
