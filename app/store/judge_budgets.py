"""Spending and budget reservations of judges, shared by all processes on the database."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

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
    func,
    literal,
    literal_column,
    select,
    true,
)
from sqlalchemy.dialects import sqlite

from app.domain.budgets import Admission, Amount, BudgetConfig, BudgetState, Reservation
from app.domain.judging import Judgement, Spending
from app.store.judge_tables import judge_holds, judge_spending
from app.store.prepared_statements import PreparedStatement, Value

MICROSECONDS_PER_DAY: Final = 86_400_000_000
"""Microseconds."""
_SPENDING_FIELDS: Final = tuple(Spending.model_fields)
_ADVISORY_LOCK_KEY: Final = 7_305_811_962_047
"""An arbitrary constant: the first key of PostgreSQL's advisory locks on the budgets of judges."""


def record_spending(
    connection: Connection, judge: str, judgements: Sequence[Judgement], holds: Iterable[str], stamp: int
) -> BudgetState:
    """Adds the cost of a judge's judgements to its spending and deletes their reservations."""
    day = stamp // MICROSECONDS_PER_DAY
    spent: dict[str, Value] = {"judge": judge, "day": day, **dict(Spending.of_judgements(judgements))}
    _ADD_SPENDING.fetch(connection, **spent)
    for hold in holds:
        _DELETE_HOLD.fetch(connection, released=hold)
    return load_budget_state(connection, judge, stamp)


def release_reservation(connection: Connection, judge: str, hold: str, stamp: int) -> BudgetState:
    _DELETE_HOLD.fetch(connection, released=hold)
    return load_budget_state(connection, judge, stamp)


def reserve_budget(
    connection: Connection, hold: Reservation, budget: BudgetConfig, stamp: int, postgres: bool
) -> Admission:
    if postgres:  # SQLite has one writer at a time as it is
        connection.execute(select(func.pg_advisory_xact_lock(literal(_ADVISORY_LOCK_KEY) + func.hashtext(hold.judge))))
    admission = load_budget_state(connection, hold.judge, stamp, without=hold.id).admit(hold, budget)
    kept = hold if admission.admits == "now" else hold.without_call
    row: dict[str, Value] = {
        "hold": hold.id,
        "judge": hold.judge,
        "day": stamp // MICROSECONDS_PER_DAY,
        "used_tokens": kept.used.tokens,
        "used_usd": kept.used.usd,
        "open_tokens": kept.open.tokens,
        "open_usd": kept.open.usd,
        "until": stamp + int(hold.seconds * 1e6),
    }
    _PUT_HOLD.fetch(connection, **row)
    return admission


def load_budget_state(connection: Connection, judge: str, stamp: int, *, without: str = "") -> BudgetState:
    bound: dict[str, Value] = {"of": judge, "day_now": stamp // MICROSECONDS_PER_DAY, "now": stamp, "without": without}
    (sums,) = _SELECT_BUDGET_STATE.fetch(connection, **bound)
    return _parse_budget_state(list(map(float, sums)))


_ZERO: Final[ColumnElement[int]] = literal_column("0")
"""Not a parameter, of which each execution would bind dozens."""


def _build_sums(*terms: tuple[ColumnElement[bool] | None, ColumnElement[Any]]) -> list[ColumnElement[Any]]:
    """Conditional sums with generated names; 0 over no rows."""
    chosen = [value if where is None else case((where, value), else_=_ZERO) for where, value in terms]
    return [func.coalesce(func.sum(value), _ZERO).label(f"sum_{place}") for place, value in enumerate(chosen)]


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
_DELETE_HOLD: Final = PreparedStatement(
    lambda _: delete(judge_holds).where(judge_holds.c.hold == bindparam("released"))
)


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
    found = dict(zip(_SPENDING_FIELDS, values, strict=True))
    for name, more in zip(("unanswered_calls", "unanswered_tokens", "unanswered_usd"), lost, strict=True):
        found[name] += more
    whole = {name: value if name.endswith("_usd") else int(value) for name, value in found.items()}
    return Spending.build_trusted(**whole)


def _insert(table: Table, postgres: bool) -> Any:
    if postgres:
        from sqlalchemy.dialects import postgresql  # takes long to import

        return postgresql.insert(table)
    return sqlite.insert(table)


@cache
def build_upsert(table: Table, key: tuple[str, ...], postgres: bool, *, adding: bool) -> Insert:
    into = _insert(table, postgres)
    changed = {
        column.name: column + into.excluded[column.name] if adding else into.excluded[column.name]
        for column in table.columns
        if column.name not in key
    }
    written: Insert = into.on_conflict_do_update(index_elements=list(key), set_=changed)
    return written


_ADD_SPENDING: Final = PreparedStatement(
    lambda postgres: build_upsert(judge_spending, ("judge", "day"), postgres, adding=True)
)
_PUT_HOLD: Final = PreparedStatement(lambda postgres: build_upsert(judge_holds, ("hold",), postgres, adding=False))
