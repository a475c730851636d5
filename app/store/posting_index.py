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


PostingHits = list[tuple[int, int]]
"""Pairs of time and sequence."""


class PostingIndex(Protocol):
    """Queries come in groups, and so do the answers."""

    def count(self, groups: Sequence[Sequence[PostingQuery]], mosts: Sequence[int]) -> list[list[int]]:
        """Number of events per query, counted up to the group's limit in `mosts`."""

    def find_newest(self, groups: Sequence[Sequence[PostingQuery]], most: int) -> list[PostingHits]:
        """The newest `most` events of each query, by group, newest first. May contain duplicates."""

    def find_following(self, groups: Sequence[Sequence[PostingQuery]], after: int, most: int) -> list[PostingHits]:
        """The first `most` events after `after` of each query, by group, oldest first. May contain duplicates."""
