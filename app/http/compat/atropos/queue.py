"""The queue between Atropos environments and trainers: the routes' operations on the stored queue."""

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from time import monotonic
from typing import Protocol

from app.domain.errors import GatewayError
from app.domain.trajectories import BatchNotReady, PackedGroup, TrajectoryBatch, TrajectoryRun, TrajectoryRunStatus
from app.http.compat.atropos.batch_encoding import build_batch_text
from app.http.compat.atropos.batching import form_batch
from app.http.compat.atropos.ingest import GroupIngest, ReadGroups
from app.http.compat.atropos.packing import unpack_group
from app.http.compat.atropos.status import explain_run
from app.ports.runtime import Clock
from app.ports.trajectories import TrajectoryQueue

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0
"""Minimum time between two stored heartbeats of an environment."""

RECORD_SECONDS = 10.0
"""How long after it was sent a batch is recorded as sent. Its last bytes may die with the process until then."""

MAX_HEARTBEATS = 10_000

MAX_RUNS = 200


class QueueObserver(Protocol):
    """Never raises, never blocks."""

    def groups_received(self, new: int, known: int) -> None:
        """`known` groups were duplicates."""

    def batch_asked(self, outcome: str) -> None:
        """`outcome` is `handed`, `again`, `not_yet` or `no_trainer`."""


class AtroposQueue:
    """One per process. It knows which batches were sent in full; they count as delivered at the next request, soon and
    after a stop also at that of another process."""

    def __init__(self, queue: TrajectoryQueue, observer: QueueObserver, clock: Clock) -> None:
        self.queue = queue
        self._observer = observer
        self._clock = clock
        self._life = secrets.token_hex(8)
        self._sent: defaultdict[str, set[int]] = defaultdict(set)
        self._owed: defaultdict[str, set[int]] = defaultdict(set)
        self._intake = GroupIngest(self._store_groups)
        self._heard: dict[tuple[str, int], float] = {}
        self._recording: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """When all connections are closed: whoever is asked next need not send again what was sent here."""
        for task in self._recording:
            task.cancel()
        for run, numbers in self._sent.items():
            await self._record_sent(run, numbers)

    async def add_groups(self, run: str, read: ReadGroups, size: int) -> int:
        """Stores the groups that `read` returns and returns their number. `size` is the post's length in bytes."""
        return await self._intake.add(run, read, size)

    async def _store_groups(self, run: str, groups: Sequence[PackedGroup]) -> None:
        new = await self.queue.add(run, groups)
        for env_id in {group.env_id for group in groups}:
            if env_id is not None:
                await self.record_heartbeat(run, env_id)
        self._observer.groups_received(new, len(groups) - new)

    async def take_batch(self, run: str) -> "OutgoingBatch | BatchNotReady | None":
        """The next batch; None without a trainer."""
        while self._owed.get(run):
            await self.give_back_batch(run, self._owed[run].pop())
        sent = frozenset(self._sent.get(run, ()))
        taken = await self.queue.take_batch(run, self._life, sent, form_batch)
        if sent:
            self._sent[run] -= sent
        self._observer.batch_asked(_name_outcome(taken))
        if not isinstance(taken, TrajectoryBatch):
            return taken
        batch = OutgoingBatch(self, run, taken.number)
        try:
            batch.text = await asyncio.to_thread(build_batch_text, taken.parts)
        except BaseException:
            await batch.settle(False)
            raise
        return batch

    async def give_back_batch(self, run: str, number: int) -> None:
        """Returns a batch that was not sent to the queue. If the store fails, the next poll returns it first."""
        try:
            await self.queue.return_batch(run, number)
        except BaseException:
            self._owed[run].add(number)
            raise

    def mark_sent(self, run: str, number: int) -> None:
        self._sent[run].add(number)
        task = asyncio.ensure_future(self._record_later(run, number))
        self._recording.add(task)
        task.add_done_callback(self._recording.discard)

    async def _record_later(self, run: str, number: int) -> None:
        """The trainer may ask another process next."""
        await asyncio.sleep(RECORD_SECONDS)
        await self._record_sent(run, self._sent[run] & {number})

    async def _record_sent(self, run: str, numbers: Collection[int]) -> None:
        try:
            if numbers:
                await self.queue.record_sent(run, numbers)
        except GatewayError as error:
            log.warning("batches of %s that were sent may be sent again: %s", run, error.detail)

    async def read_run(self, run: str) -> TrajectoryRun:
        return await self.queue.get_run(run, self._life)

    async def record_heartbeat(self, run: str, env_id: int) -> None:
        now = monotonic()
        if now - self._heard.get((run, env_id), -HEARTBEAT_SECONDS) >= HEARTBEAT_SECONDS:
            if len(self._heard) >= MAX_HEARTBEATS:
                self._heard.clear()
            self._heard[run, env_id] = now
            await self.queue.record_heartbeat(run, env_id)

    async def read_latest_group(self, run: str) -> bytes | None:
        body = await self.queue.get_newest_group_body(run)
        return None if body is None else unpack_group(body)

    async def reset_run(self, run: str) -> None:
        self._sent.pop(run, None)
        self._owed.pop(run, None)
        for key in [key for key in self._heard if key[0] == run]:
            del self._heard[key]
        await self.queue.reset(run)

    def read_clock(self) -> datetime:
        return self._clock()

    async def explain_run(self, run: str) -> TrajectoryRunStatus:
        state, line, lag = await asyncio.gather(
            self.read_run(run), self.queue.get_backlog(run), self.queue.get_lag(run)
        )
        return explain_run(state, line, lag, self.read_clock())

    async def explain_runs(self) -> Sequence[TrajectoryRunStatus]:
        return [await self.explain_run(run) for run in await self.queue.list_runs(MAX_RUNS)]


class OutgoingBatch:
    """A batch that is being sent. `settle` records whether it was sent in full."""

    def __init__(self, atropos_queue: AtroposQueue, run: str, number: int) -> None:
        self._atropos_queue = atropos_queue
        self._run = run
        self._number = number
        self.text = b""

    async def settle(self, sent: bool) -> None:
        if sent:
            self._atropos_queue.mark_sent(self._run, self._number)
        else:
            await self._atropos_queue.give_back_batch(self._run, self._number)


def _name_outcome(taken: TrajectoryBatch | BatchNotReady | None) -> str:
    if taken is None:
        return "no_trainer"
    if isinstance(taken, BatchNotReady):
        return "not_yet"
    return "again" if taken.again else "handed"
