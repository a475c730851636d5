"""Quotas of keys: they stop the handing out of tasks, and never the scoring of what was handed out."""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from math import ceil
from typing import Final

from app.domain.access import Caller, current_caller
from app.domain.budgets import NO_AMOUNT, Amount
from app.domain.errors import QuotaExceeded, StoreUnavailable
from app.domain.groups import TaskRecord
from app.domain.quotas import Demand, KeyUsage, QuotaUse
from app.domain.runs import HeldLease
from app.ports.judges import Panels
from app.ports.keys import HandOut, HandOutGrant, HandOutPart, QuotaStore
from app.ports.runtime import Clock
from app.service.catalogue import Catalogue
from app.service.dealt_batch import DealtBatch
from app.service.request_models import NextBatch, NextMixedBatch, ScoreRequest
from app.service.run_budgets import bound_unknown_group
from app.service.run_registry import RunRegistry

log = logging.getLogger(__name__)

SOON_SECONDS: Final = 5
"""After so long a request is tried again that waits for the scoring of tasks."""
_MOST_ADMISSIONS: Final = 10_000


class QuotaService:
    """Counts and limits what the key of the current task uses. Without a key, or without quotas, it does nothing."""

    def __init__(
        self, store: QuotaStore, catalogue: Catalogue, panels: Panels, runs: RunRegistry, clock: Clock
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._panels = panels
        self._runs = runs
        self._clock = clock
        self._admitted: dict[tuple[str, str], datetime] = {}
        """Until when runs are known to be admitted."""
        self._warned: dict[tuple[str, str], datetime] = {}

    async def hand_out(
        self,
        request: NextBatch | NextMixedBatch,
        counts: Mapping[str, int],
        make: Callable[[], Awaitable[DealtBatch]],
    ) -> DealtBatch:
        """The batch that `make` makes, with warnings of the key's quotas. `counts` are its tasks by environment.
        QuotaExceeded before anything is made."""
        caller = current_caller.get()
        if caller is None or caller.quotas.is_open:
            return await make()
        grant = await self._store.reserve(await self._build_hand_out(caller, request, counts))
        if grant.exceeded is not None:
            raise self._refuse(caller, grant.exceeded)
        try:
            batch = await make()
        except BaseException:
            with suppress(StoreUnavailable):
                await self._store.confirm(caller.name, grant.hold, {})
            raise
        if grant.hold:
            await self._store.confirm(caller.name, grant.hold, _list_leases(batch, grant))
        return replace(batch, warnings=self._warn(caller, grant.uses))

    async def admit_scoring(
        self, request: ScoreRequest, records: Mapping[str, TaskRecord], leases: Mapping[str, HeldLease]
    ) -> None:
        """QuotaExceeded when a quota of judging is used up and the request begins the day's scoring of a run that was
        handed no tasks, such as one from a file of prompts."""
        caller = current_caller.get()
        if caller is None or caller.quotas.is_open:
            return
        judged = any(
            self._catalogue.get_environment_or_current(records[group.task_id].key.environment).environment.rubric
            for group in request.groups
            if group.task_id in records and group.lease_id not in leases
        )
        run = request.run or ""
        new = {run} if judged and caller.quotas.limits_judging and not self._is_admitted(caller.name, run) else set()
        if not new and caller.quotas.requests_per_day is None:
            return
        exceeded = await self._store.admit_runs(caller.name, caller.quotas, new)
        if exceeded is not None:
            raise self._refuse(caller, exceeded)
        if new:
            self._remember_admission(caller.name, run)

    async def require_judging(self) -> None:
        """QuotaExceeded when a quota of judging is used up: for work that nobody was promised."""
        caller = current_caller.get()
        if caller is None or not caller.quotas.limits_judging:
            return
        usage = await self._store.load_usage(caller.name)
        exceeded = usage.find_exceeded(caller.quotas, Demand(requests=0, is_judged=True))
        if exceeded is not None:
            raise self._refuse(caller, exceeded)

    async def load_usage(self, caller: Caller) -> KeyUsage:
        return await self._store.load_usage(caller.name)

    async def _build_hand_out(
        self, caller: Caller, request: NextBatch | NextMixedBatch, counts: Mapping[str, int]
    ) -> HandOut:
        options = await self._runs.find_options(request.run)
        parts = []
        for name, count in counts.items():
            hosted = self._catalogue.get_environment_or_current(name)
            bound = None
            if hosted.environment.rubric is not None:
                bound = bound_unknown_group(self._panels.resolve_options(name, options), self._panels)
            parts.append(HandOutPart(name, count, bound))
        is_leased = request.run is not None and request.cursor is None
        return HandOut(caller.name, caller.quotas, request.run, is_leased, tuple(parts))

    def _is_admitted(self, key: str, run: str) -> bool:
        until = self._admitted.get((key, run))
        return until is not None and self._clock() < until

    def _remember_admission(self, key: str, run: str) -> None:
        if len(self._admitted) >= _MOST_ADMISSIONS:
            self._admitted.clear()
        midnight = self._clock().replace(hour=23, minute=59, second=59)
        self._admitted[key, run] = midnight

    def _refuse(self, caller: Caller, use: QuotaUse) -> QuotaExceeded:
        seconds = max(1, ceil((use.until - self._clock()).total_seconds()))
        return QuotaExceeded(
            f"the key {caller.name!r} has no room in a quota: {use.describe()}",
            retry_after=min(seconds, SOON_SECONDS) if use.frees_itself else seconds,
        )

    def _warn(self, caller: Caller, uses: tuple[QuotaUse, ...]) -> tuple[str, ...]:
        """Each is logged once in its time."""
        close = [use for use in uses if use.needs_warning]
        for use in close:
            if self._warned.get((caller.name, use.quota)) != use.until:
                self._warned[caller.name, use.quota] = use.until
                log.warning("the key %s comes to the end of its quota: %s", caller.name, use.describe())
        return tuple(use.describe() for use in close)


def share_batch(request: NextMixedBatch) -> dict[str, int]:
    """Tasks by environment, as many as their weights let one expect, rounded up."""
    total = sum(member.weight for member in request.mix)
    counts: Counter[str] = Counter()
    for member in request.mix:
        counts[member.env] += ceil(request.batch_size * member.weight / total)
    return dict(counts)


def _list_leases(batch: DealtBatch, grant: HandOutGrant) -> dict[str, Amount]:
    return {
        lease.lease_id: grant.expected.get(made.record.key.environment, NO_AMOUNT)
        for made, lease in batch.tasks
        if lease is not None
    }
