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


NOTHING: Final = Amount()


@dataclass(frozen=True)
class BudgetConfig:
    """Limits in US dollars and tokens (prompts plus answers). None means no limit; days are UTC days."""

    usd: float | None = None
    usd_per_day: float | None = None
    tokens: int | None = None


NO_BUDGET: Final = BudgetConfig()


@dataclass(frozen=True)
class Hold:
    """A budget reservation for one judgement: its calls so far cost `used`, and the next costs at most `open`. After
    `seconds` without renewal the process counts as dead and the call as charged."""

    id: str
    judge: str
    used: Amount
    open: Amount
    seconds: float

    @property
    def without_call(self) -> "Hold":
        return replace(self, open=NOTHING)


@dataclass(frozen=True)
class Standing:
    """Budget state of one judge. `total` and `today` are finished judgements; `used` and `open` are in progress."""

    total: Spending = field(default_factory=Spending)
    today: Spending = field(default_factory=Spending)
    used: Amount = NOTHING
    open: Amount = NOTHING

    def left(self, budget: BudgetConfig) -> "Left":
        """What remains, not counting the open reservations."""
        total, today = amount_of(self.total) + self.used, amount_of(self.today) + self.used
        bounds = ((budget.usd, total.usd), (budget.usd_per_day, today.usd))
        usd = [limit - spent for limit, spent in bounds if limit is not None]
        return Left(
            usd=max(0.0, min(usd)) if usd else None,
            tokens=None if budget.tokens is None else max(0, budget.tokens - total.tokens),
        )

    def admission(self, hold: Hold, budget: BudgetConfig) -> "Admission":
        """Decides on a reservation that is not included in this state."""
        left, wanted = self.left(budget), hold.used + hold.open
        admits: Admits = "later"
        if not left.holds(wanted):
            admits = "never"
        elif left.holds(wanted + self.open):
            admits = "now"
        opened = self.open + hold.open if admits == "now" else self.open
        return Admission(admits, Standing(self.total, self.today, self.used + hold.used, opened))


Admits = Literal["now", "later", "never"]
"""`later`: possible if calls in progress turn out cheaper than reserved."""


@dataclass(frozen=True)
class Left:
    """What remains of a budget; None means no limit."""

    usd: float | None
    tokens: int | None

    def holds(self, amount: Amount) -> bool:
        return (self.usd is None or amount.usd <= self.usd + _ROUNDING) and (
            self.tokens is None or amount.tokens <= self.tokens
        )


@dataclass(frozen=True)
class Admission:
    """The decision on a reservation. `standing` includes the reservation if it was admitted."""

    admits: Admits
    standing: Standing


def amount_of(spending: Spending) -> Amount:
    """The amount that counts against a budget. Calls without an answer count in full."""
    return Amount(
        spending.input_tokens + spending.output_tokens + spending.unanswered_tokens,
        spending.cost_usd + spending.unanswered_usd,
    )
