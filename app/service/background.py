"""Work in the background: what is done for ever, again and again, and the kernel's own of it: pruning, reducing,
clearing of pieces, and the index of texts.

All of it goes in small batches, with pauses in proportion to the batch before, so that whoever scores meanwhile waits
for none of them long. Where replicas share a store one of them claims the work; what one that has died had becomes
free after a time. Everything may be cancelled between batches: what is done stays done.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeVar

from app.domain.errors import GatewayError
from app.domain.keeping import KeepLevel, list_dropped
from app.domain.retention import Pruned, PrunePlan, PruneRule, Reduced, ReducePlan, ReduceRule, RunPattern
from app.domain.runs import Purpose
from app.domain.values import utc_now
from app.ports.environment import Clock
from app.store.claims import Claim, ClaimStore, build_claim
from app.store.pending_groups import PendingGroupStore
from app.store.retention import RetentionStore
from app.store.text_index import GroupSnapshot, TextIndexStore

log = logging.getLogger(__name__)


async def repeat(
    work: Callable[[], Awaitable[object]], every_seconds: float, failure: str, *, failed_seconds: float | None = None
) -> None:
    """Does the work for ever, with pauses of `every_seconds`. What fails is logged as `failure` and done again after
    `failed_seconds`, or the usual pause: it ends neither this loop nor those beside it."""
    while True:
        pause = every_seconds
        try:
            await work()
        except GatewayError as error:
            pause = failed_seconds or every_seconds
            log.warning("%s; this is tried again: %s", failure, error.detail)
        except Exception:
            pause = failed_seconds or every_seconds
            log.exception("%s; this is tried again", failure)
        await asyncio.sleep(pause)


# Claimed work: what one replica does at a time.

_CLAIM_SECONDS: Final = 120.0
"""What a replica that has died had is free after so long."""

WorkT = TypeVar("WorkT")


async def work_with_claim(
    claims: ClaimStore, claim: Claim, seconds: float, work: Callable[[], Awaitable[WorkT]]
) -> WorkT | None:
    """Does the work, and meanwhile renews the claim, which was taken for so long. Where somebody else has it since, the
    work is stopped, and None returned."""
    working = asyncio.ensure_future(work())
    try:
        while not (await asyncio.wait({working}, timeout=seconds / 3))[0]:
            with contextlib.suppress(GatewayError):  # there is time for another try
                if not await claims.renew(claim, seconds):
                    return None
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    return working.result()


async def _work_if_due(
    claims: ClaimStore, claim: Claim, work: Callable[[], Awaitable[WorkT]], *, every_seconds: float = 0.0
) -> WorkT | None:
    """None when it is not time, or another replica has the claim. What fails leaves its claim, which is over in
    minutes: a claim that is released rests, and a store that was away for a moment would put the work off by a day."""
    if not await claims.take(claim, _CLAIM_SECONDS, rest_seconds=every_seconds):
        return None
    done = await work_with_claim(claims, claim, _CLAIM_SECONDS, work)
    await claims.release(claim)
    return done


# Pruning and reducing

_FEWEST_GROUPS: Final = 8
_MOST_GROUPS: Final = 512
"""Of one batch. The first has the fewest."""
_BATCH_SECONDS: Final = 0.25
"""What a batch should take, of which a third is a transaction that holds up others' writes. Of small groups so many go
at once: a commit for each few took most of the time."""
_ROWS_AT_ONCE: Final = 500
_PAUSES: Final = 4.0
"""A pause is so many times as long as the batch before it took."""
PAUSES_OF_COMMANDS: Final = 1.0
"""In a process of its own the work takes no time of the service's, and somebody waits for it."""
_MIN_PAUSE_SECONDS: Final = 0.02

_LOOK_SECONDS: Final = 300.0
"""How often a replica asks whether it is its turn."""
_PRUNE_EVERY_SECONDS: Final = 86_400.0
"""Ages are told in days. A look that finds nothing costs next to nothing, and a late one keeps a day more."""
_REDUCE_EVERY_SECONDS: Final = 3600.0
"""Ages are told in hours."""
_JOB: Final = "job"

Report = Callable[[Pruned], None]
"""Called with what each batch has removed."""
ReduceReport = Callable[[Reduced], None]


@dataclass(frozen=True)
class PruneSchedule:
    older_than_seconds: float
    runs: tuple[RunPattern, ...] = ()
    purposes: tuple[Purpose, ...] = ("train",)


@dataclass(frozen=True)
class ReduceSchedule:
    keep: KeepLevel
    older_than_seconds: float


def size_batch(former: int, seconds: float) -> int:
    """How many groups the next batch has, after one of so many that took so long."""
    fitting = former * _BATCH_SECONDS / max(seconds, 1e-6)
    return round(min(_MOST_GROUPS, 2 * former, max(_FEWEST_GROUPS, fitting)))


def _count_spare(excess: int, done: Pruned) -> int:
    """Half of the groups that are still too many, by the size of those that are gone: no more goes than has to."""
    still = done.groups * (excess - done.bytes) // max(done.bytes, 1)
    return max(_FEWEST_GROUPS, still // 2)


class Pruner:
    """Removes old groups, or parts of them, by a plan or by a schedule."""

    def __init__(
        self, store: RetentionStore, claims: ClaimStore, *, pauses: float = _PAUSES, clock: Clock = utc_now
    ) -> None:
        self._store = store
        self._claims = claims
        self._clock = clock
        self._pauses = pauses

    async def plan(self, rule: PruneRule) -> PrunePlan:
        return await self._store.plan(rule)

    async def prune(self, plan: PrunePlan, report: Report) -> Pruned:
        """Until nothing of the plan is left. It may be cancelled at any time: what is reported is gone."""
        total = Pruned()
        after: int | None = 0
        size = _FEWEST_GROUPS
        while after is not None and (plan.excess_bytes is None or total.bytes < plan.excess_bytes):
            began = time.monotonic()
            if plan.excess_bytes is not None:
                size = min(size, _count_spare(plan.excess_bytes, total))
            batch = await self._store.prune_groups(plan, after, size)
            size = size_batch(size, time.monotonic() - began)
            after = batch.after
            total += batch.pruned
            report(batch.pruned)
            await self._pause(began)
        return total + await self._sweep(plan.rule, report)

    async def plan_reduction(self, rule: ReduceRule) -> ReducePlan:
        return await self._store.plan_reduction(rule)

    async def reduce(self, plan: ReducePlan, report: ReduceReport) -> Reduced:
        """Until no group of the plan is left. It may be cancelled at any time: what is reported is reduced."""
        total = Reduced()
        after: int | None = 0 if plan.groups else None
        size = _FEWEST_GROUPS
        while after is not None:
            began = time.monotonic()
            batch = await self._store.reduce_groups(plan, after, size)
            size = size_batch(size, time.monotonic() - began)
            after = batch.after
            total += batch.reduced
            report(batch.reduced)
            await self._pause(began)
        return total

    async def prune_by_schedule(self, schedule: PruneSchedule) -> None:
        """Prunes for ever, by one replica at a time."""
        claim = build_claim(_JOB, "prune")
        await repeat(lambda: self.prune_if_due(schedule, claim), _LOOK_SECONDS, "old groups could not be removed")

    async def reduce_by_schedule(self, schedule: ReduceSchedule) -> None:
        """Reduces for ever, by one replica at a time. Runs may say at any time what they keep."""
        claim = build_claim(_JOB, "reduce")
        await repeat(lambda: self.reduce_if_due(schedule, claim), _LOOK_SECONDS, "old groups could not be reduced")

    async def prune_if_due(self, schedule: PruneSchedule, claim: Claim) -> None:
        every = _PRUNE_EVERY_SECONDS
        await _work_if_due(self._claims, claim, lambda: self._prune_by_rule(schedule), every_seconds=every)

    async def reduce_if_due(self, schedule: ReduceSchedule, claim: Claim) -> Reduced | None:
        """None when it is not time, another replica has the claim, or neither the schedule nor a run says that anything
        goes."""
        if not list_dropped(schedule.keep) and not await self._store.has_keep_rules():
            return None
        every = _REDUCE_EVERY_SECONDS
        return await _work_if_due(self._claims, claim, lambda: self._reduce_by_rule(schedule), every_seconds=every)

    async def _prune_by_rule(self, schedule: PruneSchedule) -> Pruned:
        before = self._clock() - timedelta(seconds=schedule.older_than_seconds)
        rule = PruneRule(before=before, runs=schedule.runs, purposes=schedule.purposes)
        pruned = await self.prune(await self.plan(rule), _ignore)
        if pruned != Pruned():
            log.info("removed what was stored before %s: %s", f"{before:%Y-%m-%d %H:%M}", pruned)
        return pruned

    async def _reduce_by_rule(self, schedule: ReduceSchedule) -> Reduced:
        before = self._clock() - timedelta(seconds=schedule.older_than_seconds)
        reduced = await self.reduce(await self.plan_reduction(ReduceRule(before=before, keep=schedule.keep)), _ignore)
        if reduced.groups:
            log.info("reduced what was stored before %s: %s", f"{before:%Y-%m-%d %H:%M}", reduced)
        return reduced

    async def _sweep(self, rule: PruneRule, report: Report) -> Pruned:
        """Removes rows that belong to no group any more."""
        total = Pruned()
        for kind in rule.leftovers:
            after: str | None = ""
            while after is not None:
                began = time.monotonic()
                batch = await self._store.sweep(rule, kind, after, _ROWS_AT_ONCE)
                after = batch.after
                removed = Pruned.model_validate({kind: batch.removed})
                total += removed
                report(removed)
                await self._pause(began)
        return total

    async def _pause(self, began: float) -> None:
        await asyncio.sleep(max(_MIN_PAUSE_SECONDS, self._pauses * (time.monotonic() - began)))


_CLEARING_SECONDS: Final = 3600.0
"""How often it is looked whether there are old pieces."""
_MIN_CLEARING_PAUSE_SECONDS: Final = 0.05
_PIECES_SECONDS: Final = 86_400.0
"""Groups in pieces are forgotten after a day; what was stored of them stays."""


async def clear_pieces_for_ever(parts: PendingGroupStore) -> None:
    """Forgets groups that came in pieces more than a day ago, a few at a time. Every replica does."""

    async def clear() -> None:
        began = time.monotonic()
        while await parts.delete_old(_PIECES_SECONDS):
            await asyncio.sleep(max(_MIN_CLEARING_PAUSE_SECONDS, _PAUSES * (time.monotonic() - began)))
            began = time.monotonic()

    await repeat(clear, _CLEARING_SECONDS, "old groups that came in pieces could not be cleared")


def _ignore(_: object) -> None:
    """For work that nobody watches."""


# The index of texts

_LEAST_AT_ONCE: Final = 16
_MOST_AT_ONCE: Final = 512
"""Groups of a batch: large ones share what a read and a write cost."""
_TAKING_IN_SECONDS: Final = 0.1
"""What a batch is meant to take; the next one has as many groups as that allows."""
INDEXER_PAUSES: Final = 2.0
"""A pause is so many times as long as the batch before it took."""
BUSY_PAUSES: Final = 9.0
"""The same while the process is busy."""
_BUSY_SHARE: Final = 0.5
"""Processor time per time of a pause from which on a process is busy."""
_INDEXER_LOOK_SECONDS: Final = 1.0
"""How often a replica looks whether somebody has searched."""
_WANTED_SECONDS: Final = 600.0
"""So long after a search that needs it the index follows what is stored at once."""
_BULK_SECONDS: Final = 3600.0
"""Otherwise it follows once in so long: most groups are never searched by their words."""
_FAILED_SECONDS: Final = 60.0
_SETTLING_SECONDS: Final = 1.0
"""How often a replica looks whether what others were storing is there."""
_PATIENCE_SECONDS: Final = 60.0
"""How long others may be storing groups before a warning says which transactions are still open."""


class TextIndexer:
    """Makes the index of texts once somebody searches by words, flags or models. From then on it follows what is stored
    within seconds while there are such searches, and in bulk once an hour (docs/decisions.md#0040)."""

    def __init__(
        self,
        texts: TextIndexStore,
        claims: ClaimStore,
        find_last_search: Callable[[], float] = lambda: -math.inf,
        patience_seconds: float = _PATIENCE_SECONDS,
        look_seconds: float = _INDEXER_LOOK_SECONDS,
    ) -> None:
        """`find_last_search` tells when this process last did a search that needs the index, as `time.monotonic`."""
        self._texts = texts
        self._claims = claims
        self._find_last_search = find_last_search
        self._patience = patience_seconds
        self._look_seconds = look_seconds
        self._bulk_at = 0.0

    async def run(self) -> None:
        """Indexes for ever, by one replica at a time."""
        claim = build_claim(_JOB, "index_texts")

        async def index() -> None:
            if await self._is_wanted() and await self._texts.is_behind():
                await _work_if_due(self._claims, claim, self.catch_up)

        await repeat(index, self._look_seconds, "texts could not be indexed", failed_seconds=_FAILED_SECONDS)

    async def _is_wanted(self) -> bool:
        now = time.monotonic()
        if now - self._find_last_search() < _WANTED_SECONDS:
            return True
        if now < self._bulk_at:
            return False
        self._bulk_at = now + _BULK_SECONDS
        return await self._texts.is_begun()

    async def catch_up(self) -> int:
        """Takes in what is stored now. It may be cancelled at any time. Returns how many groups it were."""
        snapshot = await self._texts.take_snapshot()
        await self._await_writers(snapshot)
        indexed, many = 0, _LEAST_AT_ONCE
        while True:
            began = time.monotonic()
            batch = await self._texts.index_texts(snapshot.newest, many)
            indexed += batch.indexed
            if batch.is_last:
                return indexed
            taken = time.monotonic() - began
            many = max(_LEAST_AT_ONCE, min(_MOST_AT_ONCE, 2 * many, int(many * _TAKING_IN_SECONDS / max(taken, 0.001))))
            await _rest(taken)

    async def _await_writers(self, snapshot: GroupSnapshot) -> None:
        warn_at = time.monotonic() + self._patience
        # A group becomes visible when its transaction ends, and may have a lower number than one that is indexed.
        while writers := await self._texts.find_open_writers(snapshot):  # other processes wake nobody
            if time.monotonic() >= warn_at:
                warn_at = math.inf
                log.warning(
                    "the index of texts takes in no newer groups, because a transaction that writes to `groups` has "
                    "been open for over %g s: %s",
                    self._patience,
                    ", ".join(sorted(writers)),
                )
            await asyncio.sleep(_SETTLING_SECONDS)


async def _rest(taken: float) -> None:
    """A pause after a batch that took so long: longer while the process is busy with requests."""
    began, used = time.monotonic(), time.process_time()
    await asyncio.sleep(INDEXER_PAUSES * taken)
    await asyncio.sleep(compute_rest(taken, time.process_time() - used, time.monotonic() - began))


def compute_rest(taken: float, used: float, passed: float) -> float:
    """What remains of the pause after a batch that took so long. Of the pause `passed` seconds are over, in which the
    process used so much processor time."""
    return max(0.0, BUSY_PAUSES * taken - passed) if used > _BUSY_SHARE * passed else 0.0
