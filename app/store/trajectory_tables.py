"""Tables of the queue between external environments and trainers."""

from sqlalchemy import BigInteger, Index, LargeBinary, Text
from sqlmodel import Field

from app.store.table_records import TableRecord, build_partial_index, build_sequence_column, get_table


class TrajectoryRunTable(TableRecord, table=True):
    """`batches` counts formed batches; the trainer's step is `step_before` plus that. `turns` is a JSON object."""

    __tablename__ = "trajectory_runs"
    run: str = Field(primary_key=True)
    registration: str | None = Field(default=None, sa_type=Text)
    started: bool
    batches: int = Field(sa_type=BigInteger)
    step_before: int = Field(sa_type=BigInteger)
    turns: str = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)


class EnvClientTable(TableRecord, table=True):
    """A registered environment of a run. `said` is its registration as JSON."""

    __tablename__ = "trajectory_feeders"
    run: str = Field(primary_key=True)
    env_id: int = Field(primary_key=True, sa_type=BigInteger)
    name: str = Field(sa_type=Text)
    said: str = Field(sa_type=Text)
    connected: bool
    seen_at: int = Field(sa_type=BigInteger)


class TrajectoryBodyTable(TableRecord, table=True):
    """A compressed group. After delivery the body is deleted; the row stays for a while to recognise duplicates."""

    __tablename__ = "trajectory_bodies"
    __table_args__ = (
        Index("ix_trajectory_bodies_digest", "run", "digest", "created_at"),
        build_partial_index("ix_trajectory_bodies_kept", "run", "body_id", where="body IS NOT NULL"),
        build_partial_index("ix_trajectory_bodies_spent", "run", "created_at", where="body IS NULL"),
        {"sqlite_autoincrement": True},
    )
    body_id: int = Field(sa_column=build_sequence_column("body_id"))
    run: str
    digest: str
    created_at: int = Field(sa_type=BigInteger)
    body: bytes | None = Field(default=None, sa_type=LargeBinary)


class TrajectoryGroupTable(TableRecord, table=True):
    """Sequences `first` to `first + size` of a body, queued or in a batch. Rows are small, since they are counted
    often."""

    __tablename__ = "trajectory_groups"
    __table_args__ = (
        build_partial_index(
            "ix_trajectory_groups_line", "run", "env_id", "size", "sequence", "passed", "whole", where="batch IS NULL"
        ),
        build_partial_index("ix_trajectory_groups_batch", "run", "batch", "place", where="batch IS NOT NULL"),
        Index("ix_trajectory_groups_body", "body_id"),
        {"sqlite_autoincrement": True},
    )
    sequence: int = Field(sa_column=build_sequence_column("sequence"))
    run: str
    env_id: int | None = Field(default=None, sa_type=BigInteger)
    body_id: int = Field(sa_type=BigInteger)
    first: int
    size: int
    whole: bool
    passed: int
    batch: int | None = Field(default=None, sa_type=BigInteger)
    place: int | None = None
    step: int | None = Field(default=None, sa_type=BigInteger)
    """The trainer's step when the group was posted; null before one had registered."""


class TrajectoryBatchTable(TableRecord, table=True):
    """A batch that was handed out and is not confirmed. `holder` identifies the process that handed it out,
    or says that it was sent."""

    __tablename__ = "trajectory_batches"
    run: str = Field(primary_key=True)
    number: int = Field(primary_key=True, sa_type=BigInteger)
    holder: str
    handed_at: int = Field(sa_type=BigInteger)


trajectory_runs = get_table(TrajectoryRunTable)
env_clients = get_table(EnvClientTable)
bodies = get_table(TrajectoryBodyTable)
trajectory_groups = get_table(TrajectoryGroupTable)
batches = get_table(TrajectoryBatchTable)
