"""Budgets of judges and of runs, and quotas of keys.

All three work alike: before something is spent it is reserved, in one transaction of the store, so that all processes
together stay within the limit. A reservation is the most that it may cost, and is replaced by the real cost afterwards.
Where a limit allows it only if calls in progress turn out cheaper than reserved, the answer is `later`, not `never`.
Calls that got no answer count in full, since they may be charged. A reservation that its process no longer renews
expires.

A budget of a judge counts its calls, a budget of a run its groups. The quotas of a key stop hand-outs, and not the one
group for which a lease that was handed out pays.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from operator import add, not_
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import Field

from app.domain.judging import Spending
from app.domain.values import FiniteNumber, Frozen

_ROUNDING: Final = 1e-9
"""Sums of dollars may exceed a limit by this much, which is what floats lose when they are added."""

BudgetAnswer = Literal["now", "later", "never"]
"""Whether something may be spent. `later`: possible if what is in progress turns out cheaper than reserved."""
_ANSWERS: Final[tuple[BudgetAnswer, ...]] = get_args(BudgetAnswer)
"""From the mildest to the strictest."""

_SOMETHING: Final = 2 * _ROUNDING
"""What is asked for at least where nothing may begin once a limit is reached, also what is expected to be free."""


def admit(limit: float | None, *, spent: float, held: float, wanted: float) -> BudgetAnswer:
    """The rule of every budget and quota. `spent` is gone, `held` is reserved for what is in progress."""
    if limit is None:
        return "now"
    left = max(0.0, limit - spent) + _ROUNDING
    if wanted > left:
        return "never"
    return "now" if wanted + held <= left else "later"


# Budgets of judges


@dataclass(frozen=True)
class Amount:
    """An amount of tokens (prompts plus answers) and US dollars."""

    tokens: int = 0
    usd: float = 0.0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.tokens + other.tokens, self.usd + other.usd)

    def times(self, count: int) -> "Amount":
        return Amount(self.tokens * count, self.usd * count)

    def covers(self, other: "Amount") -> bool:
        return self.tokens >= other.tokens and self.usd >= other.usd

    def widen_to(self, other: "Amount") -> "Amount":
        return Amount(max(self.tokens, other.tokens), max(self.usd, other.usd))

    def narrow_to(self, other: "Amount") -> "Amount":
        return Amount(min(self.tokens, other.tokens), min(self.usd, other.usd))

    def less(self, other: "Amount") -> "Amount":
        return Amount(self.tokens - other.tokens, self.usd - other.usd)


NO_AMOUNT: Final = Amount()


@dataclass(frozen=True)
class BudgetConfig:
    """Limits in US dollars and tokens (prompts plus answers). None means no limit; days are UTC days."""

    usd: float | None = None
    usd_per_day: float | None = None
    tokens: int | None = None


NO_BUDGET: Final = BudgetConfig()


@dataclass(frozen=True)
class Reservation:
    """A budget reservation for one judgement: its calls so far cost `used`, and the next costs at most `open`. After
    `seconds` without renewal the process counts as dead and the call as charged."""

    id: str
    judge: str
    used: Amount
    open: Amount
    seconds: float

    @property
    def without_call(self) -> "Reservation":
        return replace(self, open=NO_AMOUNT)


@dataclass(frozen=True)
class BudgetState:
    """What a judge, run or key has spent and reserved. `total` and `today` are finished judgements; `used` and `open`
    are in progress."""

    total: Spending = field(default_factory=Spending)
    today: Spending = field(default_factory=Spending)
    used: Amount = NO_AMOUNT
    open: Amount = NO_AMOUNT

    def compute_remaining(self, budget: BudgetConfig) -> "_RemainingBudget":
        """What remains, not counting the open reservations."""
        total, today = self._count_spent()
        bounds = ((budget.usd, total.usd), (budget.usd_per_day, today.usd))
        usd = [limit - spent for limit, spent in bounds if limit is not None]
        return _RemainingBudget(
            usd=max(0.0, min(usd)) if usd else None,
            tokens=None if budget.tokens is None else max(0, budget.tokens - total.tokens),
        )

    def answer(self, needed: Amount, budget: BudgetConfig) -> BudgetAnswer:
        """Whether so much may be spent, by the tightest of the limits."""
        total, today = self._count_spent()
        answers = (
            admit(budget.usd, spent=total.usd, held=self.open.usd, wanted=needed.usd),
            admit(budget.usd_per_day, spent=today.usd, held=self.open.usd, wanted=needed.usd),
            admit(budget.tokens, spent=total.tokens, held=self.open.tokens, wanted=needed.tokens),
        )
        return max(answers, key=_ANSWERS.index)

    def admit_group(self, expected: Amount, budget_usd: float) -> BudgetAnswer:
        """Whether a group of a run may be judged that is expected to take so much."""
        return self.answer(replace(expected, usd=max(expected.usd, _SOMETHING)), BudgetConfig(usd=budget_usd))

    def admit(self, hold: Reservation, budget: BudgetConfig) -> "Admission":
        """Decides on a reservation that is not included in this state."""
        admits = self.answer(hold.used + hold.open, budget)
        # What was used is spent, whether the next call is admitted or not.
        opened = self.open + hold.open if admits == "now" else self.open
        return Admission(admits, BudgetState(self.total, self.today, self.used + hold.used, opened))

    def _count_spent(self) -> tuple[Amount, Amount]:
        """In all, and today."""
        return compute_amount(self.total) + self.used, compute_amount(self.today) + self.used


@dataclass(frozen=True)
class _RemainingBudget:
    """What remains of a budget; None means no limit."""

    usd: float | None
    tokens: int | None


@dataclass(frozen=True)
class Admission:
    """The decision on a reservation. `state` includes the reservation if it was admitted."""

    admits: BudgetAnswer
    state: BudgetState


def compute_amount(spending: Spending) -> Amount:
    """The amount that counts against a budget. Calls without an answer count in full."""
    return Amount(
        spending.input_tokens + spending.output_tokens + spending.unanswered_tokens,
        spending.cost_usd + spending.unanswered_usd,
    )


# Costs and budgets of runs

GROUPS_FOR_MEAN: Final = 8
"""From so many groups on their mean cost is what the next one is expected to cost."""

BudgetUsd = Annotated[FiniteNumber, Field(ge=0, le=1e9)]


class RunSpending(Spending):
    """What the judgements of a run's groups cost, re-scorings and failures included. Answers from the cache cost
    nothing."""

    groups: int = 0
    """Groups of which judgements are stored."""
    unpriced_calls: int = 0
    """How many of `calls` went to judges without prices."""

    @property
    def usd(self) -> float | None:
        return None if self.unpriced_calls else self.cost_usd

    @property
    def usd_at_most(self) -> float:
        """What counts against a budget: calls without an answer in full."""
        return self.cost_usd + self.unanswered_usd


NOTHING_SPENT: Final = RunSpending()


class EnvironmentCost(Frozen):
    environment: str
    spent: RunSpending
    first_at: datetime
    last_at: datetime


class RunLedger(Frozen):
    """What the store knows about a run's costs. `recent_usd` was spent in the last `recent_seconds`; `held_usd` is put
    aside for groups that are being judged."""

    environments: tuple[EnvironmentCost, ...] = ()
    recent_usd: FiniteNumber = 0.0
    recent_seconds: FiniteNumber = 0.0
    held_usd: FiniteNumber = 0.0

    @property
    def total(self) -> RunSpending:
        return add_up(each.spent for each in self.environments)


class BudgetForecast(Frozen):
    """How far a run's budget reaches."""

    usd: FiniteNumber
    left_usd: FiniteNumber
    """Calls without an answer count as what they may cost at most."""
    held_usd: FiniteNumber
    """Of what is left: reserved for groups that are being judged."""
    groups: FiniteNumber | None
    """How many more groups it is enough for, by the mean of those so far; null without one."""
    hours: FiniteNumber | None
    """How long it lasts at the rate of the last hours; null without one."""


class RunCost(Frozen):
    """What judging this run has cost since the first judgement that was counted. Dollars are null where a judge has no
    prices."""

    spent: RunSpending
    usd: FiniteNumber | None
    usd_per_1000_groups: FiniteNumber | None
    usd_per_hour: FiniteNumber | None
    """Over the current hour and the one before; null where nothing was spent in them."""
    since: datetime | None
    """The first judgement that was counted. A database from before counts from its upgrade on."""
    until: datetime | None
    budget: BudgetForecast | None
    """Null without a budget."""
    environments: tuple[EnvironmentCost, ...]


def add_up(spendings: Iterable[RunSpending]) -> RunSpending:
    rows = [one.model_dump() for one in spendings]
    return RunSpending.model_validate(
        {name: reduce(add, [row[name] for row in rows], type(value)()) for name, value in RunSpending()}
    )


def build_run_cost(ledger: RunLedger, budget_usd: float | None) -> RunCost:
    total = ledger.total
    priced = total.usd is not None
    per_hour = 3600 * ledger.recent_usd / ledger.recent_seconds if priced and ledger.recent_usd > 0 else None
    return RunCost(
        spent=total,
        usd=total.usd,
        usd_per_1000_groups=1000 * total.cost_usd / total.groups if priced and total.groups else None,
        usd_per_hour=per_hour,
        since=min((each.first_at for each in ledger.environments), default=None),
        until=max((each.last_at for each in ledger.environments), default=None),
        budget=None if budget_usd is None else _forecast(ledger, total, budget_usd, per_hour),
        environments=ledger.environments,
    )


def _forecast(ledger: RunLedger, total: RunSpending, budget_usd: float, per_hour: float | None) -> BudgetForecast:
    left = max(0.0, budget_usd - total.usd_at_most)
    mean = total.usd_at_most / total.groups if total.groups and total.usd is not None else 0.0
    return BudgetForecast(
        usd=budget_usd,
        left_usd=left,
        held_usd=ledger.held_usd,
        groups=left / mean if mean > 0 else None,
        hours=left / per_hour if per_hour else None,
    )


# Quotas of keys

QuotaName = Literal["requests_per_day", "judge_tokens_per_day", "judge_usd_per_day", "leases"]
_WARNING_SHARE: Final = 0.8
"""From this share of a quota on, hand-outs come with a warning."""

Count = Annotated[int, Field(ge=1, le=10**15)]


class KeyQuotas(Frozen):
    """Null: no limit. Days begin at midnight UTC. Quotas stop the handing out of tasks, and not the one group for which
    each lease pays."""

    requests_per_day: Count | None = None
    """Requests for tasks, scores and replies of characters."""
    judge_tokens_per_day: Count | None = None
    """Prompts plus answers of judges."""
    judge_usd_per_day: Annotated[FiniteNumber, Field(gt=0, le=1e9)] | None = None
    leases: Count | None = None
    """Tasks that are leased at the same time."""
    hard: bool = False
    """The quotas are caps: nothing is begun that may pass one. Otherwise a run without leases, once admitted, is scored
    to the end of the day."""

    @property
    def is_open(self) -> bool:
        return all(limit is None for name, limit in self if name != "hard")

    def widen(self, bound: Amount) -> Amount:
        """What is reserved for a group of this bound. A cap holds also where each question is asked once more, since
        its answer could not be used."""
        return bound.times(2) if self.hard else bound

    @property
    def limits_judging(self) -> bool:
        return self.judge_tokens_per_day is not None or self.judge_usd_per_day is not None


NO_QUOTAS: Final = KeyQuotas()


class QuotaUse(Frozen):
    """How much of one quota is used."""

    quota: QuotaName
    limit: FiniteNumber
    used: FiniteNumber
    held: FiniteNumber
    """Put aside for what is handed out or being judged."""
    over: Annotated[FiniteNumber, Field(exclude_if=not_)] = 0.0
    """How much of what is used is beyond the limit; left out where nothing is."""
    until: datetime
    """When some of it is free again at the latest: the end of the day, or of the first lease to end."""
    wanted: Annotated[FiniteNumber, Field(exclude_if=not_)] = 0.0
    """What a request would add; left out where there is none."""

    def admit(self, wanted: float) -> BudgetAnswer:
        """Leases come back, so those that there are count as held."""
        spent, held = (0.0, self.used) if self.quota == "leases" else (self.used, self.held)
        return admit(self.limit, spent=spent, held=held, wanted=max(wanted, _SOMETHING))

    @property
    def needs_warning(self) -> bool:
        return self.used + self.held >= _WARNING_SHARE * self.limit

    @property
    def frees_itself(self) -> bool:
        """Whether the scoring of tasks that are handed out may make room for what is wanted."""
        return self.admit(self.wanted) == "later"

    def describe(self) -> str:
        over = f", {_show(self.over)} over" if self.over else ""
        held = f", {_show(self.held)} reserved for tasks that are handed out or being judged" if self.held else ""
        free = f", {_show(max(0.0, self.limit - self.used - self.held))} free"
        wanted = f", {_show(self.wanted)} asked for" if self.wanted else ""
        until = f"{self.until:%Y-%m-%dT%H:%M:%SZ}"
        return f"{self.quota} is {_show(self.limit)}: {_show(self.used)} used{over}{held}{free}{wanted}, until {until}"


class KeyUsage(Frozen):
    """What a key has used on this day, and what it holds now."""

    requests: int = 0
    """For tasks, scores and replies of characters; counted where they are limited."""
    judge_tokens: int = 0
    judge_usd: FiniteNumber = 0.0
    held_tokens: int = 0
    held_usd: FiniteNumber = 0.0
    leases: int = 0
    day_ends_at: datetime
    next_lease_ends_at: datetime | None = None

    def list_uses(self, quotas: KeyQuotas) -> tuple[QuotaUse, ...]:
        """Of the quotas that are limited."""
        lease_ends = self.next_lease_ends_at or self.day_ends_at
        amounts: dict[QuotaName, tuple[float, float, datetime]] = {
            "requests_per_day": (self.requests, 0, self.day_ends_at),
            "judge_tokens_per_day": (self.judge_tokens, self.held_tokens, self.day_ends_at),
            "judge_usd_per_day": (self.judge_usd, self.held_usd, self.day_ends_at),
            "leases": (self.leases, 0, lease_ends),
        }
        return tuple(
            QuotaUse(quota=name, limit=limit, used=used, held=held, over=max(0.0, used - limit), until=until)
            for name, (used, held, until) in amounts.items()
            if (limit := getattr(quotas, name)) is not None
        )

    def find_exceeded(self, quotas: KeyQuotas, wanted: "Demand") -> QuotaUse | None:
        """The first quota that does not allow what is wanted."""
        more: dict[QuotaName, float] = {
            "requests_per_day": wanted.requests,
            "judge_tokens_per_day": wanted.judging.tokens,
            "judge_usd_per_day": wanted.judging.usd,
            "leases": wanted.leases,
        }
        for use in self.list_uses(quotas):
            needed = more[use.quota]
            asks = needed > 0 or (use.quota.startswith("judge") and wanted.is_judged)
            if asks and use.admit(needed) != "now":
                return use.model_copy(update={"wanted": needed})
        return None


class Demand(Frozen):
    """What a request would add."""

    requests: int = 1
    leases: int = 0
    is_judged: bool = False
    judging: Amount = NO_AMOUNT

    @classmethod
    def combine(cls, members: Sequence[Self]) -> Self:
        """Of one request for several environments."""
        total = sum((one.judging for one in members), NO_AMOUNT)
        judged = any(one.is_judged for one in members)
        return cls(leases=sum(one.leases for one in members), is_judged=judged, judging=total)


def _show(number: float) -> str:
    return f"{number:.4g}" if number != int(number) else f"{int(number)}"
