"""The queue between Atropos environments and trainers: the routes' operations on the stored queue."""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from time import monotonic
from typing import Protocol

from app.domain.trajectories import Explained, Handed, NotYet, Packed, TrajectoryRun
from app.http.compat.atropos.forming import form
from app.http.compat.atropos.intake import Intake, Read
from app.http.compat.atropos.reading import unpacked
from app.http.compat.atropos.replies import batch_text
from app.http.compat.atropos.standing import explain
from app.ports.runtime import Clock
from app.ports.trajectories import TrajectoryQueue

HEARTBEAT_SECONDS = 5.0
"""Minimum time between two stored heartbeats of an environment."""

MOST_HEARD = 10_000

MOST_RUNS = 200


class QueueObserver(Protocol):
    """Never raises, never blocks."""

    def groups_received(self, new: int, known: int) -> None:
        """`known` groups were duplicates."""

    def batch_asked(self, outcome: str) -> None:
        """`outcome` is `handed`, `again`, `not_yet` or `no_trainer`."""


class Desk:
    """One per process. It knows which batches were sent in full; they count as delivered at the next request."""

    def __init__(self, queue: TrajectoryQueue, observer: QueueObserver, clock: Clock) -> None:
        self.queue = queue
        self._observer = observer
        self._clock = clock
        self._life = secrets.token_hex(8)
        self._sent: defaultdict[str, set[int]] = defaultdict(set)
        self._owed: defaultdict[str, set[int]] = defaultdict(set)
        self._intake = Intake(self._store)
        self._heard: dict[tuple[str, int], float] = {}

    async def add(self, run: str, read: Read, size: int) -> int:
        """Stores the groups that `read` returns and returns their number. `size` is the post's length in bytes."""
        return await self._intake.add(run, read, size)

    async def _store(self, run: str, groups: Sequence[Packed]) -> None:
        new = await self.queue.add(run, groups)
        for env_id in {group.env_id for group in groups}:
            if env_id is not None:
                await self.heard(run, env_id)
        self._observer.groups_received(new, len(groups) - new)

    async def take(self, run: str) -> "Batch | NotYet | None":
        """The next batch; None without a trainer."""
        while self._owed.get(run):
            await self.give_back(run, self._owed[run].pop())
        sent = frozenset(self._sent.get(run, ()))
        taken = await self.queue.take(run, self._life, sent, form)
        if sent:
            self._sent[run] -= sent
        self._observer.batch_asked(_outcome(taken))
        if not isinstance(taken, Handed):
            return taken
        batch = Batch(self, run, taken.number)
        try:
            batch.text = await asyncio.to_thread(batch_text, taken.parts)
        except BaseException:
            await batch.settle(False)
            raise
        return batch

    async def give_back(self, run: str, number: int) -> None:
        """Returns a batch that was not sent to the queue. If the store fails, the next poll returns it first."""
        try:
            await self.queue.give_back(run, number)
        except BaseException:
            self._owed[run].add(number)
            raise

    def sent(self, run: str, number: int) -> None:
        self._sent[run].add(number)

    async def look(self, run: str) -> TrajectoryRun:
        return await self.queue.look(run, self._life)

    async def heard(self, run: str, env_id: int) -> None:
        now = monotonic()
        if now - self._heard.get((run, env_id), -HEARTBEAT_SECONDS) >= HEARTBEAT_SECONDS:
            if len(self._heard) >= MOST_HEARD:
                self._heard.clear()
            self._heard[run, env_id] = now
            await self.queue.seen(run, env_id)

    async def latest(self, run: str) -> bytes | None:
        body = await self.queue.latest(run)
        return None if body is None else unpacked(body)

    async def reset(self, run: str) -> None:
        self._sent.pop(run, None)
        self._owed.pop(run, None)
        for key in [key for key in self._heard if key[0] == run]:
            del self._heard[key]
        await self.queue.reset(run)

    def now(self) -> datetime:
        return self._clock()

    async def explain(self, run: str) -> Explained:
        standing, line = await asyncio.gather(self.look(run), self.queue.line(run))
        return explain(standing, line, self.now())

    async def explain_all(self) -> Sequence[Explained]:
        return [await self.explain(run) for run in await self.queue.runs(MOST_RUNS)]


class Batch:
    """A batch that is being sent. `settle` records whether it was sent in full."""

    def __init__(self, desk: Desk, run: str, number: int) -> None:
        self._desk = desk
        self._run = run
        self._number = number
        self.text = b""

    async def settle(self, sent: bool) -> None:
        if sent:
            self._desk.sent(self._run, self._number)
        else:
            await self._desk.give_back(self._run, self._number)


def _outcome(taken: Handed | NotYet | None) -> str:
    if taken is None:
        return "no_trainer"
    if isinstance(taken, NotYet):
        return "not_yet"
    return "again" if taken.again else "handed"
