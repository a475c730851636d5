"""Which runs a key may see has no index: its runs are looked up, and the newest groups of each are read."""

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import Connection, func, literal_column, select

from app.store.group_places import Stretch
from app.store.rows import match_names
from app.store.tables import groups

MOST_KNOWN: Final = 1_000
"""Runs that are looked up: each takes a search of the index."""
MOST_READ: Final = 32


def list_allowed_runs(connection: Connection, patterns: Sequence[str]) -> list[str] | None:
    """Runs of groups whose names are among these. None where there are many: then one soon comes to some."""
    first = select(func.min(groups.c.run).label("name")).cte("names", recursive=True)
    following = select(func.min(groups.c.run)).where(groups.c.run > first.c.name).scalar_subquery()
    names = first.union_all(select(following).where(first.c.name.is_not(None)))
    told = select(names.c.name, match_names(names.c.name, patterns).label("allowed"))
    found = connection.execute(told.where(names.c.name.is_not(None)).limit(MOST_KNOWN + 1)).all()
    allowed = [name for name, is_allowed in found if is_allowed]
    return None if len(found) > MOST_KNOWN or len(allowed) > MOST_READ else allowed


def list_newest(connection: Connection, stretches: Iterable[Stretch], most: int, *, rising: bool) -> list[int]:
    """Sequences of all stretches together."""
    found: list[int] = []
    for stretch in stretches:
        wanted = select(groups.c.sequence).where(*stretch.match()).order_by(*stretch.order(rising=rising))
        found += connection.execute(wanted.limit(literal_column(str(most)))).scalars()
    return sorted(found, reverse=not rising)[:most]
