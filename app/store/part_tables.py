"""Tables of pending groups, whose completions arrive in pieces, and of episodes whose messages do."""

from sqlalchemy import BigInteger, Index, Text
from sqlmodel import Field

from app.store.table_records import TableRecord, build_partial_index, get_table


class PartTable(TableRecord, table=True):
    """A pending group. `state` is open, or closed once the group is stored."""

    __tablename__ = "parts"
    __table_args__ = (
        Index("uq_parts_scope_generation", "scope", "generation", unique=True),
        build_partial_index("ix_parts_due", "due", where="due IS NOT NULL"),
    )
    group_id: str = Field(primary_key=True)
    scope: str
    """Digest of what completions must share to join the same group."""
    generation: int
    """Number of this group among the successive groups of its scope."""
    key: str = Field(sa_type=Text)
    """JSON string, since clients choose it."""
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
    """How many completions were missing when it was closed."""
    closed_at: int | None = Field(sa_type=BigInteger)
    """Time of closing; at most the deadline, even if it was closed later."""
    due: int | None = Field(sa_type=BigInteger)
    """When it needs attention: at the deadline while open, later when the scorer's heartbeat is overdue; null when
    done."""
    created_at: int = Field(sa_type=BigInteger, index=True)


class PartMemberTable(TableRecord, table=True):
    """A completion in its place. `state` describes the sender: held (waiting), left (disconnected) or answered."""

    __tablename__ = "part_members"
    __table_args__ = (build_partial_index("ix_part_members_unanswered", "scope", "said", where="state <> 'answered'"),)
    group_id: str = Field(primary_key=True, foreign_key="parts.group_id")
    place: int = Field(primary_key=True)
    scope: str
    said: str
    """Digest of the completion's content. A replica of another release may still use the column, so its name stays."""
    completion: str | None = Field(sa_type=Text)
    """Null once it is in a stored group."""
    own_group: str | None
    """The separate group that scores it if it came late."""
    state: str
    holder: str
    held_until: int = Field(sa_type=BigInteger)
    """While held, when the heartbeat is overdue; otherwise when the hold ended."""


class KeptEpisodeTable(TableRecord, table=True):
    """Episodes of clients that send no history. A change counts `revision` up."""

    __tablename__ = "kept_episodes"
    session: str = Field(primary_key=True)
    task_id: str
    revision: int
    body: str = Field(sa_type=Text)
    changed_at: int = Field(sa_type=BigInteger, index=True)


parts = get_table(PartTable)
part_members = get_table(PartMemberTable)
kept_episodes = get_table(KeptEpisodeTable)
