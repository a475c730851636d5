"""The index of events: segments, which are sorted arrays of postings that never change.

A posting is one number: 40 bits of its key, then the ordinal of its event among the segment's, which are in order of
time. So "the newest of a key up to a time" is a slice that ends where a binary search says. Half of the key's bits are
of the term, so that what a question asks of a term, for everybody and for each name, lies close together.

What one write tells becomes a segment of its own. It takes in those before it that are not larger than all after them,
so that a world has few segments, and a posting is written again no more often than the logarithm of the world's size.
A segment is a row; a large one keeps the first posting of each page there, and its pages are rows of their own, of
which a search reads only those that its slices lie in. An event that is withdrawn or corrected is taken away by the
same postings in `removed`. A merge lets both go.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, RowMapping, bindparam, delete, select, text

from app.domain.values import ByteCache
from app.features.worlds.store_search import PostedEvent, PostingHits, PostingIndex, PostingKey, PostingSeek
from app.features.worlds.store_worlds import compute_sequence, segment_pages, segments
from app.store.statements import PreparedStatement, build_dialect_sql, insert_rows, is_among

_Numbers = NDArray[np.uint64]
_Integers = NDArray[np.int64]

_ORDINAL_BITS: Final = 24
"""A segment has at most 16 million events: _FEATURE_BITS, _SCOPE_BITS and these are the 64 bits of a posting."""
_ORDINAL_MASK: Final = np.uint64((1 << _ORDINAL_BITS) - 1)
_FEATURE_BITS: Final = 0xFFFFF << 44
_SCOPE_BITS: Final = 0xFFFFF << _ORDINAL_BITS
_PLACE_MASK: Final = 0xFFFFFFFF
"""Of a sequence: the event's place in its world. The segment's row says which world that is."""


@dataclass(frozen=True)
class _PostingSegment:
    """`times` and `places` are of its events, by time and place; `postings` and `removed` are sorted."""

    times: _Integers
    places: NDArray[np.uint32]
    postings: _Numbers
    removed: _Numbers

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(array.nbytes for array in (self.times, self.places, self.postings, self.removed))


def _combine_key(key: PostingKey | tuple[int, int]) -> int:
    """The first posting that a key can have."""
    scope, feature = key
    return (feature & _FEATURE_BITS) | ((scope ^ feature) & _SCOPE_BITS)


def _build_segment(added: Sequence[PostedEvent], removed: Sequence[PostedEvent] = ()) -> _PostingSegment:
    """Of one world."""
    moments = sorted({(one.time, one.sequence & _PLACE_MASK) for one in (*added, *removed)})
    ordinals = {moment: ordinal for ordinal, moment in enumerate(moments)}
    return _PostingSegment(
        np.array([time for time, _ in moments], np.int64),
        np.array([place for _, place in moments], np.uint32),
        _list_postings(added, ordinals),
        _list_postings(removed, ordinals),
    )


def _list_postings(events: Sequence[PostedEvent], ordinals: dict[tuple[int, int], int]) -> _Numbers:
    postings: list[int] = []
    for one in events:
        ordinal = ordinals[one.time, one.sequence & _PLACE_MASK]
        # As _combine_key, without a call for each of an event's dozens of postings.
        postings += [
            (feature & _FEATURE_BITS) | ((scope ^ feature) & _SCOPE_BITS) | ordinal for scope, feature in one.keys
        ]
    return np.unique(np.array(postings, np.uint64))  # keys of an event may collide


def _merge_segments(segments: Sequence[_PostingSegment]) -> _PostingSegment:
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
    return _PostingSegment(times[fresh], places[fresh], postings, removed)


def _renumber(arrays: Sequence[_Numbers], maps: Sequence[_Numbers]) -> _Numbers:
    moved = [
        (array & ~_ORDINAL_MASK) | ordinals[array & _ORDINAL_MASK] for array, ordinals in zip(arrays, maps, strict=True)
    ]
    merged = np.concatenate(moved)
    merged.sort()
    return merged


def _cancel(postings: _Numbers, removed: _Numbers) -> tuple[_Numbers, _Numbers]:
    """An event may have been told, taken away and told again at the same time."""
    numbers, places = np.unique(np.concatenate([postings, removed]), return_inverse=True)
    signs = np.repeat(np.array([1, -1]), [len(postings), len(removed)])
    left = np.bincount(places, weights=signs, minlength=len(numbers))
    return numbers[left > 0], numbers[left < 0]


# Segments in the database.

PAGE: Final = 1024
"""Postings of a page: 8 KB."""
MAX_UNPAGED: Final = 128 * PAGE
"""A segment with more postings has pages."""
MAX_EVENTS: Final = 1 << 16
"""Larger segments are not merged, so that no write takes long."""
_PAGES_PER_SEGMENT: Final = 1 << 20
"""Pages are numbered by segment and page in one number, so that the pages of a segment lie beside each other."""


@dataclass(frozen=True)
class _OpenedSegment:
    """`postings` of `segment` are all of them where `pages` is 0, and else the first ones of the pages."""

    number: int
    world: int
    pages: int
    segment: _PostingSegment


_LIST_SEGMENTS: Final = PreparedStatement(
    lambda _: (
        select(segments.c.number, segments.c.events)
        .where(segments.c.world == bindparam("world"))
        .order_by(segments.c.number.desc())
    )
)

_FIND_SEGMENTS: Final = PreparedStatement(
    lambda postgres: select(segments.c.number).where(is_among(segments.c.world, "worlds", postgres))
)

_OPEN_SEGMENTS: Final = PreparedStatement(
    lambda postgres: select(segments).where(is_among(segments.c.number, "numbers", postgres))
)

_READ_PAGES: Final = PreparedStatement(
    build_dialect_sql(
        """
        SELECT string_agg(p.postings, CAST('' AS bytea) ORDER BY k.page)
        FROM unnest(CAST(:pages AS bigint[])) AS k(page) JOIN event_segment_pages p ON p.number = :first + k.page
        """,
        """
        SELECT CAST(group_concat(p.postings, '') AS BLOB)
        FROM json_each(:pages) k CROSS JOIN event_segment_pages p ON p.number = :first + k.value
        """,
    )
)


def _find_segments(connection: Connection, worlds: Collection[int]) -> list[int]:
    """Their numbers."""
    return [number for (number,) in _FIND_SEGMENTS.fetch(connection, worlds=list(worlds))]


def _open_segments(connection: Connection, numbers: Collection[int]) -> list[_OpenedSegment]:
    rows = _OPEN_SEGMENTS.run(connection, numbers=list(numbers)).mappings()
    return [_open_segment(row) for row in rows]


def _read_pages(connection: Connection, number: int, pages: Sequence[int]) -> _Numbers:
    """The postings of these pages of a segment, which are in order. Read as one value, since every row takes the
    interpreter lock."""
    first = number * _PAGES_PER_SEGMENT
    return np.frombuffer(_READ_PAGES.run(connection, first=first, pages=list(pages)).scalar_one(), np.uint64)


def insert_segment(
    connection: Connection, world: int, added: Sequence[PostedEvent], removed: Sequence[PostedEvent] = ()
) -> None:
    """Call with the world locked: another write to it would merge the same segments."""
    new = _build_segment(added, removed)
    size, former = len(new.times), list[int]()
    for number, events in _list_segments(connection, world):
        # From the newest to the oldest without a gap: what a merge cancels must lie in the segments between.
        if events > size or events + size > MAX_EVENTS:
            break
        former.append(number)
        size += events
    if former:
        new = _merge_segments([*_load_segments(connection, former), new])
        _delete_segments(connection, former)
    _insert_segment(connection, world, new)


def _list_segments(connection: Connection, world: int) -> list[tuple[int, int]]:
    """Numbers and how many events each has, newest first."""
    return [(row.number, row.events) for row in _LIST_SEGMENTS.run(connection, world=world)]


def _load_segments(connection: Connection, numbers: Sequence[int]) -> list[_PostingSegment]:
    rows = connection.execute(select(segments).where(segments.c.number.in_(numbers)).order_by(segments.c.number))
    return [_load_postings(connection, _open_segment(row)) for row in rows.mappings().all()]


def _open_segment(row: RowMapping) -> _OpenedSegment:
    segment = _PostingSegment(
        np.frombuffer(row["times"], np.int64),
        np.frombuffer(row["places"], np.uint32),
        np.frombuffer(row["postings"], np.uint64),
        np.frombuffer(row["removed"], np.uint64),
    )
    return _OpenedSegment(row["number"], row["world"], row["pages"], segment)


def _load_postings(connection: Connection, opened: _OpenedSegment) -> _PostingSegment:
    if not opened.pages:
        return opened.segment
    one = opened.segment
    postings = _read_pages(connection, opened.number, range(opened.pages))
    return _PostingSegment(one.times, one.places, postings, one.removed)


def _delete_segments(connection: Connection, numbers: Sequence[int]) -> None:
    for number in numbers:
        first = number * _PAGES_PER_SEGMENT
        mine = segment_pages.c.number.between(first, first + _PAGES_PER_SEGMENT - 1)
        connection.execute(delete(segment_pages).where(mine))
    connection.execute(delete(segments).where(segments.c.number.in_(numbers)))


_INSERT_SEGMENT: Final = PreparedStatement(
    lambda _: text(
        """
        INSERT INTO event_segments (world, events, pages, times, places, removed, postings)
        VALUES (:world, :events, :pages, :times, :places, :removed, :postings) RETURNING number
        """
    )
)


def _insert_segment(connection: Connection, world: int, new: _PostingSegment) -> None:
    postings = new.postings
    pages = 0 if len(postings) <= MAX_UNPAGED else -(-len(postings) // PAGE)
    number: int = _INSERT_SEGMENT.run(
        connection,
        world=world,
        events=len(new.times),
        pages=pages,
        times=new.times.tobytes(),
        places=new.places.tobytes(),
        removed=new.removed.tobytes(),
        postings=(postings[::PAGE] if pages else postings).tobytes(),
    ).scalar_one()
    first = number * _PAGES_PER_SEGMENT
    insert_rows(
        connection,
        segment_pages,
        [
            {"number": first + page, "postings": postings[page * PAGE : (page + 1) * PAGE].tobytes()}
            for page in range(pages)
        ],
    )


# Segments that were read. They never change, and their numbers are not used again, so nothing needs to be forgotten.

MAX_CACHED_BYTES: Final = 32 * 1024 * 1024
"""Of segments, and again of pages of large ones."""

T = TypeVar("T")


class SegmentCache:
    """For connections that only read: what a transaction writes may be rolled back, and its numbers given again."""

    def __init__(self) -> None:
        self._segments = ByteCache[int, _OpenedSegment](MAX_CACHED_BYTES)
        self._pages = ByteCache[int, _Numbers](MAX_CACHED_BYTES)

    def open_segments(self, connection: Connection, worlds: Collection[int]) -> list[_OpenedSegment]:
        numbers = _find_segments(connection, worlds)
        segments = self._segments.find_all(numbers)
        if missing := [number for number in numbers if number not in segments]:
            opened = {one.number: one for one in _open_segments(connection, missing)}
            for number, one in opened.items():
                self._segments.put(number, one, one.segment.size)
            segments |= opened
        return [segments[number] for number in numbers]

    def read_pages(self, connection: Connection, number: int, pages: Sequence[int]) -> list[_Numbers]:
        first = number * _PAGES_PER_SEGMENT
        by_number = self._pages.find_all([first + page for page in pages])
        if missing := [page for page in pages if first + page not in by_number]:
            postings = _read_pages(connection, number, missing)
            # A copy of each, or a page that stays would hold all pages that were read with it.
            loaded = {first + page: postings[n * PAGE : (n + 1) * PAGE].copy() for n, page in enumerate(missing)}
            for key, values in loaded.items():
                self._pages.put(key, values, values.nbytes)
            by_number |= loaded
        return [by_number[first + page] for page in pages]


# Searches: all queries at once, segment by segment.

_NOTHING: Final[_Numbers] = np.zeros(0, np.uint64)
_EARLIEST: Final = -(2**62)
"""A time earlier than any event."""


@dataclass(frozen=True)
class _Hits:
    """Postings found: which query found which time and sequence."""

    queries: _Integers
    times: _Integers
    sequences: _Integers

    def list_rows(self) -> list[tuple[int, int, int]]:
        return list(zip(self.queries.tolist(), self.times.tolist(), self.sequences.tolist(), strict=True))


class _QueryTable:
    """Queries of seeks as columns."""

    def __init__(self, seeks: Sequence[PostingSeek]) -> None:
        flat = [query for seek in seeks for query in seek.queries]
        self.sizes = [len(seek.queries) for seek in seeks]
        self.seeks = np.repeat(np.arange(len(seeks)), self.sizes)
        self.keys = np.array([_combine_key(query.key) for query in flat], np.uint64)
        self.untils = np.array([query.until for query in flat], np.int64)
        self.mosts = self._repeat([seek.most for seek in seeks])
        self.newest = self._repeat([seek.after is None for seek in seeks]).astype(bool)
        self.afters = self._repeat([_EARLIEST if seek.after is None else seek.after for seek in seeks])
        rows = defaultdict[int, list[int]](list)
        for row, query in enumerate(flat):
            rows[query.world].append(row)
        self.rows_by_world = {world: np.array(of_world, np.int64) for world, of_world in rows.items()}

    def _repeat(self, values: Sequence[int]) -> _Integers:
        return np.repeat(np.array(values, np.int64), self.sizes)


class _SegmentReader:
    """Reads postings of a segment, and each page once."""

    def __init__(self, connection: Connection, cache: SegmentCache, opened: _OpenedSegment) -> None:
        self._connection = connection
        self._cache = cache
        self._opened = opened
        self.world = opened.world
        self.segment = opened.segment

    def count_below(self, bounds: _Numbers) -> _Integers:
        """How many postings are below each bound."""
        if not self._opened.pages:
            return np.searchsorted(self.segment.postings, bounds)
        # The last page that begins below the bound: the pages before it are wholly below, those after it are not.
        pages = np.maximum(np.searchsorted(self.segment.postings, bounds) - 1, 0)
        needed, postings = self._load(pages)
        skipped = needed - np.arange(len(needed))
        return np.searchsorted(postings, bounds) + PAGE * skipped[np.searchsorted(needed, pages)]

    def get_postings(self, positions: _Integers) -> _Numbers:
        if not self._opened.pages:
            return self.segment.postings[positions]
        pages = positions // PAGE
        needed, postings = self._load(pages)
        selected: _Numbers = postings[positions % PAGE + PAGE * np.searchsorted(needed, pages)]
        return selected

    def _load(self, pages: _Integers) -> tuple[_Integers, _Numbers]:
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
            firsts, ends = reader.count_below(bounds)
            totals[queries] += ends - firsts
            if len(removed := reader.segment.removed):
                firsts, ends = np.searchsorted(removed, bounds)
                totals[queries] -= ends - firsts
        counts = iter(np.minimum(totals, table.mosts).tolist())
        return [list(islice(counts, size)) for size in table.sizes]

    def find(self, seeks: Sequence[PostingSeek]) -> list[PostingHits]:
        table = _QueryTable(seeks)
        bounded = list(self._list_bounds(table))
        removed = _join_hits([_find_removed(*one) for one in bounded if len(one[0].segment.removed)])
        # As many more as were removed, since any of the newest may be among those.
        rooms = table.mosts + np.bincount(removed.queries, minlength=len(table.keys))
        hits = []
        for reader, queries, bounds in bounded:
            firsts, ends = reader.count_below(bounds)
            newest, room = table.newest[queries], rooms[queries]
            starts = np.where(newest, np.maximum(firsts, ends - room), firsts)
            positions, owners = _list_positions(starts, np.minimum(ends, starts + room))
            hits.append(_resolve_hits(reader, queries[owners], reader.get_postings(positions)))
        return _list_first_hits(_drop_removed(_join_hits(hits), removed), table)

    def _list_bounds(self, table: _QueryTable) -> Iterator[tuple[_SegmentReader, _Integers, _Numbers]]:
        """Each segment, the queries of its world, and between which postings each of them finds its own: two rows."""
        for reader in self._readers:
            queries = table.rows_by_world.get(reader.world)
            if queries is not None:
                moments = np.stack([table.afters[queries], table.untils[queries]])
                # A slice must not end before it begins: a branch may end before the time that is asked after.
                moments[0] = np.minimum(moments[0], moments[1])
                ordinals = np.searchsorted(reader.segment.times, moments, side="right")
                yield reader, queries, table.keys[queries] | ordinals.astype(np.uint64)


def _list_positions(firsts: _Integers, ends: _Integers) -> tuple[_Integers, _Integers]:
    """All positions of all slices, and which slice each is of."""
    lengths = ends - firsts
    owners = np.repeat(np.arange(len(lengths)), lengths)
    return np.arange(len(owners)) + np.repeat(firsts - (np.cumsum(lengths) - lengths), lengths), owners


def _find_removed(reader: _SegmentReader, queries: _Integers, bounds: _Numbers) -> _Hits:
    firsts, ends = np.searchsorted(reader.segment.removed, bounds)
    positions, owners = _list_positions(firsts, ends)
    return _resolve_hits(reader, queries[owners], reader.segment.removed[positions])


def _resolve_hits(reader: _SegmentReader, queries: _Integers, postings: _Numbers) -> _Hits:
    ordinals = (postings & _ORDINAL_MASK).astype(np.int64)
    sequences = reader.segment.places[ordinals].astype(np.int64) + compute_sequence(reader.world, 0)
    return _Hits(queries, reader.segment.times[ordinals], sequences)


def _join_hits(hits: Sequence[_Hits]) -> _Hits:
    empty = np.zeros(0, np.int64)
    return _Hits(
        np.concatenate([empty, *(one.queries for one in hits)]),
        np.concatenate([empty, *(one.times for one in hits)]),
        np.concatenate([empty, *(one.sequences for one in hits)]),
    )


def _drop_removed(hits: _Hits, removed: _Hits) -> _Hits:
    """As often as each was removed: what was corrected may be there again."""
    left = Counter(removed.list_rows())
    if not left:
        return hits
    stays = []
    for row in hits.list_rows():
        left[row] -= 1
        stays.append(left[row] < 0)
    chosen = np.array(stays, bool)
    return _Hits(hits.queries[chosen], hits.times[chosen], hits.sequences[chosen])


def _list_first_hits(hits: _Hits, table: _QueryTable) -> list[PostingHits]:
    """The first ones of each query, in the order of its seek."""
    # Newest first is ascending order of negated times.
    signs = np.where(table.newest[hits.queries], -1, 1)
    times, sequences = signs * hits.times, signs * hits.sequences
    order = np.lexsort((sequences, times, hits.queries))
    queries = hits.queries[order]
    ranks = np.arange(len(order)) - np.searchsorted(queries, queries)
    chosen = order[ranks < table.mosts[queries]]
    seeks = table.seeks[hits.queries[chosen]]
    order = np.lexsort((sequences[chosen], times[chosen], seeks))
    chosen = chosen[order]
    pairs = zip(hits.times[chosen].tolist(), hits.sequences[chosen].tolist(), strict=True)
    return [list(islice(pairs, size)) for size in np.bincount(seeks, minlength=len(table.sizes)).tolist()]
