"""Whether a run's judges agree with people as far as the run asks for."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from app.domain.errors import Conflict
from app.domain.labels import LabelledGroupRecord
from app.domain.runs import Run
from app.domain.values import FiniteNumber, Frozen
from app.ports.judges import Panels
from app.ports.labelling import LabelStore
from app.service.identity import SingleFlight

MeasureLowerBound = Callable[[Sequence[LabelledGroupRecord]], tuple[float, float | None]]
"""The effective number of groups, and the lower bound of the pair accuracy; None where there are too few."""
KEPT_SECONDS: Final = 60.0
"""For so long nothing asks whether labels changed: tasks are handed out more often than people label."""

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


@dataclass(frozen=True)
class _Measurement:
    until: float
    mark: tuple[int, int]
    effective: float
    low: float | None


class AgreementCheck:
    """Too few labels are no alarm: a run that waited for labels of its judge would never make the groups to label."""

    def __init__(self, labels: LabelStore, panels: Panels, measure: MeasureLowerBound) -> None:
        self._labels = labels
        self._panels = panels
        self._measure = measure
        self._known: dict[tuple[str, str], _Measurement] = {}
        self._flights = SingleFlight[_Measurement]("could not measure agreement with people")
        self._warned: dict[str, JudgeStanding] = {}
        """By run: of what its log was told last."""

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
        """Conflict for a strict run whose judge agrees less with people than it asks for; else a warning, once for
        each measurement."""
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
        if self._warned.get(run.name) != worst:
            self._warned[run.name] = worst
            log.warning("%s", words)

    async def _find_standing(self, judge: str, environment: str, wanted: float) -> JudgeStanding:
        found = await self._measure_kept(judge, environment)
        met = None if found.low is None else found.low >= wanted
        return JudgeStanding(judge=judge, environment=environment, effective=found.effective, low=found.low, met=met)

    async def _measure_kept(self, judge: str, environment: str) -> _Measurement:
        """All who ask at the same time wait for one measurement, which goes on when they leave."""
        kept = self._known.get((judge, environment))
        if kept is not None and kept.until > time.monotonic():
            return kept
        name = f"{judge} {environment}"
        flight = self._flights.find([name]).get(name)
        return await asyncio.shield(flight or self._flights.start([name], self._renew(judge, environment, kept)))

    async def _renew(self, judge: str, environment: str, kept: _Measurement | None) -> _Measurement:
        mark = await self._labels.find_mark(environment)
        if kept is None or kept.mark != mark:
            records = await self._labels.list_labelled(judge, (environment,), None)
            effective, low = await asyncio.to_thread(self._measure, records)
        else:
            effective, low = kept.effective, kept.low
        found = _Measurement(time.monotonic() + KEPT_SECONDS, mark, effective, low)
        self._known[judge, environment] = found
        return found
