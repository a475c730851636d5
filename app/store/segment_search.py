"""Searches of the event index in SQLite: all queries at once, segment by segment."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from app.store.event_rows import compute_sequence
from app.store.posting_index import PostingHits, PostingIndex, PostingSeek
from app.store.posting_segments import ORDINAL_MASK, Numbers, combine_key
from app.store.segment_cache import SegmentCache
from app.store.segment_rows import PAGE, OpenedSegment

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
