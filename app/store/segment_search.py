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
from app.store.posting_index import PostingHits, PostingIndex, PostingQuery
from app.store.posting_segments import ORDINAL_MASK, Numbers, combine_key
from app.store.segment_rows import PAGE, OpenedSegment, open_segments, read_pages

Indices = NDArray[np.int64]

_MASK: Final = np.uint64(ORDINAL_MASK)


@dataclass(frozen=True)
class _Hits:
    """Postings found: which query found which time and sequence."""

    queries: Indices
    times: Indices
    sequences: Indices

    def list_rows(self) -> list[tuple[int, int, int]]:
        return list(zip(self.queries.tolist(), self.times.tolist(), self.sequences.tolist(), strict=True))


class _QueryTable:
    """Queries of groups as columns."""

    def __init__(self, groups: Sequence[Sequence[PostingQuery]]) -> None:
        flat = [query for group in groups for query in group]
        self.sizes = [len(group) for group in groups]
        self.groups = np.repeat(np.arange(len(groups)), self.sizes)
        self.keys = np.array([combine_key(query.key) for query in flat], np.uint64)
        self.untils = np.array([query.until for query in flat], np.int64)
        places = defaultdict[int, list[int]](list)
        for place, query in enumerate(flat):
            places[query.world].append(place)
        self.places = {world: np.array(found, np.int64) for world, found in places.items()}


class _SegmentReader:
    """Reads postings of a segment, and each page once."""

    def __init__(self, connection: Connection, opened: OpenedSegment) -> None:
        self._connection = connection
        self._opened = opened
        self._pages: dict[int, Numbers] = {}
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
        return postings[places % PAGE + PAGE * np.searchsorted(needed, pages)]

    def _load(self, pages: Indices) -> tuple[Indices, Numbers]:
        """The distinct pages in order, and their postings."""
        needed = np.unique(pages)
        numbers = needed.tolist()
        missing = [page for page in numbers if page not in self._pages]
        if missing:
            found = read_pages(self._connection, self._opened.number, missing)
            self._pages |= {page: found[n * PAGE : (n + 1) * PAGE] for n, page in enumerate(missing)}
        empty = np.zeros(0, np.uint64)
        return needed, np.concatenate([empty, *(self._pages[page] for page in numbers)])


class SegmentIndex(PostingIndex):
    def __init__(self, connection: Connection, worlds: Collection[int]) -> None:
        self._readers = [_SegmentReader(connection, opened) for opened in open_segments(connection, worlds)]

    def count(self, groups: Sequence[Sequence[PostingQuery]], mosts: Sequence[int]) -> list[list[int]]:
        table = _QueryTable(groups)
        totals = np.zeros(len(table.keys), np.int64)
        for reader, queries, bounds in self._list_bounds(table, None):
            totals[queries] += np.diff(reader.find_places(bounds), axis=0)[0]
            totals[queries] -= np.diff(np.searchsorted(reader.segment.removed, bounds), axis=0)[0]
        counted = iter(np.minimum(totals, np.repeat(np.array(mosts, np.int64), table.sizes)).tolist())
        return [list(islice(counted, size)) for size in table.sizes]

    def find_newest(self, groups: Sequence[Sequence[PostingQuery]], most: int) -> list[PostingHits]:
        return self._find(_QueryTable(groups), None, most)

    def find_following(self, groups: Sequence[Sequence[PostingQuery]], after: int, most: int) -> list[PostingHits]:
        return self._find(_QueryTable(groups), after, most)

    def _find(self, table: _QueryTable, after: int | None, most: int) -> list[PostingHits]:
        """The first ones after `after`, else the newest."""
        removed = _join_hits([_find_removed(*one) for one in self._list_bounds(table, after)])
        rooms = most + np.bincount(removed.queries, minlength=len(table.keys))
        hits = []
        for reader, queries, bounds in self._list_bounds(table, after):
            firsts, ends = reader.find_places(bounds)
            if after is None:
                firsts = np.maximum(firsts, ends - rooms[queries])
            else:
                ends = np.minimum(ends, firsts + rooms[queries])
            places, owners = _list_places(firsts, ends)
            hits.append(_resolve_hits(reader, queries[owners], reader.get_postings(places)))
        found = _drop_removed(_join_hits(hits), removed)
        return _list_first_hits(found, table, most, newest=after is None)

    def _list_bounds(self, table: _QueryTable, after: int | None) -> Iterator[tuple[_SegmentReader, Indices, Numbers]]:
        """Each segment, the queries of its world, and between which postings each of them finds its own: two rows."""
        for reader in self._readers:
            queries = table.places.get(reader.world)
            if queries is None:
                continue
            times, keys = reader.segment.times, table.keys[queries]
            ends = np.searchsorted(times, table.untils[queries], side="right")
            firsts = 0 if after is None else np.minimum(np.searchsorted(times, after, side="right"), ends)
            yield reader, queries, np.stack([keys | np.asarray(firsts, np.uint64), keys | ends.astype(np.uint64)])


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


def _list_first_hits(found: _Hits, table: _QueryTable, most: int, *, newest: bool) -> list[PostingHits]:
    """The first `most` of each query, sorted by group."""
    sign = -1 if newest else 1
    order = np.lexsort((sign * found.sequences, sign * found.times, found.queries))
    queries = found.queries[order]
    chosen = order[np.arange(len(order)) - np.searchsorted(queries, queries) < most]
    groups, times, sequences = table.groups[found.queries[chosen]], found.times[chosen], found.sequences[chosen]
    order = np.lexsort((sign * sequences, sign * times, groups))
    hits = zip(times[order].tolist(), sequences[order].tolist(), strict=True)
    return [list(islice(hits, size)) for size in np.bincount(groups, minlength=len(table.sizes)).tolist()]
