"""The index of events: rows on PostgreSQL, segments on SQLite.

Segments need NumPy, which takes long to import, so they are imported when there are events."""

import importlib
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any

from sqlalchemy import Connection

from app.store.event_rows import find_world
from app.store.posting_index import PostingIndex
from app.store.posting_keys import PostedEvent
from app.store.posting_rows import RowIndex, delete_postings, insert_postings


class EventIndexes:
    """Opens the index. Segments that were read stay with it."""

    def open(self, connection: Connection, worlds: Collection[int]) -> PostingIndex:
        """The index of these worlds, as it is now."""
        return RowIndex(connection) if _is_postgres(connection) else self._open_segments(connection, worlds)

    @cached_property
    def _open_segments(self) -> Callable[[Connection, Collection[int]], PostingIndex]:
        search = importlib.import_module("app.store.segment_search")
        cache = search.SegmentCache()

        def open_segments(connection: Connection, worlds: Collection[int]) -> PostingIndex:
            index: PostingIndex = search.SegmentIndex(connection, cache, worlds)
            return index

        return open_segments


def add_postings(connection: Connection, posted: Sequence[PostedEvent]) -> None:
    if _is_postgres(connection):
        insert_postings(connection, posted)
        return
    for world, added in groupby(posted, key=lambda one: find_world(one.sequence)):
        _import_rows().insert_segment(connection, world, list(added))


def remove_postings(connection: Connection, posted: PostedEvent) -> None:
    if _is_postgres(connection):
        delete_postings(connection, posted)
    else:
        _import_rows().insert_segment(connection, find_world(posted.sequence), [], [posted])


def clear_segments(connection: Connection, world: int) -> None:
    _import_rows().delete_segments_of(connection, world)


def _import_rows() -> Any:
    return importlib.import_module("app.store.segment_rows")


def _is_postgres(connection: Connection) -> bool:
    return connection.dialect.name == "postgresql"
