"""The index of texts, which is written behind everything else."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class IndexedBatch:
    """`indexed` groups were taken in. `is_last` where none was left to be taken in."""

    indexed: int
    is_last: bool


@dataclass(frozen=True)
class GroupSnapshot:
    """`newest` is the sequence of the newest group that is stored; 0 without any. `writers` name the transactions that
    may still store one of a lower sequence, as an operator finds them in the database."""

    newest: int
    writers: frozenset[str] = frozenset()


class TextIndexStore(Protocol):
    async def take_snapshot(self) -> GroupSnapshot: ...

    async def find_open_writers(self, snapshot: GroupSnapshot) -> frozenset[str]:
        """Those of its writers that have not ended. Without any, all groups up to its newest are there that ever will
        be."""

    async def is_behind(self) -> bool:
        """Whether a group is stored that the index could take in."""

    async def index_texts(self, up_to: int, limit: int) -> IndexedBatch:
        """Takes in the oldest groups up to this sequence that the index does not have. Those without scores are passed
        over, and taken in once they have some."""
