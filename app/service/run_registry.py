"""Runs: created on first use; they record what affects their rewards, so that later changes are noticed."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from operator import not_
from typing import Annotated, TypeAlias

from pydantic import Field

from app.domain.errors import Conflict, InvalidRequest, NotFound, RunHeld
from app.domain.groups import Group, RunActivity
from app.domain.keeping import KeepRule
from app.domain.model_names import find_same_model
from app.domain.run_costs import BudgetUsd, RunCost, build_run_cost
from app.domain.run_health import Alarm, HealthOptions
from app.domain.runs import LagLimitChange, LagPolicy, MaxLag, MinAgreement, Pin, Purpose, Run, ScoringOptions
from app.domain.suggestions import suggest
from app.domain.values import Frozen, Name, WholeNumber
from app.ports.judges import Panels
from app.ports.runtime import Clock
from app.ports.store import RunStore, TaskStore
from app.service.request_models import BatchOptions
from app.service.run_agreement import AgreementCheck, RunAgreement
from app.service.run_budgets import GroupBudget, find_unpriced
from app.service.store_memory import StoreMemory
from app.service.task_order import derive_seed

REMEMBERED_RUNS = 10_000
PACE_POLL_SECONDS = 0.2
NEAR_RUNS = 500
"""Among so many runs the one is looked for that somebody may have meant."""

HasLeft: TypeAlias = Callable[[], Awaitable[bool]]
"""Whether the client that asks has disconnected."""


class RunSettings(Frozen):
    """Settings of a run, chosen before its first use."""

    seed: Annotated[WholeNumber, Field(ge=0, lt=2**53)] | None = None
    """Derived from the run's name when left out."""
    strict: bool = False
    """Refuse (409) instead of flagging `scoring_changed`."""
    options: ScoringOptions = ScoringOptions()
    budget_usd: BudgetUsd | None = None
    """US dollars that judging the run's groups may cost. It may change at any time; left out, it stays as it is, and
    null removes it. Groups that no longer fit are `unscored: budget`. Every judge of the run needs prices."""
    max_lag: MaxLag | None = None
    """Training steps that may lie between the hand-out of a task and the scoring of its group. It may change at any
    time; left out, it stays as it is, and null removes it. Groups without steps have no lag."""
    lag_policy: LagPolicy = "flag"
    """Groups beyond `max_lag` are scored and flagged `stale` (`flag`), left `unscored: stale` before a judge is asked
    (`drop`), or made rare: `next-batch` waits for the oldest lease (`pace`). It may change at any time; left out, it
    stays as it is."""
    health: HealthOptions | None = None
    """How the run's health is followed. It may change at any time; left out, it stays as it is."""
    min_agreement: MinAgreement | None = None
    """How far the run's judges must agree with people: the lower bound of the interval of their pair accuracy, from
    .5. A judge that is known to agree less raises an alarm in the run's report, and a strict run hands out no tasks
    (409). It may change at any time; left out, it stays as it is, and null removes it."""
    keep: KeepRule | None = None
    """What stays of the run's scored groups after a time, part by part, in place of what the settings say. It may
    change at any time; left out, it stays as it is, and null removes it. What is gone does not come back."""


class RunReport(Frozen):
    run: Run
    activity: tuple[RunActivity, ...]
    judging: RunCost
    """What judging its groups has cost, and what is left of its budget."""
    alarms: tuple[Alarm, ...] = ()
    """Of its health, those that stand, newest first."""
    agreement: RunAgreement | None = None
    """How far its judges agree with people; null where the run asks for nothing."""
    uncounted: Annotated[int, Field(exclude_if=not_)] = 0
    """Stored groups of all runs that `groups`, `scored`, `unscored` and `pass_rates` do not include yet. After an
    upgrade, or while statistics are rebuilt, groups are counted in the background; left out when all are."""


class RunRegistry:
    def __init__(self, runs: RunStore, panels: Panels, clock: Clock, agreement: AgreementCheck | None = None) -> None:
        self._agreement = agreement
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._runs = runs
        self._panels = panels
        self._clock = clock
        self._known = StoreMemory[str, Run](REMEMBERED_RUNS)

    async def put(self, name: Name, settings: RunSettings) -> Run:
        """Conflict naming the field when the run exists with other settings: only its budget, its health,
        `min_agreement`, `keep` and the limit of its lag may change. InvalidRequest for a wrong rubric, a budget without
        prices, or a policy without a limit."""
        if settings.options.rubric is not None:
            self._panels.check_rubric(settings.options.rubric, "options.rubric")
        if "lag_policy" in settings.model_fields_set and settings.lag_policy != "flag":
            await self._require_lag_limit(name, settings)
        if settings.budget_usd is not None:
            await self._require_prices(name, settings.options)
        if settings.health is not None:
            await self._check_shadow(name, settings.health, settings.options)
        wanted = self._build_run(name, settings)
        run = await self._runs.create(wanted)
        for field in ("seed", "strict", "options"):
            if getattr(run, field) != getattr(wanted, field):
                raise Conflict(f"run {name!r} already exists with another {field}", field=field)
        run = await self._set_lag_limit(run, settings)
        if "budget_usd" in settings.model_fields_set and run.budget_usd != settings.budget_usd:
            run = await self._runs.set_budget(name, settings.budget_usd)
        if settings.health is not None and run.health != settings.health:
            run = await self._runs.set_health(name, settings.health)
        if "min_agreement" in settings.model_fields_set and run.min_agreement != settings.min_agreement:
            run = await self._runs.set_min_agreement(name, settings.min_agreement)
        return self.remember(await self._set_keep(run, settings))

    async def _set_keep(self, run: Run, settings: RunSettings) -> Run:
        given = "keep" in settings.model_fields_set and run.keep != settings.keep
        return await self._runs.set_keep(run.name, settings.keep) if given else run

    async def _check_shadow(self, run: Name, health: HealthOptions, options: ScoringOptions) -> None:
        """InvalidRequest for a shadow judge that is not configured, or is of a training judge's model."""
        name, judges = health.shadow_judge, self._panels.judges
        if name is None:
            return
        if name not in judges:
            raise InvalidRequest(f"there is no judge {name!r}", field="health.shadow_judge")
        training = [each for each in await self._list_known_judges(run, options) if each in judges]
        other = find_same_model(judges[name].model, {each: judges[each].model for each in training})
        if other is not None:
            raise InvalidRequest(
                f"judge {name!r} is of the same model as {other!r}: a shadow judge needs another one",
                field="health.shadow_judge",
            )

    async def _require_lag_limit(self, name: Name, settings: RunSettings) -> None:
        """InvalidRequest for a policy about stale groups where none can be stale."""
        stored = None if "max_lag" in settings.model_fields_set else await self._runs.get(name)
        if (settings.max_lag if stored is None else stored.max_lag) is None:
            raise InvalidRequest(f"{settings.lag_policy!r} needs a `max_lag`", field="lag_policy")

    async def _set_lag_limit(self, run: Run, settings: RunSettings) -> Run:
        given = settings.model_dump(include=settings.model_fields_set & {"max_lag", "lag_policy"})
        change = LagLimitChange.model_validate(given)
        return run if change.apply_to(run) == run else await self._runs.set_lag_limit(run.name, change)

    async def _require_prices(self, name: Name, options: ScoringOptions) -> None:
        """InvalidRequest when a judge that is known to judge this run has no prices."""
        if unpriced := find_unpriced(self._panels, await self._list_known_judges(name, options)):
            raise InvalidRequest(
                f"judge {unpriced[0]!r} has no prices, so nobody knows what its calls cost; set "
                "`input_price_per_million` and `output_price_per_million` in its settings",
                field="budget_usd",
            )

    async def _list_known_judges(self, name: Name, options: ScoringOptions) -> list[str]:
        """Those that the options name, or else those of the environments that the run has used."""
        stored = None if options.judges else await self._runs.get(name)
        chosen = (self._panels.resolve_options(pin.environment, options) for pin in (stored.pins if stored else ()))
        return [*options.judges, *(judge for each in chosen for judge in each.judges)]

    async def find_budget(self, group: Group, options: ScoringOptions) -> GroupBudget | None:
        """None where the group's run has no budget."""
        if group.run is None or (await self.ensure(group.run)).budget_usd is None:
            return None
        return GroupBudget(
            runs=self._runs,
            panels=self._panels,
            run=group.run,
            environment=group.environment,
            group_id=group.group_id,
            options=self._panels.resolve_options(group.environment, options),
            turn=self._turns[group.run],
        )

    async def ensure(self, name: Name) -> Run:
        """The run, created with default settings if it does not exist."""
        if recent := self._known.get_recent(name):
            return recent
        if known := self._known.get(name):
            return self.remember(await self._restore(known))
        stored = await self._runs.get(name)
        return self.remember(stored or await self._runs.create(self._build_run(name, RunSettings())))

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
            stored = self.remember(await self._pin(run, current))
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
        run = await self.require(name)
        return RunReport(
            run=run,
            activity=await self._runs.get_activity(name),
            judging=await self._compute_cost(run),
            agreement=None if self._agreement is None else await self._agreement.check(run),
        )

    async def require_open(self, run: Run, purpose: Purpose, environments: Sequence[str]) -> None:
        """RunHeld while an alarm holds the run, but for evaluations. Conflict for a strict run whose judges of these
        environments are known to agree less with people than it asks for."""
        _refuse_held_run(run, purpose)
        if self._agreement is not None and run.min_agreement is not None:
            await self._agreement.require(run, environments)

    async def find_cost(self, name: str) -> RunCost | None:
        """None when there is no such run."""
        run = await self._runs.get(name)
        return None if run is None else await self._compute_cost(run)

    async def _compute_cost(self, run: Run) -> RunCost:
        return build_run_cost(await self._runs.get_ledger(run.name), run.budget_usd)

    async def list_runs(self, limit: int, after: str | None) -> list[Run]:
        return await self._runs.list(limit, after)

    def _build_run(self, name: Name, settings: RunSettings) -> Run:
        seed = derive_seed(name) if settings.seed is None else settings.seed
        return Run(
            name=name,
            seed=seed,
            strict=settings.strict,
            options=settings.options,
            budget_usd=settings.budget_usd,
            max_lag=settings.max_lag,
            lag_policy=settings.lag_policy,
            health=settings.health or HealthOptions(),
            min_agreement=settings.min_agreement,
            keep=settings.keep,
            created_at=self._clock(),
        )

    def remember(self, run: Run) -> Run:
        """As the store has just returned it."""
        self._known.put(run.name, run)
        return run


async def stays_connected() -> bool:
    """For callers that cannot leave."""
    return False


async def await_pace(run: Run, request: BatchOptions, runs: RunRegistry, tasks: TaskStore, has_left: HasLeft) -> bool:
    """Whether tasks may be handed out at the request's training step, after waiting while a lease that is still out
    would be stale. The run is looked at again each time, since its limit may change meanwhile: RunHeld once an
    alarm holds it. A client that leaves while it waits gets nothing: nobody would answer its leases."""
    due = asyncio.get_running_loop().time() + request.wait_seconds
    early = await _is_too_early(run, request.policy_step, tasks)
    while early:
        if (left := due - asyncio.get_running_loop().time()) <= 0:
            return False
        await asyncio.sleep(min(left, PACE_POLL_SECONDS))
        run = await runs.ensure(run.name)
        _refuse_held_run(run, request.purpose)
        early = await _is_too_early(run, request.policy_step, tasks)
        if await has_left():
            return False
    return True


async def _is_too_early(run: Run, step: int | None, tasks: TaskStore) -> bool:
    """Whether a lease of the run that is still out would be stale at this step."""
    if step is None or run.lag_policy != "pace":
        return False
    oldest = await tasks.get_oldest_step(run.name)
    return oldest is not None and run.is_stale(step - oldest)


def _refuse_held_run(run: Run, purpose: Purpose) -> None:
    if run.held is not None and purpose == "train":
        raise RunHeld(
            f"run {run.name!r} is held by an alarm and hands out no tasks: {run.held.reason}. Look at "
            f"GET /runs/{run.name}/health; POST /runs/{run.name}/release ends the hold",
            field="run",
        )
