"""References that a judge writes once for a scene: who asks for them, who records what they cost, when it is asked
again."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from app.domain.errors import StoreUnavailable
from app.domain.judging import Case, Judgement, PanelResult
from app.domain.making import GroupMaking, JudgeShare
from app.domain.runs import PanelOptions, ScoringOptions
from app.domain.scores import LEVELS, ReferencePlan, References, Score
from app.domain.tasks import Completion, Task
from app.ports.environment import Environment, Programs, Tools, Workers
from app.ports.judges import CalibrationReading, Judge, Panels, WrittenReferences
from app.service.judging import (
    RETRY_SECONDS,
    GroupCalibration,
    ReferenceCache,
    score_completions,
)
from app.service.runs import GroupBudget
from app.store.runs import RunStore
from tests.judges.scripted import build_rubric

CASE = Case(key="k", rubric=build_rubric("likeness"), document={}, candidates=("Well met.",))
PLAN = ReferencePlan(scene="s", brief="the marsh")
WRITTEN = References(replies={kind: f"a {kind} reply" for kind in LEVELS}, judge="writer", model="pen")
SCORED = Score(outcome="scored", reward=0.5, judges=("writer",))
READ = Judgement(judge="writer", model="pen", order=("a",), cost_usd=0.5)
MADE = Judgement(judge="writer", model="pen", order=(), purpose="references", cost_usd=0.25)


@dataclass
class MemoryReferences:
    kept: dict[str, References] = field(default_factory=dict)

    async def get(self, scene: str) -> References | None:
        return self.kept.get(scene)

    async def put(self, scene: str, references: References) -> References:
        return self.kept.setdefault(scene, references)


@dataclass
class WritingPanel:
    """Writes for every policy but its own model, when `go` is set."""

    usable: bool = True
    asked: list[str | None] = field(default_factory=list)
    began: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    judges: tuple[str, ...] = ("writer",)
    models: tuple[str, ...] = ("pen",)
    digest: str = ""
    grades: bool = True

    async def judge(self, case: Case) -> PanelResult:
        return PanelResult(scores=(SCORED,), judgements=(READ,))

    async def calibrate(self, case: Case, references: References, seconds: float = 0.0) -> CalibrationReading:
        raise RuntimeError("it broke")

    async def write_references(self, plan: ReferencePlan, case: Case, policy: str | None) -> WrittenReferences | None:
        self.asked.append(policy)
        self.began.set()
        await self.go.wait()
        return None if policy == "pen" else WrittenReferences(WRITTEN.replies if self.usable else None, MADE)


@dataclass
class Costs:
    """What a run reserves and settles. The store is away for one settlement in a row of `failures`."""

    failures: list[bool]
    settled: list[tuple[str, float]] = field(default_factory=list)

    async def reserve_cost(self, name: str, environment: str, group_id: str, usd: float, seconds: float) -> str:
        return "now"

    async def settle_cost(self, group_id: str, usd: float) -> None:
        if self.failures.pop(0):
            raise StoreUnavailable("away")
        self.settled.append((group_id, usd))


@dataclass
class Asking:
    """An environment that asks the panel."""

    name: str = "asking"

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        return list((await tools.panel.judge(CASE)).scores)


@dataclass
class NoJudges:
    judges: dict[str, Judge] = field(default_factory=dict)


@pytest.mark.parametrize("away", [False, True])
async def test_a_calibration_that_breaks_changes_no_outcome_loses_no_reading_and_leaves_nothing_put_aside(
    away: bool,
) -> None:
    panel, costs = WritingPanel(), Costs([away, False])
    panel.go.set()
    options = PanelOptions.model_construct(judges=(), mode="listwise", readings=1, votes=1, relative_weight=0.5)
    budget = GroupBudget(cast(RunStore, costs), cast(Panels, NoJudges()), "r", "asking", "g", options, asyncio.Lock())
    calibration = GroupCalibration(ReferenceCache(MemoryReferences()), lambda: PLAN, 1.0, None, budget)
    judged = await score_completions(
        cast(Environment, Asking()),
        cast(Task, None),
        [Completion(text="Well met.")],
        ScoringOptions(),
        panel,
        cast(Workers, None),
        cast(Programs, None),
        what="a test",
        budget=budget,
        calibration=calibration,
    )
    assert judged == PanelResult(
        scores=(SCORED.model_copy(update={"uncalibrated": "internal"}),), judgements=(READ, MADE)
    )
    assert costs.settled == [("g", 0.75), ("g further", 0.0)][away:]


class FallingBack(WritingPanel):
    """Its only reading is the second attempt at it."""

    async def judge(self, case: Case) -> PanelResult:
        read = READ.model_copy(update={"instead_of": (MADE,)})
        return PanelResult(scores=(SCORED,), judgements=(read,), making=build_making(0))


def build_making(place: int) -> GroupMaking:
    share = JudgeShare(judges=("writer",), readings=(place,))
    return GroupMaking(relative_weight=0.5, criteria={}, shares=(share,), candidates=())


class AskingTwice(Asking):
    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        await tools.panel.judge(CASE)
        return await super().score(task, group, tools)


@pytest.mark.parametrize(("environment", "making"), [(Asking(), build_making(1)), (AskingTwice(), None)])
def test_the_making_counts_the_attempts_that_are_stored_and_is_of_one_case(
    environment: Asking, making: GroupMaking | None
) -> None:
    work = score_completions(
        cast(Environment, environment),
        cast(Task, None),
        [Completion(text="Well met.")],
        ScoringOptions(),
        FallingBack(),
        cast(Workers, None),
        cast(Programs, None),
        what="a test",
    )
    assert asyncio.run(work).making == making


async def test_groups_of_another_policy_do_not_share_what_the_first_one_is_refused() -> None:
    cache, panel = ReferenceCache(MemoryReferences()), WritingPanel()
    waiting = [asyncio.ensure_future(cache.find(panel, PLAN, CASE, [], name)) for name in ("pen", "learner")]
    await asyncio.sleep(0)
    panel.go.set()
    assert await asyncio.gather(*waiting) == ["no_references", WRITTEN]


async def test_what_was_written_for_a_cancelled_group_is_recorded_once_by_one_that_waits() -> None:
    cache, panel = ReferenceCache(MemoryReferences()), WritingPanel()
    made: list[list[Judgement]] = [[], [], []]
    waiting = [asyncio.ensure_future(cache.find(panel, PLAN, CASE, one, "learner")) for one in made]
    await panel.began.wait()
    waiting[0].cancel()
    panel.go.set()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert (made, len(panel.asked)) == ([[], [MADE], []], 1)


async def test_a_judge_whose_references_cannot_be_used_is_asked_again_only_after_a_while() -> None:
    now = [1000.0]
    panel = WritingPanel(usable=False)
    panel.go.set()
    cache = ReferenceCache(MemoryReferences(), lambda: now[0])
    found = []
    for seconds in (0.0, RETRY_SECONDS / 2, RETRY_SECONDS):
        now[0] += seconds
        found.append(await cache.find(panel, PLAN, CASE, [], None))
    assert (found, len(panel.asked)) == (["references_failed"] * 3, 2)
