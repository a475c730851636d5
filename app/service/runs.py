"""Budgets of runs: what judging a group is expected to cost is reserved before a judge is asked."""

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import cycle, islice
from operator import not_
from typing import Annotated, Final, Protocol, Self, TypeAlias

from pydantic import Field

from app.domain.budgets import NO_AMOUNT, Amount, BudgetUsd, RunCost, build_run_cost
from app.domain.errors import Conflict, InvalidRequest, NotFound, RunHeld, ScoringFailed, StoreUnavailable
from app.domain.groups import RunActivity
from app.domain.judging import Case, Judgement, Spending
from app.domain.keeping import KeepLevel
from app.domain.runs import (
    Alarm,
    CharacterChoice,
    HealthOptions,
    Hold,
    LagPolicy,
    MaxLag,
    MinAgreement,
    PanelOptions,
    Pin,
    Purpose,
    Run,
    RunChange,
    RunProgress,
    ScoringOptions,
    tell_progress,
)
from app.domain.values import FiniteNumber, Frozen, Name, WholeNumber, bound_tokens, suggest
from app.ports.environment import Clock
from app.ports.judges import BackedJudge, Judge, Panels, PricedJudge
from app.service.catalogue import StoreMemory
from app.service.requests import BatchOptions
from app.service.task_order import derive_seed
from app.store.runs import RunStore
from app.store.tasks import TaskStore

log = logging.getLogger(__name__)

HOLD_SECONDS: Final = 1200.0
"""Longer than a group may be judged. Then its process counts as dead."""
POLL_SECONDS: Final = 0.5
"""How often a group that waits looks at what groups of other processes turned out to cost."""
LARGEST_QUESTION: Final = 8
"""Replies that a judge is assumed to read at once."""
MOST_READINGS: Final = 4
MOST_NEIGHBOURS: Final = 4


UNKNOWN_TASK_TOKENS: Final = 5000
"""A rubric and a character sheet: the median of the shipped sheets is 4,524 (docs/judge_reference.md)."""
UNKNOWN_REPLY_TOKENS: Final = 500


class BudgetSpent(ScoringFailed):
    """The group does not fit into what is left of its run's budget."""

    reason = "budget"


@dataclass(frozen=True)
class GroupBudget:
    """Reserves what one group of a run with a budget is expected to cost."""

    runs: RunStore
    panels: Panels
    run: str
    environment: str
    group_id: str
    options: PanelOptions
    turn: asyncio.Lock
    """Of the run in this process: groups that have to wait do so in line."""

    async def reserve(self, case: Case) -> None:
        """BudgetSpent when the group does not fit. Waits while only groups that are being judged stand against it."""
        if unpriced := find_unpriced(self.panels, self.options.judges):
            raise BudgetSpent(f"the run has a budget, and judge {unpriced[0]!r} has no prices")
        estimate = estimate_group_cost(case, self.options, self.panels)
        async with self.turn:
            while not await self._try_reserve(estimate):  # noqa: ASYNC110  # other processes wake nobody
                await asyncio.sleep(POLL_SECONDS)

    async def _try_reserve(self, estimate: float) -> bool:
        answer = await self.runs.reserve_cost(self.run, self.environment, self.group_id, estimate, HOLD_SECONDS)
        if answer == "never":
            raise BudgetSpent("judging this group is expected to cost more than is left of the run's `budget_usd`")
        return answer == "now"

    async def reserve_further(self, case: Case) -> bool:
        """Reserves what one more reading of the group may cost, and says whether the budget allows it. Nobody waits
        for that."""
        estimate = estimate_group_cost(case, self.options.model_copy(update={"readings": 1}), self.panels)
        try:
            answer = await self.runs.reserve_cost(
                self.run, self.environment, self._further_hold, estimate, HOLD_SECONDS
            )
        except StoreUnavailable:
            return False
        return answer == "now"

    @property
    def _further_hold(self) -> str:
        return f"{self.group_id} further"

    async def settle(self, made: Sequence[Judgement], *, further: bool = False) -> None:
        """What the group cost is known, though it is not stored: other groups of its request may be waiting for it.
        With `further` nothing is reserved for one more reading any longer: `made` has it."""
        total = Spending()
        for judgement in made:
            total = total.add_judgement(judgement)
        await self._settle_hold(self.group_id, total.cost_usd + total.unanswered_usd)
        if further:
            await self._settle_hold(self._further_hold, 0.0)

    async def _settle_hold(self, hold: str, usd: float) -> None:
        try:
            await self.runs.settle_cost(hold, usd)
        except StoreUnavailable:
            log.warning("what a group cost could not be stored: %s", hold)


def find_unpriced(panels: Panels, names: Sequence[str]) -> list[str]:
    """The judges whose calls cost what nobody has said, fallbacks included."""
    asked = [judge for name in names if (judge := panels.judges.get(name)) is not None]
    return [each.name for judge in asked for each in _list_asked(judge) if _compute_most(each, 0) is None]


@dataclass(frozen=True)
class JudgingBound:
    """What judging a group takes at most, but for retries: every answer as long as it may be, every reading in doubt.
    Judges without a model take nothing."""

    calls: int
    input_tokens: int
    output_tokens: int
    priced_usd: float
    """Of the judges that have prices."""
    is_priced: bool
    """Whether all have."""

    @property
    def amount(self) -> Amount:
        return Amount(self.input_tokens + self.output_tokens, self.priced_usd)


@dataclass(frozen=True)
class CaseTokens:
    """What judges read of a group, counted once: with every question, and of each different candidate."""

    shared: int
    candidates: tuple[int, ...]

    @classmethod
    def count(cls, case: Case) -> Self:
        shared = [case.document, case.rubric.model_dump(mode="json"), case.probes.model_dump(mode="json")]
        texts = dict.fromkeys(case.candidates)
        return cls(bound_tokens(json.dumps(shared, ensure_ascii=False)), tuple(map(bound_tokens, texts)))

    def add_like(self, count: int) -> Self:
        """With so many candidates more that have not come yet: each as long as one of those that have."""
        return self.add(islice(cycle(self.candidates), max(0, count)))

    def add(self, candidates: Iterable[int]) -> Self:
        return replace(self, candidates=(*self.candidates, *candidates))


def estimate_group_cost(case: Case, options: PanelOptions, panels: Panels) -> float:
    """0 where a judge has no prices."""
    bound = bound_judging(CaseTokens.count(case), options, panels)
    return bound.priced_usd if bound.is_priced else 0.0


def bound_judging(case: CaseTokens, options: PanelOptions, panels: Panels) -> JudgingBound:
    count = len(case.candidates)
    calls, replies = _count_calls(options, count)
    tokens = case.shared + replies * sum(case.candidates) // max(1, count)
    return _bound_calls(calls, tokens, options, panels)


def bound_unknown_group(options: PanelOptions, panels: Panels, *, texts: Sequence[str] = ()) -> JudgingBound:
    """What judging a group takes at most of which nothing is known but its judges: of as many replies as one question
    has room for, each and the task as long as labs' usually are. `texts` count where they are more."""
    calls, replies = _count_calls(options, max(LARGEST_QUESTION, len(texts)))
    tokens = max(replies * UNKNOWN_REPLY_TOKENS, sum(map(bound_tokens, texts)))
    return _bound_calls(calls, UNKNOWN_TASK_TOKENS + tokens, options, panels)


def add_up_bounds(bounds: Iterable[JudgingBound]) -> Amount | None:
    """None where no judge is asked."""
    asking = [bound.amount for bound in bounds if bound.calls]
    return sum(asking, NO_AMOUNT) if asking else None


def _bound_calls(calls: int, tokens: int, options: PanelOptions, panels: Panels) -> JudgingBound:
    """So many calls to each judge, of so many tokens."""
    judges = [each for name in options.judges for each in _list_asked(panels.judges[name])]
    asked = [judge for judge in judges if isinstance(judge, PricedJudge)]
    prices = [price for judge in judges if (price := _compute_most(judge, tokens)) is not None]
    answers = calls * sum(judge.longest_answer for judge in asked)
    count = calls * len(asked)
    return JudgingBound(count, count * tokens, answers, calls * sum(prices), len(prices) == len(judges))


def _count_calls(options: PanelOptions, count: int) -> tuple[int, int]:
    """Questions to one judge at most, and the replies in each."""
    if options.mode == "pointwise" or count == 1:
        return count * options.votes, 1
    if options.mode == "pairwise":
        return count * min(count - 1, MOST_NEIGHBOURS) * options.votes, 2
    parts = -(-count // (LARGEST_QUESTION // 2))
    chunks = 1 if count <= LARGEST_QUESTION else parts * min(parts - 1, MOST_NEIGHBOURS) // 2
    return chunks * (options.readings or MOST_READINGS), min(count, LARGEST_QUESTION)


def _list_asked(judge: Judge) -> Iterator[Judge]:
    yield judge
    if isinstance(judge, BackedJudge):
        yield judge.fallback


def _compute_most(judge: Judge, input_tokens: int) -> float | None:
    """0 for a judge without a model."""
    return judge.compute_most(input_tokens) if isinstance(judge, PricedJudge) else 0.0


# What others find out about a run: whether its judges agree with people, and whether its figures hold still.


class JudgeStanding(Frozen):
    """What people's labels say of one judge in one environment, over all runs."""

    judge: str
    environment: str
    groups: int
    """Those that a uniform draw of the queue has found, and in which people ordered replies."""
    low: FiniteNumber | None
    """Lower bound of the pair accuracy's 95 % interval; null below 50 groups."""
    met: bool | None
    """Whether it reaches what the run asks for; null where there are too few labels to tell."""


class RunAgreement(Frozen):
    wanted: FiniteNumber
    alarm: bool
    """Some judge is known to agree less. A strict run then hands out no tasks."""
    judges: tuple[JudgeStanding, ...]


class AgreementWatch(Protocol):
    """How far judges agree with people, of whom only a feature knows."""

    async def check(self, run: Run, environments: Sequence[str] = ()) -> RunAgreement | None:
        """Of these environments besides those that the run has used. None where the run asks for nothing."""

    async def require(self, run: Run, environments: Sequence[str]) -> None:
        """Conflict for a strict run whose judge agrees less with people than it asks for."""


class RunWatch(Protocol):
    """Who follows the figures of runs, and raises alarms."""

    def check_options(self, options: HealthOptions, judges: Sequence[str]) -> None:
        """InvalidRequest naming the field for options that cannot be followed beside these judges of the run."""

    async def list_open_alarms(self, run: str) -> tuple[Alarm, ...]:
        """Newest first."""


# Runs: created on first use; they record what affects their rewards, so that later changes are noticed.

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
    characters: CharacterChoice = "newest"
    """`newest` takes up what authors publish with the next epoch. `pinned` keeps the characters and scenes of the run's
    first use, whatever is published later. Left out, it stays as it is."""
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
    keep: KeepLevel | None = None
    """What stays of the run's scored groups after a time, in place of what the settings say: `all`, or scores and
    `texts` only. It may change at any time; left out, it stays as it is, and null removes it. What is gone does not
    come back."""


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
    """`agreement` and `watch` are set by the features that know. Without them nothing is said of people's labels, and
    no alarm holds a run."""

    def __init__(self, runs: RunStore, panels: Panels, clock: Clock) -> None:
        self.agreement: AgreementWatch | None = None
        self.watch: RunWatch | None = None
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
        await self._check_watched(name, settings)
        wanted = self._build_run(name, settings)
        run = await self._runs.create(wanted)
        fixed = ("seed", "strict", "options", *settings.model_fields_set & {"characters"})
        for word in fixed:
            if getattr(run, word) != getattr(wanted, word):
                raise Conflict(f"run {name!r} already exists with another {word}", field=word)
        given = {word: getattr(settings, word) for word in settings.model_fields_set & RunChange.model_fields.keys()}
        if settings.health is None:
            given.pop("health", None)
        change = RunChange.model_validate(given)
        return self.remember(run if change.apply_to(run) == run else await self._runs.change(name, change))

    async def _check_watched(self, run: Name, settings: RunSettings) -> None:
        """InvalidRequest for what nobody follows here, and for what cannot be followed."""
        if settings.min_agreement is not None and self.agreement is None:
            raise InvalidRequest("this service compares no judge with people", field="min_agreement")
        if settings.health is None:
            return
        if self.watch is None:
            raise InvalidRequest("this service does not follow the health of runs", field="health")
        self.watch.check_options(settings.health, await self._list_known_judges(run, settings.options))

    async def _require_lag_limit(self, name: Name, settings: RunSettings) -> None:
        """InvalidRequest for a policy about stale groups where none can be stale."""
        stored = None if "max_lag" in settings.model_fields_set else await self._runs.get(name)
        if (settings.max_lag if stored is None else stored.max_lag) is None:
            raise InvalidRequest(f"{settings.lag_policy!r} needs a `max_lag`", field="lag_policy")

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

    async def find_budget(
        self, run: Name, environment: str, group_id: str, options: ScoringOptions
    ) -> GroupBudget | None:
        """For a group of this run; None where the run has no budget."""
        if (await self.ensure(run)).budget_usd is None:
            return None
        return GroupBudget(
            runs=self._runs,
            panels=self._panels,
            run=run,
            environment=environment,
            group_id=group_id,
            options=self._panels.resolve_options(environment, options),
            turn=self._turns[run],
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
            agreement=None if self.agreement is None else await self.agreement.check(run),
        )

    async def list_open_alarms(self, name: str) -> tuple[Alarm, ...]:
        return () if self.watch is None else await self.watch.list_open_alarms(name)

    async def require_open(self, run: Run, purpose: Purpose, environments: Sequence[str]) -> None:
        """RunHeld while an alarm holds the run, but for evaluations. Conflict for a strict run whose judges of these
        environments are known to agree less with people than it asks for."""
        self.refuse_held(run, purpose)
        if self.agreement is not None and run.min_agreement is not None:
            await self.agreement.require(run, environments)

    def find_hold(self, run: Run) -> Hold | None:
        """What holds the run. Where nobody raises alarms any more nothing does, since nobody could end it."""
        return None if self.watch is None else run.held

    def tell_progress(self, report: RunReport, arrivals: Sequence[datetime]) -> RunProgress:
        """`arrivals` are those of its newest groups, newest first."""
        outstanding, held = sum(each.outstanding for each in report.activity), self.find_hold(report.run)
        return tell_progress(arrivals, outstanding, held, self._clock(), finished=report.run.health.finished)

    def refuse_held(self, run: Run, purpose: Purpose) -> None:
        """RunHeld while an alarm holds the run."""
        if (hold := self.find_hold(run)) is not None and purpose == "train":
            raise RunHeld(
                f"run {run.name!r} is held by an alarm and hands out no tasks: {hold.reason}. Look at "
                f"GET /runs/{run.name}/health; POST /runs/{run.name}/release ends the hold",
                field="run",
            )

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
            characters=settings.characters,
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
        runs.refuse_held(run, request.purpose)
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
