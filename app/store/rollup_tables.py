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


rollups = get_table(RollupTable)
task_rollups = get_table(TaskRollupTable)
