"""The cache of judgements, with the judges' versions and their replies of known level.

A usable judgement is found again by the digest of its request, so that the same question is asked and paid for once. It
is written in the transaction that counts its cost in place of its reservation, and charges whoever asked for it. Many
judgements that come at once are looked up, and stored, in one call of the database.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, delete, func, select

from app.domain.access import name_current_caller
from app.domain.budgets import Admission, BudgetConfig, BudgetState, Reservation
from app.domain.judge_limits import LimitsExchange, LimitsGrant
from app.domain.judging import Judgement, JudgeVersion
from app.domain.scores import References
from app.ports.judges import CachedJudgement, JudgeCache, ReferenceStore
from app.store import budgets
from app.store.budgets import charge_key
from app.store.database import BatchedCalls, Database, StorePart, reads, writes
from app.store.judge_limits import exchange
from app.store.statements import (
    MICROSECONDS_PER_DAY,
    PreparedStatement,
    Row,
    decode,
    decode_json,
    encode,
    encode_json,
    from_micros,
    insert_new_rows,
    is_among,
)
from app.store.tables import calibration_references, judge_cache, judge_versions, judgements

_PUTS_PER_SWEEP: Final = 200
"""Judgements, after each so many of which old ones are deleted."""
_PAUSE_SHARE: Final = 0.02
"""Of the time that a judgement took: so long others may come that are stored with it."""
_LONGEST_PAUSE: Final = 0.02
"""Seconds."""
_MOST_VERSIONS_REMEMBERED: Final = 10_000
"""By this process. Beyond, a version is written again with each judgement, which changes nothing."""


@dataclass(frozen=True)
class _Put:
    judgement: Judgement
    hold: str
    payer: str
    """The key that pays for it."""


class SqlJudgeCache(StorePart, JudgeCache):
    def __init__(self, database: Database, days: float | None) -> None:
        """`days`: the greatest age of judgements; None keeps them for ever."""
        super().__init__(database)
        self._days = days
        self._lookups = BatchedCalls(self._load_all, patience=_LONGEST_PAUSE)
        self._puts = defaultdict[str, BatchedCalls[_Put, BudgetState]](lambda: BatchedCalls(self._put_all))
        """By judge."""
        self._count = 0
        """Of judgements that were put."""
        self._versions: set[tuple[str, str, str]] = set()
        """Versions of judges that this process has stored."""

    @reads
    def list_versions(self, connection: Connection, judges: Sequence[str]) -> list[JudgeVersion]:
        """Oldest first."""
        return load_versions(connection, judges)

    async def get(self, reading: str) -> CachedJudgement | None:
        with self.database.open_operation("read", "SqlJudgeCache.get"):
            return await self._lookups.add(reading)

    async def put(self, judgement: Judgement, hold: str = "") -> BudgetState:
        """The state when this judgement and those that are stored with it count."""
        pause = min(_LONGEST_PAUSE, _PAUSE_SHARE * judgement.latency_seconds)
        with self.database.open_operation("write", "SqlJudgeCache.put"):
            return await self._puts[judgement.judge].add(_Put(judgement, hold, name_current_caller()), pause)

    @reads
    def get_budget_state(self, connection: Connection, judge: str) -> BudgetState:
        return budgets.load_budget_state(connection, judge, self.database.read_lease_clock(connection))

    @writes(lambda hold, _: _build_order_key(hold.judge))
    def reserve(self, connection: Connection, hold: Reservation, budget: BudgetConfig) -> Admission:
        return budgets.reserve_budget(connection, hold, budget, self.database.read_lease_clock(connection))

    @writes(lambda judge, _: _build_order_key(judge))
    def release(self, connection: Connection, judge: str, hold: str) -> BudgetState:
        return budgets.release_reservation(connection, judge, hold, self.database.read_lease_clock(connection))

    @writes(lambda asked: f"judge_limits {asked.judge}")
    def exchange_limits(self, connection: Connection, asked: LimitsExchange) -> LimitsGrant:
        return exchange(connection, self.database, asked)

    async def _load_all(self, readings: Sequence[str]) -> list[CachedJudgement | None]:
        oldest = self._compute_oldest_kept()
        cached = await self.database.read(lambda connection: _load_cached(connection, readings, oldest))
        return [cached.get(reading) for reading in readings]

    async def _put_all(self, puts: Sequence[_Put]) -> list[BudgetState]:
        """Judgements of one judge."""
        stamp, judge = self.database.read_clock(), puts[0].judgement.judge
        before, self._count = self._count, self._count + len(puts)
        sweep = before // _PUTS_PER_SWEEP < self._count // _PUTS_PER_SWEEP
        unknown = {_name_version(put.judgement): put.judgement for put in puts}
        new = {version: made for version, made in unknown.items() if any(version[1:]) and version not in self._versions}

        def insert(connection: Connection) -> BudgetState:
            _insert_judgements(connection, self.database, puts, stamp)
            for made in new.values():
                _record_judge_version(connection, self.database, made, stamp)
            if sweep and (oldest := self._compute_oldest_kept()) is not None:
                connection.execute(delete(judge_cache).where(judge_cache.c.created_at < oldest))
            spent, holds = [put.judgement for put in puts], [put.hold for put in puts if put.hold]
            return budgets.record_spending(connection, judge, spent, holds, self.database.read_lease_clock(connection))

        state = await self.database.write(insert, _build_order_key(judge))
        if len(self._versions) < _MOST_VERSIONS_REMEMBERED:
            self._versions.update(new)
        return [state] * len(puts)

    def _compute_oldest_kept(self) -> int | None:
        return None if self._days is None else self.database.read_clock() - int(self._days * MICROSECONDS_PER_DAY)


def _build_order_key(judge: str) -> str:
    """The order key of a judge. Writes with the same key keep their order."""
    return f"judge_cache {judge}"


def _name_version(judgement: Judgement) -> tuple[str, str, str]:
    return judgement.judge, judgement.served_model, judgement.system_fingerprint


_SELECT_CACHED: Final = PreparedStatement(
    lambda postgres: select(
        judge_cache.c.reading,
        judge_cache.c.body,
        judge_cache.c.created_at,
        select(judgements.c.sequence).where(judgements.c.reading == judge_cache.c.reading).exists().label("claimed"),
    ).where(is_among(judge_cache.c.reading, "asked", postgres))
)


def _load_cached(connection: Connection, readings: Sequence[str], oldest: int | None) -> dict[str, CachedJudgement]:
    return {
        reading: CachedJudgement(decode(Judgement, body), bool(claimed))
        for reading, body, created_at, claimed in _SELECT_CACHED.fetch_alone(connection, asked=list(set(readings)))
        if oldest is None or created_at >= oldest
    }


def _insert_judgements(connection: Connection, database: Database, puts: Sequence[_Put], stamp: int) -> None:
    """Charges those who pay for them too."""
    charged: defaultdict[str, list[Judgement]] = defaultdict(list)
    for put in puts:
        charged[put.payer].append(put.judgement)
    for payer in sorted(filter(None, charged)):
        charge_key(connection, payer, charged[payer], stamp)
    usable = [put.judgement for put in puts if put.judgement.error is None and put.judgement.reading]
    rows: list[Row] = [
        {"reading": made.reading, "judge": made.judge, "body": encode(made, exclude={"prompt"}), "created_at": stamp}
        for made in usable
    ]
    insert_new_rows(connection, judge_cache, rows)


# Versions of judges: what their servers said answered.

MOST_VERSIONS: Final = 100
"""Of one judge. A server may name another fingerprint in every reply."""


def _record_judge_version(connection: Connection, database: Database, judgement: Judgement, stamp: int) -> None:
    mine = select(func.count()).select_from(judge_versions).where(judge_versions.c.judge == judgement.judge)
    if connection.execute(mine).scalar_one() >= MOST_VERSIONS:
        return
    row = {
        "judge": judgement.judge,
        "model": encode_json(judgement.served_model),
        "system_fingerprint": encode_json(judgement.system_fingerprint),
        "first_at": stamp,
    }
    connection.execute(database.insert_new(judge_versions), row)


def load_versions(connection: Connection, judges: Sequence[str]) -> list[JudgeVersion]:
    table = judge_versions.c
    chosen = select(judge_versions).where(table.judge.in_(judges))
    ordered = chosen.order_by(table.first_at, table.judge, table.model, table.system_fingerprint)
    return [
        JudgeVersion(
            judge=row["judge"],
            model=str(decode_json(row["model"])),
            system_fingerprint=str(decode_json(row["system_fingerprint"])),
            first_at=from_micros(row["first_at"]),
        )
        for row in connection.execute(ordered).mappings()
    ]


# Replies of known level, which judges are calibrated by.


class SqlReferenceStore(StorePart, ReferenceStore):
    @reads
    def get(self, connection: Connection, scene: str) -> References | None:
        return _load_references(connection, scene)

    @writes(lambda scene, _: f"references {scene}")
    def put(self, connection: Connection, scene: str, references: References) -> References:
        row: dict[str, str | int] = {
            "scene": scene,
            "body": encode(references),
            "created_at": self.database.read_clock(),
        }
        return _insert_references(connection, self.database, row)


def _load_references(connection: Connection, scene: str) -> References | None:
    here = calibration_references.c.scene == scene
    body = connection.execute(select(calibration_references.c.body).where(here)).scalar()
    return None if body is None else decode(References, body)


def _insert_references(connection: Connection, database: Database, row: dict[str, str | int]) -> References:
    """Those of the first writer."""
    connection.execute(database.insert_new(calibration_references), row)
    here = calibration_references.c.scene == row["scene"]
    return decode(References, connection.execute(select(calibration_references.c.body).where(here)).scalar_one())
