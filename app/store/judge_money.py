"""Spending and budget reservations of judges, shared by all processes on the database."""

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
    select,
    true,
)
from sqlalchemy.dialects import sqlite

from app.domain.budgets import Admission, Amount, BudgetConfig, Hold, Standing
from app.domain.judging import Judgement, Spending
from app.store.tables import judge_holds, judge_spending

DAY: Final = 86_400_000_000
"""Microseconds."""
_COUNTED: Final = tuple(Spending.model_fields)
_LOCKS: Final = 7_305_811_962_047
"""An arbitrary constant: the first key of PostgreSQL's advisory locks on the budgets of judges."""


def account_for(connection: Connection, judgement: Judgement, hold: str, stamp: int, postgres: bool) -> Standing:
    """Adds the judgement's cost to the spending and deletes its reservation."""
    spent = {"judge": judgement.judge, "day": stamp // DAY, **Spending().plus(judgement).model_dump()}
    connection.execute(_upsert(judge_spending, ("judge", "day"), postgres, adding=True), spent)
    return give_back(connection, judgement.judge, hold, stamp)


def give_back(connection: Connection, judge: str, hold: str, stamp: int) -> Standing:
    if hold:
        connection.execute(delete(judge_holds).where(judge_holds.c.hold == hold))
    return standing(connection, judge, stamp)


def put_aside(connection: Connection, hold: Hold, budget: BudgetConfig, stamp: int, postgres: bool) -> Admission:
    if postgres:  # SQLite has one writer at a time as it is
        connection.execute(select(func.pg_advisory_xact_lock(literal(_LOCKS) + func.hashtext(hold.judge))))
    admission = standing(connection, hold.judge, stamp, without=hold.id).admission(hold, budget)
    kept = hold if admission.admits == "now" else hold.without_call
    row = {
        "hold": hold.id,
        "judge": hold.judge,
        "day": stamp // DAY,
        "used_tokens": kept.used.tokens,
        "used_usd": kept.used.usd,
        "open_tokens": kept.open.tokens,
        "open_usd": kept.open.usd,
        "until": stamp + int(hold.seconds * 1e6),
    }
    connection.execute(_upsert(judge_holds, ("hold",), postgres, adding=False), row)
    return admission


def standing(connection: Connection, judge: str, stamp: int, *, without: str = "") -> Standing:
    bound = {"of": judge, "day_now": stamp // DAY, "now": stamp, "without": without}
    return _standing([float(value) for value in connection.execute(_STANDING, bound).one()])


def _sums(*terms: tuple[ColumnElement[bool] | None, ColumnElement[Any]]) -> list[ColumnElement[Any]]:
    """Conditional sums with generated names; 0 over no rows."""
    chosen = [value if where is None else case((where, value), else_=0) for where, value in terms]
    return [func.coalesce(func.sum(value), 0).label(f"sum_{place}") for place, value in enumerate(chosen)]


def _select_standing() -> Select[Any]:
    """One statement for spending and reservations. Between two, a reservation could become spending and be missed."""
    spending, holds = judge_spending.c, judge_holds.c
    judge, day = bindparam("of", type_=String), bindparam("day_now", type_=BigInteger)
    counted = [spending[name] for name in _COUNTED]
    today = spending.day == day
    spent = _sums(*((None, each) for each in counted), *((today, each) for each in counted))
    lost = holds.until < bindparam("now", type_=BigInteger)
    lost_today = and_(lost, holds.day == day)
    whole = (
        case((holds.open_tokens > 0, 1), else_=0),
        holds.used_tokens + holds.open_tokens,
        holds.used_usd + holds.open_usd,
    )
    held = _sums(
        *((~lost, each) for each in (holds.used_tokens, holds.used_usd, holds.open_tokens, holds.open_usd)),
        *((which, each) for which in (lost, lost_today) for each in whole),
    )
    others = holds.hold != bindparam("without", type_=String)
    left = select(*spent).where(spending.judge == judge).subquery("spent")
    right = select(*held).where(holds.judge == judge, others).subquery("held")
    return select(left, right).select_from(left.join(right, true()))


_STANDING: Final = _select_standing()


def _standing(values: list[float]) -> Standing:
    width = len(_COUNTED)
    total, today, held = values[:width], values[width : 2 * width], values[2 * width :]
    return Standing(
        total=_spending(total, held[4:7]),
        today=_spending(today, held[7:10]),
        used=Amount(int(held[0]), held[1]),
        open=Amount(int(held[2]), held[3]),
    )


def _spending(values: list[float], lost: list[float]) -> Spending:
    found = dict(zip(_COUNTED, values, strict=True))
    for name, more in zip(("unanswered_calls", "unanswered_tokens", "unanswered_usd"), lost, strict=True):
        found[name] += more
    whole = {name: value if name.endswith("_usd") else int(value) for name, value in found.items()}
    return Spending.model_validate(whole)


def _insert(table: Table, postgres: bool) -> Any:
    if postgres:
        from sqlalchemy.dialects import postgresql  # takes long to import

        return postgresql.insert(table)
    return sqlite.insert(table)


@cache
def _upsert(table: Table, key: tuple[str, ...], postgres: bool, *, adding: bool) -> Insert:
    into = _insert(table, postgres)
    changed = {
        column.name: column + into.excluded[column.name] if adding else into.excluded[column.name]
        for column in table.columns
        if column.name not in key
    }
    written: Insert = into.on_conflict_do_update(index_elements=list(key), set_=changed)
    return written
