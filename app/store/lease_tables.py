"""Tables of streams and leases."""

from sqlalchemy import BigInteger, ForeignKeyConstraint, Text
from sqlmodel import Field

import app.store.event_tables  # so that whoever has these tables has all
import app.store.health_tables
import app.store.judge_tables
import app.store.label_tables
import app.store.part_tables
import app.store.retention_tables
import app.store.rollup_tables
import app.store.sheet_tables
import app.store.trajectory_tables  # noqa: F401
from app.store.table_records import TableRecord, build_partial_index, get_table
from app.store.table_records import metadata as metadata


class ContextTable(TableRecord, table=True):
    """The retrieved context of a place of a stream, frozen by its first hand-out."""

    __tablename__ = "contexts"
    run: str = Field(primary_key=True)
    stream: str = Field(primary_key=True)
    epoch: int = Field(primary_key=True, sa_type=BigInteger)
    index: int = Field(primary_key=True, sa_type=BigInteger)
    body: str = Field(sa_type=Text)


class StreamTable(TableRecord, table=True):
    """`position` is the next one to hand out; `handed_out` counts leases given, repeats included."""

    __tablename__ = "streams"
    run: str = Field(primary_key=True)
    digest: str = Field(primary_key=True)
    environment: str
    split: str
    params: str = Field(sa_type=Text)
    params_digest: str
    select: str = Field(sa_type=Text)
    position: int = Field(sa_type=BigInteger)
    handed_out: int = Field(sa_type=BigInteger)
    created_at: int = Field(sa_type=BigInteger)


class LeaseTable(TableRecord, table=True):
    """One lease. `state` is live, done, superseded, or deferred (its task is leased elsewhere)."""

    __tablename__ = "leases"
    __table_args__ = (
        ForeignKeyConstraint(["run", "stream"], ["streams.run", "streams.digest"]),
        build_partial_index("ix_leases_live_expiry", "run", "stream", "expires_at", where="state = 'live'"),
        build_partial_index(
            "ix_leases_live_task", "run", "environment", "split", "params_digest", "index", where="state = 'live'"
        ),
        build_partial_index(
            "ix_leases_live_step", "run", "expires_at", "step", where="state = 'live' AND step IS NOT NULL"
        ),
        build_partial_index("ix_leases_deferred", "run", "stream", "position", where="state = 'deferred'"),
    )
    lease_id: str = Field(primary_key=True)
    run: str
    stream: str
    environment: str
    split: str
    params_digest: str
    index: int = Field(sa_type=BigInteger)
    epoch: int = Field(sa_type=BigInteger)
    position: int = Field(sa_type=BigInteger)
    generation: int
    state: str
    expires_at: int = Field(sa_type=BigInteger)
    created_at: int = Field(sa_type=BigInteger)
    group_id: str | None = None
    step: int | None = Field(default=None, sa_type=BigInteger)
    """The training step at hand-out."""


contexts = get_table(ContextTable)
streams = get_table(StreamTable)
leases = get_table(LeaseTable)
