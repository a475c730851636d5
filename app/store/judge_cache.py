"""The cache of judgements, and the spending of judges."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, bindparam, delete, select

from app.domain.access import name_current_caller
from app.domain.budgets import Admission, BudgetConfig, BudgetState, Reservation
from app.domain.calibration import References
from app.domain.judge_limits import LimitsExchange, LimitsGrant
from app.domain.judging import Judgement
from app.ports.judges import CachedJudgement, JudgeCache, ReferenceStore
from app.store import judge_budgets, judge_limits
from app.store.database import Database, insert_new
from app.store.health_versions import record_judge_version
from app.store.judge_tables import calibration_references, judge_cache, judgements
from app.store.prepared_statements import PreparedStatement, Value
from app.store.quota_store import charge_key
from app.store.rows import decode, encode

_PUTS_PER_SWEEP: Final = 200
_MOST_VERSIONS: Final = 10_000


@dataclass(frozen=True)
class CacheRetention:
    """Retention of cached judgements: maximum age, and approximate maximum number; None means unlimited."""

    days: float | None = None
    entries: int | None = None


KEEP_ALL: Final = CacheRetention()


class SqlJudgeCache(JudgeCache):
    def __init__(self, database: Database, keeping: CacheRetention) -> None:
        self._database = database
        self._keeping = keeping
        self._puts = 0
        self._versions: set[tuple[str, str, str]] = set()
        """Versions of judges that this process has stored."""

    async def get(self, reading: str) -> CachedJudgement | None:
        oldest = self._compute_oldest_kept()
        return await self._database.read(lambda connection: _load_cached(connection, reading, oldest))

    async def put(self, judgement: Judgement, hold: str = "") -> BudgetState:
        stamp, payer = self._database.read_clock(), name_current_caller()
        self._puts += 1
        sweep = self._puts % _PUTS_PER_SWEEP == 0

        def insert(connection: Connection) -> BudgetState:
            if payer:
                charge_key(connection, payer, judgement, stamp, self._database.postgres)
            return self._insert_judgement(connection, judgement, hold, stamp, sweep)

        return await self._database.write(
            insert,
            _build_order_key(judgement.judge),
        )

    async def get_budget_state(self, judge: str) -> BudgetState:
        stamp = self._database.read_clock()
        return await self._database.read(lambda connection: judge_budgets.load_budget_state(connection, judge, stamp))

    async def reserve(self, hold: Reservation, budget: BudgetConfig) -> Admission:
        stamp, postgres = self._database.read_clock(), self._database.postgres
        return await self._database.write(
            lambda connection: judge_budgets.reserve_budget(connection, hold, budget, stamp, postgres),
            _build_order_key(hold.judge),
        )

    async def release(self, judge: str, hold: str) -> BudgetState:
        stamp = self._database.read_clock()
        return await self._database.write(
            lambda connection: judge_budgets.release_reservation(connection, judge, hold, stamp),
            _build_order_key(judge),
        )

    async def exchange_limits(self, asked: LimitsExchange) -> LimitsGrant:
        return await self._database.write(
            lambda connection: judge_limits.exchange(connection, self._database, asked), f"judge_limits {asked.judge}"
        )

    def _insert_judgement(
        self, connection: Connection, judgement: Judgement, hold: str, stamp: int, sweep: bool
    ) -> BudgetState:
        if judgement.error is None and judgement.reading:
            row: dict[str, Value] = {
                "reading": judgement.reading,
                "judge": judgement.judge,
                "body": encode(judgement, exclude={"prompt"}),
                "created_at": stamp,
            }
            _INSERT_CACHED.run(connection, **row)
        version = (judgement.judge, judgement.served_model, judgement.system_fingerprint)
        if any(version[1:]) and version not in self._versions:
            record_judge_version(connection, self._database, judgement, stamp)
            if len(self._versions) < _MOST_VERSIONS:
                self._versions.add(version)
        if sweep:
            _delete_expired(connection, self._compute_oldest_kept(), self._keeping.entries)
        return judge_budgets.record_spending(connection, judgement, hold, stamp, self._database.postgres)

    def _compute_oldest_kept(self) -> int | None:
        return (
            None
            if self._keeping.days is None
            else self._database.read_clock() - int(self._keeping.days * judge_budgets.MICROSECONDS_PER_DAY)
        )


class SqlReferenceStore(ReferenceStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, scene: str) -> References | None:
        return await self._database.read(lambda connection: _load_references(connection, scene))

    async def put(self, scene: str, references: References) -> References:
        row: dict[str, str | int] = {"scene": scene, "body": encode(references)}
        row["created_at"] = self._database.read_clock()
        return await self._database.write(
            lambda connection: _insert_references(connection, self._database, row), f"references {scene}"
        )


def _load_references(connection: Connection, scene: str) -> References | None:
    here = calibration_references.c.scene == scene
    body = connection.execute(select(calibration_references.c.body).where(here)).scalar()
    return None if body is None else decode(References, body)


def _insert_references(connection: Connection, database: Database, row: dict[str, str | int]) -> References:
    """Those of the first writer."""
    connection.execute(database.insert_new(calibration_references), row)
    here = calibration_references.c.scene == row["scene"]
    return decode(References, connection.execute(select(calibration_references.c.body).where(here)).scalar_one())


_SELECT_CACHED: Final = PreparedStatement(
    lambda _: select(
        judge_cache.c.body,
        judge_cache.c.created_at,
        select(judgements.c.sequence).where(judgements.c.reading == bindparam("asked")).exists().label("claimed"),
    ).where(judge_cache.c.reading == bindparam("asked"))
)
_INSERT_CACHED: Final = PreparedStatement(lambda postgres: insert_new(judge_cache, postgres))


def _load_cached(connection: Connection, reading: str, oldest: int | None) -> CachedJudgement | None:
    row = _SELECT_CACHED.run(connection, asked=reading).mappings().first()
    if row is None or (oldest is not None and row["created_at"] < oldest):
        return None
    return CachedJudgement(decode(Judgement, row["body"]), bool(row["claimed"]))


def _build_order_key(judge: str) -> str:
    """The order key of a judge. Writes with the same key keep their order."""
    return f"judge_cache {judge}"


def _delete_expired(connection: Connection, oldest: int | None, entries: int | None) -> None:
    if oldest is not None:
        connection.execute(delete(judge_cache).where(judge_cache.c.created_at < oldest))
    if entries is not None:
        made = judge_cache.c.created_at
        last = select(made).order_by(made.desc()).offset(entries - 1).limit(1).scalar_subquery()
        connection.execute(delete(judge_cache).where(made < last))
