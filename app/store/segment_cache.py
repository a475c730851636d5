"""Segments of the event index that were read. They never change, and their numbers are not used again."""

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Generic, TypeVar

from sqlalchemy import Connection

from app.store.posting_segments import Numbers
from app.store.segment_rows import (
    PAGE,
    PAGES_PER_SEGMENT,
    OpenedSegment,
    find_segments,
    open_segments,
    read_pages,
)

MAX_CACHED_BYTES: Final = 32 * 1024 * 1024
"""Of segments, and again of pages of large ones."""

T = TypeVar("T")


class _ByteCache(Generic[T]):
    """What was used last, up to so many bytes. Used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, tuple[T, int]] = OrderedDict()
        self._bytes = 0

    def get(self, numbers: Collection[int]) -> dict[int, T]:
        """Those of them that are kept."""
        with self._lock:
            found = {number: self._kept[number][0] for number in numbers if number in self._kept}
            for number in found:
                self._kept.move_to_end(number)
            return found

    def put(self, values: Mapping[int, tuple[T, int]]) -> None:
        """With the bytes of each."""
        with self._lock:
            for number, (value, size) in values.items():
                if number not in self._kept:
                    self._kept[number] = value, size
                    self._bytes += size
            while self._bytes > MAX_CACHED_BYTES:
                self._bytes -= self._kept.popitem(last=False)[1][1]


class SegmentCache:
    """For connections that only read: what a transaction writes may be rolled back, and its numbers given again."""

    def __init__(self) -> None:
        self._segments = _ByteCache[OpenedSegment]()
        self._pages = _ByteCache[Numbers]()

    def open_segments(self, connection: Connection, worlds: Collection[int]) -> list[OpenedSegment]:
        numbers = find_segments(connection, worlds)
        found = self._segments.get(numbers)
        if missing := [number for number in numbers if number not in found]:
            opened = {one.number: one for one in open_segments(connection, missing)}
            self._segments.put({number: (one, one.segment.size) for number, one in opened.items()})
            found |= opened
        return [found[number] for number in numbers]

    def read_pages(self, connection: Connection, number: int, pages: Sequence[int]) -> list[Numbers]:
        first = number * PAGES_PER_SEGMENT
        found = self._pages.get([first + page for page in pages])
        if missing := [page for page in pages if first + page not in found]:
            postings = read_pages(connection, number, missing)
            read = {first + page: postings[n * PAGE : (n + 1) * PAGE].copy() for n, page in enumerate(missing)}
            self._pages.put({place: (page, page.nbytes) for place, page in read.items()})
            found |= read
        return [found[first + page] for page in pages]
