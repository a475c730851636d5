"""The store of run health: claims of runs, frozen anchors, readings, and alarms.

Whoever has the claim of a run looks after it, and what it finishes after losing it has no effect. Series are read from
the rollups that statistics keep anyway, so a look at a run does not read its groups.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    Row,
    Text,
    and_,
    case,
    exists,
    func,
    insert,
    or_,
    select,
    text,
    update,
)
from sqlmodel import Field

from app.domain.groups import Group
from app.domain.judging import Judgement, JudgeVersion
from app.domain.players import PLAYER_PURPOSE
from app.domain.rollups import GROUPS_PER_BUCKET, Rollup, RollupKey, add_up_rollups
from app.domain.runs import Alarm, Hold, Run, TrendName
from app.domain.values import MEBIBYTE, remember
from app.features.health.model import (
    HealthReading,
    HealthState,
    HealthTokens,
    PlayerUse,
    advance_state,
)
from app.features.health.series import LOGARITHMIC, Cell, SeriesCells
from app.store.budgets import record_health_costs
from app.store.claims import Claim, build_claim, release_claim, take_claim
from app.store.database import StorePart, reads, writes
from app.store.group_rows import has_text, load_groups
from app.store.judge_cache import load_versions
from app.store.retention import keep_groups
from app.store.runs import change_run
from app.store.statements import decode, decode_json, encode, encode_json, from_micros, to_micros
from app.store.table_records import TableRecord, build_partial_index, build_sequence_column, get_table
from app.store.tables import claims, groups, judgements, pins, rollups, runs, spending, tasks


class RunHealthTable(TableRecord, table=True):
    """`state` is what a look leaves for the next one."""

    __tablename__ = "run_health"
    run: str = Field(primary_key=True)
    state: str = Field(sa_type=Text)
    checked_sequence: int = Field(sa_type=BigInteger)
    """The run's newest group at the last look."""
    checked_at: int = Field(sa_type=BigInteger)


class RunAnchorTable(TableRecord, table=True):
    """A frozen group that is read again."""

    __tablename__ = "run_anchors"
    run: str = Field(primary_key=True)
    group_sequence: int = Field(primary_key=True, foreign_key="groups.sequence", sa_type=BigInteger)
    created_at: int = Field(sa_type=BigInteger)


class HealthReadingTable(TableRecord, table=True):
    """One reading of an anchor or of the shadow judge. `body` is the reading, `judgements` what was answered."""

    __tablename__ = "health_readings"
    __table_args__ = (
        Index("ix_health_readings_run", "run", "kind", "sequence"),
        Index("ix_health_readings_group", "run", "kind", "group_id", "sequence"),
    )
    sequence: int = Field(sa_column=build_sequence_column())
    reading_id: str = Field(unique=True)
    run: str
    group_id: str
    kind: str
    at_group: int = Field(sa_type=BigInteger)
    failed: bool
    tokens: int = Field(sa_type=BigInteger)
    cost_usd: float | None
    body: str = Field(sa_type=Text)
    judgements: str = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)


class HealthSpendingTable(TableRecord, table=True):
    """What readings of one kind took of a run's judge tokens."""

    __tablename__ = "health_spending"
    run: str = Field(primary_key=True)
    kind: str = Field(primary_key=True)
    readings: int = Field(sa_type=BigInteger)
    tokens: int = Field(sa_type=BigInteger)


class RunAlarmTable(TableRecord, table=True):
    """`send_at` is when the alarm is next told outside; null once it was, or was given up."""

    __tablename__ = "run_alarms"
    __table_args__ = (
        build_partial_index("ix_run_alarms_standing", "series", where="released_at IS NULL"),
        build_partial_index("ix_run_alarms_due", "send_at", where="send_at IS NOT NULL"),
    )
    sequence: int = Field(sa_column=build_sequence_column())
    alarm_id: str = Field(unique=True)
    run: str = Field(index=True)
    series: str
    body: str = Field(sa_type=Text)
    raised_at: int = Field(sa_type=BigInteger)
    released_at: int | None = Field(default=None, sa_type=BigInteger)
    send_at: int | None = Field(default=None, sa_type=BigInteger)
    attempts: int = Field(sa_column=Column(Integer(), nullable=False, server_default=text("0")))


run_health = get_table(RunHealthTable)
run_anchors = get_table(RunAnchorTable)
health_readings = get_table(HealthReadingTable)
health_spending = get_table(HealthSpendingTable)
run_alarms = get_table(RunAlarmTable)
READINGS_KEPT: Final = 400
"""Newest anchor readings that a look compares with the first of each anchor."""
_MICROSECONDS: Final = 1_000_000
_ORDER: Final = "run_health"
_CLAIMED: Final = "run_health"
"""The kind of claim of who looks after a run."""


@dataclass(frozen=True)
class _DueRun:
    """`newest` is its newest group, `checked` what that was at the last look."""

    run: str
    newest: int
    checked: int


class RunHealthStore(StorePart):
    async def claim(self, seconds: float, idle_seconds: float) -> Claim | None:
        """A run with new groups that nobody looks after, for so long. Fewer than a bucket of new groups wait for
        `idle_seconds`."""
        due = await self._find_due_run(idle_seconds)
        return None if due is None else await self._claim_run(due, seconds)

    @reads
    def _find_due_run(self, connection: Connection, idle_seconds: float) -> _DueRun | None:
        """The one that was not looked at for the longest."""
        now = self.database.read_lease_clock(connection)
        newest = select(func.max(groups.c.sequence)).where(groups.c.run == runs.c.name).scalar_subquery()
        of_run = and_(claims.c.kind == _CLAIMED, claims.c.name == runs.c.name)
        joined = runs.outerjoin(run_health, run_health.c.run == runs.c.name).outerjoin(claims, of_run)
        health, until = run_health.c, func.coalesce(claims.c.until, 0)
        idle = and_(newest > health.checked_sequence, health.checked_at < now - int(idle_seconds * _MICROSECONDS))
        died = until > 0  # a look that ends releases its claim
        due = or_(health.run.is_(None), newest >= health.checked_sequence + GROUPS_PER_BUCKET, idle, died)
        chosen = select(runs.c.name, newest.label("newest"), func.coalesce(health.checked_sequence, 0).label("checked"))
        longest = (
            chosen.select_from(joined)
            .where(newest.is_not(None), due, until <= now)
            .order_by(health.checked_at)
            .limit(1)
        )
        row = connection.execute(longest).first()
        return None if row is None else _DueRun(row.name, int(row.newest), int(row.checked))

    @writes(_ORDER)
    def _claim_run(self, connection: Connection, due: _DueRun, seconds: float) -> Claim | None:
        """None when another replica has been quicker."""
        claim = build_claim(_CLAIMED, due.run)
        if not take_claim(connection, self.database, claim, seconds):
            return None
        blank = {"run": due.run, "state": encode(HealthState()), "checked_sequence": 0, "checked_at": 0}
        connection.execute(self.database.insert_new(run_health), blank)
        values = {"checked_sequence": due.newest, "checked_at": self.database.read_lease_clock(connection)}
        as_found = and_(run_health.c.run == due.run, run_health.c.checked_sequence == due.checked)
        if connection.execute(update(run_health).where(as_found).values(values)).rowcount:
            return claim
        release_claim(connection, self.database, claim)
        return None

    @reads
    def advance(self, connection: Connection, claim: Claim) -> HealthState:
        """Counts the run's groups that came since."""
        state = _load_state(connection, claim.name)
        return advance_state(state, _load_bucket_totals(connection, claim.name, state.marks[-1].first))

    @writes(_ORDER)
    def finish(self, connection: Connection, claim: Claim, state: HealthState) -> None:
        """Stores the state and gives up the claim. Without effect when somebody else has it."""
        if release_claim(connection, self.database, claim):
            mine = run_health.c.run == claim.name
            connection.execute(update(run_health).where(mine).values(state=encode(state)))

    @reads
    def get_state(self, connection: Connection, run: str) -> HealthState:
        return _load_state(connection, run)

    @reads
    def load_cells(self, connection: Connection, run: str, state: HealthState) -> SeriesCells:
        """Of the full buckets that the state still has, a stratum for each environment and label."""
        cells: defaultdict[TrendName, list[Cell]] = defaultdict(list)
        first, last = state.marks[0].first, state.marks[-1].first - 1
        for row in _load_rows(connection, run, first, last):
            measured, bucket = _parse_measures(row.measures), state.place_bucket(row.bucket)
            stratum = f"{row.environment} {row.label}"
            for name, value in measured.values:
                cells[name].append(Cell(bucket, stratum, measured.groups, measured.groups * value))
        cells["shadow_distance"] = _load_shadow_cells(connection, run, state)
        return cells

    @reads
    def load_counts(self, connection: Connection, run: str, groups: int, *, newest: bool = False) -> Rollup:
        """What about so many first, or `newest`, training groups add up to: whole buckets, fewer where there are no
        more."""
        return _load_counts(connection, run, groups, newest=newest)

    @reads
    def load_player_use(self, connection: Connection, run: str, newest: int) -> PlayerUse | None:
        """Of so many newest groups of a run those with players that models play. Answers that another group has paid
        for count there."""
        return _load_player_use(connection, run, newest)

    async def freeze_anchors(self, run: str, count: int) -> tuple[Group, ...]:
        """The run's anchors: its first judged groups, at most a third of them of one label."""
        frozen = await self._load_anchors(run)
        if len(frozen) >= count:
            return frozen
        chosen = await self._find_anchors(run, count)
        return await self._add_anchors(run, chosen) if chosen else frozen

    @reads
    def _load_anchors(self, connection: Connection, run: str) -> tuple[Group, ...]:
        return _load_anchors(connection, run)

    @reads
    def _find_anchors(self, connection: Connection, run: str, count: int) -> list[int]:
        """The sequences of groups that become anchors beside those that are frozen. Only groups that judges read, of
        which most replies passed the gates: the others tell nothing about a judge."""
        table = groups.c
        read = select(judgements.c.sequence).where(
            judgements.c.group_sequence == table.sequence, judgements.c.scoring_sequence.is_(None)
        )
        early = select(table.sequence).where(table.run == run).order_by(table.sequence).limit(_GROUPS_LOOKED_AT)
        first = (
            select(table.sequence, table.environment, tasks.c.label)
            .join(tasks, tasks.c.task_id == table.task_id)
            .where(table.sequence.in_(early), table.purpose == "train", table.outcome == "scored", read.exists())
            .where(table.size > 1, table.absolute_sum > 0, has_text())
            .order_by(table.sequence)
            .limit(_FIRST_GROUPS)
        )
        frozen = set(connection.execute(select(run_anchors.c.group_sequence).where(run_anchors.c.run == run)).scalars())
        candidates = [(sequence, (environment, label)) for sequence, environment, label in connection.execute(first)]
        return _choose_anchors(candidates, frozen, count)

    @writes(_ORDER)
    def _add_anchors(self, connection: Connection, run: str, chosen: Sequence[int]) -> tuple[Group, ...]:
        """All that the run has then. Retention may have taken a group's texts since it was chosen."""
        still = select(groups.c.sequence).where(groups.c.sequence.in_(chosen), has_text()).with_for_update()
        for sequence in sorted(connection.execute(still).scalars()):
            row = {"run": run, "group_sequence": sequence, "created_at": self.database.read_clock()}
            connection.execute(self.database.insert_new(run_anchors), row)
        return _load_anchors(connection, run)

    @reads
    def count_anchors(self, connection: Connection, run: str) -> int:
        mine = select(func.count()).select_from(run_anchors).where(run_anchors.c.run == run)
        return connection.execute(mine).scalar_one()

    @reads
    def find_shadow_group(self, connection: Connection, run: str) -> Group | None:
        """The newest scored group that no shadow judge has read."""
        read = select(health_readings.c.sequence).where(
            health_readings.c.run == run, health_readings.c.group_id == groups.c.group_id
        )
        newest = (
            select(groups.c.sequence)
            .where(groups.c.run == run, groups.c.purpose == "train", groups.c.outcome == "scored")
            .where(groups.c.absolute_sum > 0, has_text(), ~read.where(health_readings.c.kind == "shadow").exists())
            .order_by(groups.c.sequence.desc())
            .limit(1)
        )
        (group, *_) = load_groups(connection, groups.c.sequence.in_(newest)) or (None,)
        return group

    @reads
    def list_readings(self, connection: Connection, run: str, after: int) -> list[HealthReading]:
        """Anchor readings after this sequence, oldest first: the first of each anchor, and the READINGS_KEPT newest."""
        table = health_readings.c
        mine = (table.run == run, table.kind == "anchor", table.failed.is_(False), table.sequence > after)
        anchors = select(groups.c.group_id).join(run_anchors, run_anchors.c.group_sequence == groups.c.sequence)
        chosen = select(table.sequence, table.body).where(*mine)
        first = [
            chosen.where(table.group_id == anchor).order_by(table.sequence).limit(1)
            for anchor in connection.execute(anchors.where(run_anchors.c.run == run)).scalars()
        ]
        newest = chosen.order_by(table.sequence.desc()).limit(READINGS_KEPT)
        bodies = {sequence: body for one in (*first, newest) for sequence, body in connection.execute(one)}
        readings = {sequence: _parse_reading(body) for sequence, body in sorted(bodies.items())}
        return [one.model_copy(update={"sequence": sequence}) for sequence, one in readings.items()]

    @writes(_ORDER)
    def add_reading(
        self, connection: Connection, reading: HealthReading, judgements: Sequence[Judgement], hold: str
    ) -> HealthReading:
        """Also adds its cost to the run's, and frees what was reserved under `hold`."""
        record_health_costs(connection, self.database, reading.run, reading.environment, judgements, hold)
        priced = [one.cost_usd for one in judgements if one.cost_usd is not None]
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
            "judgements": encode_json([one.model_dump(mode="json", exclude={"prompt"}) for one in judgements]),
            "created_at": self.database.read_clock(),
        }
        added = connection.execute(insert(health_readings).returning(health_readings.c.sequence), row).scalar_one()
        spent = {"run": reading.run, "kind": reading.kind}
        connection.execute(self.database.insert_new(health_spending), spent | {"readings": 0, "tokens": 0})
        here = and_(health_spending.c.run == reading.run, health_spending.c.kind == reading.kind)
        more = {
            "readings": health_spending.c.readings + int(not reading.failed),
            "tokens": health_spending.c.tokens + reading.tokens,
        }
        connection.execute(update(health_spending).where(here).values(more))
        return reading.model_copy(update={"sequence": added})

    @reads
    def get_tokens(self, connection: Connection, run: str) -> HealthTokens:
        spent = (spending.c.input_tokens, spending.c.output_tokens, spending.c.unanswered_tokens)
        sums = select(*(func.coalesce(func.sum(each), 0) for each in (*spent, spending.c.groups)))
        *tokens, count = (
            int(value)
            for value in connection.execute(sums.where(spending.c.kind == "run", spending.c.account == run)).one()
        )
        by_kind: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for row in connection.execute(select(health_spending).where(health_spending.c.run == run)).mappings():
            by_kind[row["kind"]] = (int(row["readings"]), int(row["tokens"]))
        (anchors, anchor), (shadows, shadow) = by_kind["anchor"], by_kind["shadow"]
        # The run's costs include those of its health.
        return HealthTokens(
            run=sum(tokens) - anchor - shadow,
            groups=count,
            anchor=anchor,
            anchor_readings=anchors,
            shadow=shadow,
            shadow_readings=shadows,
        )

    @writes(_ORDER)
    def add_alarm(self, connection: Connection, run: str, alarm: Alarm, hold: Hold | None) -> bool:
        """False when it is known. With `hold` the run is held, unless it is already."""
        row = {
            "alarm_id": alarm.alarm_id,
            "run": run,
            "series": alarm.series,
            "body": encode(alarm),
            "raised_at": to_micros(alarm.raised_at),
            "released_at": None,
            "send_at": self.database.read_lease_clock(connection),
            "attempts": 0,
        }
        if not connection.execute(self.database.insert_new(run_alarms).returning(run_alarms.c.sequence), row).first():
            return False
        if hold is not None:
            free = and_(runs.c.name == run, runs.c.held.is_(None))
            connection.execute(update(runs).where(free).values(held=encode(hold)))
        return True

    @reads
    def list_alarms(self, connection: Connection, run: str, limit: int) -> list[Alarm]:
        """Newest first."""
        newest = select(run_alarms).where(run_alarms.c.run == run).order_by(run_alarms.c.sequence.desc()).limit(limit)
        return [_parse_alarm(row) for row in connection.execute(newest).mappings()]

    @reads
    def count_alarms(self, connection: Connection) -> dict[str, int]:
        """Alarms that stand, over all runs, by series."""
        standing = select(run_alarms.c.series, func.count()).where(run_alarms.c.released_at.is_(None))
        return {series: count for series, count in connection.execute(standing.group_by(run_alarms.c.series))}

    @writes(_ORDER)
    def claim_notices(self, connection: Connection, limit: int, seconds: float) -> list[tuple[str, Alarm, int]]:
        """Alarms that are due to be sent, with their run and the attempts so far. Nobody else gets them for so long."""
        now = self.database.read_lease_clock(connection)
        due = select(run_alarms).where(run_alarms.c.send_at <= now).order_by(run_alarms.c.send_at).limit(limit)
        rows = connection.execute(due.with_for_update(skip_locked=True)).mappings().all()
        taken = run_alarms.c.sequence.in_([row["sequence"] for row in rows])
        values = {"send_at": now + int(seconds * _MICROSECONDS), "attempts": run_alarms.c.attempts + 1}
        if rows:
            connection.execute(update(run_alarms).where(taken).values(values))
        return [(row["run"], _parse_alarm(row), row["attempts"]) for row in rows]

    @writes(_ORDER)
    def settle_notice(self, connection: Connection, alarm_id: str, retry_seconds: float | None) -> None:
        """Sent, or given up; or to be tried again after so long."""
        now = self.database.read_lease_clock(connection)
        due = None if retry_seconds is None else now + int(retry_seconds * _MICROSECONDS)
        connection.execute(update(run_alarms).where(run_alarms.c.alarm_id == alarm_id).values(send_at=due))

    @writes(_ORDER)
    def release(self, connection: Connection, run: str) -> Run:
        """Ends the hold and releases all alarms that stand. NotFound when there is no such run."""
        standing = and_(run_alarms.c.run == run, run_alarms.c.released_at.is_(None))
        connection.execute(update(run_alarms).where(standing).values(released_at=self.database.read_clock()))
        return change_run(connection, run, {"held": None})

    @reads
    def list_versions(self, connection: Connection, judges: Sequence[str]) -> list[JudgeVersion]:
        """Oldest first."""
        return load_versions(connection, judges)


def _load_state(connection: Connection, run: str) -> HealthState:
    body = connection.execute(select(run_health.c.state).where(run_health.c.run == run)).scalar()
    return HealthState() if body is None else decode(HealthState, body)


def _parse_alarm(row: Any) -> Alarm:
    released = None if row["released_at"] is None else from_micros(row["released_at"])
    return decode(Alarm, row["body"]).model_copy(update={"released_at": released})


# Series, read from rollups and from readings of the shadow judge.

_BUCKETS_AT_ONCE: Final = 20_000
_SHADOWS_READ: Final = 1_200
"""Newest readings of the shadow judge: a window of buckets has no more groups."""
_MEASURED_BUCKETS: Final = 8_192
"""Kept parsed, since each look at a run's health needs all of its window, and few of them change."""
_MEANS: Final[dict[TrendName, str]] = {
    "length": "length",
    "absolute": "absolute",
    "escalated": "readings",
    "calibration": "calibration_gap",
}
_SHARES: Final[dict[TrendName, tuple[str, str]]] = {
    "gated": ("gated", "scored"),
    "capped": ("capped", "scored"),
    "saturated": ("saturated", "scored"),
    "duplicates": ("duplicates", "rollouts"),
    "low_signal": ("low_signal", "groups"),
}
_UNFLAGGED: Final = frozenset(("flag:low_signal", "flag:offline_judge"))
"""Flags that say something about a group or a setting, not about a reply."""


def _load_bucket_totals(connection: Connection, run: str, first: int) -> list[tuple[int, int]]:
    """How many training groups of the run each of the store's buckets has, for those that will get no more groups."""
    newest = connection.execute(select(func.max(groups.c.sequence))).scalar() or 0
    last = newest // GROUPS_PER_BUCKET - 1
    totals: defaultdict[int, int] = defaultdict(int)
    for row in _load_rows(connection, run, first, last, _BUCKETS_AT_ONCE):
        totals[row.bucket] += _parse_measures(row.measures).groups
    return sorted(totals.items())


def _load_rows(
    connection: Connection,
    run: str,
    first: int = 0,
    last: int | None = None,
    limit: int | None = None,
    *,
    newest: bool = False,
) -> Sequence[Row[str, str | None, int, str]]:
    table = rollups.c
    environments = select(pins.c.environment).where(pins.c.run == run)
    chosen = (
        select(table.environment, table.label, table.bucket, table.measures)
        .where(table.series == "bucket", table.run == run, table.environment.in_(environments))
        .where(table.bucket >= first, table.purpose == "train")
        .order_by(table.bucket.desc() if newest else table.bucket)
        .limit(limit)
    )
    return connection.execute(chosen if last is None else chosen.where(table.bucket <= last)).all()


def _load_counts(connection: Connection, run: str, groups: int, *, newest: bool) -> Rollup:
    parts: list[Rollup] = []
    counted = 0
    for row in _load_rows(connection, run, limit=groups, newest=newest):  # each has a group or more
        if counted >= groups:
            break
        parts.append(_parse_rollup(row.measures))
        counted += parts[-1].count("groups")
    return add_up_rollups(parts) if parts else Rollup(_BUCKET)


def _load_player_use(connection: Connection, run: str, newest: int) -> PlayerUse | None:
    late = (
        select(groups.c.sequence)
        .where(groups.c.run == run, groups.c.purpose == "train")
        .order_by(groups.c.sequence.desc())
        .limit(newest)
        .subquery()
    )
    made = judgements.c
    counts = select(
        func.count(made.group_sequence.distinct()),
        func.count(),
        func.coalesce(func.sum(case((made.failed, 1), else_=0)), 0),
        func.coalesce(func.sum(made.calls), 0),
        func.coalesce(func.sum(made.latency_seconds), 0.0),
    ).join(late, late.c.sequence == made.group_sequence)
    played = counts.where(made.purpose == PLAYER_PURPOSE, made.calls > 0, made.scoring_sequence.is_(None))
    with_players, answers, discarded, calls, seconds = connection.execute(played).one()
    if not answers:
        return None
    return PlayerUse(groups=with_players, answers=answers, discarded=discarded, calls=calls, seconds=seconds)


@dataclass(frozen=True)
class _MeasuredBucket:
    groups: int
    values: tuple[tuple[TrendName, float], ...]


@remember(4 * MEBIBYTE)
def _parse_measures(text: str) -> _MeasuredBucket:
    rollup = _parse_rollup(text)
    return _MeasuredBucket(rollup.count("groups"), tuple(_measure(rollup).items()))


_BUCKET: Final = RollupKey("bucket", "", None, "train")


def _parse_rollup(measures: str) -> Rollup:
    parsed = decode_json(measures)
    return Rollup(_BUCKET, parsed if isinstance(parsed, dict) else {})  # type: ignore[arg-type]  # as it was written


def _measure(rollup: Rollup) -> dict[TrendName, float]:
    figures: dict[TrendName, float | None] = {name: rollup.mean(measure) for name, measure in _MEANS.items()}
    figures |= {name: rollup.share(*of) for name, of in _SHARES.items()}
    if rollouts := rollup.count("rollouts"):
        flags = [flag for flag in rollup.list_names("flag:") if flag not in _UNFLAGGED]
        figures["flagged"] = sum(rollup.count(flag) for flag in flags) / rollouts
    return {
        name: math.log(max(value, 1e-9)) if name in LOGARITHMIC else value
        for name, value in figures.items()
        if value is not None and (value > 0 or name not in LOGARITHMIC)
    }


@remember(4 * MEBIBYTE)
def _parse_reading(body: str) -> HealthReading:
    """Kept, since readings never change and each look at a run's health needs hundreds."""
    return decode(HealthReading, body)


def _load_shadow_cells(connection: Connection, run: str, state: HealthState) -> list[Cell]:
    table = health_readings.c
    since = state.marks[0].groups
    mine = select(table.body).where(table.run == run, table.kind == "shadow")
    newest = connection.execute(mine.order_by(table.sequence.desc()).limit(_SHADOWS_READ)).scalars()
    readings = [_parse_reading(body) for body in newest][::-1]
    cells = (
        Cell(bucket, f"{reading.environment} {reading.label}", 1, reading.distance)
        for reading in readings
        if reading.distance is not None
        and reading.at_group >= since
        and (bucket := state.find_bucket(reading.at_group)) <= state.newest
    )
    return sorted(cells, key=attrgetter("bucket"))  # a shadow judge may answer out of turn


# Anchors.

_FIRST_GROUPS: Final = 64
"""Among so many of a run's first groups its anchors are chosen."""
_GROUPS_LOOKED_AT: Final = 2_000
"""Where judges read so few groups, a run has fewer anchors, and no look reads the whole run for them."""
_MOST_OF_ONE_LABEL: Final = 3


def _load_anchors(connection: Connection, run: str) -> tuple[Group, ...]:
    chosen = select(run_anchors.c.group_sequence).where(run_anchors.c.run == run)
    return tuple(load_groups(connection, groups.c.sequence.in_(chosen)))


def _choose_anchors(
    candidates: Sequence[tuple[int, tuple[str, str | None]]], frozen: Set[int], count: int
) -> list[int]:
    """A few of each label at first; any once the first groups are all there."""
    chosen: list[int] = []
    labels = Counter(stratum for sequence, stratum in candidates if sequence in frozen)
    most = count if len(candidates) == _FIRST_GROUPS else _MOST_OF_ONE_LABEL
    for sequence, stratum in candidates:
        fits = stratum[1] is None or labels[stratum] < most
        if sequence not in frozen and fits and len(frozen) + len(chosen) < count:
            chosen.append(sequence)
            labels[stratum] += 1
    return chosen


_IS_ANCHOR: Final = exists().where(run_anchors.c.group_sequence == groups.c.sequence, run_anchors.c.run == groups.c.run)
"""Of a group, which so is not pruned."""
keep_groups("anchor", _IS_ANCHOR)
