"""The index of events: rows on PostgreSQL, segments on SQLite."""

from collections.abc import Collection, Sequence
from itertools import groupby

from sqlalchemy import Connection

from app.store.event_rows import find_world
from app.store.posting_index import PostingIndex
from app.store.posting_keys import PostedEvent
from app.store.posting_rows import RowIndex, delete_postings, insert_postings
from app.store.segment_cache import SegmentCache


def open_index(connection: Connection, cache: SegmentCache, worlds: Collection[int]) -> PostingIndex:
    """The index of these worlds, as it is now."""
    if _is_postgres(connection):
        return RowIndex(connection)
    from app.store.segment_search import SegmentIndex  # takes long to import

    return SegmentIndex(connection, cache, worlds)


def add_postings(connection: Connection, posted: Sequence[PostedEvent]) -> None:
    if _is_postgres(connection):
        insert_postings(connection, posted)
        return
    from app.store.segment_rows import insert_segment  # takes long to import

    for world, added in groupby(posted, key=lambda one: find_world(one.sequence)):
        insert_segment(connection, world, list(added))


def remove_postings(connection: Connection, posted: PostedEvent) -> None:
    if _is_postgres(connection):
        delete_postings(connection, posted)
    else:
        from app.store.segment_rows import insert_segment  # takes long to import

        insert_segment(connection, find_world(posted.sequence), [], [posted])


def _is_postgres(connection: Connection) -> bool:
    return connection.dialect.name == "postgresql"
