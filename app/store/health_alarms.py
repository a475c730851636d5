"""Alarms of runs: raised, told outside, released."""

from typing import Any, Final

from sqlalchemy import Connection, and_, select, update

from app.domain.run_health import Alarm, Hold
from app.domain.runs import Run
from app.store.database import Database
from app.store.health_tables import run_alarms
from app.store.rows import decode, encode, from_micros, to_micros
from app.store.run_store import change_run
from app.store.tables import runs

MICROSECONDS: Final = 1_000_000


def add_alarm(connection: Connection, database: Database, run: str, alarm: Alarm, hold: Hold | None) -> bool:
    row = {
        "alarm_id": alarm.alarm_id,
        "run": run,
        "series": alarm.series,
        "body": encode(alarm),
        "raised_at": to_micros(alarm.raised_at),
        "released_at": None,
        "send_at": database.read_lease_clock(connection),
        "attempts": 0,
    }
    if not connection.execute(database.insert_new(run_alarms).returning(run_alarms.c.sequence), row).first():
        return False
    if hold is not None:
        free = and_(runs.c.name == run, runs.c.held.is_(None))
        connection.execute(update(runs).where(free).values(held=encode(hold)))
    return True


def load_alarms(connection: Connection, run: str, limit: int) -> list[Alarm]:
    newest = select(run_alarms).where(run_alarms.c.run == run).order_by(run_alarms.c.sequence.desc()).limit(limit)
    return [_parse_alarm(row) for row in connection.execute(newest).mappings()]


def _parse_alarm(row: Any) -> Alarm:
    released = None if row["released_at"] is None else from_micros(row["released_at"])
    return decode(Alarm, row["body"]).model_copy(update={"released_at": released})


def claim_notices(
    connection: Connection, database: Database, limit: int, seconds: float
) -> list[tuple[str, Alarm, int]]:
    now = database.read_lease_clock(connection)
    due = select(run_alarms).where(run_alarms.c.send_at <= now).order_by(run_alarms.c.send_at).limit(limit)
    rows = connection.execute(due.with_for_update(skip_locked=True)).mappings().all()
    taken = run_alarms.c.sequence.in_([row["sequence"] for row in rows])
    values = {"send_at": now + int(seconds * MICROSECONDS), "attempts": run_alarms.c.attempts + 1}
    if rows:
        connection.execute(update(run_alarms).where(taken).values(values))
    return [(row["run"], _parse_alarm(row), row["attempts"]) for row in rows]


def release_run(connection: Connection, database: Database, run: str) -> Run:
    standing = and_(run_alarms.c.run == run, run_alarms.c.released_at.is_(None))
    connection.execute(update(run_alarms).where(standing).values(released_at=database.read_clock()))
    return change_run(connection, run, {"held": None})
