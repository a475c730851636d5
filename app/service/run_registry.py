"""Runs: created on first use; they record what affects their rewards, so that later changes are noticed."""

from typing import Annotated

from pydantic import Field

from app.domain.errors import Conflict, NotFound
from app.domain.groups import RunActivity
from app.domain.runs import Pin, Run, ScoringOptions
from app.domain.suggestions import suggest
from app.domain.values import Frozen, Name, WholeNumber
from app.ports.judges import Panels
from app.ports.runtime import Clock
from app.ports.store import RunStore
from app.service.store_memory import StoreMemory
from app.service.task_order import derive_seed

REMEMBERED_RUNS = 10_000
NEAR_RUNS = 500
"""Among so many runs the one is looked for that somebody may have meant."""


class RunSettings(Frozen):
    """Settings of a run, chosen before its first use."""

    seed: Annotated[WholeNumber, Field(ge=0, lt=2**53)] | None = None
    """Derived from the run's name when left out."""
    strict: bool = False
    """Refuse (409) instead of flagging `scoring_changed`."""
    options: ScoringOptions = ScoringOptions()


class RunReport(Frozen):
    run: Run
    activity: tuple[RunActivity, ...]


class RunRegistry:
    def __init__(self, runs: RunStore, panels: Panels, clock: Clock) -> None:
        self._runs = runs
        self._panels = panels
        self._clock = clock
        self._known = StoreMemory[str, Run](REMEMBERED_RUNS)

    async def put(self, name: Name, settings: RunSettings) -> Run:
        """Conflict naming the field when the run exists with other settings; InvalidRequest for a wrong rubric."""
        if settings.options.rubric is not None:
            self._panels.check_rubric(settings.options.rubric, "options.rubric")
        wanted = self._build_run(name, settings)
        run = await self._runs.create(wanted)
        for field in ("seed", "strict", "options"):
            if getattr(run, field) != getattr(wanted, field):
                raise Conflict(f"run {name!r} already exists with another {field}", field=field)
        return self._remember(run)

    async def ensure(self, name: Name) -> Run:
        """The run, created with default settings if it does not exist."""
        if recent := self._known.get_recent(name):
            return recent
        if known := self._known.get(name):
            return self._remember(await self._restore(known))
        stored = await self._runs.get(name)
        return self._remember(stored or await self._runs.create(self._build_run(name, RunSettings())))

    async def find_options(self, name: str | None) -> ScoringOptions:
        """Those of the run; the defaults without one, and for one that does not exist yet."""
        run = None if name is None else self._known.get(name) or await self._runs.get(name)
        return ScoringOptions() if run is None else run.options

    async def _pin(self, run: Run, pin: Pin) -> Run:
        try:
            return await self._runs.pin(run.name, pin)
        except NotFound:
            await self._restore(run)
            return await self._runs.pin(run.name, pin)

    async def _restore(self, known: Run) -> Run:
        """The run as it is stored. If the store has lost it or pins of it, they are stored again."""
        stored = await self._runs.get(known.name)
        if stored is None:
            return await self._runs.create(known)
        pinned = {pin.environment for pin in stored.pins}
        for pin in known.pins:
            if pin.environment not in pinned:
                stored = await self._runs.pin(known.name, pin)
        return stored

    async def check_pin(self, run: Run, current: Pin) -> bool:
        """Whether the run's pin for this environment matches `current`. On first use the pin is recorded."""
        pin = next((pin for pin in run.pins if pin.environment == current.environment), None)
        if pin is None:
            stored = self._remember(await self._pin(run, current))
            pin = next(pin for pin in stored.pins if pin.environment == current.environment)
        return pin.scoring_digest == current.scoring_digest

    async def require(self, name: str, field: str | None = None) -> Run:
        """NotFound, with a near name, when there is no such run. `field`: where the request names it."""
        run = await self._runs.get(name)
        if run is None:
            known = [run.name for run in await self._runs.list(NEAR_RUNS, None)]
            raise NotFound(f"there is no run {name!r}{suggest(name, known)}", field=field)
        return run

    async def get_report(self, name: str) -> RunReport:
        return RunReport(run=await self.require(name), activity=await self._runs.get_activity(name))

    async def list_runs(self, limit: int, after: str | None) -> list[Run]:
        return await self._runs.list(limit, after)

    def _build_run(self, name: Name, settings: RunSettings) -> Run:
        seed = derive_seed(name) if settings.seed is None else settings.seed
        return Run(name=name, seed=seed, strict=settings.strict, options=settings.options, created_at=self._clock())

    def _remember(self, run: Run) -> Run:
        self._known.put(run.name, run)
        return run
