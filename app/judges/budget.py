"""What a judge may spend: reserved before a call, settled after it, never exceeded by calls that run at once."""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Final

from app.domain.judging import Spending
from app.judges.failures import ReadingFailed
from app.ports import Clock

_ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class BudgetConfig:
    """US dollars and tokens, of prompts and answers together; None where there is no bound. A day is one in UTC."""

    usd: float | None = None
    usd_per_day: float | None = None
    tokens: int | None = None


NO_BUDGET: Final = BudgetConfig()


@dataclass(frozen=True)
class Amount:
    tokens: int = 0
    usd: float = 0.0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.tokens + other.tokens, self.usd + other.usd)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(self.tokens - other.tokens, self.usd - other.usd)


NOTHING: Final = Amount()


@dataclass
class Reserved:
    """`used` becomes what the call really cost; left as it is, the call cost nothing."""

    amount: Amount
    used: Amount = NOTHING


class Budget:
    """What was spent before a restart is given to `restore`."""

    def __init__(self, config: BudgetConfig, now: Clock) -> None:
        self._config = config
        self._now = now
        self._total = Amount()
        self._today = Amount()
        self._day = now().date()
        self._reserved = Amount()
        self._waiting: deque[asyncio.Future[None]] = deque()

    def restore(self, total: Spending, today: Spending) -> None:
        self._total += _amount(total)
        self._today += _amount(today)

    @property
    def left_usd(self) -> float | None:
        self._turn()
        config = self._config
        left = [
            limit - spent
            for limit, spent in ((config.usd, self._total.usd), (config.usd_per_day, self._today.usd))
            if limit is not None
        ]
        return max(0.0, min(left)) if left else None

    @property
    def left_tokens(self) -> int | None:
        return None if self._config.tokens is None else max(0, self._config.tokens - self._total.tokens)

    def check(self, amount: Amount) -> None:
        """ReadingFailed when `amount` does not fit into what is left, whatever becomes of the calls under way."""
        left_usd, left_tokens = self.left_usd, self.left_tokens
        if left_usd is not None and amount.usd > left_usd + _ROUNDING:
            words = f"a call may cost {amount.usd:.6f} US dollars and {left_usd:.6f} are left"
        elif left_tokens is not None and amount.tokens > left_tokens:
            words = f"a call may take {amount.tokens} tokens and {left_tokens} are left"
        else:
            return
        raise ReadingFailed(f"the budget of this judge is used up: {words}", "budget")

    async def reserve(self, amount: Amount) -> Reserved:
        """Waits while only the calls under way stand against it: they may turn out cheaper than reserved."""
        while True:
            self.check(amount)
            if self._fits(amount):
                self._reserved += amount
                return Reserved(amount)
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            await place

    @contextmanager
    def settling(self, reserved: Reserved) -> Iterator[None]:
        try:
            yield
        finally:
            self._turn()
            self._reserved -= reserved.amount
            self._total += reserved.used
            self._today += reserved.used
            waiting, self._waiting = self._waiting, deque()
            for place in waiting:  # all of them: whom it does not help waits again
                if not place.done():
                    place.set_result(None)

    def _fits(self, amount: Amount) -> bool:
        """Beside everything that is reserved."""
        try:
            self.check(amount + self._reserved)
        except ReadingFailed:
            return False
        return True

    def _turn(self) -> None:
        today: date = self._now().date()
        if today != self._day:
            self._day, self._today = today, Amount()


def _amount(spending: Spending) -> Amount:
    return Amount(spending.input_tokens + spending.output_tokens, spending.cost_usd)
