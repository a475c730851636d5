"""Calibrated values of the groups that are drawn for them: what references there are, and what may be paid."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.domain.calibration import LEVELS, CalibratedValue, CalibrationGap, ReferencePlan, References, is_drawn
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

Found = References | CalibrationGap
"""References, or why there are none."""
Values = Sequence[CalibratedValue | CalibrationGap | None]
"""By candidate; null for gated ones."""


@dataclass(frozen=True)
class GroupCalibration:
    """Whether and how one group of a task is calibrated. `find_plan` gives null for a task that knows no references."""

    shelf: "ReferenceShelf"
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
        found = await self.shelf.find(panel, plan, made, policy)
        if isinstance(found, str):
            return found
        if found.model and policy is not None and is_same_model(found.model, policy):
            return "made_by_policy"
        reading = await panel.calibrate(case, found)
        made += reading.judgements
        return reading.values


class ReferenceShelf:
    """References by scene: what people wrote, completed with what a judge writes once."""

    def __init__(self, store: ReferenceStore) -> None:
        self._store = store
        self._flights = SingleFlight[Found]("references could not be made")

    async def find(
        self, panel: CalibratingPanel, plan: ReferencePlan, made: list[Judgement], policy: str | None
    ) -> Found:
        """`made` gets the judgements that were needed. The model `policy` writes none."""
        if plan.given.keys() >= LEVELS.keys():
            return References(replies=plan.given)
        try:
            if (stored := await self._store.get(plan.scene)) is not None:
                return stored
            if not plan.brief:
                return "no_references"
            flight = self._flights.find([plan.scene]).get(plan.scene)
            flight = flight or self._flights.start([plan.scene], self._write(panel, plan, made, policy))
            return await asyncio.shield(flight)
        except StoreUnavailable:
            return "references_failed"

    async def _write(
        self, panel: CalibratingPanel, plan: ReferencePlan, made: list[Judgement], policy: str | None
    ) -> Found:
        written = await panel.write_references(plan, policy)
        if written is None:
            return "no_references"
        made.append(written.judgement)
        if written.replies is None:
            return "budget" if written.judgement.failure == "budget" else "references_failed"
        whole = References(
            replies={**written.replies, **plan.given}, judge=written.judgement.judge, model=written.judgement.model
        )
        return await self._store.put(plan.scene, whole)


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
