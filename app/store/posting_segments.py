"""Segments of the event index: sorted arrays of postings that never change, and are merged into larger ones.

A posting is one number: 40 bits of its key, then the ordinal of its event among the segment's, which are in order of
time. So "the newest of a key up to a time" is a slice that ends where a binary search says. Half of the key's bits are
of the term, so that what a question asks of a term, for everybody and for each name, lies close together.

An event that is withdrawn or corrected is taken away by the same postings in `removed`. A merge lets both go.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.store.posting_keys import PostedEvent, PostingKey

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
