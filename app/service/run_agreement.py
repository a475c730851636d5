"""Whether a run's judges agree with people as far as the run asks for."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from app.domain.errors import Conflict
from app.domain.labels import LabelledGroupRecord
from app.domain.runs import Run
from app.domain.values import FiniteNumber, Frozen
from app.ports.judges import Panels
from app.ports.labelling import LabelStore

MeasureLowerBound = Callable[[Sequence[LabelledGroupRecord]], tuple[float, float | None]]
"""The effective number of groups, and the lower bound of the pair accuracy; None where there are too few."""
KEPT_SECONDS: Final = 60.0
"""For so long a measurement is used again: tasks are handed out more often than people label."""

log = logging.getLogger(__name__)


class JudgeStanding(Frozen):
    """What people's labels say of one judge in one environment, over all runs."""

    judge: str
    environment: str
    effective: FiniteNumber
    """So many groups of equal weight would say as much as the labelled ones."""
    low: FiniteNumber | None
    """Lower bound of the pair accuracy's 95 % interval; null below 50 effective groups."""
    met: bool | None
    """Whether it reaches what the run asks for; null where there are too few labels to tell."""


class RunAgreement(Frozen):
    wanted: FiniteNumber
    alarm: bool
    """Some judge is known to agree less. A strict run then hands out no tasks."""
    judges: tuple[JudgeStanding, ...]


class AgreementCheck:
    """Too few labels are no alarm: a run that waited for labels of its judge would never make the groups to label."""

    def __init__(self, labels: LabelStore, panels: Panels, measure: MeasureLowerBound) -> None:
        self._labels = labels
        self._panels = panels
        self._measure = measure
        self._known: dict[tuple[str, str], tuple[float, tuple[float, float | None]]] = {}

    async def check(self, run: Run, environments: Sequence[str] = ()) -> RunAgreement | None:
        """Of these environments besides those that the run has used. None where the run asks for nothing."""
        if run.min_agreement is None:
            return None
        judged = [pin.environment for pin in run.pins if "panel" in pin.parts]
        named = dict.fromkeys([*judged, *environments])
        found = [
            await self._find_standing(judge, environment, run.min_agreement)
            for environment in named
            for judge in self._panels.resolve_options(environment, run.options).judges
        ]
        alarm = any(one.met is False for one in found)
        return RunAgreement(wanted=run.min_agreement, alarm=alarm, judges=tuple(found))

    async def require(self, run: Run, environments: Sequence[str]) -> None:
        """Conflict for a strict run whose judge agrees less with people than it asks for; else a warning."""
        found = await self.check(run, environments)
        if found is None or not found.alarm:
            return
        worst = next(one for one in found.judges if one.met is False)
        words = (
            f"run {run.name!r} asks for an agreement of {found.wanted:g} with people; that of judge {worst.judge!r} in "
            f"{worst.environment} is only known to be above {worst.low:.2f}"
        )
        if run.strict:
            raise Conflict(f"{words}; take another judge, label more, or lower min_agreement", field="run")
        log.warning("%s", words)

    async def _find_standing(self, judge: str, environment: str, wanted: float) -> JudgeStanding:
        effective, low = await self._measure_kept(judge, environment)
        met = None if low is None else low >= wanted
        return JudgeStanding(judge=judge, environment=environment, effective=effective, low=low, met=met)

    async def _measure_kept(self, judge: str, environment: str) -> tuple[float, float | None]:
        kept = self._known.get((judge, environment))
        if kept is not None and kept[0] > time.monotonic():
            return kept[1]
        records = await self._labels.list_labelled(judge, (environment,), None)
        found = await asyncio.to_thread(self._measure, records)
        self._known[judge, environment] = (time.monotonic() + KEPT_SECONDS, found)
        return found
