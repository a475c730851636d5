"""What the index of events answers, on either database."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.store.posting_keys import PostingKey


@dataclass(frozen=True)
class PostingQuery:
    """A query for events of `world` under `key` with times up to `until`."""

    world: int
    key: PostingKey
    until: int


@dataclass(frozen=True)
class PostingSeek:
    """Queries that are answered together: `most` of each, newest first, or with `after` the first after it."""

    queries: Sequence[PostingQuery]
    most: int
    after: int | None = None


PostingHits = list[tuple[int, int]]
"""Pairs of time and sequence."""


class PostingIndex(Protocol):
    def count(self, seeks: Sequence[PostingSeek]) -> list[list[int]]:
        """Number of events per query, counted up to `most`.."""

    def find(self, seeks: Sequence[PostingSeek]) -> list[PostingHits]:
        """The events of each seek: newest first, or with `after` oldest first. May contain duplicates."""
