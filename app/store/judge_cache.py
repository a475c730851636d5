"""What judges answered, for whoever asks the same again, and what they spent."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Connection, Insert, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from app.domain.judging import Judgement, Spending
from app.ports import JudgementMemory, Recalled
from app.store.database import Database
from app.store.payloads import decode, encode, to_micros
from app.store.tables import judge_cache, judge_spending, judgements

_DAY: Final = 86_400_000_000
"""Microseconds."""
_PUTS_PER_SWEEP: Final = 200
_COUNTED: Final = ("readings", "calls", "input_tokens", "output_tokens", "cost_usd")


@dataclass(frozen=True)
class Keeping:
    """For how long, and about how many answers are kept, the newest; None for all."""

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

    async def put(self, judgement: Judgement) -> None:
        stamp = self._database.stamp()
        self._puts += 1
        sweep = self._puts % _PUTS_PER_SWEEP == 0
        await self._database.write(
            lambda connection: self._put(connection, judgement, stamp, sweep), f"judge_cache {judgement.judge}"
        )

    async def spending(self, judge: str, since: datetime | None = None) -> Spending:
        first = 0 if since is None else to_micros(since.astimezone(UTC)) // _DAY
        return await self._database.read(lambda connection: _spending(connection, judge, first))

    def _put(self, connection: Connection, judgement: Judgement, stamp: int, sweep: bool) -> None:
        spent = {"judge": judgement.judge, "day": stamp // _DAY, **Spending().plus(judgement).model_dump()}
        connection.execute(_add_up(self._database.postgres), spent)
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

    def _oldest(self) -> int | None:
        return None if self._keeping.days is None else self._database.stamp() - int(self._keeping.days * _DAY)


def _get(connection: Connection, reading: str, oldest: int | None) -> Recalled | None:
    claimed = select(judgements.c.sequence).where(judgements.c.reading == reading).exists()
    statement = select(judge_cache.c.body, judge_cache.c.created_at, claimed).where(judge_cache.c.reading == reading)
    row = connection.execute(statement).first()
    if row is None or (oldest is not None and row.created_at < oldest):
        return None
    return Recalled(decode(Judgement, row[0]), bool(row[2]))


def _add_up(postgres: bool) -> Insert:
    if postgres:
        into = postgresql.insert(judge_spending)
        more = {name: judge_spending.c[name] + into.excluded[name] for name in _COUNTED}
        return into.on_conflict_do_update(index_elements=["judge", "day"], set_=more)
    onto = sqlite.insert(judge_spending)
    more = {name: judge_spending.c[name] + onto.excluded[name] for name in _COUNTED}
    return onto.on_conflict_do_update(index_elements=["judge", "day"], set_=more)


def _spending(connection: Connection, judge: str, first: int) -> Spending:
    sums = [func.coalesce(func.sum(judge_spending.c[name]), 0).label(name) for name in _COUNTED]
    where = (judge_spending.c.judge == judge, judge_spending.c.day >= first)
    found = connection.execute(select(*sums).where(*where)).mappings().one()
    return Spending(
        **{name: int(found[name]) for name in _COUNTED[:-1]},
        cost_usd=float(found["cost_usd"]),
    )


def _sweep(connection: Connection, oldest: int | None, entries: int | None) -> None:
    if oldest is not None:
        connection.execute(delete(judge_cache).where(judge_cache.c.created_at < oldest))
    if entries is not None:
        made = judge_cache.c.created_at
        last = select(made).order_by(made.desc()).offset(entries - 1).limit(1).scalar_subquery()
        connection.execute(delete(judge_cache).where(made < last))
