"""Tables of groups whose completions do not come together."""

from sqlalchemy import BigInteger, Index, Text, text
from sqlmodel import Field

from app.store.records import Record, table_of


def _partial(name: str, *columns: str, where: str) -> Index:
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))


class PartTable(Record, table=True):
    """A cohort: what will be one group. `state` is open, or closed: the group is stored."""

    __tablename__ = "parts"
    __table_args__ = (
        Index("uq_parts_scope_generation", "scope", "generation", unique=True),
        _partial("ix_parts_due", "due", where="due IS NOT NULL"),
    )
    group_id: str = Field(primary_key=True)
    scope: str
    """Digest of what makes completions ones that may belong together."""
    generation: int
    """Of the cohorts of one scope, which come one after the other."""
    key: str = Field(sa_type=Text)
    """JSON string, because a client chose it."""
    size: int
    task_id: str = Field(foreign_key="tasks.task_id")
    environment: str
    run: str | None
    head: str = Field(sa_type=Text)
    """Policy and lease id."""
    purpose: str
    deadline: int = Field(sa_type=BigInteger)
    state: str
    missing: int
    """How many had not come when it was closed."""
    closed_at: int | None = Field(sa_type=BigInteger)
    """Never later than the deadline, also where nobody was there to close it."""
    due: int | None = Field(sa_type=BigInteger)
    """When somebody has to look after it: at the deadline while it is open, then when whoever scores it should have
    said that it still does; null when nothing is left to be done."""
    created_at: int = Field(sa_type=BigInteger, index=True)


class PartMemberTable(Record, table=True):
    """A completion in its place. `state` is held, left or answered: what has become of who brought it."""

    __tablename__ = "part_members"
    __table_args__ = (_partial("ix_part_members_unanswered", "scope", "said", where="state <> 'answered'"),)
    group_id: str = Field(primary_key=True, foreign_key="parts.group_id")
    place: int = Field(primary_key=True)
    scope: str
    said: str
    """Digest of what the completion says."""
    completion: str | None = Field(sa_type=Text)
    """Null once it is in a stored group."""
    own_group: str | None
    """The group in which it is scored alone, since it came late."""
    state: str
    holder: str
    held_until: int = Field(sa_type=BigInteger)
    """Of a held one, when its holder should have said that it still waits; of another, when it ended."""


parts = table_of(PartTable)
part_members = table_of(PartMemberTable)
