"""Segments of the event index in SQLite: each is a row, and the pages of a large one are rows of their own.

What is told becomes a segment of its own. It takes in those before it that are not larger than all after them, so that
a world has few segments, and a posting is written again no more often than the logarithm of the world's size.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from sqlalchemy import Connection, RowMapping, bindparam, delete, select, text

from app.store.event_tables import segment_pages, segments
from app.store.inserts import insert_rows
from app.store.posting_keys import PostedEvent
from app.store.posting_segments import Numbers, PostingSegment, build_segment, merge_segments
from app.store.prepared_statements import PreparedStatement

PAGE: Final = 1024
"""Postings of a page."""
MAX_UNPAGED: Final = 128 * PAGE
"""A segment with more postings has pages."""
MAX_EVENTS: Final = 1 << 16
"""Larger segments are not merged, so that no write takes long."""
PAGES_PER_SEGMENT: Final = 1 << 20
OLDEST_SCHEMA: Final = "0031"
"""Services of older schemas would find no events."""


@dataclass(frozen=True)
class OpenedSegment:
    """`postings` of `segment` are all of them where `pages` is 0, and else the first ones of the pages."""

    number: int
    world: int
    pages: int
    segment: PostingSegment


_LIST_SEGMENTS: Final = PreparedStatement(
    lambda _: (
        select(segments.c.number, segments.c.events)
        .where(segments.c.world == bindparam("world"))
        .order_by(segments.c.number.desc())
    )
)

_FIND_SEGMENTS: Final = PreparedStatement(
    lambda _: text(
        """
        SELECT json_group_array(number) FROM event_segments WHERE world IN (SELECT value FROM json_each(:worlds))
        """
    )
)

_OPEN_SEGMENTS: Final = PreparedStatement(
    lambda _: text("SELECT * FROM event_segments WHERE number IN (SELECT value FROM json_each(:numbers))")
)

_READ_PAGES: Final = PreparedStatement(
    lambda _: text(
        """
        SELECT CAST(group_concat(p.postings, '') AS BLOB)
        FROM json_each(:pages) k CROSS JOIN event_segment_pages p ON p.number = :first + k.value
        """
    )
)


def find_segments(connection: Connection, worlds: Collection[int]) -> list[int]:
    """Their numbers."""
    found: list[int] = json.loads(_FIND_SEGMENTS.run(connection, worlds=json.dumps(list(worlds))).scalar_one())
    return found


def open_segments(connection: Connection, numbers: Collection[int]) -> list[OpenedSegment]:
    rows = _OPEN_SEGMENTS.run(connection, numbers=json.dumps(list(numbers))).mappings()
    return [_open_segment(row) for row in rows]


def read_pages(connection: Connection, number: int, pages: Sequence[int]) -> Numbers:
    """The postings of these pages of a segment, in order. Read as one value, since every row takes the interpreter
    lock."""
    first = number * PAGES_PER_SEGMENT
    return np.frombuffer(
        _READ_PAGES.run(connection, first=first, pages=json.dumps(list(pages))).scalar_one(), np.uint64
    )


def insert_segment(
    connection: Connection, world: int, added: Sequence[PostedEvent], removed: Sequence[PostedEvent] = ()
) -> None:
    """Call with the world locked."""
    new = build_segment(added, removed)
    size, former = len(new.times), list[int]()
    for number, events in _list_segments(connection, world):
        if events > size or events + size > MAX_EVENTS:
            break
        former.append(number)
        size += events
    if former:
        new = merge_segments([*_load_segments(connection, former), new])
        _delete_segments(connection, former)
    _insert_segment(connection, world, new)


def delete_segments_of(connection: Connection, world: int) -> None:
    _delete_segments(connection, [number for number, _ in _list_segments(connection, world)])


def _list_segments(connection: Connection, world: int) -> list[tuple[int, int]]:
    """Numbers and how many events each has, newest first."""
    return [(row.number, row.events) for row in _LIST_SEGMENTS.run(connection, world=world)]


def _load_segments(connection: Connection, numbers: Sequence[int]) -> list[PostingSegment]:
    rows = connection.execute(select(segments).where(segments.c.number.in_(numbers)).order_by(segments.c.number))
    return [_load_postings(connection, _open_segment(row)) for row in rows.mappings().all()]


def _open_segment(row: RowMapping) -> OpenedSegment:
    segment = PostingSegment(
        np.frombuffer(row["times"], np.int64),
        np.frombuffer(row["places"], np.uint32),
        np.frombuffer(row["postings"], np.uint64),
        np.frombuffer(row["removed"], np.uint64),
    )
    return OpenedSegment(row["number"], row["world"], row["pages"], segment)


def _load_postings(connection: Connection, opened: OpenedSegment) -> PostingSegment:
    if not opened.pages:
        return opened.segment
    one = opened.segment
    postings = read_pages(connection, opened.number, range(opened.pages))
    return PostingSegment(one.times, one.places, postings, one.removed)


def _delete_segments(connection: Connection, numbers: Sequence[int]) -> None:
    for number in numbers:
        first = number * PAGES_PER_SEGMENT
        mine = segment_pages.c.number.between(first, first + PAGES_PER_SEGMENT - 1)
        connection.execute(delete(segment_pages).where(mine))
    connection.execute(delete(segments).where(segments.c.number.in_(numbers)))


_INSERT_SEGMENT: Final = PreparedStatement(
    lambda _: text(
        """
        INSERT INTO event_segments (world, events, pages, times, places, removed, postings)
        VALUES (:world, :events, :pages, :times, :places, :removed, :postings)
        """
    )
)


_REQUIRE_SCHEMA: Final = text("UPDATE schema_support SET oldest = :schema WHERE oldest < :schema")


def _insert_segment(connection: Connection, world: int, new: PostingSegment) -> None:
    postings = new.postings
    pages = 0 if len(postings) <= MAX_UNPAGED else -(-len(postings) // PAGE)
    inserted = _INSERT_SEGMENT.run(
        connection,
        world=world,
        events=len(new.times),
        pages=pages,
        times=new.times.tobytes(),
        places=new.places.tobytes(),
        removed=new.removed.tobytes(),
        postings=(postings[::PAGE] if pages else postings).tobytes(),
    )
    if inserted.lastrowid == 1:
        connection.execute(_REQUIRE_SCHEMA, {"schema": OLDEST_SCHEMA})
    first = inserted.lastrowid * PAGES_PER_SEGMENT
    insert_rows(
        connection,
        segment_pages,
        [
            {"number": first + page, "postings": postings[page * PAGE : (page + 1) * PAGE].tobytes()}
            for page in range(pages)
        ],
    )
