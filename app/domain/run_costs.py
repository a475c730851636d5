"""What judging a run has cost, at what rate, and how far its budget reaches."""

from collections.abc import Iterable
from datetime import datetime
from functools import reduce
from operator import add
from typing import Annotated, Final, Literal

from pydantic import Field

from app.domain.judging import Spending
from app.domain.values import FiniteNumber, Frozen

GROUPS_FOR_MEAN: Final = 8
"""From so many groups on their mean cost is what the next one is expected to cost."""

BudgetUsd = Annotated[FiniteNumber, Field(ge=0, le=1e9)]
BudgetAnswer = Literal["now", "later", "never"]
"""Whether a group may be judged. `later`: if groups that are being judged turn out cheaper than expected."""


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


def admit_group(*, budget_usd: float, spent_usd: float, held_usd: float, expected_usd: float) -> BudgetAnswer:
    left = budget_usd - spent_usd + 1e-9
    if expected_usd > left or left <= 1e-9:  # rounding
        return "never"
    return "now" if expected_usd + held_usd <= left else "later"
