"""What judging a run has cost, kept with its judgements; budgets of runs, shared by all processes on the database."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Insert, case, delete, exists, func, literal, select, update
from sqlalchemy.dialects import sqlite

from app.domain.judging import Judgement, Spending
from app.domain.run_costs import (
    GROUPS_FOR_MEAN,
    BudgetAnswer,
    EnvironmentCost,
    RunLedger,
    RunSpending,
    add_up,
    admit_group,
)
from app.store.database import Database
from app.store.judge_limits import is_gone, name_holder
from app.store.judge_tables import judgements, run_costs, run_holds
from app.store.prepared_statements import PreparedStatement, Value, is_among
from app.store.rows import from_micros
from app.store.tables import groups, runs

MICROSECONDS_PER_HOUR: Final = 3_600_000_000
_ADVISORY_LOCK_KEY: Final = 7_305_811_962_048
"""An arbitrary constant: the first key of PostgreSQL's advisory locks on the budgets of runs."""
_IS_OPEN_OR_SETTLED: Final = (run_holds.c.settled.is_(False), run_holds.c.settled.is_(True))
_COUNTED: Final = tuple(RunSpending.model_fields)


def record_costs(connection: Connection, made: Sequence[tuple[int, Judgement]], stamp: int) -> None:
    """Call before the judgements of these groups, by sequence, are inserted. What was reserved for the groups is free
    again."""
    found = _SELECT_RUNS.fetch(connection, given=sorted({sequence for sequence, _ in made}))
    of_run = {sequence: (str(run), str(environment)) for sequence, _, run, environment, _ in found}
    spent: defaultdict[tuple[str, str], list[RunSpending]] = defaultdict(list)
    for sequence, _, _, _, is_known in found:
        spent[of_run[sequence]].append(RunSpending(groups=0 if is_known else 1))
    for sequence, judgement in made:
        if sequence in of_run:
            spent[of_run[sequence]].append(_price_judgement(judgement))
    for run, environment in sorted(spent):
        _add_spending(connection, run, environment, spent[run, environment], stamp)
    if found:
        release_holds(connection, [group_id for _, group_id, _, _, _ in found])


def record_health_costs(
    connection: Connection, database: Database, run: str, environment: str, made: Sequence[Judgement], hold: str
) -> None:
    """The cost of readings that belong to no group's scores. What was reserved under `hold` is free again."""
    if made:
        priced = [_price_judgement(judgement) for judgement in made]
        _add_spending(connection, run, environment, priced, database.read_clock())
    release_holds(connection, [hold])


def _price_judgement(judgement: Judgement) -> RunSpending:
    unpriced = judgement.calls if judgement.cost_usd is None else 0
    return RunSpending(unpriced_calls=unpriced, **dict(Spending.of_judgements([judgement])))


def _add_spending(connection: Connection, run: str, environment: str, spent: Sequence[RunSpending], stamp: int) -> None:
    hour = stamp // MICROSECONDS_PER_HOUR
    counted: dict[str, Value] = dict(add_up(spent))
    _ADD_SPENDING.fetch(
        connection, run=run, environment=environment, hour=hour, **counted, first_at=stamp, last_at=stamp
    )


def _build_upsert(postgres: bool) -> Insert:
    into: Any
    if postgres:
        from sqlalchemy.dialects import postgresql  # takes long to import

        into = postgresql.insert(run_costs)
    else:
        into = sqlite.insert(run_costs)
    changed = {name: run_costs.c[name] + into.excluded[name] for name in _COUNTED}
    changed["last_at"] = case(
        (run_costs.c.last_at > into.excluded.last_at, run_costs.c.last_at), else_=into.excluded.last_at
    )
    written: Insert = into.on_conflict_do_update(index_elements=["run", "environment", "hour"], set_=changed)
    return written


def release_holds(connection: Connection, group_ids: Sequence[str]) -> None:
    _DELETE_HOLDS.fetch(connection, given=list(group_ids))


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
_ADD_SPENDING: Final = PreparedStatement(_build_upsert)
_DELETE_HOLDS: Final = PreparedStatement(
    lambda postgres: delete(run_holds).where(is_among(run_holds.c.group_id, "given", postgres))
)


def settle_hold(connection: Connection, group_id: str, usd: float) -> None:
    connection.execute(update(run_holds).where(run_holds.c.group_id == group_id).values(usd=usd, settled=True))
    connection.execute(delete(run_holds).where(run_holds.c.group_id == group_id, run_holds.c.usd == 0))


def load_ledger(connection: Connection, database: Database, run: str) -> RunLedger:
    now = database.read_clock()
    known = _load_spending(connection, run)
    since = MICROSECONDS_PER_HOUR * (now // MICROSECONDS_PER_HOUR - 1)
    recent = select(func.coalesce(func.sum(run_costs.c.cost_usd), 0.0), func.min(run_costs.c.first_at)).where(
        run_costs.c.run == run, run_costs.c.hour >= since // MICROSECONDS_PER_HOUR
    )
    spent, first = connection.execute(recent).one()
    started = min((each.first_at for each in known), default=from_micros(now))
    began = since if started < from_micros(since) else (first or now)
    return RunLedger(
        environments=known,
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
            spent=_parse_spending(dict(zip(_COUNTED, values, strict=True))),
            first_at=from_micros(first),
            last_at=from_micros(last),
        )
        for environment, *values, first, last in connection.execute(statement)
    )


def _parse_spending(values: Mapping[str, Any]) -> RunSpending:
    whole = {name: float(value) if name.endswith("_usd") else int(value) for name, value in values.items()}
    return RunSpending.model_validate(whole)


def _load_holds(connection: Connection, run: str, now: int, *, without: str = "") -> tuple[float, float]:
    """Of groups that are being judged, and of judged ones that are not stored yet."""
    sums = [func.coalesce(func.sum(case((which, run_holds.c.usd), else_=0.0)), 0.0) for which in _IS_OPEN_OR_SETTLED]
    statement = select(*sums).where(run_holds.c.run == run, run_holds.c.until > now, run_holds.c.group_id != without)
    held, settled = connection.execute(statement).one()
    return float(held), float(settled)


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
    if database.postgres:  # SQLite has one writer at a time as it is
        connection.execute(select(func.pg_advisory_xact_lock(literal(_ADVISORY_LOCK_KEY) + func.hashtext(run))))
    budget = connection.execute(select(runs.c.budget_usd).where(runs.c.name == run)).scalar()
    if budget is None:
        return "now"
    now = database.read_lease_clock(connection)
    # Before the spending: what is stored between the two then counts twice instead of never.
    held, settled = _load_holds(connection, run, now, without=group_id)
    known = {each.environment: each.spent for each in _load_spending(connection, run)}
    here = known.get(environment, RunSpending())
    expected = here.usd_at_most / here.groups if here.groups >= GROUPS_FOR_MEAN else estimate_usd
    admit = partial(
        admit_group,
        budget_usd=budget,
        spent_usd=settled + sum(each.usd_at_most for each in known.values()),
        expected_usd=expected,
    )
    answer = admit(held_usd=held)
    if answer == "later" and _release_holds_of_the_dead(connection, run):
        answer = admit(held_usd=_load_holds(connection, run, now, without=group_id)[0])
    release_holds(connection, [group_id])
    if answer == "now":
        hold = {"group_id": group_id, "run": run, "usd": expected, "until": now + int(seconds * 1e6), "settled": False}
        connection.execute(database.insert_new(run_holds), hold | {"holder": name_holder("run")})
    return answer


def _release_holds_of_the_dead(connection: Connection, run: str) -> bool:
    """Whether anything was reserved for groups that nobody judges any longer. What judged groups cost stays."""
    is_open = (run_holds.c.run == run, run_holds.c.settled.is_(False))
    holders = connection.execute(select(run_holds.c.holder).where(*is_open, run_holds.c.holder.is_not(None)).distinct())
    gone = [holder for holder in holders.scalars() if is_gone(holder)]
    if gone:
        connection.execute(delete(run_holds).where(*is_open, run_holds.c.holder.in_(gone)))
    return bool(gone)
