"""Removing what is stored, a little at a time."""

from dataclasses import dataclass
from typing import Protocol

from app.domain.retention import LeftoverKind, Pruned, PrunePlan, PruneRule, Reduced, ReducePlan, ReduceRule


@dataclass(frozen=True)
class PrunedBatch:
    """`after` is where the next batch begins; None at the end."""

    pruned: Pruned
    after: int | None


@dataclass(frozen=True)
class ReducedBatch:
    reduced: Reduced
    after: int | None


@dataclass(frozen=True)
class SweptBatch:
    removed: int
    after: str | None


class RetentionStore(Protocol):
    """Each batch is complete by itself, so that pruning may stop after any and begin anew."""

    async def plan(self, rule: PruneRule) -> PrunePlan:
        """What would go, and what is kept although it is old enough."""

    async def prune_groups(self, plan: PrunePlan, after: int, limit: int) -> PrunedBatch:
        """Removes the oldest groups of the plan behind `after`, with their judgements and prompts that nothing else
        uses. What they had added to the statistics stays. Groups that have changed meanwhile stay too."""

    async def sweep(self, rule: PruneRule, kind: LeftoverKind, after: str, limit: int) -> SweptBatch:
        """Removes leftovers behind the key `after`."""

    async def has_keep_rules(self) -> bool:
        """Whether a run says what stays of its groups."""

    async def plan_reduction(self, rule: ReduceRule) -> ReducePlan:
        """Which groups would lose which parts. A run's own choice goes before the rule's."""

    async def reduce_groups(self, plan: ReducePlan, after: int, limit: int) -> ReducedBatch:
        """Reduces the oldest groups of the plan behind `after`. Groups that have changed meanwhile stay as they are."""

    async def take_turn(self, job: str, holder: str, *, every_seconds: float, seconds: float) -> bool:
        """Whether it is time for the job, and nobody else has it. The holder has it for `seconds`; asking again
        prolongs that."""

    async def end_turn(self, job: str, holder: str) -> None:
        """The job is done until it is time again."""
