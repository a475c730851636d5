"""Which groups are pruned, and which are kept whatever their age."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from app.domain.access import Patterns
from app.domain.runs import Purpose
from app.domain.values import Frozen

KeptFor = Literal["labelled", "anchor", "pending", "uncounted"]
"""Why a group is kept: people labelled it or are about to; the health of its run is measured by it; it is not scored
yet; statistics do not include it yet."""


class PruneRule(Frozen):
    """All groups that match are pruned, but for those that are kept."""

    before: datetime
    """Only groups that were created before it."""
    runs: Patterns = ()
    """Empty: all. With `*` at its end a name stands for all that begin so."""
    environment: str | None = None
    purposes: Annotated[tuple[Purpose, ...], Field(min_length=1)] = ("train",)
    """Evaluations are kept unless they are named."""


class PrunePlan(Frozen):
    """What a rule would prune now."""

    groups: int
    rollouts: int
    kept: dict[KeptFor, int]
    """Matching groups that are kept, by the first reason that applies."""


class PrunedBatch(Frozen):
    """`after` is the last group that was looked at, null when none is left."""

    groups: int = 0
    rollouts: int = 0
    after: int | None = None
