"""Judge budgets: reserved before each call, never exceeded by concurrent calls of any process."""

import asyncio
import contextlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from app.domain.budgets import NO_AMOUNT, NO_BUDGET, Admission, Amount, BudgetConfig, BudgetState, Reservation
from app.domain.errors import StoreUnavailable
from app.domain.judging import Judgement, Spending
from app.judges.failures import ReadingFailed
from app.judges.token_usage import TokenUsage
from app.ports.judges import JudgeCache
from app.ports.runtime import Clock


class SpendingAccount:
    """The latest budget state from the memory, plus spending that could not be stored. Days are in UTC."""

    def __init__(self, now: Clock) -> None:
        self.updates = 0
        """Number of updates from the memory. A read that began before the last update is out of date."""
        self._state = BudgetState()
        self._unwritten = Spending()
        self._unwritten_today = Spending()
        self._now = now
        self._day = now().date()

    @property
    def state(self) -> BudgetState:
        self._start_new_day()
        known = self._state
        if not self._unwritten.readings:
            return known
        return BudgetState(
            total=known.total + self._unwritten,
            today=known.today + self._unwritten_today,
            used=known.used,
            open=known.open,
        )

    def update_state(self, state: BudgetState) -> None:
        self._start_new_day()
        self.updates += 1
        self._state = state

    def add_unwritten(self, judgement: Judgement) -> None:
        self._start_new_day()
        self._unwritten = self._unwritten.add_judgement(judgement)
        self._unwritten_today = self._unwritten_today.add_judgement(judgement)

    def _start_new_day(self) -> None:
        today = self._now().date()
        if today != self._day:
            known = self._state
            self._day, self._unwritten_today = today, Spending()
            self._state = BudgetState(total=known.total, used=known.used, open=known.open)


_BYTES_PER_TOKEN: Final = 2
"""Fewer than in any language's tokens, so estimates err on the safe side."""
_TOKENS_PER_MESSAGE: Final = 16


@dataclass(frozen=True)
class TokenPrices:
    """US dollars per million tokens."""

    input_per_million: float | None = None
    output_per_million: float | None = None
    cached_input_per_million: float | None = None
    """Of prompt tokens that the provider had in its cache; as the others where it is not known."""

    @property
    def are_known(self) -> bool:
        return self.input_per_million is not None or self.output_per_million is not None

    def compute_cost(self, input_tokens: int, output_tokens: int, cached_input_tokens: int = 0) -> float:
        """`cached_input_tokens` are among `input_tokens`."""
        plain = self.input_per_million or 0.0
        cached = plain if self.cached_input_per_million is None else self.cached_input_per_million
        read = plain * (input_tokens - cached_input_tokens) + cached * cached_input_tokens
        return (read + (self.output_per_million or 0.0) * output_tokens) / 1e6

    def compute_amount(self, input_tokens: int, output_tokens: int, cached_input_tokens: int = 0) -> Amount:
        return Amount(input_tokens + output_tokens, self.compute_cost(input_tokens, output_tokens, cached_input_tokens))


NO_PRICES: Final = TokenPrices()


def estimate_tokens(texts: Sequence[str], *, bytes_per_token: int = _BYTES_PER_TOKEN) -> int:
    """With the default, at least as many tokens as a model counts."""
    size = sum(len(text) if text.isascii() else len(text.encode("utf-8", "replace")) for text in texts)
    return -(-size // bytes_per_token) + _TOKENS_PER_MESSAGE * len(texts)


@dataclass
class ReadingCost:
    """The cost of a judgement so far, and its last error. `hold` is the id of its budget reservation, `unanswered` the
    highest possible cost of calls without an answer."""

    hold: str
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    reasoning_tokens: int = 0
    unanswered_calls: int = 0
    unanswered: Amount = NO_AMOUNT
    raw: str = ""
    trouble: str = ""
    served_model: str = ""
    system_fingerprint: str = ""

    def record_answer(self, text: str, usage: TokenUsage, asked: Sequence[str]) -> int:
        """Counts the tokens of one call. Estimates them where the server sends no counts."""
        read, wrote = usage.input_tokens, usage.output_tokens
        read = estimate_tokens(asked, bytes_per_token=4) if read is None else read
        wrote = estimate_tokens([text], bytes_per_token=4) if wrote is None else wrote
        self.raw = text
        self.input_tokens += read
        self.output_tokens += wrote
        self.cached_input_tokens += usage.cached_input_tokens
        self.reasoning_tokens += usage.reasoning_tokens
        return read + wrote

    def add_unanswered(self, expected: Amount) -> None:
        self.unanswered_calls += 1
        self.unanswered += expected

    def compute_used(self, prices: TokenPrices) -> Amount:
        paid = prices.compute_amount(self.input_tokens, self.output_tokens, self.cached_input_tokens)
        return paid + self.unanswered

    def add_to(self, judgement: Judgement, prices: TokenPrices) -> Judgement:
        """Adds the last raw answer and the total cost."""
        cost = prices.compute_cost(self.input_tokens, self.output_tokens, self.cached_input_tokens)
        return judgement.model_copy(
            update={
                "raw": self.raw,
                "served_model": self.served_model,
                "system_fingerprint": self.system_fingerprint,
                "input_tokens": self.input_tokens,
                "output_tokens": self.output_tokens,
                "cached_input_tokens": self.cached_input_tokens,
                "reasoning_tokens": self.reasoning_tokens,
                "cost_usd": cost if prices.are_known else None,
                "calls": self.calls,
                "unanswered_calls": self.unanswered_calls,
                "unanswered_tokens": self.unanswered.tokens,
                "unanswered_usd": self.unanswered.usd,
            }
        )


POLL_SECONDS: Final = 0.5
"""How often a waiting call looks at the reservations of other processes."""
RECORDING_SECONDS: Final = 60.0
"""How long a judgement may take to be stored after its deadline. Then its reservation counts as lost."""


_PROCESS: Final = uuid.uuid4().hex[:20]
_numbers: Final = count()


def create_reservation_id() -> str:
    """An id for the reservation of one judgement, different in every process."""
    return f"{_PROCESS}{next(_numbers):012x}"


class Budget:
    def __init__(
        self, judge: str, config: BudgetConfig, account: SpendingAccount, memory: JudgeCache, deadline_seconds: float
    ) -> None:
        self._judge = judge
        self._config = config
        self._account = account
        self._memory = memory
        self._seconds = deadline_seconds + RECORDING_SECONDS
        self._asked_for: set[str] = set()
        self._first_in_line = asyncio.Lock()
        self._settled = asyncio.Event()

    @property
    def left_usd(self) -> float | None:
        return self._account.state.compute_remaining(self._config).usd

    @property
    def left_tokens(self) -> int | None:
        return self._account.state.compute_remaining(self._config).tokens

    @property
    def is_limited(self) -> bool:
        return self._config != NO_BUDGET

    def require_available(self, amount: Amount) -> None:
        """Raises ReadingFailed when `amount` exceeds the remaining budget, whatever the calls in flight will cost."""
        if self.is_limited and not self._account.state.compute_remaining(self._config).covers(amount):
            raise self._build_exhausted_error(amount)

    async def reserve(self, hold: str, used: Amount, amount: Amount) -> None:
        """Reserves `amount` for the next call of a judgement that has `used` something before. Waits while only calls
        in flight, of any process, stand against it: they may turn out cheaper."""
        if not self.is_limited:
            return
        self._asked_for.add(hold)
        wanted = Reservation(id=hold, judge=self._judge, used=used, open=amount, seconds=self._seconds)
        if await self._try_reserve(wanted):
            return
        async with self._first_in_line:
            while True:
                self._settled.clear()
                if await self._try_reserve(wanted):
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await self._settled.wait()

    async def release_between_calls(self, hold: str, used: Amount) -> None:
        """Releases the reservation between two calls of a judgement, so that waiting judgements can proceed."""
        if hold not in self._asked_for:
            return
        await self._reserve_in_store(
            Reservation(id=hold, judge=self._judge, used=used, open=NO_AMOUNT, seconds=self._seconds)
        )
        self._settled.set()

    def find_reservation(self, hold: str) -> str:
        """`hold` where something was reserved under it, else nothing."""
        return hold if hold in self._asked_for else ""

    async def release(self, hold: str) -> None:
        """Releases the reservation of a judgement that made no call."""
        if hold not in self._asked_for:
            return
        self._account.update_state(await self._memory.release(self._judge, hold))
        self.settle(hold)

    def settle(self, hold: str) -> None:
        """Call when the judgement is finished and its cost is stored."""
        self._asked_for.discard(hold)
        self._settled.set()

    async def _try_reserve(self, wanted: Reservation) -> bool:
        admission = await self._reserve_in_store(wanted)
        if admission.admits == "never":
            raise self._build_exhausted_error(wanted.open)
        return admission.admits == "now"

    async def _reserve_in_store(self, wanted: Reservation) -> Admission:
        try:
            admission = await self._memory.reserve(wanted, self._config)
        except StoreUnavailable as error:
            words = f"could not read this judge's budget: {error.detail}"
            raise ReadingFailed(words, "unavailable") from None
        self._account.update_state(admission.state)
        return admission

    def _build_exhausted_error(self, amount: Amount) -> ReadingFailed:
        left = self._account.state.compute_remaining(self._config)
        words = f"the next call may use {amount.tokens} tokens, {left.tokens} are left"
        if left.usd is not None and not left.covers(Amount(usd=amount.usd)):
            words = f"the next call may cost {amount.usd:.6f} US dollars, {left.usd:.6f} are left"
        return ReadingFailed(f"this judge's budget is exhausted: {words}", "budget")
