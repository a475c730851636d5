"""Tables of judgements: those of groups, the cache, and what judges cost."""

from sqlalchemy import BigInteger, Column, Float, LargeBinary, Text, text
from sqlmodel import Field

from app.store.table_records import TableRecord, build_partial_index, build_sequence_column, get_table


def _build_counter_column(name: str) -> "Column[int]":
    """A counter column that was added later; older rows have 0."""
    return Column(name, BigInteger(), nullable=False, server_default=text("0"))


class JudgementTable(TableRecord, table=True):
    """`answer` is the judgement without its prompt, which is in `prompts`. `scoring_sequence` is null for judgements of
    the group's own scores."""

    __tablename__ = "judgements"
    __table_args__ = (
        build_partial_index("ix_judgements_reading", "reading", where="reading IS NOT NULL"),
        build_partial_index("ix_judgements_prompt", "prompt_digest", where="prompt_digest IS NOT NULL"),
        build_partial_index("ix_judgements_scoring", "scoring_sequence", where="scoring_sequence IS NOT NULL"),
    )
    sequence: int = Field(sa_column=build_sequence_column())
    group_sequence: int = Field(foreign_key="groups.sequence", sa_type=BigInteger, index=True)
    judge: str
    failed: bool
    prompt_digest: str | None = Field(foreign_key="prompts.digest")
    answer: str = Field(sa_type=Text)
    input_tokens: int
    output_tokens: int
    calls: int
    cost_usd: float | None
    latency_seconds: float
    created_at: int = Field(sa_type=BigInteger)
    scoring_sequence: int | None = Field(default=None, foreign_key="scorings.sequence", sa_type=BigInteger)
    reading: str | None = None
    """Digest of the request, as in `judge_cache`."""
    purpose: str | None = None
    """What it was for, if not for a score."""
    reduced: str | None = Field(default=None, sa_type=Text)
    """What stands for a prompt and an answer that are not kept."""
    packed: bytes | None = Field(default=None, sa_type=LargeBinary)


class JudgeCacheTable(TableRecord, table=True):
    """Usable judgements by request digest. `body` leaves out the prompt, which the caller knows."""

    __tablename__ = "judge_cache"
    reading: str = Field(primary_key=True)
    judge: str
    body: str = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger, index=True)


class JudgeSpendingTable(TableRecord, table=True):
    """Spending per judge and UTC day (days since 1970), including failed judgements."""

    __tablename__ = "judge_spending"
    judge: str = Field(primary_key=True)
    day: int = Field(primary_key=True)
    readings: int = Field(sa_type=BigInteger)
    calls: int = Field(sa_type=BigInteger)
    input_tokens: int = Field(sa_type=BigInteger)
    output_tokens: int = Field(sa_type=BigInteger)
    cached_input_tokens: int = Field(sa_column=_build_counter_column("cached_input_tokens"))
    reasoning_tokens: int = Field(sa_column=_build_counter_column("reasoning_tokens"))
    cost_usd: float
    unanswered_calls: int = Field(sa_column=_build_counter_column("unanswered_calls"))
    unanswered_tokens: int = Field(sa_column=_build_counter_column("unanswered_tokens"))
    unanswered_usd: float = Field(sa_column=Column(Float(), nullable=False, server_default=text("0")))


class JudgeHoldTable(TableRecord, table=True):
    """Budget reservations of judgements in progress. An expired one belongs to a dead process; it stays, since its call
    may have been charged."""

    __tablename__ = "judge_holds"
    hold: str = Field(primary_key=True)
    judge: str = Field(index=True)
    day: int
    used_tokens: int = Field(sa_type=BigInteger)
    used_usd: float
    open_tokens: int = Field(sa_type=BigInteger)
    open_usd: float
    until: int = Field(sa_type=BigInteger)


class JudgeLimitsTable(TableRecord, table=True):
    """What all processes share about one judge's limits, as one value that each exchange replaces."""

    __tablename__ = "judge_limits"
    judge: str = Field(primary_key=True)
    body: str = Field(sa_type=Text)


class ReferenceTable(TableRecord, table=True):
    """The replies of known level that a judge made for a scene, as JSON. They never change."""

    __tablename__ = "calibration_references"
    scene: str = Field(primary_key=True)
    body: str = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)


class RunCostTable(TableRecord, table=True):
    """What the judgements of a run's groups cost, by environment and hour since 1970, re-scorings included."""

    __tablename__ = "run_costs"
    run: str = Field(primary_key=True)
    environment: str = Field(primary_key=True)
    hour: int = Field(primary_key=True, sa_type=BigInteger)
    groups: int = Field(sa_type=BigInteger)
    readings: int = Field(sa_type=BigInteger)
    calls: int = Field(sa_type=BigInteger)
    unpriced_calls: int = Field(sa_type=BigInteger)
    input_tokens: int = Field(sa_type=BigInteger)
    output_tokens: int = Field(sa_type=BigInteger)
    cached_input_tokens: int = Field(sa_type=BigInteger)
    reasoning_tokens: int = Field(sa_type=BigInteger)
    cost_usd: float
    unanswered_calls: int = Field(sa_type=BigInteger)
    unanswered_tokens: int = Field(sa_type=BigInteger)
    unanswered_usd: float
    first_at: int = Field(sa_type=BigInteger)
    last_at: int = Field(sa_type=BigInteger)


class RunHoldTable(TableRecord, table=True):
    """What is reserved from a run's budget for a group that is being judged, or what it cost once that is `settled`,
    until its judgements are stored. An expired one counts no more."""

    __tablename__ = "run_holds"
    group_id: str = Field(primary_key=True)
    run: str = Field(index=True)
    usd: float
    settled: bool
    until: int = Field(sa_type=BigInteger)
    holder: str | None
    """The process that judges the group; null where the system does not tell it from others."""


judgements = get_table(JudgementTable)
judge_cache = get_table(JudgeCacheTable)
judge_spending = get_table(JudgeSpendingTable)
judge_holds = get_table(JudgeHoldTable)
judge_limits = get_table(JudgeLimitsTable)
calibration_references = get_table(ReferenceTable)
run_costs = get_table(RunCostTable)
run_holds = get_table(RunHoldTable)
