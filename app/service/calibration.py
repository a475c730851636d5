"""Calibrated values of the groups that are drawn for them: what references there are, and what may be paid."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.domain.calibration import (
    CALIBRATION_SECONDS,
    LEVELS,
    CalibratedValue,
    CalibrationGap,
    ReferencePlan,
    References,
    is_drawn,
)
from app.domain.errors import StoreUnavailable
from app.domain.judging import Case, Judgement, PanelResult
from app.domain.model_names import is_same_model
from app.domain.runs import Policy
from app.domain.scores import Score
from app.domain.values import Unit
from app.ports.judges import CalibratingPanel, Panel, ReferenceStore
from app.service.identity import SingleFlight
from app.service.run_budgets import GroupBudget

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 60.0
"""A judge that gave no usable references is asked again for the same scene after this."""

Found = References | CalibrationGap
"""References, or why there are none."""
Values = Sequence[CalibratedValue | CalibrationGap | None]
"""By candidate; null for gated ones."""


@dataclass(frozen=True)
class GroupCalibration:
    """Whether and how one group of a task is calibrated. `find_plan` gives null for a task that knows no references."""

    references: "ReferenceCache"
    find_plan: Callable[[], ReferencePlan | None]
    share: Unit
    policy: Policy | None
    budget: GroupBudget | None

    async def add_values(self, panel: Panel, case: Case, result: PanelResult) -> PanelResult:
        """The result with calibrated values, and the judgements that they took. Whatever fails here leaves the scores
        as they are, with the reason."""
        judged = [score for score in result.scores if _is_judged(score)]
        if not judged or not is_drawn(case.key, self.share):
            return result
        made: list[Judgement] = []
        values: Values | CalibrationGap
        try:
            if (plan := self.find_plan()) is None:
                return result
            values = await self._calibrate(panel, case, plan, made)
        except Exception:
            log.exception("a group could not be calibrated: rubric=%s", case.rubric.name)
            values = "internal"
        listed = (values,) * len(result.scores) if isinstance(values, str) else values
        scores = tuple(add_value(score, value) for score, value in zip(result.scores, listed, strict=True))
        return PanelResult(scores=scores, judgements=tuple(made))

    async def _calibrate(
        self, panel: Panel, case: Case, plan: ReferencePlan, made: list[Judgement]
    ) -> Values | CalibrationGap:
        if plan.opted_out:
            return "opted_out"
        if not isinstance(panel, CalibratingPanel) or not panel.grades:
            return "no_judge"
        if self.budget is not None and not await self.budget.reserve_further(case):
            return "budget"
        policy = None if self.policy is None else self.policy.model
        clock = asyncio.get_running_loop().time
        ends = clock() + CALIBRATION_SECONDS
        try:
            found = await asyncio.wait_for(self.references.find(panel, plan, case, made, policy), CALIBRATION_SECONDS)
        except TimeoutError:
            return "references_failed"
        if isinstance(found, str):
            return found
        if found.model and policy is not None and is_same_model(found.model, policy):
            return "made_by_policy"
        reading = await panel.calibrate(case, found, ends - clock())
        made += reading.judgements
        return reading.values


@dataclass
class _Flight:
    """What came of asking for the references of a scene, and the judgement that it took until a caller records it."""

    found: Found
    made: list[Judgement] = field(default_factory=list)

    def take_judgements(self) -> list[Judgement]:
        taken, self.made = self.made, []
        return taken


class ReferenceCache:
    """References by scene: what people wrote, completed with what a judge writes once."""

    def __init__(self, store: ReferenceStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._flights = SingleFlight[_Flight]("references could not be made")
        self._failed: dict[str, float] = {}
        """By scene, when a judge last gave none that can be used."""

    async def find(
        self, panel: CalibratingPanel, plan: ReferencePlan, case: Case, made: list[Judgement], policy: str | None
    ) -> Found:
        """`made` gets the judgements that were needed: of the callers that wait together, the first that is still
        there. If all have left, they count for the judge alone. The model `policy` writes none."""
        if plan.given.keys() >= LEVELS.keys():
            return References(replies=plan.given)
        try:
            if (stored := await self._store.get(plan.scene)) is not None:
                return stored
        except StoreUnavailable:
            return "references_failed"
        if not plan.brief:
            return "no_references"
        name = f"{plan.scene} {policy or ''}"
        flight = self._flights.find([name]).get(name)
        if flight is None and self._has_just_failed(plan.scene):
            return "references_failed"
        landed = await asyncio.shield(flight or self._flights.start([name], self._write(panel, plan, case, policy)))
        made += landed.take_judgements()
        return landed.found

    async def _write(self, panel: CalibratingPanel, plan: ReferencePlan, case: Case, policy: str | None) -> _Flight:
        written = await panel.write_references(plan, case, policy)
        if written is None:
            return _Flight("no_references")
        made = [written.judgement]
        if written.replies is None:
            if written.judgement.failure == "budget":
                return _Flight("budget", made)
            self._failed[plan.scene] = self._clock()
            return _Flight("references_failed", made)
        whole = References(
            replies={**written.replies, **plan.given}, judge=written.judgement.judge, model=written.judgement.model
        )
        try:
            return _Flight(await self._store.put(plan.scene, whole), made)
        except StoreUnavailable:
            return _Flight("references_failed", made)

    def _has_just_failed(self, scene: str) -> bool:
        oldest = self._clock() - RETRY_SECONDS
        self._failed = {name: at for name, at in self._failed.items() if at > oldest}
        return scene in self._failed


def add_value(score: Score, value: CalibratedValue | CalibrationGap | None) -> Score:
    """No other part of the score changes."""
    if value is None or not _is_judged(score):
        return score
    if isinstance(value, str):
        return score.model_copy(update={"uncalibrated": value})
    flags = (*score.flags, "calibration_bounded") if value.is_bounded else score.flags
    return score.model_copy(update={"calibrated": value.value, "calibrated_error": value.error, "flags": flags})


def _is_judged(score: Score) -> bool:
    return score.outcome == "scored" and bool(score.judges)
