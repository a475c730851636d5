"""The store of run health: claims, anchors, readings, alarms."""

import secrets
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, and_, func, insert, or_, select, update

from app.domain.groups import Group
from app.domain.health_records import (
    HealthReading,
    HealthState,
    HealthTokens,
    JudgeVersion,
    advance_state,
)
from app.domain.judging import Judgement
from app.domain.run_health import GROUPS_PER_BUCKET, Alarm, Hold, SeriesCells
from app.domain.runs import Run
from app.ports.health import HealthClaim, RunHealthStore
from app.store.database import Database
from app.store.health_alarms import add_alarm, claim_notices, load_alarms, release_run
from app.store.health_anchors import add_anchors, find_anchors, find_unread_group, load_anchors
from app.store.health_cells import load_bucket_totals, load_cells, parse_reading
from app.store.health_tables import health_readings, health_spending, run_alarms, run_anchors, run_health
from app.store.health_versions import load_versions
from app.store.judge_tables import run_costs
from app.store.rows import decode, encode, encode_json
from app.store.run_costs import record_health_costs
from app.store.tables import groups, runs

MICROSECONDS: Final = 1_000_000
READINGS_KEPT: Final = 400
"""Newest anchor readings that a look compares with the first of each anchor."""


@dataclass(frozen=True)
class _DueRun:
    """`newest` is its newest group, `checked` what that was at the last look."""

    run: str
    newest: int
    checked: int


class SqlRunHealthStore(RunHealthStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, seconds: float, idle_seconds: float) -> HealthClaim | None:
        due = await self._database.read(lambda c: _find_due_run(c, self._database, idle_seconds))
        if due is None:
            return None
        return await self._database.write(lambda c: _claim_run(c, self._database, due, seconds), "run_health")

    async def renew(self, claim: HealthClaim, seconds: float) -> bool:
        return await self._database.write(lambda c: _renew_claim(c, self._database, claim, seconds), "run_health")

    async def advance(self, claim: HealthClaim) -> HealthState:
        return await self._database.read(lambda c: _advance(c, claim.run))

    async def finish(self, claim: HealthClaim, state: HealthState) -> None:
        values = {"state": encode(state), "claimed_until": 0}
        mine = and_(run_health.c.run == claim.run, run_health.c.claim == claim.token)
        await self._database.write(
            lambda c: c.execute(update(run_health).where(mine).values(values)).rowcount, "run_health"
        )

    async def get_state(self, run: str) -> HealthState:
        return await self._database.read(lambda c: _load_state(c, run))

    async def load_cells(self, run: str, state: HealthState) -> SeriesCells:
        return await self._database.read(lambda c: load_cells(c, run, state))

    async def freeze_anchors(self, run: str, count: int) -> tuple[Group, ...]:
        known = await self._database.read(lambda c: load_anchors(c, run))
        if len(known) >= count:
            return known
        chosen = await self._database.read(lambda c: find_anchors(c, run, count))
        if not chosen:
            return known
        return await self._database.write(lambda c: add_anchors(c, self._database, run, chosen), "run_health")

    async def count_anchors(self, run: str) -> int:
        mine = select(func.count()).select_from(run_anchors).where(run_anchors.c.run == run)
        return await self._database.read(lambda c: int(c.execute(mine).scalar_one()))

    async def find_shadow_group(self, run: str) -> Group | None:
        return await self._database.read(lambda c: find_unread_group(c, run))

    async def list_readings(self, run: str, after: int) -> list[HealthReading]:
        return await self._database.read(lambda c: _load_readings(c, run, after))

    async def add_reading(self, reading: HealthReading, judgements: Sequence[Judgement], hold: str) -> HealthReading:
        return await self._database.write(
            lambda c: _add_reading(c, self._database, reading, judgements, hold), "run_health"
        )

    async def get_tokens(self, run: str) -> HealthTokens:
        return await self._database.read(lambda c: _load_tokens(c, run))

    async def add_alarm(self, run: str, alarm: Alarm, hold: Hold | None) -> bool:
        return await self._database.write(lambda c: add_alarm(c, self._database, run, alarm, hold), "run_health")

    async def list_alarms(self, run: str, limit: int) -> list[Alarm]:
        return await self._database.read(lambda c: load_alarms(c, run, limit))

    async def count_alarms(self) -> dict[str, int]:
        standing = select(run_alarms.c.series, func.count()).where(run_alarms.c.released_at.is_(None))
        return await self._database.read(
            lambda c: {series: count for series, count in c.execute(standing.group_by(run_alarms.c.series))}
        )

    async def claim_notices(self, limit: int, seconds: float) -> list[tuple[str, Alarm, int]]:
        return await self._database.write(lambda c: claim_notices(c, self._database, limit, seconds), "run_health")

    async def settle_notice(self, alarm_id: str, retry_seconds: float | None) -> None:
        def settle(connection: Connection) -> None:
            now = self._database.read_lease_clock(connection)
            due = None if retry_seconds is None else now + int(retry_seconds * MICROSECONDS)
            connection.execute(update(run_alarms).where(run_alarms.c.alarm_id == alarm_id).values(send_at=due))

        await self._database.write(settle, "run_health")

    async def release(self, run: str) -> Run:
        return await self._database.write(lambda c: release_run(c, self._database, run), "run_health")

    async def list_versions(self, judges: Sequence[str]) -> list[JudgeVersion]:
        return await self._database.read(lambda c: load_versions(c, judges))


def _find_due_run(connection: Connection, database: Database, idle_seconds: float) -> _DueRun | None:
    """The one that was not looked at for the longest."""
    now = database.read_lease_clock(connection)
    newest = select(func.max(groups.c.sequence)).where(groups.c.run == runs.c.name).scalar_subquery()
    known, health = runs.outerjoin(run_health, run_health.c.run == runs.c.name), run_health.c
    idle = and_(newest > health.checked_sequence, health.checked_at < now - int(idle_seconds * MICROSECONDS))
    died = health.claimed_until > 0  # a look that ends sets it to 0
    due = or_(health.run.is_(None), newest >= health.checked_sequence + GROUPS_PER_BUCKET, idle, died)
    free = or_(health.run.is_(None), health.claimed_until < now)
    chosen = select(runs.c.name, newest.label("newest"), func.coalesce(health.checked_sequence, 0).label("checked"))
    found = chosen.select_from(known).where(newest.is_not(None), due, free).order_by(health.checked_at).limit(1)
    row = connection.execute(found).first()
    return None if row is None else _DueRun(row.name, int(row.newest), int(row.checked))


def _claim_run(connection: Connection, database: Database, due: _DueRun, seconds: float) -> HealthClaim | None:
    """None when another replica has been quicker."""
    now = database.read_lease_clock(connection)
    blank = {"run": due.run, "state": encode(HealthState()), "checked_sequence": 0, "checked_at": 0}
    connection.execute(database.insert_new(run_health), blank | {"claim": "", "claimed_until": 0})
    token = secrets.token_hex(8)
    values = {"claim": token, "claimed_until": now + int(seconds * MICROSECONDS)}
    values |= {"checked_sequence": due.newest, "checked_at": now}
    table = run_health.c
    free = and_(table.run == due.run, table.claimed_until < now, table.checked_sequence == due.checked)
    taken = connection.execute(update(run_health).where(free).values(values)).rowcount
    return HealthClaim(due.run, token) if taken else None


def _renew_claim(connection: Connection, database: Database, claim: HealthClaim, seconds: float) -> bool:
    until = database.read_lease_clock(connection) + int(seconds * MICROSECONDS)
    mine = and_(run_health.c.run == claim.run, run_health.c.claim == claim.token)
    return bool(connection.execute(update(run_health).where(mine).values(claimed_until=until)).rowcount)


def _load_state(connection: Connection, run: str) -> HealthState:
    body = connection.execute(select(run_health.c.state).where(run_health.c.run == run)).scalar()
    return HealthState() if body is None else decode(HealthState, body)


def _advance(connection: Connection, run: str) -> HealthState:
    state = _load_state(connection, run)
    return advance_state(state, load_bucket_totals(connection, run, state.marks[-1].first))


def _load_readings(connection: Connection, run: str, after: int) -> list[HealthReading]:
    """However many readings a run has, at most READINGS_KEPT and one for each anchor are read."""
    table = health_readings.c
    mine = (table.run == run, table.kind == "anchor", table.failed.is_(False), table.sequence > after)
    anchors = select(groups.c.group_id).join(run_anchors, run_anchors.c.group_sequence == groups.c.sequence)
    chosen = select(table.sequence, table.body).where(*mine)
    first = [
        chosen.where(table.group_id == anchor).order_by(table.sequence).limit(1)
        for anchor in connection.execute(anchors.where(run_anchors.c.run == run)).scalars()
    ]
    newest = chosen.order_by(table.sequence.desc()).limit(READINGS_KEPT)
    kept = {sequence: body for one in (*first, newest) for sequence, body in connection.execute(one)}
    return [parse_reading(body).model_copy(update={"sequence": sequence}) for sequence, body in sorted(kept.items())]


def _add_reading(
    connection: Connection, database: Database, reading: HealthReading, made: Sequence[Judgement], hold: str
) -> HealthReading:
    record_health_costs(connection, database, reading.run, reading.environment, made, hold)
    priced = [judgement.cost_usd for judgement in made if judgement.cost_usd is not None]
    row = {
        "reading_id": reading.reading_id,
        "run": reading.run,
        "group_id": reading.group_id,
        "kind": reading.kind,
        "at_group": reading.at_group,
        "failed": bool(reading.failed),
        "tokens": reading.tokens,
        "cost_usd": sum(priced) if priced else None,
        "body": encode(reading),
        "judgements": encode_json([judgement.model_dump(mode="json", exclude={"prompt"}) for judgement in made]),
        "created_at": database.read_clock(),
    }
    added = connection.execute(insert(health_readings).returning(health_readings.c.sequence), row).scalar_one()
    spent = {"run": reading.run, "kind": reading.kind}
    connection.execute(database.insert_new(health_spending), spent | {"readings": 0, "tokens": 0})
    here = and_(health_spending.c.run == reading.run, health_spending.c.kind == reading.kind)
    more = {
        "readings": health_spending.c.readings + int(not reading.failed),
        "tokens": health_spending.c.tokens + reading.tokens,
    }
    connection.execute(update(health_spending).where(here).values(more))
    return reading.model_copy(update={"sequence": added})


def _load_tokens(connection: Connection, run: str) -> HealthTokens:
    spent = (run_costs.c.input_tokens, run_costs.c.output_tokens, run_costs.c.unanswered_tokens)
    sums = select(*(func.coalesce(func.sum(each), 0) for each in (*spent, run_costs.c.groups)))
    *tokens, count = (int(value) for value in connection.execute(sums.where(run_costs.c.run == run)).one())
    known: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for row in connection.execute(select(health_spending).where(health_spending.c.run == run)).mappings():
        known[row["kind"]] = (int(row["readings"]), int(row["tokens"]))
    (anchors, anchor), (shadows, shadow) = known["anchor"], known["shadow"]
    return HealthTokens(
        run=sum(tokens) - anchor - shadow,
        groups=count,
        anchor=anchor,
        anchor_readings=anchors,
        shadow=shadow,
        shadow_readings=shadows,
    )
