"""A judge's spending, in total and today."""

from app.domain.budgets import Standing
from app.domain.judging import Judgement, Spending
from app.ports.runtime import Clock


class Account:
    """The latest budget state from the memory, plus spending that could not be stored. Days are in UTC."""

    def __init__(self, now: Clock) -> None:
        self.updates = 0
        """Number of updates from the memory. A read that began before the last update is out of date."""
        self._standing = Standing()
        self._unwritten = Spending()
        self._unwritten_today = Spending()
        self._now = now
        self._day = now().date()

    @property
    def standing(self) -> Standing:
        self._turn()
        told = self._standing
        if not self._unwritten.readings:
            return told
        return Standing(
            total=told.total + self._unwritten,
            today=told.today + self._unwritten_today,
            used=told.used,
            open=told.open,
        )

    def learn(self, standing: Standing) -> None:
        self._turn()
        self.updates += 1
        self._standing = standing

    def add_unwritten(self, judgement: Judgement) -> None:
        self._turn()
        self._unwritten = self._unwritten.plus(judgement)
        self._unwritten_today = self._unwritten_today.plus(judgement)

    def _turn(self) -> None:
        today = self._now().date()
        if today != self._day:
            told = self._standing
            self._day, self._unwritten_today = today, Spending()
            self._standing = Standing(total=told.total, used=told.used, open=told.open)
