"""Tables of people's labels and of the queue that asks for them."""

from sqlalchemy import BigInteger, Index, Text
from sqlmodel import Field

from app.store.table_records import TableRecord, build_sequence_column, get_table


class LabelTable(TableRecord, table=True):
    """A label with its history: what was replaced or withdrawn stays. `source_digest` is that of an imported choice,
    or of the chat in which a live choice was made that may change."""

    __tablename__ = "labels"
    __table_args__ = (
        Index("ix_labels_group", "group_id", "labeller"),
        Index("ix_labels_kind", "kind", "environment", "sequence"),
        {"sqlite_autoincrement": True},
    )
    sequence: int = Field(sa_column=build_sequence_column())
    label_id: str = Field(unique=True)
    kind: str
    state: str
    labeller: str
    group_id: str | None = None
    environment: str
    run: str | None = None
    lease_id: str | None = None
    body: str = Field(sa_type=Text)
    source_digest: str | None = Field(default=None, unique=True)
    created_at: int = Field(sa_type=BigInteger)


class LabelLeaseTable(TableRecord, table=True):
    """An item of the queue that somebody holds, has labelled or has skipped. `draw` is JSON."""

    __tablename__ = "label_leases"
    __table_args__ = (
        Index("ix_label_leases_group", "group_id"),
        Index("ix_label_leases_labeller", "labeller", "state"),
        Index("ix_label_leases_stratum", "environment", "run"),
        {"sqlite_autoincrement": True},
    )
    sequence: int = Field(sa_column=build_sequence_column())
    lease_id: str = Field(unique=True)
    labeller: str
    group_id: str
    environment: str
    run: str | None = None
    arm: str
    second: bool
    wanted: int
    draw: str = Field(sa_type=Text)
    state: str
    expires_at: int = Field(sa_type=BigInteger)
    created_at: int = Field(sa_type=BigInteger)


labels = get_table(LabelTable)
label_leases = get_table(LabelLeaseTable)
