"""Tables of what is left of pruned groups, and of whose turn it is to prune."""

from sqlalchemy import BigInteger, Text
from sqlmodel import Field

from app.store.table_records import TableRecord, get_table


class PrunedGroupTable(TableRecord, table=True):
    """Groups that were pruned: who asks for one is told so, and none of them is scored again."""

    __tablename__ = "pruned_groups"
    __table_args__ = ({"sqlite_with_rowid": False},)
    group_id: str = Field(primary_key=True)
    pruned_at: int = Field(sa_type=BigInteger)


class SealedRollupTable(TableRecord, table=True):
    """What pruned groups added to the rollup of this digest, with the same columns."""

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
    """What a run's pruned training groups of one task added to its sums."""

    __tablename__ = "sealed_task_rollups"
    __table_args__ = ({"sqlite_with_rowid": False},)
    run: str = Field(primary_key=True)
    environment: str = Field(primary_key=True)
    task_id: str = Field(primary_key=True)
    sums: str = Field(sa_type=Text)


class JobTurnTable(TableRecord, table=True):
    """Work that one replica does at a time, every so often. `holder` has it until `held_until`."""

    __tablename__ = "job_turns"
    job: str = Field(primary_key=True)
    holder: str
    held_until: int = Field(sa_type=BigInteger)
    ended_at: int = Field(sa_type=BigInteger)
    """When it was last done to its end."""


pruned_groups = get_table(PrunedGroupTable)
sealed_rollups = get_table(SealedRollupTable)
sealed_task_rollups = get_table(SealedTaskRollupTable)
job_turns = get_table(JobTurnTable)
