"""What a judge has spent, in all and today."""

from app.domain.judging import Judgement, Spending
from app.ports import Clock


class Account:
    """A day is one in UTC."""

    def __init__(self, now: Clock) -> None:
        self.total = Spending()
        self._today = Spending()
        self._now = now
        self._day = now().date()

    @property
    def today(self) -> Spending:
        self._turn()
        return self._today

    def restore(self, total: Spending, today: Spending) -> None:
        """What was spent before; to be told once, before anything is spent."""
        self.total, self._today = total, today

    def add(self, judgement: Judgement) -> None:
        self._turn()
        self.total = self.total.plus(judgement)
        self._today = self._today.plus(judgement)

    def _turn(self) -> None:
        today = self._now().date()
        if today != self._day:
            self._day, self._today = today, Spending()
