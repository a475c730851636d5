"""The cache of judgements, and the spending of judges."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, bindparam, delete, select

from app.domain.budgets import Admission, BudgetConfig, Hold, Standing
from app.domain.judging import Judgement
from app.ports.judges import JudgementMemory, Recalled
from app.store import judge_money
from app.store.database import Database
from app.store.rows import decode, encode
from app.store.tables import judge_cache, judgements

_PUTS_PER_SWEEP: Final = 200


@dataclass(frozen=True)
class Keeping:
    """Retention of cached judgements: maximum age, and approximate maximum number; None means unlimited."""

    days: float | None = None
    entries: int | None = None


KEEP_ALL: Final = Keeping()


class StoredJudgeCache(JudgementMemory):
    def __init__(self, database: Database, keeping: Keeping) -> None:
        self._database = database
        self._keeping = keeping
        self._puts = 0

    async def get(self, reading: str) -> Recalled | None:
        oldest = self._oldest()
        return await self._database.read(lambda connection: _get(connection, reading, oldest))

    async def put(self, judgement: Judgement, hold: str = "") -> Standing:
        stamp = self._database.stamp()
        self._puts += 1
        sweep = self._puts % _PUTS_PER_SWEEP == 0
        return await self._database.write(
            lambda connection: self._put(connection, judgement, hold, stamp, sweep), _order(judgement.judge)
        )

    async def standing(self, judge: str) -> Standing:
        stamp = self._database.stamp()
        return await self._database.read(lambda connection: judge_money.standing(connection, judge, stamp))

    async def put_aside(self, hold: Hold, budget: BudgetConfig) -> Admission:
        stamp, postgres = self._database.stamp(), self._database.postgres
        return await self._database.write(
            lambda connection: judge_money.put_aside(connection, hold, budget, stamp, postgres), _order(hold.judge)
        )

    async def give_back(self, judge: str, hold: str) -> Standing:
        stamp = self._database.stamp()
        return await self._database.write(
            lambda connection: judge_money.give_back(connection, judge, hold, stamp), _order(judge)
        )

    def _put(self, connection: Connection, judgement: Judgement, hold: str, stamp: int, sweep: bool) -> Standing:
        if judgement.error is None:
            row = {
                "reading": judgement.reading,
                "judge": judgement.judge,
                "body": encode(judgement, exclude={"prompt"}),
                "created_at": stamp,
            }
            connection.execute(self._database.insert_new(judge_cache), row)
        if sweep:
            _sweep(connection, self._oldest(), self._keeping.entries)
        return judge_money.account_for(connection, judgement, hold, stamp, self._database.postgres)

    def _oldest(self) -> int | None:
        return (
            None if self._keeping.days is None else self._database.stamp() - int(self._keeping.days * judge_money.DAY)
        )


_RECALLED: Final = select(
    judge_cache.c.body,
    judge_cache.c.created_at,
    select(judgements.c.sequence).where(judgements.c.reading == bindparam("asked")).exists(),
).where(judge_cache.c.reading == bindparam("asked"))


def _get(connection: Connection, reading: str, oldest: int | None) -> Recalled | None:
    row = connection.execute(_RECALLED, {"asked": reading}).first()
    if row is None or (oldest is not None and row.created_at < oldest):
        return None
    return Recalled(decode(Judgement, row[0]), bool(row[2]))


def _order(judge: str) -> str:
    """The order key of a judge. Writes with the same key keep their order."""
    return f"judge_cache {judge}"


def _sweep(connection: Connection, oldest: int | None, entries: int | None) -> None:
    if oldest is not None:
        connection.execute(delete(judge_cache).where(judge_cache.c.created_at < oldest))
    if entries is not None:
        made = judge_cache.c.created_at
        last = select(made).order_by(made.desc()).offset(entries - 1).limit(1).scalar_subquery()
        connection.execute(delete(judge_cache).where(made < last))
