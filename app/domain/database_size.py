"""How large a store is, what fills it, and how fast it grows."""

from datetime import datetime

from app.domain.retention import GroupsOfRun
from app.domain.values import Frozen


class TableSize(Frozen):
    """`bytes` includes indexes. `dead_rows` are PostgreSQL's, which a vacuum makes free."""

    table: str
    rows: int
    bytes: int
    dead_rows: int = 0


class RunGrowth(Frozen):
    """Stored groups of a run, and how many bytes a day they have lately become more."""

    stored: GroupsOfRun
    last_at: datetime
    """Of its newest group."""
    bytes_per_day: int


class DatabaseSize(Frozen):
    """`measured_by` says where the bytes of tables are from: `pages` are counted, an `estimate` is by some rows."""

    database: str
    bytes: int
    free_bytes: int
    """Within it: it is filled before the database grows."""
    measured_by: str
    tables: tuple[TableSize, ...]
    runs: tuple[RunGrowth, ...]
    recent_days: float
    """From so many days comes what is said of growth."""
    bytes_per_day: int
    forecast_bytes: int
    """The database in 30 days, if it goes on as lately."""
    advice: tuple[str, ...] = ()
