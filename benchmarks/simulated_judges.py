"""Judges whose faults are known, and groups of replies whose quality is known. Every figure made here is simulated.

A judge perceives a reply in one call as its quality (standard deviation 1), a taste of the judge for this text, noise
of this call, a lean to places and one to length. A request that is asked again is answered the same, as at
temperature 0.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from app.domain.judging import Defect, DefectRule, Judgement, JudgeRequest, Mode, Rubric, RubricCriterion, Verdict

_TOP: Final = 4
CRITERION_NOISE: Final = 0.35
"""Of each criterion's number, in levels."""
_LENGTH_SPREAD: Final = 0.5
"""Standard deviation of the replies' lengths, in doublings."""
_REAL_FAULT: Final = "capped_0"

RUBRIC: Final = Rubric(
    name="simulated",
    version="1",
    instructions="",
    criteria=tuple(
        RubricCriterion(name=f"criterion_{number}", weight=1 / 6, description="", anchors={}) for number in range(6)
    ),
    defects=tuple(DefectRule(code=f"capped_{number}", description="", cap=0.3) for number in range(8)),
)


@dataclass(frozen=True)
class Faults:
    """Standard deviations and slopes are in those of the quality."""

    taste: float = 0.3
    """Stays with a text and a judge."""
    noise: float = 0.5
    """Of a text in one call."""
    drift: float = 0.3
    """Of the level of a whole call."""
    lean: float = 0.35
    """What the first place gains and the last one loses."""
    edges: float = 0.0
    """What the first and the last place gain over the middle."""
    length: float = 0.0
    """What a doubling of the length gains."""
    slope: float = 0.8
    """Levels of a criterion per unit of quality."""
    tie: float = 0.1
    """Differences below this are ties in a ranking."""
    false_reports: float = 0.0
    """How often a capping defect that is not there is reported, per code and reply."""
    detection: float = 1.0
    """How often a defect that is there is reported."""
    malformed: float = 0.0
    """How often an answer cannot be used. A reading asks once more by itself."""


MILD: Final = Faults()
WEAK: Final = Faults(taste=0.5, noise=1.0, drift=0.5, lean=0.7)
JUDGES: Final[Mapping[str, Faults]] = {
    "mild": MILD,
    "weak": WEAK,
    "strong position": Faults(lean=1.5),
    "edge": Faults(lean=0.0, edges=1.0),
    "length": Faults(length=0.6),
    "coarse": Faults(slope=0.4, tie=0.5),
}


@dataclass(frozen=True)
class Reply:
    text: str
    quality: float
    doublings: float = 0.0
    """Its length beside that of an average reply."""
    faulty: bool = False


@dataclass(frozen=True)
class Reading:
    """What a judge perceives in one call: a value per reply, and how lenient the call is."""

    values: tuple[float, ...]
    leniency: float


def make_replies(size: int, number: int, *, spread: float = 1.0, faulty: float = 0.0) -> tuple[Reply, ...]:
    """Group `number` of this size, the same for every judge and method."""
    chance = random.Random(f"group {size} {number}")
    return tuple(
        Reply(
            f"reply {number} {place} {chance.getrandbits(32):08x}",
            chance.gauss(0.0, spread),
            chance.gauss(0.0, _LENGTH_SPREAD),
            chance.random() < faulty,
        )
        for place in range(size)
    )


def perceive(faults: Faults, judge: str, shown: Sequence[Reply], chance: random.Random) -> Reading:
    """One call that shows these replies in this order."""
    return Reading(
        tuple(
            reply.quality
            + faults.taste * _draw_taste(judge, reply.text)
            + chance.gauss(0.0, faults.noise)
            + _favour_place(faults, slot, len(shown))
            + faults.length * reply.doublings
            for slot, reply in enumerate(shown)
        ),
        chance.gauss(0.0, faults.drift),
    )


def start_call(judge: str, form: str, vote: int, shown: Sequence[Reply]) -> random.Random:
    """The chance of one call: the same for the same request."""
    return random.Random(f"{judge} {form} {vote} {' '.join(reply.text for reply in shown)}")


@lru_cache(maxsize=4096)
def _draw_taste(judge: str, text: str) -> float:
    return random.Random(f"taste {judge} {text}").gauss(0.0, 1.0)


def _favour_place(faults: Faults, slot: int, count: int) -> float:
    if count == 1:
        return 0.0
    place = 1.0 - 2.0 * slot / (count - 1)
    return faults.lean * place + faults.edges * place * place


@dataclass
class SimulatedJudge:
    """Answers the panel's requests. Knows replies by their texts."""

    replies: Mapping[str, Reply]
    faults: Faults
    name: str = "simulated"
    model: str = "simulated-1"
    digest: str = "simulated-1"
    shown: list[tuple[Mode, int]] = field(default_factory=list)
    """The form of each call, and how many replies it showed."""

    async def judge(self, request: JudgeRequest) -> Judgement:
        self.shown.append((request.mode, len(request.candidates)))
        order = tuple(candidate.id for candidate in request.candidates)
        replies = [self.replies[candidate.text] for candidate in request.candidates]
        attempt = f"{request.mode} {len(self.shown)}" if self.faults.malformed else request.mode
        chance = start_call(self.name, attempt, request.vote, replies)
        if self.faults.malformed and chance.random() < self.faults.malformed**2:
            return Judgement(judge=self.name, model=self.model, order=order, error="no JSON", failure="unusable")
        read = self.perceive(replies, chance)
        return Judgement(
            judge=self.name,
            model=self.model,
            order=order,
            verdicts=tuple(
                Verdict(
                    candidate=name,
                    scores={
                        criterion.name: self._score(value + read.leniency, chance)
                        for criterion in request.rubric.criteria
                    },
                    defects=self._report(request.rubric, reply, chance),
                )
                for name, reply, value in zip(order, replies, read.values, strict=True)
            ),
            ranking=rank_with_ties(order, read.values, self.faults.tie),
        )

    def perceive(self, shown: Sequence[Reply], chance: random.Random) -> Reading:
        return perceive(self.faults, self.name, shown, chance)

    def _score(self, value: float, chance: random.Random) -> float:
        level = round(_TOP / 2 + self.faults.slope * value + chance.gauss(0.0, CRITERION_NOISE))
        return min(_TOP, max(0, level)) / _TOP

    def _report(self, rubric: Rubric, reply: Reply, chance: random.Random) -> tuple[Defect, ...]:
        if not self.faults.false_reports and not reply.faulty:
            return ()
        found = [rule.code for rule in rubric.defects if chance.random() < self.faults.false_reports]
        if reply.faulty and chance.random() < self.faults.detection:
            found.append(_REAL_FAULT)
        return tuple(Defect(code=code, quote=reply.text) for code in dict.fromkeys(found))


def rank_with_ties(names: Sequence[str], values: Sequence[float], tie: float) -> tuple[tuple[str, ...], ...]:
    """Best first. Whoever is within `tie` of the best of a tier belongs to it."""
    tiers: list[list[str]] = []
    best = math.inf
    for value, name in sorted(zip(values, names, strict=True), reverse=True):
        if tiers and best - value < tie:
            tiers[-1].append(name)
        else:
            tiers.append([name])
            best = value
    return tuple(map(tuple, tiers))


def correlate(one: Sequence[float], other: Sequence[float]) -> float:
    """Pearson's r; 0 where one of them is constant."""
    mean_one, mean_other = math.fsum(one) / len(one), math.fsum(other) / len(other)
    across = math.fsum((a - mean_one) * (b - mean_other) for a, b in zip(one, other, strict=True))
    spread = math.fsum((a - mean_one) ** 2 for a in one) * math.fsum((b - mean_other) ** 2 for b in other)
    return across / math.sqrt(spread) if spread > 1e-18 else 0.0


def centre(values: Sequence[float]) -> list[float]:
    mean = math.fsum(values) / len(values)
    return [value - mean for value in values]
