"""Tables of run health: what is followed, anchors, readings, alarms, and versions of judges."""

from sqlalchemy import BigInteger, Column, Index, Integer, Text, text
from sqlmodel import Field

from app.store.table_records import TableRecord, build_partial_index, build_sequence_column, get_table


class RunHealthTable(TableRecord, table=True):
    """`state` is what a look leaves for the next one. `claim` names who looks until `claimed_until`."""

    __tablename__ = "run_health"
    run: str = Field(primary_key=True)
    state: str = Field(sa_type=Text)
    checked_sequence: int = Field(sa_type=BigInteger)
    """The run's newest group at the last look."""
    checked_at: int = Field(sa_type=BigInteger)
    claim: str
    claimed_until: int = Field(sa_type=BigInteger)


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


class JudgeVersionTable(TableRecord, table=True):
    """What a judge's server said answered, as JSON texts."""

    __tablename__ = "judge_versions"
    judge: str = Field(primary_key=True)
    model: str = Field(primary_key=True)
    system_fingerprint: str = Field(primary_key=True)
    first_at: int = Field(sa_type=BigInteger)


run_health = get_table(RunHealthTable)
run_anchors = get_table(RunAnchorTable)
health_readings = get_table(HealthReadingTable)
health_spending = get_table(HealthSpendingTable)
run_alarms = get_table(RunAlarmTable)
judge_versions = get_table(JudgeVersionTable)
