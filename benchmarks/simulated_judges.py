"""`python -m benchmarks.simulated_judges`: rewards of the panel against a quality that is known.

Every figure is over groups of made-up replies. A judge reads a reply's quality with noise, leans to the first place,
reports defects that are not there, misses some that are, or answers with what cannot be used. `r` is the correlation of
reward and true worth within groups: both less their group's mean.
"""

import asyncio
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, get_args

from app.domain.judging import Case, Defect, Judgement, JudgeRequest, Mode, Rubric, RubricCriterion, Verdict
from app.domain.scores import Score
from app.envs.npc_arena.environment import NpcArena
from app.judges.panel import JudgePanel

GROUPS: Final = 400
_TOP: Final = 4
_REAL_FAULT: Final = "secret_leak"


@dataclass(frozen=True)
class Faults:
    """Of one reading. Qualities are normal with a standard deviation of 1; so are noise and lean measured."""

    noise: float = 0.7
    lean: float = 0.35
    """What the first place gains and the last one loses."""
    false_reports: float = 0.0
    """How often a capping defect that is not there is reported, per code and reply."""
    detection: float = 1.0
    """How often a defect that is there is reported."""
    malformed: float = 0.0
    """How often an answer cannot be used. A reading asks once more by itself."""


MILD: Final = Faults()
WEAK: Final = Faults(noise=1.2, lean=0.7)
STRONGLY_BIASED: Final = Faults(noise=0.7, lean=1.5)
BLIND: Final = Faults(noise=1e9)


@dataclass(frozen=True)
class Reply:
    quality: float
    faulty: bool


@dataclass
class SimulatedJudge:
    """Knows replies by their texts. Sees a quality from 0 to 4 in whole steps, as judges say it."""

    replies: Mapping[str, Reply]
    faults: Faults
    chance: random.Random
    name: str = "simulated"
    model: str = "simulated-1"
    digest: str = "simulated-1"
    calls: int = field(default=0)

    async def judge(self, request: JudgeRequest) -> Judgement:
        self.calls += 1
        order = tuple(candidate.id for candidate in request.candidates)
        if self.chance.random() < self.faults.malformed**2:
            return Judgement(judge=self.name, model=self.model, order=order, error="no JSON", failure="unusable")
        seen = [
            self.replies[each.text].quality
            + self.chance.gauss(0.0, self.faults.noise)
            + self.faults.lean * _lean(slot, len(order))
            for slot, each in enumerate(request.candidates)
        ]
        ranked = sorted(zip(seen, order, strict=True), reverse=True)
        return Judgement(
            judge=self.name,
            model=self.model,
            order=order,
            verdicts=tuple(
                Verdict(
                    candidate=each.id,
                    scores={criterion.name: _score(value) for criterion in request.rubric.criteria},
                    defects=self._report(request.rubric, each.text),
                )
                for each, value in zip(request.candidates, seen, strict=True)
            ),
            ranking=tuple((name,) for _, name in ranked),
        )

    def _report(self, rubric: Rubric, text: str) -> tuple[Defect, ...]:
        found = [
            rule.code
            for rule in rubric.defects
            if rule.cap is not None and self.chance.random() < self.faults.false_reports
        ]
        if self.replies[text].faulty and self.chance.random() < self.faults.detection:
            found.append(_REAL_FAULT)
        return tuple(Defect(code=code, quote=text) for code in dict.fromkeys(found))


def _lean(slot: int, count: int) -> float:
    return 0.0 if count == 1 else 1.0 - 2.0 * slot / (count - 1)


def _score(value: float) -> float:
    return min(_TOP, max(0, round(_TOP / 2 + value))) / _TOP


def _worth(reply: Reply, rubric: Rubric) -> float:
    whole = min(1.0, max(0.0, 0.5 + reply.quality / _TOP))
    caps = {rule.code: rule.cap for rule in rubric.defects}
    return min(whole, caps[_REAL_FAULT] or 1.0) if reply.faulty else whole


PLAIN: Final = Rubric(
    name="plain",
    version="1",
    instructions="",
    criteria=(RubricCriterion(name="preference", weight=1.0, description="", anchors={}),),
)
assert NpcArena.rubric is not None
ARENA: Final = NpcArena.rubric


@dataclass(frozen=True)
class Setting:
    size: int
    faults: Faults
    mode: Mode = "listwise"
    votes: int = 1
    relative_weight: float = 0.5
    rubric: Rubric = PLAIN
    faulty: float = 0.0
    """The share of replies with a real defect."""


@dataclass(frozen=True)
class Outcome:
    r: float
    flat: float
    """Share of scored groups whose rewards are all equal."""
    flagged: float
    """Share of scored groups with the flag `low_signal`."""
    right_flagged: float
    """Share of the groups with `low_signal` among those whose standings are right."""
    unscored: float
    capped: float
    """Share of replies that are capped although nothing is wrong with them."""
    caught: float
    """Share of faulty replies that are capped."""
    calls: float
    """Requests per group."""


@dataclass(frozen=True)
class _Group:
    replies: tuple[Reply, ...]
    scores: tuple[Score, ...]
    calls: int
    rubric: Rubric

    @property
    def scored(self) -> bool:
        return all(score.reward is not None for score in self.scores)

    @property
    def rewards(self) -> list[float]:
        return [score.reward or 0.0 for score in self.scores]

    @property
    def flagged(self) -> bool:
        return any("low_signal" in score.flags for score in self.scores)

    @property
    def standings_right(self) -> bool:
        """Whether the rewards correlate with the qualities by .8 or more."""
        return correlate(self.rewards, [reply.quality for reply in self.replies]) >= 0.8

    def is_capped(self, place: int) -> bool:
        capping = {rule.code for rule in self.rubric.defects if rule.cap is not None}
        return not capping.isdisjoint(self.scores[place].flags)


def correlate(one: Sequence[float], other: Sequence[float]) -> float:
    """Pearson's r; 0 where one of them is constant."""
    mean_one, mean_other = math.fsum(one) / len(one), math.fsum(other) / len(other)
    across = math.fsum((a - mean_one) * (b - mean_other) for a, b in zip(one, other, strict=True))
    spread = math.fsum((a - mean_one) ** 2 for a in one) * math.fsum((b - mean_other) ** 2 for b in other)
    return across / math.sqrt(spread) if spread > 1e-18 else 0.0


async def simulate(setting: Setting, groups: int = GROUPS) -> Outcome:
    made = [await _judge_group(setting, number) for number in range(groups)]
    scored = [group for group in made if group.scored]
    right = [group for group in scored if group.standings_right]
    whole = [(group, place) for group in scored for place, reply in enumerate(group.replies) if not reply.faulty]
    faulty = [(group, place) for group in scored for place, reply in enumerate(group.replies) if reply.faulty]
    return Outcome(
        r=correlate(
            [value for group in scored for value in centre(group.rewards)],
            [value for group in scored for value in centre([_worth(each, group.rubric) for each in group.replies])],
        ),
        flat=_share(max(group.rewards) - min(group.rewards) < 1e-9 for group in scored),
        flagged=_share(group.flagged for group in scored),
        right_flagged=_share(group.flagged for group in right),
        unscored=1.0 - len(scored) / len(made),
        capped=_share(group.is_capped(place) for group, place in whole),
        caught=_share(group.is_capped(place) for group, place in faulty),
        calls=math.fsum(group.calls for group in made) / len(made),
    )


async def _judge_group(setting: Setting, number: int) -> _Group:
    chance = random.Random(f"group {number}")
    replies = {
        f"reply {number} {chance.getrandbits(32):08x}": Reply(chance.gauss(0.0, 1.0), chance.random() < setting.faulty)
        for _ in range(setting.size)
    }
    judge = SimulatedJudge(replies, setting.faults, chance)
    case = Case(key=str(number), rubric=setting.rubric, document={}, candidates=tuple(replies))
    panel = JudgePanel((judge,), setting.relative_weight, setting.mode, setting.votes)
    result = await panel.judge(case)
    return _Group(tuple(replies.values()), result.scores, judge.calls, setting.rubric)


def centre(values: Sequence[float]) -> list[float]:
    mean = math.fsum(values) / len(values)
    return [value - mean for value in values]


def _share(values: object) -> float:
    listed = list(values)  # type: ignore[call-overload]
    return sum(listed) / len(listed) if listed else math.nan


CAPS: Final[Mapping[str, Setting]] = {
    "no false reports": Setting(8, MILD, rubric=ARENA),
    "2 % false reports": Setting(8, Faults(false_reports=0.02), rubric=ARENA),
    "a tenth faulty, all seen": Setting(8, MILD, rubric=ARENA, faulty=0.1),
    "a tenth faulty, half seen": Setting(8, Faults(detection=0.5), rubric=ARENA, faulty=0.1),
    "a tenth faulty, half seen, 2 % false reports": Setting(
        8, Faults(detection=0.5, false_reports=0.02), rubric=ARENA, faulty=0.1
    ),
}
JUDGES: Final[Mapping[str, Faults]] = {
    "mild": MILD,
    "weak": WEAK,
    "strongly biased": STRONGLY_BIASED,
    "blind": BLIND,
}


async def report() -> None:
    print(f"{GROUPS} groups each\n\ncaps, groups of 8, NPC Arena's rubric: r, capped wrongly, caught, calls a group")
    for name, setting in CAPS.items():
        made = await simulate(setting)
        print(f"  {name:45} {made.r:5.2f} {made.capped:6.1%} {made.caught:6.1%} {made.calls:5.1f}")
    print("\ngroups of two, listwise: r, flat")
    for name, faults in JUDGES.items():
        made = await simulate(Setting(2, faults), 4 * GROUPS)
        print(f"  {name:45} {made.r:5.2f} {made.flat:6.1%}")
    read: tuple[tuple[Mode, int, float], ...] = (
        ("listwise", 1, 0.5),
        ("pairwise", 1, 0.5),
        ("pairwise", 3, 1.0),
        ("pairwise", 3, 0.5),
    )
    print("\nstandings: r, flat, low_signal, low_signal among groups that are right (r of .8 or more)")
    for mode, votes, weight in read:
        for size in (2, 4, 8):
            for name, faults in JUDGES.items():
                made = await simulate(Setting(size, faults, mode, votes, weight))
                print(
                    f"  {mode}, {votes} votes, weight {weight}, {size} replies, {name:16}"
                    f" {made.r:5.2f} {made.flat:6.1%} {made.flagged:6.1%} {made.right_flagged:6.1%}"
                )
    print("\n20 % malformed answers, groups of 16: unscored, r, calls a group")
    for mode in get_args(Mode):
        made = await simulate(Setting(16, Faults(malformed=0.2), mode))
        print(f"  {mode:45} {made.unscored:6.1%} {made.r:5.2f} {made.calls:5.1f}")


if __name__ == "__main__":
    asyncio.run(report())
