"""Segments of the event index: sorted arrays of postings that never change, and are merged into larger ones.

A posting is one number: 40 bits of its key, then the ordinal of its event among the segment's, which are in order of
time. So "the newest of a key up to a time" is a slice that ends where a binary search says. Half of the key's bits are
of the term, so that what a question asks of a term, for everybody and for each name, lies close together.

An event that is withdrawn or corrected is taken away by the same postings in `removed`. A merge lets both go.
"""

import json
import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, RowMapping, bindparam, delete, select, text

from app.features.worlds.store_search import PostedEvent, PostingHits, PostingIndex, PostingKey, PostingSeek
from app.features.worlds.store_worlds import compute_sequence, segment_pages, segments
from app.store.statements import PreparedStatement, insert_rows

Numbers = NDArray[np.uint64]
Times = NDArray[np.int64]

ORDINAL_BITS: Final = 24
ORDINAL_MASK: Final = (1 << ORDINAL_BITS) - 1
_FEATURE_BITS: Final = 0xFFFFF << 44
_SCOPE_BITS: Final = 0xFFFFF << ORDINAL_BITS
_PLACE_MASK: Final = 0xFFFFFFFF


@dataclass(frozen=True)
class PostingSegment:
    """`times` and `places` are of its events, by time and place; `postings` and `removed` are sorted."""

    times: Times
    places: NDArray[np.uint32]
    postings: Numbers
    removed: Numbers

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(array.nbytes for array in (self.times, self.places, self.postings, self.removed))


def combine_key(key: PostingKey | tuple[int, int]) -> int:
    """The first posting that a key can have."""
    scope, feature = key
    return (feature & _FEATURE_BITS) | ((scope ^ feature) & _SCOPE_BITS)


def build_segment(added: Sequence[PostedEvent], removed: Sequence[PostedEvent] = ()) -> PostingSegment:
    """Of one world."""
    moments = sorted({(one.time, one.sequence & _PLACE_MASK) for one in (*added, *removed)})
    ordinals = {moment: ordinal for ordinal, moment in enumerate(moments)}
    return PostingSegment(
        np.array([time for time, _ in moments], np.int64),
        np.array([place for _, place in moments], np.uint32),
        _list_postings(added, ordinals),
        _list_postings(removed, ordinals),
    )


def _list_postings(events: Sequence[PostedEvent], ordinals: dict[tuple[int, int], int]) -> Numbers:
    found: list[int] = []
    for one in events:
        ordinal = ordinals[one.time, one.sequence & _PLACE_MASK]
        found += [
            (feature & _FEATURE_BITS) | ((scope ^ feature) & _SCOPE_BITS) | ordinal for scope, feature in one.keys
        ]
    return np.unique(np.array(found, np.uint64))  # keys of an event may collide


def merge_segments(segments: Sequence[PostingSegment]) -> PostingSegment:
    """One segment of all. Those of which one removes what an earlier one has must be all between them."""
    times = np.concatenate([one.times for one in segments])
    places = np.concatenate([one.places for one in segments])
    order = np.lexsort((places, times))
    times, places = times[order], places[order]
    fresh = np.ones(len(times), bool)
    fresh[1:] = (times[1:] != times[:-1]) | (places[1:] != places[:-1])
    ordinals = np.empty(len(order), np.uint64)
    ordinals[order] = np.cumsum(fresh, dtype=np.uint64) - np.uint64(1)
    starts = np.cumsum([0, *(len(one.times) for one in segments)])
    maps = [ordinals[start:end] for start, end in pairwise(starts)]
    postings = _renumber([one.postings for one in segments], maps)
    removed = _renumber([one.removed for one in segments], maps)
    if len(removed):
        postings, removed = _cancel(postings, removed)
    return PostingSegment(times[fresh], places[fresh], postings, removed)


def _renumber(arrays: Sequence[Numbers], maps: Sequence[Numbers]) -> Numbers:
    mask = np.uint64(ORDINAL_MASK)
    moved = [(array & ~mask) | ordinals[array & mask] for array, ordinals in zip(arrays, maps, strict=True)]
    merged = np.concatenate(moved)
    merged.sort()
    return merged


def _cancel(postings: Numbers, removed: Numbers) -> tuple[Numbers, Numbers]:
    """An event may have been told, taken away and told again at the same time."""
    numbers, places = np.unique(np.concatenate([postings, removed]), return_inverse=True)
    signs = np.repeat(np.array([1, -1]), [len(postings), len(removed)])
    left = np.bincount(places, weights=signs, minlength=len(numbers))
    return numbers[left > 0], numbers[left < 0]


# Segments of the event index in SQLite: each is a row, and the pages of a large one are rows of their own.

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


# Segments of the event index that were read. They never change, and their numbers are not used again.

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


# Searches of the event index in SQLite: all queries at once, segment by segment.

Indices = NDArray[np.int64]

_MASK: Final = np.uint64(ORDINAL_MASK)
_NOTHING: Final[Numbers] = np.zeros(0, np.uint64)
_EARLIEST: Final = -(2**62)


@dataclass(frozen=True)
class _Hits:
    """Postings found: which query found which time and sequence."""

    queries: Indices
    times: Indices
    sequences: Indices

    def list_rows(self) -> list[tuple[int, int, int]]:
        return list(zip(self.queries.tolist(), self.times.tolist(), self.sequences.tolist(), strict=True))


class _QueryTable:
    """Queries of seeks as columns."""

    def __init__(self, seeks: Sequence[PostingSeek]) -> None:
        flat = [query for seek in seeks for query in seek.queries]
        self.sizes = [len(seek.queries) for seek in seeks]
        self.seeks = np.repeat(np.arange(len(seeks)), self.sizes)
        self.keys = np.array([combine_key(query.key) for query in flat], np.uint64)
        self.untils = np.array([query.until for query in flat], np.int64)
        self.mosts = self._repeat([seek.most for seek in seeks])
        self.newest = self._repeat([seek.after is None for seek in seeks]).astype(bool)
        self.afters = self._repeat([_EARLIEST if seek.after is None else seek.after for seek in seeks])
        places = defaultdict[int, list[int]](list)
        for place, query in enumerate(flat):
            places[query.world].append(place)
        self.places = {world: np.array(found, np.int64) for world, found in places.items()}

    def _repeat(self, values: Sequence[int]) -> Indices:
        return np.repeat(np.array(values, np.int64), self.sizes)


class _SegmentReader:
    """Reads postings of a segment, and each page once."""

    def __init__(self, connection: Connection, cache: SegmentCache, opened: OpenedSegment) -> None:
        self._connection = connection
        self._cache = cache
        self._opened = opened
        self.world = opened.world
        self.segment = opened.segment

    def find_places(self, bounds: Numbers) -> Indices:
        """How many postings are below each bound."""
        if not self._opened.pages:
            return np.searchsorted(self.segment.postings, bounds)
        pages = np.maximum(np.searchsorted(self.segment.postings, bounds) - 1, 0)
        needed, postings = self._load(pages)
        skipped = needed - np.arange(len(needed))
        return np.searchsorted(postings, bounds) + PAGE * skipped[np.searchsorted(needed, pages)]

    def get_postings(self, places: Indices) -> Numbers:
        if not self._opened.pages:
            return self.segment.postings[places]
        pages = places // PAGE
        needed, postings = self._load(pages)
        found: Numbers = postings[places % PAGE + PAGE * np.searchsorted(needed, pages)]
        return found

    def _load(self, pages: Indices) -> tuple[Indices, Numbers]:
        """The distinct pages in order, and their postings."""
        needed = np.unique(pages)
        postings = self._cache.read_pages(self._connection, self._opened.number, needed.tolist())
        return needed, np.concatenate([_NOTHING, *postings])


class SegmentIndex(PostingIndex):
    def __init__(self, connection: Connection, cache: SegmentCache, worlds: Collection[int]) -> None:
        self._readers = [
            _SegmentReader(connection, cache, opened) for opened in cache.open_segments(connection, worlds)
        ]

    def count(self, seeks: Sequence[PostingSeek]) -> list[list[int]]:
        table = _QueryTable(seeks)
        totals = np.zeros(len(table.keys), np.int64)
        for reader, queries, bounds in self._list_bounds(table):
            firsts, ends = reader.find_places(bounds)
            totals[queries] += ends - firsts
            if len(removed := reader.segment.removed):
                firsts, ends = np.searchsorted(removed, bounds)
                totals[queries] -= ends - firsts
        counted = iter(np.minimum(totals, table.mosts).tolist())
        return [list(islice(counted, size)) for size in table.sizes]

    def find(self, seeks: Sequence[PostingSeek]) -> list[PostingHits]:
        table = _QueryTable(seeks)
        bounded = list(self._list_bounds(table))
        removed = _join_hits([_find_removed(*one) for one in bounded if len(one[0].segment.removed)])
        rooms = table.mosts + np.bincount(removed.queries, minlength=len(table.keys))
        hits = []
        for reader, queries, bounds in bounded:
            firsts, ends = reader.find_places(bounds)
            newest, room = table.newest[queries], rooms[queries]
            starts = np.where(newest, np.maximum(firsts, ends - room), firsts)
            places, owners = _list_places(starts, np.minimum(ends, starts + room))
            hits.append(_resolve_hits(reader, queries[owners], reader.get_postings(places)))
        return _list_first_hits(_drop_removed(_join_hits(hits), removed), table)

    def _list_bounds(self, table: _QueryTable) -> Iterator[tuple[_SegmentReader, Indices, Numbers]]:
        """Each segment, the queries of its world, and between which postings each of them finds its own: two rows."""
        for reader in self._readers:
            queries = table.places.get(reader.world)
            if queries is not None:
                moments = np.stack([table.afters[queries], table.untils[queries]])
                moments[0] = np.minimum(moments[0], moments[1])
                ordinals = np.searchsorted(reader.segment.times, moments, side="right")
                yield reader, queries, table.keys[queries] | ordinals.astype(np.uint64)


def _list_places(firsts: Indices, ends: Indices) -> tuple[Indices, Indices]:
    """All places of all slices, and which slice each is of."""
    lengths = ends - firsts
    owners = np.repeat(np.arange(len(lengths)), lengths)
    return np.arange(len(owners)) + np.repeat(firsts - (np.cumsum(lengths) - lengths), lengths), owners


def _find_removed(reader: _SegmentReader, queries: Indices, bounds: Numbers) -> _Hits:
    firsts, ends = np.searchsorted(reader.segment.removed, bounds)
    places, owners = _list_places(firsts, ends)
    return _resolve_hits(reader, queries[owners], reader.segment.removed[places])


def _resolve_hits(reader: _SegmentReader, queries: Indices, postings: Numbers) -> _Hits:
    ordinals = (postings & _MASK).astype(np.int64)
    sequences = reader.segment.places[ordinals].astype(np.int64) + compute_sequence(reader.world, 0)
    return _Hits(queries, reader.segment.times[ordinals], sequences)


def _join_hits(hits: Sequence[_Hits]) -> _Hits:
    empty = np.zeros(0, np.int64)
    return _Hits(
        np.concatenate([empty, *(one.queries for one in hits)]),
        np.concatenate([empty, *(one.times for one in hits)]),
        np.concatenate([empty, *(one.sequences for one in hits)]),
    )


def _drop_removed(found: _Hits, removed: _Hits) -> _Hits:
    """As often as each was removed: what was corrected may be there again."""
    left = Counter(removed.list_rows())
    if not left:
        return found
    kept = []
    for row in found.list_rows():
        left[row] -= 1
        kept.append(left[row] < 0)
    chosen = np.array(kept, bool)
    return _Hits(found.queries[chosen], found.times[chosen], found.sequences[chosen])


def _list_first_hits(found: _Hits, table: _QueryTable) -> list[PostingHits]:
    """The first ones of each query, in the order of its seek."""
    signs = np.where(table.newest[found.queries], -1, 1)
    times, sequences = signs * found.times, signs * found.sequences
    order = np.lexsort((sequences, times, found.queries))
    queries = found.queries[order]
    places = np.arange(len(order)) - np.searchsorted(queries, queries)
    chosen = order[places < table.mosts[queries]]
    seeks = table.seeks[found.queries[chosen]]
    order = np.lexsort((sequences[chosen], times[chosen], seeks))
    chosen = chosen[order]
    hits = zip(found.times[chosen].tolist(), found.sequences[chosen].tolist(), strict=True)
    return [list(islice(hits, size)) for size in np.bincount(seeks, minlength=len(table.sizes)).tolist()]
