"""Tables of what groups add up to, from which statistics are read."""

from sqlalchemy import BigInteger, Index, Text
from sqlmodel import Field

from app.store.table_records import TableRecord, get_table


class RollupTable(TableRecord, table=True):
    """Measures of the groups of one key. A new measure is a new name in `measures`, not a new column."""

    __tablename__ = "rollups"
    __table_args__ = (
        Index("ix_rollups_environment", "series", "environment", "run"),
        Index("ix_rollups_run", "series", "run", "environment", "bucket"),
    )
    digest: str = Field(primary_key=True)
    """Of the key, which is all columns but `measures`."""
    series: str
    environment: str
    run: str | None
    purpose: str
    step: int | None = Field(sa_type=BigInteger)
    label: str | None = Field(sa_type=Text)
    """JSON string: the label of tasks, or the name of a judge or data set in their series."""
    bucket: int | None = Field(sa_type=BigInteger)
    measures: str = Field(sa_type=Text)
    """JSON object: counts, and sums as lists, by name."""


class TaskRollupTable(TableRecord, table=True):
    """What a run's training groups of one task add up to, for histograms of pass rates."""

    __tablename__ = "task_rollups"
    __table_args__ = ({"sqlite_with_rowid": False},)
    run: str = Field(primary_key=True)
    environment: str = Field(primary_key=True)
    task_id: str = Field(primary_key=True)
    sums: str = Field(sa_type=Text)
    """JSON list: the sums of gate x absolute."""


class SealedRollupTable(TableRecord, table=True):
    """What pruned groups add up to: as `rollups`, which include it. A rebuild begins with it."""

    __tablename__ = "sealed_rollups"
    digest: str = Field(primary_key=True)
    series: str
    environment: str
    run: str | None
    purpose: str
    step: int | None = Field(sa_type=BigInteger)
    label: str | None = Field(sa_type=Text)
    bucket: int | None = Field(sa_type=BigInteger)
    measures: str = Field(sa_type=Text)


class SealedTaskRollupTable(TableRecord, table=True):
    """What pruned groups of a task add up to: as `task_rollups`, which include it."""

    __tablename__ = "sealed_task_rollups"
    __table_args__ = ({"sqlite_with_rowid": False},)
    run: str = Field(primary_key=True)
    environment: str = Field(primary_key=True)
    task_id: str = Field(primary_key=True)
    sums: str = Field(sa_type=Text)


class PrunedGroupTable(TableRecord, table=True):
    """Ids of groups that were pruned, so that a retry is not scored again."""

    __tablename__ = "pruned_groups"
    __table_args__ = ({"sqlite_with_rowid": False},)
    group_id: str = Field(primary_key=True)
    pruned_at: int = Field(sa_type=BigInteger)


rollups = get_table(RollupTable)
task_rollups = get_table(TaskRollupTable)
sealed_rollups = get_table(SealedRollupTable)
sealed_task_rollups = get_table(SealedTaskRollupTable)
pruned_groups = get_table(PrunedGroupTable)
