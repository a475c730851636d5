"""What a judge may spend, what it has spent wherever it was asked, and what calls under way may add to that."""

from dataclasses import dataclass, field, replace
from typing import Final, Literal

from app.domain.judging import Spending

_ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class Amount:
    """Tokens of prompts and answers together, and US dollars."""

    tokens: int = 0
    usd: float = 0.0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.tokens + other.tokens, self.usd + other.usd)


NOTHING: Final = Amount()


@dataclass(frozen=True)
class BudgetConfig:
    """US dollars and tokens, of prompts and answers together; None where there is no bound. A day is one in UTC."""

    usd: float | None = None
    usd_per_day: float | None = None
    tokens: int | None = None


NO_BUDGET: Final = BudgetConfig()


@dataclass(frozen=True)
class Hold:
    """What is put aside for one reading: its calls so far came to `used`, and the next one costs `open` at most. After
    `seconds` without a word its process is taken to be dead, and the call to have been charged."""

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
    """Of one judge. `total` and `today` hold the readings that are over, `used` and `open` are of those that go on."""

    total: Spending = field(default_factory=Spending)
    today: Spending = field(default_factory=Spending)
    used: Amount = NOTHING
    open: Amount = NOTHING

    def left(self, budget: BudgetConfig) -> "Left":
        """Whatever becomes of the calls under way."""
        total, today = amount_of(self.total) + self.used, amount_of(self.today) + self.used
        bounds = ((budget.usd, total.usd), (budget.usd_per_day, today.usd))
        usd = [limit - spent for limit, spent in bounds if limit is not None]
        return Left(
            usd=max(0.0, min(usd)) if usd else None,
            tokens=None if budget.tokens is None else max(0, budget.tokens - total.tokens),
        )

    def admission(self, hold: Hold, budget: BudgetConfig) -> "Admission":
        """Of a hold that is not in here yet."""
        left, wanted = self.left(budget), hold.used + hold.open
        admits: Admits = "later"
        if not left.holds(wanted):
            admits = "never"
        elif left.holds(wanted + self.open):
            admits = "now"
        opened = self.open + hold.open if admits == "now" else self.open
        return Admission(admits, Standing(self.total, self.today, self.used + hold.used, opened))


Admits = Literal["now", "later", "never"]
"""`later`: when calls under way turn out cheaper than they may be."""


@dataclass(frozen=True)
class Left:
    """None without a bound."""

    usd: float | None
    tokens: int | None

    def holds(self, amount: Amount) -> bool:
        return (self.usd is None or amount.usd <= self.usd + _ROUNDING) and (
            self.tokens is None or amount.tokens <= self.tokens
        )


@dataclass(frozen=True)
class Admission:
    """`standing` is with what was put aside."""

    admits: Admits
    standing: Standing


def amount_of(spending: Spending) -> Amount:
    """What stands against a budget: calls without an answer as if they had been charged in full."""
    return Amount(
        spending.input_tokens + spending.output_tokens + spending.unanswered_tokens,
        spending.cost_usd + spending.unanswered_usd,
    )
