"""The ledger: budgets of judges and of runs, and quotas of keys.

Budgets and quotas work alike. What something may cost is reserved before it begins, in a transaction that checks it
against all that was spent and all that is reserved; what it did cost takes the place of the reservation in the
transaction that stores it. So what others have under way counts too, where one process alone would only see what they
have spent. On PostgreSQL an advisory lock for each account lets one such transaction check at a time.

A killed process leaves its reservations behind. That of a judge's call counts as spent once it is overdue, since the
provider may charge the call. That of a run's group ends with its time, and at once when its process is certainly gone.
That of a key ends with its lease, or with the group for which the lease pays.
"""

import secrets
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, Self, get_args

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Delete,
    Insert,
    Select,
    String,
    and_,
    bindparam,
    case,
    delete,
    exists,
    false,
    func,
    literal_column,
    not_,
    or_,
    select,
    true,
    union_all,
    update,
)

from app.domain.budgets import (
    GROUPS_FOR_MEAN,
    NO_AMOUNT,
    NOTHING_SPENT,
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
    compute_amount,
)
from app.domain.groups import Group
from app.domain.judging import Judgement, Spending
from app.store.database import Database, StorePart, reads, writes
from app.store.judge_limits import is_gone, name_holder_here
from app.store.leases import IS_LIVE, IS_OF_TASK
from app.store.statements import (
    MICROSECONDS_PER_DAY,
    MICROSECONDS_PER_SECOND,
    PreparedStatement,
    Value,
    begin_insert,
    from_micros,
    insert_rows,
    is_among,
    lock_names,
)
from app.store.tables import (
    groups,
    holds,
    judgements,
    leases,
    part_members,
    parts,
    pruned_groups,
    rollouts,
    runs,
    spending,
    tasks,
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


@dataclass(frozen=True)
class JudgingDemand:
    """Something that a key wants to have judged: a group, or work beside the groups."""

    name: str
    """Of the group. Whatever comes under the same name is reserved once; of a sample, what its group is scored as."""
    environment: str
    bound: Amount
    """What judging it takes at most."""
    run: str | None = None
    task_id: str = ""
    lease_id: str | None = None
    places: tuple[int, ...] = ()
    """Of a piece in its group."""
    late_name: str = ""
    """Of the group that the piece becomes by itself if its own is closed."""
    needs_room: bool = False
    """Nobody was promised it, so that no admitted run lets it pass."""
    comes_again: bool = False
    """A sample that has its place in the group already."""


@dataclass(frozen=True)
class JudgingRequest:
    """What one request of a key asks for. With `needs_request` it is refused if no request is left of the quota; one
    that is not `counted` was counted before."""

    key: str
    quotas: KeyQuotas
    demands: tuple[JudgingDemand, ...] = ()
    needs_request: bool = True
    counted: bool = True


@dataclass(frozen=True)
class Reserved:
    """What a demand has reserved, or relies on. It is free again when all who asked for it have given it back."""

    hold: str
    until: int
    """By which what is reserved later under the same name is told."""
    lease_id: str = ""
    """Of the task, which had kept `moved` of it."""
    moved: Amount = NO_AMOUNT
    before: Amount | None = None
    """What a lease had kept before it paid for the group; None where `hold` is no lease."""


@dataclass(frozen=True)
class JudgingGrant:
    """`request` is the quota that has no room for the request, and `refused` those that have none for some demands, by
    name. The other demands may be judged; `reserved` has what was reserved for them, by name."""

    request: QuotaUse | None = None
    refused: Mapping[str, QuotaUse] = field(default_factory=dict)
    reserved: Mapping[str, Reserved] = field(default_factory=dict)

    @property
    def exceeded(self) -> QuotaUse | None:
        """Of a request with one demand."""
        return self.request or next(iter(self.refused.values()), None)


class NoRoom(Exception):
    """A quota of the key has no room for a sample, which got no place then. `begun`: the groups that its arrival closed
    all the same, since their time was over."""

    def __init__(self, use: QuotaUse, begun: tuple[Group, ...] = ()) -> None:
        super().__init__(use.describe())
        self.use = use
        self.begun = begun


# The ledger: what each account has spent, and what is reserved on it.

AccountKind = Literal["judge", "run", "key"]


class Account(NamedTuple):
    kind: AccountKind
    name: str


@dataclass(frozen=True)
class _AccountState:
    """An account at one moment. What is overdue counts as the account's kind has it."""

    budget: BudgetState
    leases: int
    next_lease_end: int | None
    """Microseconds since 1970."""
    requests: int
    """Of today."""


_MICROSECONDS_PER_HOUR: Final = 3_600 * MICROSECONDS_PER_SECOND
_HOURS_PER_DAY: Final = 24
_PART: Final = secrets.randbelow(256)
"""Of an account's spending, this process's rows: two processes that add to one row would wait for each other's commit,
with other locks in hand."""
_SPENT: Final = tuple(Spending.model_fields)
_COUNTED: Final = tuple(RunSpending.model_fields)


def _lock(connection: Connection, account: Account) -> None:
    """Until the transaction ends, the account of a judge or run. A batch of writes may lock many accounts; its units
    are sorted by account, so that replicas lock them in one order. Keys are locked before a batch begins."""
    lock_names(connection, [f"{account.kind} {account.name}"])


def _load_state(connection: Connection, account: Account, now: int, *, without: str = "") -> _AccountState:
    """`without` is a hold that does not count."""
    (row,) = _SELECT_STATE[account.kind].fetch(
        connection,
        account=account.name,
        now=now,
        midnight=_find_day(now) * _MICROSECONDS_PER_HOUR,
        today=_find_day(now),
        without=without,
    )
    values = iter(row)
    total, today = (_take_sums(_SPENT, values) for _ in range(2))
    requests = next(values)
    used, opened = (Amount(int(tokens), float(usd)) for tokens, usd in (islice(values, 2), islice(values, 2)))
    for sums in (total, today):
        lost = _take_sums(_LOST, values)
        # A provider may charge what a dead process asked. What it kept for groups and tasks is nobody's any more.
        if account.kind == "judge":
            for name in _LOST:
                sums[name] += lost[name]
    leases_held, next_end = values
    return _AccountState(
        budget=BudgetState(Spending.build_trusted(**total), Spending.build_trusted(**today), used, opened),
        leases=int(leases_held),
        next_lease_end=next_end,
        requests=int(requests),
    )


def _expect_cost(connection: Connection, run: str, environment: str, bound: Amount) -> Amount:
    """What the next group of a run takes: the mean of those before, once there are some; the bound until then. Calls
    without an answer count at their maximum."""
    ((groups, tokens, usd),) = _SELECT_TAKEN.fetch(connection, account=run, environment=environment)
    return bound if groups < GROUPS_FOR_MEAN else Amount(int(tokens) // int(groups), float(usd) / int(groups))


def _build_hold(
    account: Account,
    name: str,
    *,
    until: int | None,
    used: Amount = NO_AMOUNT,
    opened: Amount = NO_AMOUNT,
    leases: int = 0,
    holder: str | None = None,
    requests: int = 0,
) -> dict[str, Value]:
    """Without `until`, it lasts as the lease of this name does. `requests` is how many rely on what a key has reserved,
    which uses nothing until it is scored: it takes the column for that."""
    return {
        "hold": name,
        "kind": account.kind,
        "account": account.name,
        "used_tokens": used.tokens + requests,
        "used_usd": used.usd,
        "open_tokens": opened.tokens,
        "open_usd": opened.usd,
        "leases": leases,
        "until": until,
        "holder": holder,
    }


def _put_hold(connection: Connection, hold: Mapping[str, Value]) -> None:
    """In place of what was reserved under its name."""
    _PUT_HOLD.fetch(connection, **hold)


def _drop_holds(connection: Connection, kind: AccountKind, names: Iterable[str]) -> None:
    if dropped := list(names):
        _DELETE_HOLDS.fetch(connection, dropped=dropped, of=kind)


def _record(
    connection: Connection,
    account: Account,
    stamp: int,
    spent: RunSpending = NOTHING_SPENT,
    *,
    environment: str = "",
    requests: int = 0,
) -> None:
    """Adds to what the account has spent: by hour for runs, whose rate is told, otherwise by day."""
    row: dict[str, Value] = {
        "kind": account.kind,
        "account": account.name,
        "environment": environment,
        "hour": stamp // _MICROSECONDS_PER_HOUR if account.kind == "run" else _find_day(stamp),
        "part": _PART,
        **dict(spent),
        "requests": requests,
        "first_at": stamp,
        "last_at": stamp,
    }
    _ADD_SPENDING.fetch(connection, **row)


def _price(judgements: Iterable[Judgement], *, groups: int = 0) -> RunSpending:
    made = list(judgements)
    unpriced = sum(judgement.calls for judgement in made if judgement.cost_usd is None)
    return RunSpending(groups=groups, unpriced_calls=unpriced, **dict(Spending.of_judgements(made)))


def _find_day(stamp: int) -> int:
    """Its first hour, counted from 1970."""
    return stamp // MICROSECONDS_PER_DAY * _HOURS_PER_DAY


def _compute_day_end(now: int) -> int:
    return (now // MICROSECONDS_PER_DAY + 1) * MICROSECONDS_PER_DAY


def _take_sums(names: Sequence[str], values: Iterator[Any]) -> dict[str, Any]:
    """PostgreSQL sums integers to decimals."""
    return {
        name: float(value) if name.endswith("_usd") else int(value)
        for name, value in zip(names, islice(values, len(names)), strict=True)
    }


_LOST: Final = ("unanswered_calls", "unanswered_tokens", "unanswered_usd")
_ZERO: Final[ColumnElement[int]] = literal_column("0")
"""Not a parameter, of which each execution would bind dozens."""


def _build_sum(value: ColumnElement[Any], where: ColumnElement[bool] | None = None) -> ColumnElement[Any]:
    """0 over no rows."""
    return func.coalesce(func.sum(value if where is None else case((where, value), else_=_ZERO)), _ZERO)


def _build_state_query(kind: AccountKind) -> Select[Any]:
    """One statement for spending and reservations. Between two, a reservation could become spending and be missed."""
    now, midnight = bindparam("now", type_=BigInteger), bindparam("midnight", type_=BigInteger)
    account = bindparam("account", type_=String)
    is_today = spending.c.hour >= bindparam("today", type_=BigInteger)
    nothing = [_ZERO] * len(_SPENT)
    # Of runs nobody asks for today, and of keys for nothing else.
    spent = [
        *(nothing if kind == "key" else (_build_sum(spending.c[name]) for name in _SPENT)),
        *(nothing if kind == "run" else (_build_sum(spending.c[name], is_today) for name in _SPENT)),
        _build_sum(spending.c.requests, is_today),
    ]
    is_current, is_overdue = holds.c.until > now, holds.c.until <= now
    is_leased = and_(IS_LIVE, leases.c.expires_at > now)
    by_lease = kind == "key"
    counts = true() if by_lease else is_current  # of keys no other rows are read
    whole = (
        case((holds.c.open_tokens > _ZERO, literal_column("1")), else_=_ZERO),
        holds.c.used_tokens + holds.c.open_tokens,
        holds.c.used_usd + holds.c.open_usd,
    )
    held = [
        *(_build_sum(holds.c[name], counts) for name in ("used_tokens", "used_usd", "open_tokens", "open_usd")),
        *(_build_sum(value, is_overdue) for value in whole),
        *(_build_sum(value, and_(is_overdue, holds.c.until >= midnight)) for value in whole),
        # A lease that pays for a group is kept until that is scored, and stands out no longer than its time.
        _build_sum(holds.c.leases, or_(and_(is_current, leases.c.lease_id.is_(None)), is_leased))
        if by_lease
        else _ZERO,
        func.min(case((is_leased, leases.c.expires_at))) if by_lease else literal_column("NULL"),
    ]
    kept = _HOLDS_AND_LEASES if by_lease else holds
    is_kind: ColumnElement[str] = literal_column(f"'{kind}'")
    mine = [spending.c.kind == is_kind, spending.c.account == account]
    if by_lease:  # the days before would only be read; the primary key tells the hour behind the environment
        mine += [spending.c.environment == literal_column("''"), is_today]
    others = [holds.c.kind == is_kind, holds.c.account == account, holds.c.hold != bindparam("without", type_=String)]
    left = select(*(each.label(f"spent_{place}") for place, each in enumerate(spent))).where(*mine).subquery("spent")
    if by_lease:
        others.append(_is_in_force(now, _is_leased(now)))
    reserved = select(*(each.label(f"held_{place}") for place, each in enumerate(held))).select_from(kept)
    right = reserved.where(*others).subquery("held")
    return select(left, right).select_from(left.join(right, true()))


_HOLDS_AND_LEASES: Final = holds.join(leases, leases.c.lease_id == holds.c.hold, isouter=True)


def _is_leased(now: ColumnElement[int]) -> ColumnElement[bool]:
    """Whether the lease under whose name something is reserved lasts, or its answer is to be judged."""
    is_answered = and_(holds.c.until.is_(None), leases.c.state == literal_column("'done'"))
    return or_(and_(IS_LIVE, leases.c.expires_at > now), is_answered)


def _is_in_force(now: ColumnElement[int], is_leased: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether what a key has reserved still counts; otherwise it is forgotten. It lasts for its time, while its lease
    does, and as long as its group is gathered or is to be judged."""
    of_group = groups.c.group_id == func.coalesce(holds.c.holder, holds.c.hold)
    is_judged = exists().where(of_group, groups.c.outcome == literal_column("'pending'"))
    of_part = parts.c.group_id == func.coalesce(holds.c.holder, holds.c.hold)
    is_open = exists().where(of_part, parts.c.state == literal_column("'open'"))
    # Without a row of a lease, or without a time, its conditions are null, and so would be their opposite.
    return func.coalesce(or_(holds.c.until > now, is_leased, is_judged, is_open), false())


def _forget_overdue_of_keys() -> Delete:
    """It asks of each row by itself. As a list of names it would take time quadratic in the rows on PostgreSQL, until
    that has statistics of the table."""
    now, account = bindparam("now", type_=BigInteger), bindparam("account", type_=String)
    mine = holds.c.kind == literal_column("'key'"), holds.c.account == account
    is_leased = exists().where(leases.c.lease_id == holds.c.hold, _is_leased(now))
    return delete(holds).where(*mine, not_(_is_in_force(now, is_leased)))


def _build_spending_upsert(postgres: bool) -> Insert:
    into = begin_insert(spending, postgres)
    changed: dict[str, Any] = {name: spending.c[name] + into.excluded[name] for name in (*_COUNTED, "requests")}
    is_later = spending.c.last_at > into.excluded.last_at
    changed["last_at"] = case((is_later, spending.c.last_at), else_=into.excluded.last_at)
    written: Insert = into.on_conflict_do_update(index_elements=list(spending.primary_key.columns), set_=changed)
    return written


def _build_hold_upsert(postgres: bool) -> Insert:
    into = begin_insert(holds, postgres)
    changed = {column.name: into.excluded[column.name] for column in holds.columns if not column.primary_key}
    written: Insert = into.on_conflict_do_update(index_elements=list(holds.primary_key.columns), set_=changed)
    return written


_SELECT_STATE: Final[Mapping[AccountKind, PreparedStatement]] = {
    kind: PreparedStatement(partial(lambda kind, _: _build_state_query(kind), kind)) for kind in get_args(AccountKind)
}
_SELECT_TAKEN: Final = PreparedStatement(
    lambda _: select(
        _build_sum(spending.c.groups),
        _build_sum(spending.c.input_tokens + spending.c.output_tokens + spending.c.unanswered_tokens),
        _build_sum(spending.c.cost_usd + spending.c.unanswered_usd),
    ).where(
        spending.c.kind == literal_column("'run'"),
        spending.c.account == bindparam("account", type_=String),
        spending.c.environment == bindparam("environment", type_=String),
    )
)
_ADD_SPENDING: Final = PreparedStatement(_build_spending_upsert)
_PUT_HOLD: Final = PreparedStatement(_build_hold_upsert)
_DELETE_HOLDS: Final = PreparedStatement(
    lambda postgres: delete(holds).where(
        is_among(holds.c.hold, "dropped", postgres), holds.c.kind == bindparam("of", type_=String)
    )
)
_FORGET_OVERDUE: Final[Mapping[AccountKind, PreparedStatement]] = {
    "key": PreparedStatement(lambda _: _forget_overdue_of_keys()),
    "run": PreparedStatement(
        lambda _: delete(holds).where(
            holds.c.kind == literal_column("'run'"),
            holds.c.account == bindparam("account", type_=String),
            holds.c.until <= bindparam("now", type_=BigInteger),
        )
    ),
}
"""Not for judges, of which they count as spent."""


# Budgets of judges: what each has spent, and what its open calls may still cost.


def reserve_budget(connection: Connection, hold: Reservation, budget: BudgetConfig, now: int) -> Admission:
    account = Account("judge", hold.judge)
    _lock(connection, account)
    admission = _load_state(connection, account, now, without=hold.id).budget.admit(hold, budget)
    # A call that waits keeps only what it has used: two that each kept an open call would wait for each other.
    reserved = hold if admission.admits == "now" else hold.without_call
    until = now + int(hold.seconds * 1e6)
    _put_hold(connection, _build_hold(account, hold.id, used=reserved.used, opened=reserved.open, until=until))
    return admission


def release_reservation(connection: Connection, judge: str, hold: str, now: int) -> BudgetState:
    _drop_holds(connection, "judge", [hold])
    return load_budget_state(connection, judge, now)


def record_spending(
    connection: Connection, judge: str, judgements: Sequence[Judgement], names: Iterable[str], now: int
) -> BudgetState:
    """Adds the cost of a judge's judgements to its spending and deletes their reservations."""
    _record(connection, Account("judge", judge), now, _price(judgements))
    _drop_holds(connection, "judge", names)
    return load_budget_state(connection, judge, now)


def load_budget_state(connection: Connection, judge: str, now: int) -> BudgetState:
    return _load_state(connection, Account("judge", judge), now).budget


# Budgets of runs: what judging a run has cost, written with its judgements, and what its open groups may still cost.


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
    account = Account("run", run)
    _lock(connection, account)
    budget = connection.execute(select(runs.c.budget_usd).where(runs.c.name == run)).scalar()
    if budget is None:
        return "now"
    now = database.read_lease_clock(connection)
    _forget_overdue(connection, account, now)
    load = partial(_load_state, connection, account, now, without=group_id)
    expected = replace(_expect_cost(connection, run, environment, Amount(usd=estimate_usd)), tokens=0)
    answer = load().budget.admit_group(expected, budget)
    if answer == "later" and _release_holds_of_the_dead(connection, run):
        answer = load().budget.admit_group(expected, budget)
    _drop_holds(connection, "run", [group_id])
    if answer == "now":
        until = now + int(seconds * 1e6)
        hold = _build_hold(account, group_id, opened=expected, until=until, holder=name_holder_here("run"))
        _put_hold(connection, hold)
    return answer


def settle_hold(connection: Connection, group_id: str, usd: float) -> None:
    mine = holds.c.hold == group_id, holds.c.kind == "run"
    connection.execute(update(holds).where(*mine).values(used_usd=usd, open_usd=0.0))
    connection.execute(delete(holds).where(*mine, holds.c.used_usd == 0))


def _release_holds_of_the_dead(connection: Connection, run: str) -> bool:
    """Whether anything was reserved for groups that nobody judges any longer. What judged groups cost stays."""
    is_open = (holds.c.kind == "run", holds.c.account == run, holds.c.open_usd > 0)
    holders = connection.execute(select(holds.c.holder).where(*is_open, holds.c.holder.is_not(None)).distinct())
    gone = [holder for holder in holders.scalars() if is_gone(holder)]
    if gone:
        connection.execute(delete(holds).where(*is_open, holds.c.holder.in_(gone)))
    return bool(gone)


def record_costs(connection: Connection, made: Sequence[tuple[int, Judgement]], stamp: int) -> None:
    """Call before the judgements of these groups, by sequence, are inserted. What was reserved for the groups is free
    again."""
    rows = _SELECT_RUNS.fetch(connection, given=sorted({sequence for sequence, _ in made}))
    of_run = {sequence: (str(run), str(environment)) for sequence, _, run, environment, _ in rows}
    judged, new = defaultdict[tuple[str, str], list[Judgement]](list), Counter[tuple[str, str]]()
    for sequence, _, _, _, has_judgements in rows:
        new[of_run[sequence]] += not has_judgements
    for sequence, judgement in made:
        if sequence in of_run:
            judged[of_run[sequence]].append(judgement)
    for run, environment in sorted(new):
        spent = _price(judged[run, environment], groups=new[run, environment])
        _record(connection, Account("run", run), stamp, spent, environment=environment)
    _drop_holds(connection, "run", [str(group_id) for _, group_id, _, _, _ in rows])


def record_health_costs(
    connection: Connection, database: Database, run: str, environment: str, made: Sequence[Judgement], hold: str
) -> None:
    """The cost of readings that belong to no group's scores. What was reserved under `hold` is free again."""
    if made:
        _record(connection, Account("run", run), database.read_clock(), _price(made), environment=environment)
    _drop_holds(connection, "run", [hold])


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


def load_ledger(connection: Connection, database: Database, run: str) -> RunLedger:
    now, account = database.read_clock(), Account("run", run)
    costs = _load_spending(connection, account)
    since = _MICROSECONDS_PER_HOUR * (now // _MICROSECONDS_PER_HOUR - 1)
    recent = select(func.coalesce(func.sum(spending.c.cost_usd), 0.0), func.min(spending.c.first_at)).where(
        spending.c.kind == account.kind,
        spending.c.account == account.name,
        spending.c.hour >= since // _MICROSECONDS_PER_HOUR,
    )
    spent, first = connection.execute(recent).one()
    started = min((each.first_at for each in costs), default=from_micros(now))
    began = since if started < from_micros(since) else (first or now)
    budget = _load_state(connection, account, database.read_lease_clock(connection)).budget
    return RunLedger(
        environments=costs,
        recent_usd=float(spent),
        recent_seconds=max(60.0, (now - began) / 1e6),
        held_usd=budget.used.usd + budget.open.usd,
    )


def _load_spending(connection: Connection, account: Account) -> tuple[EnvironmentCost, ...]:
    sums = [func.sum(spending.c[name]).label(name) for name in _COUNTED]
    statement = (
        select(spending.c.environment, *sums, func.min(spending.c.first_at), func.max(spending.c.last_at))
        .where(spending.c.kind == account.kind, spending.c.account == account.name)
        .group_by(spending.c.environment)
        .order_by(spending.c.environment)
    )
    return tuple(
        EnvironmentCost(
            environment=environment,
            spent=RunSpending.model_validate(_take_sums(_COUNTED, iter(values))),
            first_at=from_micros(first),
            last_at=from_micros(last),
        )
        for environment, *values, first, last in connection.execute(statement)
    )


_FORGOTTEN: Final = "forgotten_accounts"
"""Of a connection, the accounts of which its transaction has forgotten what is overdue."""


def _forget_overdue(connection: Connection, account: Account, now: int) -> None:
    """What is reserved and does not count any longer: once in a batch, since each time takes as long as much as the
    account has reserved."""
    forgotten: frozenset[Account] = connection.get_execution_options().get(_FORGOTTEN, frozenset())
    if account in forgotten:
        return
    connection.execution_options(**{_FORGOTTEN: forgotten | {account}})
    _FORGET_OVERDUE[account.kind].fetch(connection, account=account.name, now=now)


# Quotas of keys: what a key has used today, and what is reserved for tasks that it holds.

_BATCH_SECONDS: Final = 60
"""A batch whose tasks are not made after so long never will be: its process died."""


class QuotaStore(StorePart):
    """Counts what keys use. Changes are atomic over all processes on the database, and durable on return."""

    @writes(lambda asked: name_key(asked.key), locked=True)
    def reserve(self, connection: Connection, asked: HandOut) -> HandOutGrant:
        """Counts the request where requests are limited. If all quotas allow it, reserves what the batch may take and
        admits its run for a day."""
        account = Account("key", asked.key)
        now = self.database.read_lease_clock(connection)
        usage = _load_usage(connection, account, now)
        expected = {
            part.environment: NO_AMOUNT
            if part.bound is None
            else _expect_demand(connection, asked.quotas, asked.run, part.environment, part.bound)
            for part in asked.parts
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
        _forget_overdue(connection, account, now)
        _count_request(connection, account, asked.quotas, now)
        _admit(connection, account, [asked.run or ""], now + MICROSECONDS_PER_DAY)
        if not asked.is_leased:
            return HandOutGrant(None, uses)
        batch = f"batch_{secrets.token_hex(16)}"
        until = now + _BATCH_SECONDS * MICROSECONDS_PER_SECOND
        _put_hold(connection, _build_hold(account, batch, leases=demand.leases, opened=demand.judging, until=until))
        return HandOutGrant(None, uses, batch, expected)

    @writes(lambda key, *_: name_key(key))
    def confirm(self, connection: Connection, key: str, hold: str, leases: Mapping[str, Amount]) -> None:
        """What was reserved for the batch is reserved for each of its leases instead."""
        _drop_holds(connection, "key", [hold])
        account = Account("key", key)
        made = [
            _build_hold(account, lease_id, leases=1, opened=of_lease, until=None)
            for lease_id, of_lease in leases.items()
        ]
        insert_rows(connection, holds, made)

    @writes(lambda asked: name_key(asked.key), locked=True)
    def admit_judging(self, connection: Connection, asked: JudgingRequest) -> JudgingGrant:
        """As the function of this name, in a transaction of its own."""
        return admit_judging(connection, self.database, asked)

    @writes(lambda key, *_: name_key(key), locked=True)
    def give_back(self, connection: Connection, key: str, reserved: Sequence[Reserved]) -> None:
        """What the key reserved is free again, but for what it asked for once more since."""
        account = Account("key", key)
        for one in reserved:
            _give_back(connection, account, one)

    @reads
    def load_usage(self, connection: Connection, key: str) -> KeyUsage:
        return _load_usage(connection, Account("key", key), self.database.read_lease_clock(connection))


def admit_judging(connection: Connection, database: Database, asked: JudgingRequest) -> JudgingGrant:
    """Counts the request where requests are limited, and says of each demand whether it may be judged. What a lease
    pays for is bound to that lease, and what needs room is reserved under its name. `name_key` must be locked."""
    account = Account("key", asked.key)
    now = database.read_lease_clock(connection)
    if asked.counted and asked.needs_request and asked.quotas.requests_per_day is not None:
        usage = _load_usage(connection, account, now)
        if (exceeded := usage.find_exceeded(asked.quotas, Demand())) is not None:
            return JudgingGrant(request=exceeded)
    admission = _JudgingAdmission.open(connection, account, asked, now)
    answers = {one.name: admission.admit(one) for one in asked.demands}
    refused = {name: use for name, use in answers.items() if use is not None}
    if asked.counted and (not answers or len(refused) < len(answers)):
        _count_request(connection, account, asked.quotas, now)
    return JudgingGrant(None, refused, admission.reserved)


def charge_key(connection: Connection, key: str, judgements: Sequence[Judgement], stamp: int) -> None:
    """Counts what the judgements took, unanswered calls at their maximum."""
    spent = _price(judgements)
    if compute_amount(spent) != NO_AMOUNT:
        _record(connection, Account("key", key), stamp, spent)


def release_demands(connection: Connection, ended: Iterable[Group]) -> None:
    """Nothing is reserved any longer for these groups, nor for the leases that they answer, but for those still to be
    judged. A lease that pays for another group is kept for that."""
    judged = [group for group in ended if group.sender and group.outcome != "pending"]
    if judged:
        names = [group.group_id for group in judged]
        _RELEASE_DEMANDS.fetch(connection, names=[*names, *(one.lease_id for one in judged if one.lease_id)], of=names)


_RELEASE_DEMANDS: Final = PreparedStatement(
    lambda postgres: delete(holds).where(
        is_among(holds.c.hold, "names", postgres),
        holds.c.kind == literal_column("'key'"),
        or_(holds.c.holder.is_(None), is_among(holds.c.holder, "of", postgres)),
    )
)


def _expect_demand(
    connection: Connection, quotas: KeyQuotas, run: str | None, environment: str, bound: Amount
) -> Amount:
    """What is reserved for a group. For a cap that is the most that it can take."""
    return bound if run is None or quotas.hard else _expect_cost(connection, run, environment, bound)


_JUDGING_MICROSECONDS: Final = 4 * 3_600 * MICROSECONDS_PER_SECOND
"""So long something is reserved for a group whose process died before it stored it."""


@dataclass(frozen=True)
class _NamedLease:
    """A lease that a demand names. `kept` is what is reserved for it; None where it was not handed to this key, or has
    paid for a group that is judged."""

    lease_id: str
    kept: Amount | None
    payee: str | None
    """The group for which it pays."""
    until: int | None
    requests: int
    """That rely on what it pays."""
    is_live: bool
    answered_by: str | None

    def pays_for(self, name: str) -> bool:
        """Its reservation is over with its time, so it pays while it lasts, and for the first group that names it."""
        return self.kept is not None and (self.payee == name or (self.payee is None and self.is_live))


@dataclass
class _JudgingAdmission:
    """Decides on the demands of a request, one after the other."""

    connection: Connection
    account: Account
    quotas: KeyQuotas
    now: int
    outcomes: Mapping[str, str]
    """Of groups that are stored, or were once; `final` of those that are unscored and stay so."""
    leases: dict[str, _NamedLease]
    runs: set[str]
    """That are admitted."""
    reserved: dict[str, Reserved] = field(default_factory=dict)

    @classmethod
    def open(cls, connection: Connection, account: Account, asked: JudgingRequest, now: int) -> Self:
        names = [name for one in asked.demands for name in (one.name, one.late_name) if name]
        named = {one.lease_id for one in asked.demands if one.lease_id}
        runs = {_name_admission(one.run or ""): one.run or "" for one in asked.demands if one.lease_id is None}
        outcomes = _SELECT_OUTCOMES.fetch(connection, names=names) if names else ()
        admitted = _SELECT_ADMITTED.fetch(connection, names=list(runs), account=account.name, now=now) if runs else ()
        leased = _SELECT_NAMED.fetch(connection, names=list(named), account=account.name, now=now) if named else ()
        return cls(
            connection,
            account,
            asked.quotas,
            now,
            {str(name): str(outcome) for name, outcome in outcomes},
            {
                str(lease_id): _NamedLease(
                    lease_id,
                    None if tokens is None else Amount(int(tokens), float(usd)),
                    payee,
                    until,
                    int(requests or 0),
                    bool(live),
                    own,
                )
                for lease_id, tokens, usd, payee, until, requests, live, own in leased
            },
            {runs[str(name)] for (name,) in admitted},
        )

    def admit(self, one: JudgingDemand) -> QuotaUse | None:
        """The quota that has no room for it; None where it may be judged."""
        outcome, lease = self.outcomes.get(one.name), self.leases.get(one.lease_id or "")
        if one.comes_again and outcome is None:  # its group still waits for others
            return None
        if outcome is not None and outcome != "unscored":  # a repeat, which takes nothing
            is_late = self.quotas.hard and bool(one.places) and self._brings_more(one)
            if not is_late or self.outcomes.get(one.late_name, "unscored") != "unscored":
                return None
            return self._reserve(one, one.late_name)
        if lease is not None and lease.pays_for(one.name):
            return self._pay(one, lease)
        if not self.quotas.hard:
            # Its judges failed and are asked again. Texts about which no judge answers would be paid for without end.
            if lease is not None and lease.answered_by == one.name and self._has_taken_less(one):
                return None
            if one.lease_id is None and not one.needs_room:
                return self._admit_run(one.run or "")
        return self._reserve(one, one.name)

    def _pay(self, one: JudgingDemand, lease: _NamedLease) -> QuotaUse | None:
        kept = before = lease.kept or NO_AMOUNT
        if self.quotas.hard and not kept.covers(one.bound):
            kept = kept.widen_to(one.bound)
            if (exceeded := self._find_exceeded(kept, without=lease.lease_id)) is not None:
                return exceeded
        until, requests = self._join(one.name, lease.until, lease.requests)
        held = _build_hold(
            self.account, lease.lease_id, leases=1, opened=kept, until=until, holder=one.name, requests=requests
        )
        _put_hold(self.connection, held)
        self.reserved.setdefault(one.name, Reserved(lease.lease_id, until, before=before))
        self.leases[lease.lease_id] = replace(lease, kept=kept, payee=one.name, until=until, requests=requests)
        return None

    def _reserve(self, one: JudgingDemand, name: str) -> QuotaUse | None:
        """Reserves as much under the name as is not reserved under it yet. What a lease on the task has kept is moved
        there first, and the rest needs room."""
        _forget_overdue(self.connection, self.account, self.now)
        known = [(Amount(int(tokens), float(usd)), until, asking) for tokens, usd, until, asking in self._find(name)]
        kept, ends, asking = known[0] if known else (NO_AMOUNT, None, 0)
        wanted = _expect_demand(self.connection, self.quotas, one.run, one.environment, one.bound)
        more = kept.widen_to(wanted).less(kept)
        lease_id, left = self._find_unnamed_lease(one) if more != NO_AMOUNT else ("", NO_AMOUNT)
        moved = left.narrow_to(more)
        asks = more != moved or wanted == NO_AMOUNT
        if asks and (exceeded := self._find_exceeded(more.less(moved))) is not None:
            return exceeded
        until, requests = self._join(one.name, ends, asking)
        _put_hold(self.connection, _build_hold(self.account, name, opened=kept + more, until=until, requests=requests))
        if moved != NO_AMOUNT:
            rest = _build_hold(self.account, lease_id, leases=1, opened=left.less(moved), until=None)
            _put_hold(self.connection, rest)
        self.reserved.setdefault(one.name, Reserved(name, until, lease_id, moved))
        return None

    def _find(self, name: str) -> Sequence[Any]:
        """What is reserved under the name."""
        return _SELECT_HELD.fetch(self.connection, name=name, account=self.account.name)

    def _join(self, name: str, until: int | None, requests: int) -> tuple[int, int]:
        """Until when it is reserved, and how many requests rely on it with this one, whose later pieces of a group
        count with its first. What is over is reserved anew."""
        if until is None or until <= self.now:
            return self.now + _JUDGING_MICROSECONDS, 1
        return until, requests + (name not in self.reserved)

    def _find_unnamed_lease(self, one: JudgingDemand) -> tuple[str, Amount]:
        """What is left of a lease that the key has on the task, in the run, for a group or sample that names none. Only
        caps ask: otherwise the run is admitted."""
        if not self.quotas.hard or one.lease_id is not None or one.run is None or not one.task_id:
            return "", NO_AMOUNT
        found = _SELECT_UNNAMED.fetch(
            self.connection, account=self.account.name, run=one.run, task_id=one.task_id, now=self.now
        )
        return next(((str(name), Amount(int(tokens), float(usd))) for name, tokens, usd in found), ("", NO_AMOUNT))

    def _admit_run(self, run: str) -> QuotaUse | None:
        """Admits the run until the day ends."""
        if run in self.runs:
            return None
        exceeded = self._find_exceeded(NO_AMOUNT)
        if exceeded is None:
            _forget_overdue(self.connection, self.account, self.now)
            _admit(self.connection, self.account, [run], _compute_day_end(self.now))
            self.runs.add(run)
        return exceeded

    def _find_exceeded(self, wanted: Amount, *, without: str = "") -> QuotaUse | None:
        usage = _load_usage(self.connection, self.account, self.now, without=without)
        return usage.find_exceeded(self.quotas, Demand(requests=0, is_judged=True, judging=wanted))

    def _has_taken_less(self, one: JudgingDemand) -> bool:
        """Than what judging a group takes at most."""
        ((tokens, usd),) = _SELECT_COST.fetch(self.connection, group_id=one.name)
        return int(tokens) <= one.bound.tokens and float(usd) <= one.bound.usd

    def _brings_more(self, piece: JudgingDemand) -> bool:
        """Whether the group had closed before all of the piece came."""
        taken = _SELECT_PLACES.fetch(self.connection, group_id=piece.name)
        return not {place for (place,) in taken}.issuperset(piece.places)


_STAYS_UNSCORED: Final = and_(
    groups.c.outcome == literal_column("'unscored'"),
    or_(
        groups.c.flags.contains('"masked"'),
        not_(
            exists().where(
                rollouts.c.group_sequence == groups.c.sequence,
                rollouts.c.outcome != literal_column("'scored'"),
                rollouts.c.reason != literal_column("'stale'"),
            )
        ),
    ),
)
"""As `Group.is_final`, without reading what the completions say."""
_SELECT_OUTCOMES: Final = PreparedStatement(
    lambda postgres: union_all(
        select(groups.c.group_id, case((_STAYS_UNSCORED, literal_column("'final'")), else_=groups.c.outcome)).where(
            is_among(groups.c.group_id, "names", postgres)
        ),
        select(pruned_groups.c.group_id, literal_column("'pruned'")).where(
            is_among(pruned_groups.c.group_id, "names", postgres)
        ),
    )
)
_SELECT_ADMITTED: Final = PreparedStatement(
    lambda postgres: select(holds.c.hold).where(
        is_among(holds.c.hold, "names", postgres),
        holds.c.kind == literal_column("'key'"),
        holds.c.account == bindparam("account", type_=String),
        holds.c.until > bindparam("now", type_=BigInteger),
    )
)
_SELECT_NAMED: Final = PreparedStatement(
    lambda postgres: (
        select(
            leases.c.lease_id,
            holds.c.open_tokens,
            holds.c.open_usd,
            holds.c.holder,
            holds.c.until,
            holds.c.used_tokens,
            case(
                (and_(IS_LIVE, leases.c.expires_at > bindparam("now", type_=BigInteger)), literal_column("1")),
                else_=_ZERO,
            ),
            leases.c.group_id,
        )
        .select_from(
            leases.join(
                holds,
                and_(
                    holds.c.hold == leases.c.lease_id,
                    holds.c.kind == literal_column("'key'"),
                    holds.c.account == bindparam("account", type_=String),
                ),
                isouter=True,
            )
        )
        .where(is_among(leases.c.lease_id, "names", postgres))
    )
)
_SELECT_HELD: Final = PreparedStatement(
    lambda _: select(holds.c.open_tokens, holds.c.open_usd, holds.c.until, holds.c.used_tokens).where(
        holds.c.hold == bindparam("name", type_=String),
        holds.c.kind == literal_column("'key'"),
        holds.c.account == bindparam("account", type_=String),
    )
)
_SELECT_UNNAMED: Final = PreparedStatement(
    lambda _: (
        select(leases.c.lease_id, holds.c.open_tokens, holds.c.open_usd)
        .select_from(tasks.join(leases, IS_OF_TASK).join(holds, holds.c.hold == leases.c.lease_id))
        .where(
            tasks.c.task_id == bindparam("task_id", type_=String),
            leases.c.run == bindparam("run", type_=String),
            IS_LIVE,
            leases.c.expires_at > bindparam("now", type_=BigInteger),
            holds.c.kind == literal_column("'key'"),
            holds.c.account == bindparam("account", type_=String),
            holds.c.holder.is_(None),
            holds.c.open_usd + holds.c.open_tokens > _ZERO,
        )
        .limit(literal_column("1"))
    )
)
_SELECT_COST: Final = PreparedStatement(
    lambda _: (
        select(
            _build_sum(judgements.c.input_tokens + judgements.c.output_tokens),
            _build_sum(func.coalesce(judgements.c.cost_usd, _ZERO)),
        )
        .select_from(groups.join(judgements, judgements.c.group_sequence == groups.c.sequence))
        .where(groups.c.group_id == bindparam("group_id", type_=String))
    )
)
_SELECT_PLACES: Final = PreparedStatement(
    lambda _: select(part_members.c.place).where(part_members.c.group_id == bindparam("group_id", type_=String))
)


def _give_back(connection: Connection, account: Account, one: Reserved) -> None:
    mine = holds.c.kind == account.kind, holds.c.account == account.name
    same = *mine, holds.c.hold == one.hold, holds.c.until == one.until
    others = update(holds).where(*same, holds.c.used_tokens > 1).values(used_tokens=holds.c.used_tokens - 1)
    if connection.execute(others).rowcount:
        return
    if one.before is not None:
        unpaid = {
            "holder": None,
            "until": None,
            "used_tokens": 0,
            "open_tokens": one.before.tokens,
            "open_usd": one.before.usd,
        }
        connection.execute(update(holds).where(*same).values(unpaid))
    elif connection.execute(delete(holds).where(*same)).rowcount and one.moved != NO_AMOUNT:
        connection.execute(
            update(holds)
            .where(*mine, holds.c.hold == one.lease_id, holds.c.holder.is_(None))
            .values(open_tokens=holds.c.open_tokens + one.moved.tokens, open_usd=holds.c.open_usd + one.moved.usd)
        )


def _admit(connection: Connection, account: Account, runs: Iterable[str], until: int) -> None:
    """Until then groups of these runs that have no lease are scored for the key, whatever it uses: a hold that keeps
    nothing but the door. An empty run stands for none."""
    for run in runs:
        _put_hold(connection, _build_hold(account, _name_admission(run), until=until))


def _name_admission(run: str) -> str:
    return f"run {run}"


def _count_request(connection: Connection, account: Account, quotas: KeyQuotas, now: int) -> None:
    if quotas.requests_per_day is not None:
        _record(connection, account, now, requests=1)


def _load_usage(connection: Connection, account: Account, now: int, *, without: str = "") -> KeyUsage:
    state = _load_state(connection, account, now, without=without)
    used = compute_amount(state.budget.today)
    return KeyUsage(
        requests=state.requests,
        judge_tokens=used.tokens,
        judge_usd=used.usd,
        held_tokens=state.budget.open.tokens,
        held_usd=state.budget.open.usd,
        leases=state.leases,
        day_ends_at=from_micros(_compute_day_end(now)),
        next_lease_ends_at=None if state.next_lease_end is None else from_micros(state.next_lease_end),
    )


def name_key(key: str) -> str:
    """What units lock that admit something for the key, and where they come in a batch."""
    return f"key {key}"
