"""Prunes in small batches with pauses, so that whoever scores meanwhile waits for none of them long."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from app.domain.retention import Pruned, PrunePlan, PruneRule
from app.ports.retention import RetentionStore

log = logging.getLogger(__name__)

GROUPS_AT_ONCE: Final = 16
ROWS_AT_ONCE: Final = 500
PAUSES: Final = 3.0
"""A pause is so many times as long as the batch before it took."""
LEAST_PAUSE_SECONDS: Final = 0.02

Report = Callable[[Pruned], None]
"""Called with what each batch has removed."""


class Pruner:
    def __init__(self, store: RetentionStore, *, pauses: float = PAUSES) -> None:
        self._store = store
        self._pauses = pauses

    async def plan(self, rule: PruneRule) -> PrunePlan:
        return await self._store.plan(rule)

    async def prune(self, plan: PrunePlan, report: Report) -> Pruned:
        """Until nothing of the plan is left. It may be cancelled at any time: what is reported is gone."""
        total = Pruned()
        after: int | None = 0
        while after is not None and (plan.excess_bytes is None or total.bytes < plan.excess_bytes):
            began = time.monotonic()
            batch = await self._store.prune_groups(plan, after, GROUPS_AT_ONCE)
            after = batch.after
            total += batch.pruned
            report(batch.pruned)
            await self._pause(began)
        return total + await self._sweep(plan.rule, report)

    async def _sweep(self, rule: PruneRule, report: Report) -> Pruned:
        total = Pruned()
        for kind in rule.leftovers:
            after: str | None = ""
            while after is not None:
                began = time.monotonic()
                batch = await self._store.sweep(rule, kind, after, ROWS_AT_ONCE)
                after = batch.after
                removed = Pruned.model_validate({kind: batch.removed})
                total += removed
                report(removed)
                await self._pause(began)
        return total

    async def _pause(self, began: float) -> None:
        await asyncio.sleep(max(LEAST_PAUSE_SECONDS, self._pauses * (time.monotonic() - began)))
