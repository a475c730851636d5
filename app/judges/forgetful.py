"""An in-process judgement memory, for judging without a store."""

from collections import defaultdict

from app.domain.budgets import Admission, BudgetConfig, Hold, Standing
from app.domain.judging import Judgement, Spending
from app.ports.judges import JudgementMemory, Recalled
from app.ports.runtime import Clock


class Forgetful(JudgementMemory):
    """Tracks spending but caches no judgements. Reservations never expire, since their owner lives as long as this
    process."""

    def __init__(self, now: Clock) -> None:
        self._now = now
        self._total: defaultdict[str, Spending] = defaultdict(Spending)
        self._today: defaultdict[str, Spending] = defaultdict(Spending)
        self._day = now().date()
        self._holds: dict[str, Hold] = {}

    async def get(self, reading: str) -> Recalled | None:
        return None

    async def put(self, judgement: Judgement, hold: str = "") -> Standing:
        self._turn()
        self._total[judgement.judge] = self._total[judgement.judge].plus(judgement)
        self._today[judgement.judge] = self._today[judgement.judge].plus(judgement)
        return await self.give_back(judgement.judge, hold)

    async def standing(self, judge: str) -> Standing:
        return self._standing(judge)

    async def put_aside(self, hold: Hold, budget: BudgetConfig) -> Admission:
        self._holds.pop(hold.id, None)
        admission = self._standing(hold.judge).admission(hold, budget)
        self._holds[hold.id] = hold if admission.admits == "now" else hold.without_call
        return admission

    async def give_back(self, judge: str, hold: str) -> Standing:
        self._holds.pop(hold, None)
        return self._standing(judge)

    def _standing(self, judge: str) -> Standing:
        self._turn()
        standing = Standing(self._total[judge], self._today[judge])
        for hold in self._holds.values():
            if hold.judge == judge:
                standing = Standing(
                    standing.total, standing.today, standing.used + hold.used, standing.open + hold.open
                )
        return standing

    def _turn(self) -> None:
        today = self._now().date()
        if today != self._day:
            self._day = today
            self._today.clear()
