"""Budgets of judges and of runs, quotas of keys, and limits of judges' calls, shared by all processes on the database.

Budgets and quotas work alike. What something may cost is reserved before it begins, in a transaction that checks it
against all that was spent and all that is reserved; what it did cost takes the place of the reservation in the
transaction that stores it. So what others have under way counts too, where one process alone would only see what they
have spent. On PostgreSQL an advisory lock for each judge, run or key lets one such transaction check at a time.

A killed process leaves its reservations behind. That of a judge's call counts as spent once it is overdue, since the
provider may charge the call. That of a run's group ends with its time, and at once when its process is certainly gone.
That of a key ends with its lease.
"""

import os
import secrets
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Self

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Insert,
    Select,
    String,
    Table,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
    true,
    update,
)

from app.domain.budgets import (
    GROUPS_FOR_MEAN,
    NO_AMOUNT,
    Admission,
    Amount,
    BudgetAnswer,
    BudgetConfig,
    BudgetState,
    Demand,
    EnvironmentCost,
    KeyQuotas,
    KeyUsage,
    QuotaUse,
    Reservation,
    RunLedger,
    RunSpending,
    add_up,
    admit_group,
)
from app.domain.groups import Group
from app.domain.judge_limits import LimitsExchange, LimitsGrant, SharedLimits, exchange_limits
from app.domain.judging import Judgement, Spending
from app.domain.values import digest
from app.store.database import Database, StorePart, reads, writes
from app.store.leases import IS_LIVE
from app.store.statements import (
    MICROSECONDS_PER_DAY,
    MICROSECONDS_PER_SECOND,
    PreparedStatement,
    Value,
    begin_insert,
    decode,
    encode,
    from_micros,
    is_among,
    lock_names,
)
from app.store.tables import (
    groups,
    judge_holds,
    judge_limits,
    judge_spending,
    judgements,
    key_admissions,
    key_holds,
    key_usage,
    leases,
    run_costs,
    run_holds,
    runs,
)


@dataclass(frozen=True)
class HandOutPart:
    """Tasks of one environment that a batch is to have."""

    environment: str
    count: int
    bound: Amount | None = None
    """What judging one group takes at most; None without judges."""


@dataclass(frozen=True)
class HandOut:
    """A batch of tasks that a key asks for."""

    key: str
    quotas: KeyQuotas
    run: str | None
    is_leased: bool
    parts: tuple[HandOutPart, ...]


@dataclass(frozen=True)
class HandOutGrant:
    """`exceeded` is the quota that does not allow the batch: nothing is reserved then."""

    exceeded: QuotaUse | None
    uses: tuple[QuotaUse, ...]
    hold: str = ""
    expected: Mapping[str, Amount] = field(default_factory=dict)
    """By environment, what judging one group is expected to take."""


_MICROSECONDS_PER_HOUR: Final = 3_600 * MICROSECONDS_PER_SECOND


# Locks, and writes of rows that may be there.


@cache
def _build_upsert(table: Table, key: tuple[str, ...], postgres: bool, *, adding: bool) -> Insert:
    into = begin_insert(table, postgres)
    changed = {
        column.name: column + into.excluded[column.name] if adding else into.excluded[column.name]
        for column in table.columns
        if column.name not in key
    }
    written: Insert = into.on_conflict_do_update(index_elements=list(key), set_=changed)
    return written


# Budgets of judges: what each has spent, by day, and what its open calls may still cost.

_SPENDING_FIELDS: Final = tuple(Spending.model_fields)


def reserve_budget(connection: Connection, hold: Reservation, budget: BudgetConfig, stamp: int) -> Admission:
    lock_names(connection, [f"budget of judge {hold.judge}"])
    admission = load_budget_state(connection, hold.judge, stamp, without=hold.id).admit(hold, budget)
    # A call that waits keeps only what it has used: two that each kept an open call would wait for each other.
    reserved = hold if admission.admits == "now" else hold.without_call
    row: dict[str, Value] = {
        "hold": hold.id,
        "judge": hold.judge,
        "day": stamp // MICROSECONDS_PER_DAY,
        "used_tokens": reserved.used.tokens,
        "used_usd": reserved.used.usd,
        "open_tokens": reserved.open.tokens,
        "open_usd": reserved.open.usd,
        "until": stamp + int(hold.seconds * 1e6),
    }
    _PUT_HOLD.fetch(connection, **row)
    return admission


def release_reservation(connection: Connection, judge: str, hold: str, stamp: int) -> BudgetState:
    _DELETE_HOLD.fetch(connection, released=hold)
    return load_budget_state(connection, judge, stamp)


def record_spending(
    connection: Connection, judge: str, judgements: Sequence[Judgement], holds: Iterable[str], stamp: int
) -> BudgetState:
    """Adds the cost of a judge's judgements to its spending and deletes their reservations."""
    day = stamp // MICROSECONDS_PER_DAY
    spent: dict[str, Value] = {"judge": judge, "day": day, **dict(Spending.of_judgements(judgements))}
    _ADD_JUDGE_SPENDING.fetch(connection, **spent)
    for hold in holds:
        _DELETE_HOLD.fetch(connection, released=hold)
    return load_budget_state(connection, judge, stamp)


def load_budget_state(connection: Connection, judge: str, stamp: int, *, without: str = "") -> BudgetState:
    bound: dict[str, Value] = {"of": judge, "day_now": stamp // MICROSECONDS_PER_DAY, "now": stamp, "without": without}
    (sums,) = _SELECT_BUDGET_STATE.fetch(connection, **bound)
    return _parse_budget_state(list(map(float, sums)))


def _parse_budget_state(values: list[float]) -> BudgetState:
    width = len(_SPENDING_FIELDS)
    total, today, held = values[:width], values[width : 2 * width], values[2 * width :]
    return BudgetState(
        total=_parse_spending(total, held[4:7]),
        today=_parse_spending(today, held[7:10]),
        used=Amount(int(held[0]), held[1]),
        open=Amount(int(held[2]), held[3]),
    )


def _parse_spending(values: list[float], lost: list[float]) -> Spending:
    sums = dict(zip(_SPENDING_FIELDS, values, strict=True))
    for name, more in zip(("unanswered_calls", "unanswered_tokens", "unanswered_usd"), lost, strict=True):
        sums[name] += more
    return Spending.build_trusted(**_parse_sums(sums))


_ZERO: Final[ColumnElement[int]] = literal_column("0")
"""Not a parameter, of which each execution would bind dozens."""


def _build_sums(*terms: tuple[ColumnElement[bool] | None, ColumnElement[Any]]) -> list[ColumnElement[Any]]:
    """Conditional sums with generated names; 0 over no rows."""
    chosen = [value if where is None else case((where, value), else_=_ZERO) for where, value in terms]
    return [func.coalesce(func.sum(value), _ZERO).label(f"sum_{number}") for number, value in enumerate(chosen)]


def _build_budget_query() -> Select[Any]:
    """One statement for spending and reservations. Between two, a reservation could become spending and be missed."""
    spending, holds = judge_spending.c, judge_holds.c
    judge, day = bindparam("of", type_=String), bindparam("day_now", type_=BigInteger)
    counted = [spending[name] for name in _SPENDING_FIELDS]
    today = spending.day == day
    spent = _build_sums(*((None, each) for each in counted), *((today, each) for each in counted))
    lost = holds.until < bindparam("now", type_=BigInteger)
    lost_today = and_(lost, holds.day == day)
    whole = (
        case((holds.open_tokens > _ZERO, literal_column("1")), else_=_ZERO),
        holds.used_tokens + holds.open_tokens,
        holds.used_usd + holds.open_usd,
    )
    held = _build_sums(
        *((~lost, each) for each in (holds.used_tokens, holds.used_usd, holds.open_tokens, holds.open_usd)),
        *((which, each) for which in (lost, lost_today) for each in whole),
    )
    others = holds.hold != bindparam("without", type_=String)
    left = select(*spent).where(spending.judge == judge).subquery("spent")
    right = select(*held).where(holds.judge == judge, others).subquery("held")
    return select(left, right).select_from(left.join(right, true()))


_SELECT_BUDGET_STATE: Final = PreparedStatement(lambda _: _build_budget_query())
_ADD_JUDGE_SPENDING: Final = PreparedStatement(
    lambda postgres: _build_upsert(judge_spending, ("judge", "day"), postgres, adding=True)
)
_PUT_HOLD: Final = PreparedStatement(lambda postgres: _build_upsert(judge_holds, ("hold",), postgres, adding=False))
_DELETE_HOLD: Final = PreparedStatement(
    lambda _: delete(judge_holds).where(judge_holds.c.hold == bindparam("released"))
)


# Budgets of runs: what judging a run has cost, written with its judgements, and what its open groups may still cost.

_COUNTED: Final = tuple(RunSpending.model_fields)
_IS_OPEN_OR_SETTLED: Final = (run_holds.c.settled.is_(False), run_holds.c.settled.is_(True))


def reserve_cost(
    connection: Connection,
    database: Database,
    *,
    run: str,
    environment: str,
    group_id: str,
    estimate_usd: float,
    seconds: float,
) -> BudgetAnswer:
    """Reserves what the group is expected to cost, if the run's budget allows."""
    lock_names(connection, [f"budget of run {run}"])
    budget = connection.execute(select(runs.c.budget_usd).where(runs.c.name == run)).scalar()
    if budget is None:
        return "now"
    now = database.read_lease_clock(connection)
    # Before the spending: what is stored between the two then counts twice instead of never.
    held, settled = _load_holds(connection, run, now, without=group_id)
    spent = {each.environment: each.spent for each in _load_spending(connection, run)}
    of_environment = spent.get(environment, RunSpending())
    expected = (
        of_environment.usd_at_most / of_environment.groups if of_environment.groups >= GROUPS_FOR_MEAN else estimate_usd
    )
    admit = partial(
        admit_group,
        budget_usd=budget,
        spent_usd=settled + sum(each.usd_at_most for each in spent.values()),
        expected_usd=expected,
    )
    answer = admit(held_usd=held)
    if answer == "later" and _release_holds_of_the_dead(connection, run):
        answer = admit(held_usd=_load_holds(connection, run, now, without=group_id)[0])
    _release_holds(connection, [group_id])
    if answer == "now":
        hold = {"group_id": group_id, "run": run, "usd": expected, "until": now + int(seconds * 1e6), "settled": False}
        connection.execute(database.insert_new(run_holds), hold | {"holder": _name_holder("run")})
    return answer


def settle_hold(connection: Connection, group_id: str, usd: float) -> None:
    connection.execute(update(run_holds).where(run_holds.c.group_id == group_id).values(usd=usd, settled=True))
    connection.execute(delete(run_holds).where(run_holds.c.group_id == group_id, run_holds.c.usd == 0))


def _release_holds(connection: Connection, group_ids: Sequence[str]) -> None:
    _DELETE_HOLDS.fetch(connection, given=list(group_ids))


_DELETE_HOLDS: Final = PreparedStatement(
    lambda postgres: delete(run_holds).where(is_among(run_holds.c.group_id, "given", postgres))
)


def _release_holds_of_the_dead(connection: Connection, run: str) -> bool:
    """Whether anything was reserved for groups that nobody judges any longer. What judged groups cost stays."""
    is_open = (run_holds.c.run == run, run_holds.c.settled.is_(False))
    holders = connection.execute(select(run_holds.c.holder).where(*is_open, run_holds.c.holder.is_not(None)).distinct())
    gone = [holder for holder in holders.scalars() if is_gone(holder)]
    if gone:
        connection.execute(delete(run_holds).where(*is_open, run_holds.c.holder.in_(gone)))
    return bool(gone)


def _load_holds(connection: Connection, run: str, now: int, *, without: str = "") -> tuple[float, float]:
    """Of groups that are being judged, and of judged ones that are not stored yet."""
    sums = [func.coalesce(func.sum(case((which, run_holds.c.usd), else_=0.0)), 0.0) for which in _IS_OPEN_OR_SETTLED]
    statement = select(*sums).where(run_holds.c.run == run, run_holds.c.until > now, run_holds.c.group_id != without)
    held, settled = connection.execute(statement).one()
    return float(held), float(settled)


def record_costs(connection: Connection, made: Sequence[tuple[int, Judgement]], stamp: int) -> None:
    """Call before the judgements of these groups, by sequence, are inserted. What was reserved for the groups is free
    again."""
    rows = _SELECT_RUNS.fetch(connection, given=sorted({sequence for sequence, _ in made}))
    of_run = {sequence: (str(run), str(environment)) for sequence, _, run, environment, _ in rows}
    spent: defaultdict[tuple[str, str], list[RunSpending]] = defaultdict(list)
    for sequence, _, _, _, has_judgements in rows:
        spent[of_run[sequence]].append(RunSpending(groups=0 if has_judgements else 1))
    for sequence, judgement in made:
        if sequence in of_run:
            spent[of_run[sequence]].append(_price_judgement(judgement))
    for run, environment in sorted(spent):
        _add_spending(connection, run, environment, spent[run, environment], stamp)
    if rows:
        _release_holds(connection, [group_id for _, group_id, _, _, _ in rows])


def record_health_costs(
    connection: Connection, database: Database, run: str, environment: str, made: Sequence[Judgement], hold: str
) -> None:
    """The cost of readings that belong to no group's scores. What was reserved under `hold` is free again."""
    if made:
        priced = [_price_judgement(judgement) for judgement in made]
        _add_spending(connection, run, environment, priced, database.read_clock())
    _release_holds(connection, [hold])


def _price_judgement(judgement: Judgement) -> RunSpending:
    unpriced = judgement.calls if judgement.cost_usd is None else 0
    return RunSpending(unpriced_calls=unpriced, **dict(Spending.of_judgements([judgement])))


def _add_spending(connection: Connection, run: str, environment: str, spent: Sequence[RunSpending], stamp: int) -> None:
    hour = stamp // _MICROSECONDS_PER_HOUR
    counted: dict[str, Value] = dict(add_up(spent))
    _ADD_RUN_SPENDING.fetch(
        connection, run=run, environment=environment, hour=hour, **counted, first_at=stamp, last_at=stamp
    )


def _build_cost_upsert(postgres: bool) -> Insert:
    into = begin_insert(run_costs, postgres)
    changed = {name: run_costs.c[name] + into.excluded[name] for name in _COUNTED}
    changed["last_at"] = case(
        (run_costs.c.last_at > into.excluded.last_at, run_costs.c.last_at), else_=into.excluded.last_at
    )
    written: Insert = into.on_conflict_do_update(index_elements=["run", "environment", "hour"], set_=changed)
    return written


_SELECT_RUNS: Final = PreparedStatement(
    lambda postgres: select(
        groups.c.sequence,
        groups.c.group_id,
        groups.c.run,
        groups.c.environment,
        exists().where(judgements.c.group_sequence == groups.c.sequence).label("known"),
    ).where(is_among(groups.c.sequence, "given", postgres), groups.c.run.is_not(None))
)
"""Of groups that are of runs."""
_ADD_RUN_SPENDING: Final = PreparedStatement(_build_cost_upsert)


def load_ledger(connection: Connection, database: Database, run: str) -> RunLedger:
    now = database.read_clock()
    costs = _load_spending(connection, run)
    since = _MICROSECONDS_PER_HOUR * (now // _MICROSECONDS_PER_HOUR - 1)
    recent = select(func.coalesce(func.sum(run_costs.c.cost_usd), 0.0), func.min(run_costs.c.first_at)).where(
        run_costs.c.run == run, run_costs.c.hour >= since // _MICROSECONDS_PER_HOUR
    )
    spent, first = connection.execute(recent).one()
    started = min((each.first_at for each in costs), default=from_micros(now))
    began = since if started < from_micros(since) else (first or now)
    return RunLedger(
        environments=costs,
        recent_usd=float(spent),
        recent_seconds=max(60.0, (now - began) / 1e6),
        held_usd=sum(_load_holds(connection, run, database.read_lease_clock(connection))),
    )


def _load_spending(connection: Connection, run: str) -> tuple[EnvironmentCost, ...]:
    sums = [func.sum(run_costs.c[name]).label(name) for name in _COUNTED]
    statement = (
        select(run_costs.c.environment, *sums, func.min(run_costs.c.first_at), func.max(run_costs.c.last_at))
        .where(run_costs.c.run == run)
        .group_by(run_costs.c.environment)
        .order_by(run_costs.c.environment)
    )
    return tuple(
        EnvironmentCost(
            environment=environment,
            spent=RunSpending.model_validate(_parse_sums(dict(zip(_COUNTED, values, strict=True)))),
            first_at=from_micros(first),
            last_at=from_micros(last),
        )
        for environment, *values, first, last in connection.execute(statement)
    )


def _parse_sums(sums: Mapping[str, Any]) -> dict[str, int | float]:
    """PostgreSQL sums integers to decimals."""
    return {name: float(value) if name.endswith("_usd") else int(value) for name, value in sums.items()}


# Quotas of keys: what a key has used today, and what is reserved for tasks that it holds.

_BATCH_SECONDS: Final = 60
"""A batch whose tasks are not made after so long never will be: its process died."""
_PART: Final = secrets.randbelow(256)
"""Of a key's usage, this process's row: two processes that add to one row would wait for each other's commit, with
other locks in hand."""


class QuotaStore(StorePart):
    """Counts what keys use. Changes are atomic over all processes on the database, and durable on return."""

    @writes(lambda asked: _build_order_key(asked.key))
    def reserve(self, connection: Connection, asked: HandOut) -> HandOutGrant:
        """Counts the request where requests are limited. If all quotas allow it, reserves what the batch may take and
        admits its run for a day."""
        lock_names(connection, [f"quota of key {asked.key}"])
        usage, now = _load_usage(connection, self.database, asked.key)
        expected = {
            part.environment: _expect(connection, asked.run, part.environment, part.bound) for part in asked.parts
        }
        demand = Demand.combine(
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
        if (exceeded := usage.find_exceeded(asked.quotas, demand)) is not None:
            return HandOutGrant(exceeded, uses)
        _count_request(connection, self.database, asked.key, asked.quotas, now)
        _admit(connection, self.database, asked.key, [asked.run or ""], now + MICROSECONDS_PER_DAY)
        if not asked.is_leased:
            return HandOutGrant(None, uses)
        hold = f"batch_{secrets.token_hex(16)}"
        until = now + _BATCH_SECONDS * MICROSECONDS_PER_SECOND
        connection.execute(insert(key_holds), _build_hold(hold, asked.key, demand.leases, demand.judging, until))
        return HandOutGrant(None, uses, hold, expected)

    @writes(lambda key, *_: _build_order_key(key))
    def confirm(self, connection: Connection, key: str, hold: str, leases: Mapping[str, Amount]) -> None:
        """What was reserved for the batch is reserved for each of its leases instead."""
        connection.execute(delete(key_holds).where(key_holds.c.hold == hold))
        rows = [_build_hold(lease_id, key, 1, amount) for lease_id, amount in leases.items()]
        if rows:
            connection.execute(insert(key_holds), rows)

    @writes(lambda key, *_: _build_order_key(key))
    def admit_runs(self, connection: Connection, key: str, quotas: KeyQuotas, runs: Collection[str]) -> QuotaUse | None:
        """Counts a request for scores where requests are limited, and admits the runs until the day ends; or the quota
        that does not allow one that was not admitted before."""
        lock_names(connection, [f"quota of key {key}"])
        usage, now = _load_usage(connection, self.database, key)
        mine = key_admissions.c.key == key, key_admissions.c.run.in_(runs), key_admissions.c.until > now
        admitted = set(connection.execute(select(key_admissions.c.run).where(*mine)).scalars())
        new = sorted(set(runs) - admitted)
        if new and (exceeded := usage.find_exceeded(quotas, Demand(is_judged=True))) is not None:
            return exceeded
        _count_request(connection, self.database, key, quotas, now)
        _admit(connection, self.database, key, new, _compute_day_end(now))
        return None

    @reads
    def load_usage(self, connection: Connection, key: str) -> KeyUsage:
        return _load_usage(connection, self.database, key)[0]


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


def _admit(connection: Connection, database: Database, key: str, runs: Collection[str], until: int) -> None:
    statement = _build_upsert(key_admissions, ("key", "run"), database.postgres, adding=False)
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
    connection.execute(_build_upsert(key_usage, ("key", "day", "part"), postgres, adding=True), row)


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


def _build_order_key(key: str) -> str:
    return f"quotas {key}"


# Limits of judges' calls, which processes share, and whether a process that holds a part of them is gone.


def exchange(connection: Connection, database: Database, asked: LimitsExchange) -> LimitsGrant:
    mine = judge_limits.c.judge == asked.judge
    locked = select(judge_limits.c.body).where(mine).with_for_update()
    body = connection.execute(locked).scalar()
    if body is None:
        fresh = {"judge": asked.judge, "body": encode(SharedLimits())}
        connection.execute(database.insert_new(judge_limits), fresh)
        body = connection.execute(locked).scalar_one()
    now = database.read_lease_clock(connection)
    named = replace(asked, holder=_name_holder(asked.holder) or asked.holder)
    state, grant = exchange_limits(decode(SharedLimits, body), named, now, is_gone)
    connection.execute(update(judge_limits).where(mine).values(body=encode(state)))
    return grant


@dataclass(frozen=True)
class ProcessIdentity:
    """One process, told from all that have had its number. `host` stands for one boot of one machine and the namespaces
    of its process numbers and times; `started` is in clock ticks since that boot."""

    host: str
    pid: int
    started: int

    def name_holder(self, holder: str) -> str:
        return f"{holder}@{self.host}/{self.pid}/{self.started}"

    @classmethod
    def parse_holder(cls, name: str) -> Self | None:
        """None for a holder whose process could not identify itself."""
        host, _, numbers = name.partition("@")[2].partition("/")
        pid, _, started = numbers.partition("/")
        return cls(host, int(pid), int(started)) if pid.isdecimal() and started.isdecimal() else None

    def is_gone(self) -> bool:
        """For a process of this host. False where that cannot be told."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except (PermissionError, OverflowError):
            pass  # of another user, or no number of this system
        status = _read_status(self.pid)
        return status is not None and (status.ended or status.started != self.started)


def _name_holder(holder: str) -> str | None:
    """The name of a holder in this process; None where the system does not say enough to tell it from others."""
    own = identify_process()
    return None if own is None else own.name_holder(holder)


def is_gone(holder: str) -> bool:
    """Whether the holder's process ran on this host and certainly does not any more."""
    own, its = identify_process(), ProcessIdentity.parse_holder(holder)
    return own is not None and its is not None and its.host == own.host and its.is_gone()


def identify_process() -> ProcessIdentity | None:
    """This process; None where the system does not say enough to tell it from others."""
    return _identify(os.getpid())


@cache
def _identify(pid: int) -> ProcessIdentity | None:
    """Cached by number, since a fork is another process."""
    status, host = _read_status(pid), _describe_host(pid)
    return None if status is None or host is None else ProcessIdentity(host, pid, status.started)


_PROC: Final = Path("/proc")


def _describe_host(pid: int) -> str | None:
    try:
        if str((_PROC / "self").readlink()) != str(pid):
            return None  # it shows the numbers of another namespace
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        spaces = [str((_PROC / "self/ns" / name).stat().st_ino) for name in ("pid", "time")]
    except OSError:
        return None
    return digest([boot, os.uname().nodename, *spaces])


_STATE, _THREADS, _STARTED = 0, 17, 19
"""Positions in `/proc/PID/stat` after the program's name."""


@dataclass(frozen=True)
class _ProcessStatus:
    started: int
    ended: bool


def _read_status(pid: int) -> _ProcessStatus | None:
    try:
        values = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    # A zombie whose first thread ended may have others that still run.
    ended = values[_STATE] in (b"Z", b"X") and int(values[_THREADS]) <= 1
    return _ProcessStatus(int(values[_STARTED]), ended)
