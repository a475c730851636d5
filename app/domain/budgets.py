"""Budgets of judges: limits, spending, and reservations for calls in progress."""

from dataclasses import dataclass, field, replace
from typing import Final, Literal

from app.domain.judging import Spending

_ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class Amount:
    """An amount of tokens (prompts plus answers) and US dollars."""

    tokens: int = 0
    usd: float = 0.0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.tokens + other.tokens, self.usd + other.usd)

    def times(self, count: int) -> "Amount":
        return Amount(self.tokens * count, self.usd * count)


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
    """Budget state of one judge. `total` and `today` are finished judgements; `used` and `open` are in progress."""

    total: Spending = field(default_factory=Spending)
    today: Spending = field(default_factory=Spending)
    used: Amount = NO_AMOUNT
    open: Amount = NO_AMOUNT

    def compute_remaining(self, budget: BudgetConfig) -> "RemainingBudget":
        """What remains, not counting the open reservations."""
        total, today = compute_amount(self.total) + self.used, compute_amount(self.today) + self.used
        bounds = ((budget.usd, total.usd), (budget.usd_per_day, today.usd))
        usd = [limit - spent for limit, spent in bounds if limit is not None]
        return RemainingBudget(
            usd=max(0.0, min(usd)) if usd else None,
            tokens=None if budget.tokens is None else max(0, budget.tokens - total.tokens),
        )

    def admit(self, hold: Reservation, budget: BudgetConfig) -> "Admission":
        """Decides on a reservation that is not included in this state."""
        left, wanted = self.compute_remaining(budget), hold.used + hold.open
        admits: AdmissionAnswer = "later"
        if not left.covers(wanted):
            admits = "never"
        elif left.covers(wanted + self.open):
            admits = "now"
        opened = self.open + hold.open if admits == "now" else self.open
        return Admission(admits, BudgetState(self.total, self.today, self.used + hold.used, opened))


AdmissionAnswer = Literal["now", "later", "never"]
"""`later`: possible if calls in progress turn out cheaper than reserved."""


@dataclass(frozen=True)
class RemainingBudget:
    """What remains of a budget; None means no limit."""

    usd: float | None
    tokens: int | None

    def covers(self, amount: Amount) -> bool:
        return (self.usd is None or amount.usd <= self.usd + _ROUNDING) and (
            self.tokens is None or amount.tokens <= self.tokens
        )


@dataclass(frozen=True)
class Admission:
    """The decision on a reservation. `standing` includes the reservation if it was admitted."""

    admits: AdmissionAnswer
    state: BudgetState


def compute_amount(spending: Spending) -> Amount:
    """The amount that counts against a budget. Calls without an answer count in full."""
    return Amount(
        spending.input_tokens + spending.output_tokens + spending.unanswered_tokens,
        spending.cost_usd + spending.unanswered_usd,
    )
