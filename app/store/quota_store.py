"""What keys use and hold, counted for all processes on the database."""

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from sqlalchemy import Connection, and_, case, delete, func, insert, literal, or_, select

from app.domain.budgets import NO_AMOUNT, Amount
from app.domain.groups import Group
from app.domain.judging import Judgement, Spending
from app.domain.quotas import Demand, KeyQuotas, KeyUsage, QuotaUse
from app.domain.run_costs import GROUPS_FOR_MEAN
from app.ports.keys import HandOut, HandOutGrant, QuotaStore
from app.store.database import Database
from app.store.judge_budgets import MICROSECONDS_PER_DAY, build_upsert
from app.store.judge_tables import run_costs
from app.store.lease_allocation import IS_LIVE
from app.store.lease_tables import leases
from app.store.rows import from_micros
from app.store.tables import key_admissions, key_holds, key_usage

BATCH_SECONDS: Final = 60
"""A batch whose tasks are not made after so long never will be: its process died."""
_PART: Final = secrets.randbelow(256)
"""Of this process: upserts of two processes into one row would wait for each other, whatever else they lock."""
_ADVISORY_LOCK_KEY: Final = 7_305_811_962_049
"""An arbitrary constant: the first key of PostgreSQL's advisory locks on the quotas of keys."""


class SqlQuotaStore(QuotaStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def reserve(self, asked: HandOut) -> HandOutGrant:
        return await self._database.write(
            lambda connection: _reserve(connection, self._database, asked), _build_order_key(asked.key)
        )

    async def confirm(self, key: str, hold: str, leases: Mapping[str, Amount]) -> None:
        def replace_hold(connection: Connection) -> None:
            connection.execute(delete(key_holds).where(key_holds.c.hold == hold))
            rows = [_build_hold(lease_id, key, 1, amount) for lease_id, amount in leases.items()]
            if rows:
                connection.execute(insert(key_holds), rows)

        await self._database.write(replace_hold, _build_order_key(key))

    async def admit_runs(self, key: str, quotas: KeyQuotas, runs: Collection[str]) -> QuotaUse | None:
        return await self._database.write(
            lambda connection: _admit_runs(connection, self._database, key, quotas, runs), _build_order_key(key)
        )

    async def load_usage(self, key: str) -> KeyUsage:
        return await self._database.read(lambda connection: _load_usage(connection, self._database, key)[0])


def charge_key(connection: Connection, key: str, judgements: Sequence[Judgement], stamp: int, postgres: bool) -> None:
    """Counts what the judgements took, unanswered calls at their maximum."""
    spent = Spending.of_judgements(judgements)
    used = Amount(
        spent.input_tokens + spent.output_tokens + spent.unanswered_tokens, spent.cost_usd + spent.unanswered_usd
    )
    if used != NO_AMOUNT:
        _add_usage(connection, postgres, key, stamp, used=used)


def release_leases(connection: Connection, groups: Iterable[Group]) -> None:
    """Nothing is reserved any longer for the leases that these groups answer, but for those still to be judged."""
    answered = [group.lease_id for group in groups if group.sender and group.lease_id and group.outcome != "pending"]
    if answered:
        connection.execute(delete(key_holds).where(key_holds.c.hold.in_(answered)))


def _reserve(connection: Connection, database: Database, asked: HandOut) -> HandOutGrant:
    _lock_key(connection, database, asked.key)
    usage, now = _load_usage(connection, database, asked.key)
    expected = {part.environment: _expect(connection, asked.run, part.environment, part.bound) for part in asked.parts}
    wanted = Demand.combine(
        [
            Demand(
                leases=part.count if asked.is_leased else 0,
                is_judged=part.bound is not None,
                judging=expected[part.environment].times(part.count) if asked.is_leased else NO_AMOUNT,
            )
            for part in asked.parts
        ]
    )
    uses = usage.list_uses(asked.quotas)
    if (exceeded := usage.find_exceeded(asked.quotas, wanted)) is not None:
        return HandOutGrant(exceeded, uses)
    _count_request(connection, database, asked.key, asked.quotas, now)
    _admit(connection, database, asked.key, [asked.run or ""], now + MICROSECONDS_PER_DAY)
    if not asked.is_leased:
        return HandOutGrant(None, uses)
    hold = f"batch_{secrets.token_hex(16)}"
    until = now + BATCH_SECONDS * 1_000_000
    connection.execute(insert(key_holds), _build_hold(hold, asked.key, wanted.leases, wanted.judging, until))
    return HandOutGrant(None, uses, hold, expected)


def _expect(connection: Connection, run: str | None, environment: str, bound: Amount | None) -> Amount:
    """What a group takes: the mean of the run's own groups, once there are some; the bound until then."""
    if bound is None or run is None:
        return bound or NO_AMOUNT
    tokens = run_costs.c.input_tokens + run_costs.c.output_tokens + run_costs.c.unanswered_tokens
    usd = run_costs.c.cost_usd + run_costs.c.unanswered_usd
    sums = select(func.sum(run_costs.c.groups), func.sum(tokens), func.sum(usd)).where(
        run_costs.c.run == run, run_costs.c.environment == environment
    )
    count, all_tokens, all_usd = connection.execute(sums).one()
    return Amount(int(all_tokens / count), float(all_usd) / int(count)) if (count or 0) >= GROUPS_FOR_MEAN else bound


def _admit_runs(
    connection: Connection, database: Database, key: str, quotas: KeyQuotas, runs: Collection[str]
) -> QuotaUse | None:
    _lock_key(connection, database, key)
    usage, now = _load_usage(connection, database, key)
    mine = key_admissions.c.key == key, key_admissions.c.run.in_(runs), key_admissions.c.until > now
    admitted = set(connection.execute(select(key_admissions.c.run).where(*mine)).scalars())
    new = sorted(set(runs) - admitted)
    if new and (exceeded := usage.find_exceeded(quotas, Demand(is_judged=True))) is not None:
        return exceeded
    _count_request(connection, database, key, quotas, now)
    _admit(connection, database, key, new, _compute_day_end(now))
    return None


def _admit(connection: Connection, database: Database, key: str, runs: Collection[str], until: int) -> None:
    statement = build_upsert(key_admissions, ("key", "run"), database.postgres, adding=False)
    for run in runs:
        connection.execute(statement, {"key": key, "run": run, "until": until})


def _count_request(connection: Connection, database: Database, key: str, quotas: KeyQuotas, now: int) -> None:
    if quotas.requests_per_day is not None:
        _add_usage(connection, database.postgres, key, now, requests=1)


def _add_usage(
    connection: Connection, postgres: bool, key: str, now: int, *, requests: int = 0, used: Amount = NO_AMOUNT
) -> None:
    row = {
        "key": key,
        "day": now // MICROSECONDS_PER_DAY,
        "part": _PART,
        "requests": requests,
        "judge_tokens": used.tokens,
        "judge_usd": used.usd,
    }
    connection.execute(build_upsert(key_usage, ("key", "day", "part"), postgres, adding=True), row)


def _load_usage(connection: Connection, database: Database, key: str) -> tuple[KeyUsage, int]:
    """With the time at which it is so."""
    now = database.read_lease_clock(connection)
    today = key_usage.c.key == key, key_usage.c.day == now // MICROSECONDS_PER_DAY
    counts = (func.coalesce(func.sum(key_usage.c[name]), 0) for name in ("requests", "judge_tokens", "judge_usd"))
    requests, judge_tokens, judge_usd = connection.execute(select(*counts).where(*today)).one()
    is_leased = and_(IS_LIVE, leases.c.expires_at > now)
    is_batch = key_holds.c.until > now
    sums = (
        select(
            func.coalesce(func.sum(case((or_(is_leased, is_batch), key_holds.c.leases), else_=0)), 0),
            func.coalesce(func.sum(key_holds.c.judge_tokens), 0),
            func.coalesce(func.sum(key_holds.c.judge_usd), 0.0),
            func.min(case((is_leased, leases.c.expires_at))),
        )
        .join_from(key_holds, leases, leases.c.lease_id == key_holds.c.hold, isouter=True)
        .where(key_holds.c.key == key, or_(is_batch, is_leased, leases.c.state == "done"))
    )
    held, held_tokens, held_usd, next_end = connection.execute(sums).one()
    usage = KeyUsage(
        requests=int(requests),
        judge_tokens=int(judge_tokens),
        judge_usd=float(judge_usd),
        held_tokens=int(held_tokens),
        held_usd=float(held_usd),
        leases=int(held),
        day_ends_at=from_micros(_compute_day_end(now)),
        next_lease_ends_at=None if next_end is None else from_micros(next_end),
    )
    return usage, now


def _build_hold(
    hold: str, key: str, count: int, amount: Amount, until: int | None = None
) -> dict[str, str | int | float | None]:
    return {
        "hold": hold,
        "key": key,
        "leases": count,
        "judge_tokens": amount.tokens,
        "judge_usd": amount.usd,
        "until": until,
    }


def _compute_day_end(now: int) -> int:
    return (now // MICROSECONDS_PER_DAY + 1) * MICROSECONDS_PER_DAY


def _lock_key(connection: Connection, database: Database, key: str) -> None:
    """SQLite has one writer at a time as it is."""
    if database.postgres:
        connection.execute(select(func.pg_advisory_xact_lock(literal(_ADVISORY_LOCK_KEY) + func.hashtext(key))))


def _build_order_key(key: str) -> str:
    return f"quotas {key}"
