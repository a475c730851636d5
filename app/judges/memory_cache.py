"""An in-process judgement memory, for judging without a store."""

from collections import defaultdict

from app.domain.budgets import Admission, BudgetConfig, BudgetState, Reservation
from app.domain.judge_limits import LimitsExchange, LimitsGrant, SharedLimits, exchange_limits
from app.domain.judging import Judgement, Spending
from app.ports.judges import CachedJudgement, JudgeCache
from app.ports.runtime import Clock


class InProcessMemory(JudgeCache):
    """Tracks spending but caches no judgements. Reservations never expire, since their owner lives as long as this
    process."""

    def __init__(self, now: Clock) -> None:
        self._now = now
        self._total: defaultdict[str, Spending] = defaultdict(Spending)
        self._today: defaultdict[str, Spending] = defaultdict(Spending)
        self._day = now().date()
        self._holds: dict[str, Reservation] = {}
        self._limits: defaultdict[str, SharedLimits] = defaultdict(SharedLimits)

    async def get(self, reading: str) -> CachedJudgement | None:
        return None

    async def put(self, judgement: Judgement, hold: str = "") -> BudgetState:
        self._start_new_day()
        self._total[judgement.judge] = self._total[judgement.judge].add_judgement(judgement)
        self._today[judgement.judge] = self._today[judgement.judge].add_judgement(judgement)
        return await self.release(judgement.judge, hold)

    async def get_budget_state(self, judge: str) -> BudgetState:
        return self._compute_state(judge)

    async def reserve(self, hold: Reservation, budget: BudgetConfig) -> Admission:
        self._holds.pop(hold.id, None)
        admission = self._compute_state(hold.judge).admit(hold, budget)
        self._holds[hold.id] = hold if admission.admits == "now" else hold.without_call
        return admission

    async def release(self, judge: str, hold: str) -> BudgetState:
        self._holds.pop(hold, None)
        return self._compute_state(judge)

    async def exchange_limits(self, asked: LimitsExchange) -> LimitsGrant:
        now = round(self._now().timestamp() * 1e6)
        self._limits[asked.judge], grant = exchange_limits(self._limits[asked.judge], asked, now)
        return grant

    def _compute_state(self, judge: str) -> BudgetState:
        self._start_new_day()
        state = BudgetState(self._total[judge], self._today[judge])
        for hold in self._holds.values():
            if hold.judge == judge:
                state = BudgetState(state.total, state.today, state.used + hold.used, state.open + hold.open)
        return state

    def _start_new_day(self) -> None:
        today = self._now().date()
        if today != self._day:
            self._day = today
            self._today.clear()
