"""The queue between Atropos environments and trainers: taking groups in, forming batches, and saying why there is none.

A batch has exactly `batch_size` sequences. Groups are ordered by stride scheduling over the environments' weights,
first in, first out within an environment. The first whole groups in that order that fill a batch exactly are taken.
Where whole groups cannot fill it, as with batches of 12 and groups of 8, one group is split: its first sequences go
into this batch, the rest goes to the front of the queue.

A batch counts as delivered when the trainer asks for the next one after its reply went out in full. Until then it is
kept, and handed out again first if its reply broke off or its process died.
"""

import asyncio
import logging
import secrets
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic

from app.domain.errors import GatewayError
from app.features.atropos.model import (
    BatchNotReady,
    BatchPlan,
    EnvClient,
    GroupSlice,
    PackedGroup,
    QueuedGroup,
    QueueLag,
    TrajectoryBacklog,
    TrajectoryBatch,
    TrajectoryRun,
    TrajectoryRunStatus,
)
from app.features.atropos.store import TrajectoryQueue
from app.features.atropos.wire import EnvStatus, build_batch_text, unpack_group
from app.ports.environment import Clock, Observer

log = logging.getLogger(__name__)


# The queue: what the routes ask of it.

_HEARTBEAT_SECONDS = 5.0
"""Minimum time between two stored heartbeats of an environment."""
_RECORD_SECONDS = 10.0
"""How long after it was sent a batch is recorded as sent. Its last bytes may die with the process until then."""
_MAX_HEARTBEATS = 10_000
"""Of so many environments it is remembered when they were last heard. Beyond that all are forgotten at once."""
_MAX_RUNS = 200
"""On the page of all runs."""
ReadGroups = Callable[[], Sequence[PackedGroup]]


class AtroposQueue:
    """One per process. It knows which batches were sent in full; they count as delivered at the next request, soon and
    after a stop also at that of another process."""

    def __init__(self, queue: TrajectoryQueue, observer: Observer, clock: Clock) -> None:
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
        # Batches whose return the store refused go back first, or they would be held for as long as the process lives.
        while self._owed.get(run):
            await self.give_back_batch(run, self._owed[run].pop())
        sent = frozenset(self._sent.get(run, ()))
        # Only what was told to the store is struck off: more batches may have been sent while it answered.
        taken = await self.queue.take_batch(run, self._life, sent, form_batch)
        if sent:
            self._sent[run] -= sent
        self._observer.batch_asked(_name_outcome(taken))
        if not isinstance(taken, TrajectoryBatch):
            return taken
        batch = OutgoingBatch(self, run, taken.number)
        try:
            batch.text = await asyncio.to_thread(build_batch_text, taken.parts)
        except BaseException:  # also where the trainer has gone
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
        await asyncio.sleep(_RECORD_SECONDS)
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
        if now - self._heard.get((run, env_id), -_HEARTBEAT_SECONDS) >= _HEARTBEAT_SECONDS:
            if len(self._heard) >= _MAX_HEARTBEATS:
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
        return [await self.explain_run(run) for run in await self.queue.list_runs(_MAX_RUNS)]


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


# Ingest: waiting posts are parsed together in one thread call and stored by one write.

POSTS_PER_LOT = 16
"""Posts that are parsed and stored together. While one lot is stored, the next is parsed."""
LARGE = 1024 * 1024
"""Bytes from which a post is handled alone, so that no other waits for it."""


@dataclass(eq=False)
class _PendingPost:
    run: str
    read: ReadGroups
    count: asyncio.Future[int]
    groups: Sequence[PackedGroup] = ()

    def fail(self, error: Exception) -> None:
        if not self.count.done():
            self.count.set_exception(error)

    def succeed(self) -> None:
        if not self.count.done():
            self.count.set_result(len(self.groups))


class GroupIngest:
    """`store` makes a run's groups durable before it returns."""

    def __init__(self, store: Callable[[str, Sequence[PackedGroup]], Awaitable[None]]) -> None:
        self._store = store
        self._waiting: deque[_PendingPost] = deque()
        self._reading = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def add(self, run: str, read: ReadGroups, size: int) -> int:
        """Runs `read` in a thread, stores its groups and returns their number. Raises what `read` raises. `size` is the
        post's length in bytes."""
        post = _PendingPost(run, read, asyncio.get_running_loop().create_future())
        if size >= LARGE:
            self._start_task(self._ingest_posts([post]))
        else:
            self._waiting.append(post)
            if not self._reading:
                self._reading = True
                self._start_task(self._parse_and_store_posts())
        return await post.count

    def _start_task(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _parse_and_store_posts(self) -> None:
        try:
            while self._waiting:
                lot = [self._waiting.popleft() for _ in range(min(POSTS_PER_LOT, len(self._waiting)))]
                self._start_task(self._store_posts(await asyncio.to_thread(_read_posts, lot)))
        finally:
            self._reading = False

    async def _ingest_posts(self, lot: Sequence[_PendingPost]) -> None:
        await self._store_posts(await asyncio.to_thread(_read_posts, lot))

    async def _store_posts(self, lot: Sequence[tuple[_PendingPost, Exception | None]]) -> None:
        for post, error in lot:
            if error is not None:
                post.fail(error)
        good = [post for post, error in lot if error is None]
        for run in dict.fromkeys(post.run for post in good):
            posts = [post for post in good if post.run == run]
            try:
                await self._store(run, [group for post in posts for group in post.groups])
            except Exception as error:
                for post in posts:
                    post.fail(error)
            else:
                for post in posts:
                    post.succeed()


def _read_posts(lot: Sequence[_PendingPost]) -> list[tuple[_PendingPost, Exception | None]]:
    return [(post, _read_post(post)) for post in lot]


def _read_post(post: _PendingPost) -> Exception | None:
    try:
        post.groups = post.read()
    except Exception as error:
        return error
    return None


# The next batch.

ALIVE_SECONDS = 60
"""A batch does not wait for an environment without a heartbeat for longer. Atropos' own send several per second."""
MAX_TIMES_PASSED = 4
"""Batches that may skip the first group before a group is split to fit it in."""
_MIN_WEIGHT = 0.01
"""The same as in Atropos: no environment is starved."""
_EnvId = int | None


def form_batch(line: TrajectoryBacklog) -> BatchPlan | BatchNotReady:
    if line.batch_size < 1:
        return BatchNotReady(
            f"The trainer registered with batch_size {line.batch_size}; a batch needs at least 1 sequence."
        )
    if line.sequences < line.batch_size:
        return BatchNotReady(f"The queue has {line.sequences} of the {line.batch_size} sequences of a batch.")
    needs = _compute_minimum_needs(line)
    for env_id, need in needs.items():
        have = sum(group.size for group in line.waiting if group.env_id == env_id)
        if have < need:
            return BatchNotReady(
                f"Environment {env_id} needs {need} sequences in every batch (min_batch_allocation) and has {have} in "
                "the queue. It is alive, so the batch waits for it."
            )
    groups, must = _order_groups(line, needs)
    choice = _choose_groups(line, groups, must)
    return choice if isinstance(choice, BatchNotReady) else _build_batch(line, choice)


def _compute_minimum_needs(line: TrajectoryBacklog) -> dict[int, int]:
    """Sequences per batch for each live environment with a minimum allocation; scaled down if they exceed a batch."""
    shares = {
        client.env_id: max(0.0, client.registration.min_batch_allocation)
        for client in line.env_clients
        if client.registration.min_batch_allocation is not None and _is_alive(client, line.now)
    }
    scale = max(1.0, sum(shares.values()))
    needs = {env_id: int(line.batch_size * share / scale) for env_id, share in shares.items()}
    return {env_id: need for env_id, need in needs.items() if need > 0}


@dataclass(frozen=True)
class _BatchChoice:
    shares: tuple[tuple[QueuedGroup, int], ...]
    passed_over: int | None = None


def _order_groups(line: TrajectoryBacklog, needs: Mapping[int, int]) -> tuple[list[QueuedGroup], int]:
    """All groups in turn, those for minimum allocations first, and the number of the latter."""
    in_turn = _order_by_turn(line)
    open_needs = dict(needs)
    first: list[QueuedGroup] = []
    for group in in_turn:
        if group.env_id is not None and open_needs.get(group.env_id, 0) > 0:
            open_needs[group.env_id] -= group.size
            first.append(group)
    taken = {group.sequence for group in first}
    return [*first, *(group for group in in_turn if group.sequence not in taken)], len(first)


def _order_by_turn(line: TrajectoryBacklog) -> list[QueuedGroup]:
    """Stride scheduling: the environment with the lowest pass goes next; its pass grows by the group's size over its
    weight."""
    queues: defaultdict[_EnvId, deque[QueuedGroup]] = defaultdict(deque)
    for group in line.waiting:
        queues[group.env_id].append(group)
    turns = _compute_turns(line, queues)
    weights = _read_weights(line)
    ordered: list[QueuedGroup] = []
    while queues:
        env_id = min(queues, key=lambda one: (turns[one], queues[one][0].sequence))
        group = queues[env_id].popleft()
        ordered.append(group)
        turns[env_id] += group.size / weights.get(env_id, 1.0)
        if not queues[env_id]:
            del queues[env_id]
    return ordered


def _compute_turns(line: TrajectoryBacklog, present: Mapping[_EnvId, object]) -> dict[_EnvId, float]:
    """An environment that had no groups waiting starts at the minimum pass of the others, so it gets no backlog."""
    start = min((turn for env_id, turn in line.turns.items() if env_id in present), default=0.0)
    return {env_id: max(line.turns.get(env_id, start), start) for env_id in present}


def _read_weights(line: TrajectoryBacklog) -> dict[_EnvId, float]:
    return {client.env_id: max(_MIN_WEIGHT, client.registration.weight) for client in line.env_clients}


def _choose_groups(line: TrajectoryBacklog, groups: Sequence[QueuedGroup], must: int) -> _BatchChoice | BatchNotReady:
    size = line.batch_size
    whole = _find_exact_fill(groups, size, max(1, must))
    if whole is not None:
        return _BatchChoice(tuple((group, group.size) for group in whole))
    head = groups[0]
    if must == 0 and head.passed < MAX_TIMES_PASSED:
        others = _find_exact_fill(groups[1:], size, 0)
        if others is not None:
            return _BatchChoice(tuple((group, group.size) for group in others), passed_over=head.sequence)
        sizes = {group.size for group in groups if group.whole} | {
            client.registration.group_size for client in line.env_clients if _is_alive(client, line.now)
        }
        if line.sequences < 2 * size and _can_add_up(sizes, size):
            listed = ", ".join(str(one) for one in sorted({group.size for group in groups}))
            return BatchNotReady(
                f"The queue has {line.sequences} sequences in groups of {listed}; no combination adds up to {size} yet."
            )
    return _BatchChoice(tuple(_cut_group(groups, size)))


def _find_exact_fill(groups: Sequence[QueuedGroup], size: int, must: int) -> list[QueuedGroup] | None:
    """The first whole groups, in order, that add up to `size`, the first `must` of them included. `after[n]` has a bit
    for every sum that groups from the nth on can make."""
    after = [1]
    for group in reversed(groups):
        after.append((after[-1] | after[-1] << group.size) & ((2 << size) - 1))
    after.reverse()
    chosen: list[QueuedGroup] = []
    left = size
    for index, group in enumerate(groups):
        if left == 0 and index >= must:
            break
        if group.size <= left and after[index + 1] >> (left - group.size) & 1:
            chosen.append(group)
            left -= group.size
        elif index < must:
            return None
    return chosen if left == 0 else None


def _can_add_up(sizes: set[int], size: int) -> bool:
    """Whether any number of groups of these sizes fills a batch."""
    sums = 1
    for one in (one for one in sizes if 0 < one <= size):
        for _ in range(size // one):
            sums |= sums << one
    return bool(sums >> size & 1)


def _cut_group(groups: Sequence[QueuedGroup], size: int) -> list[tuple[QueuedGroup, int]]:
    """Takes whole groups while they fit, then a part of one that does not. A single sequence cannot be compared with
    others of its group, so no split leaves one alone if another split avoids it."""
    chosen: list[tuple[QueuedGroup, int]] = []
    left = size
    for group in groups:
        if group.size <= left:
            chosen.append((group, group.size))
            left -= group.size
    if left == 0:
        return chosen
    if left == 1 and chosen and chosen[-1][1] >= 4:
        last, whole = chosen.pop()
        chosen.append((last, whole - 2))
        left += 2
    taken = {group.sequence for group, _ in chosen}
    able = [group for group in groups if group.sequence not in taken and group.size > left]
    if not able:  # the piece given back above was larger than what is left of any other
        last, whole = chosen.pop()
        chosen.append((last, whole + left - 1))
        return [*chosen, *_take_single_sequence(groups, taken)]
    piece = next((group for group in able if group.size - left > 1), able[0])
    return [*chosen, (piece, left)]


def _take_single_sequence(groups: Sequence[QueuedGroup], taken: set[int]) -> list[tuple[QueuedGroup, int]]:
    return [(next(group for group in groups if group.sequence not in taken), 1)]


def _build_batch(line: TrajectoryBacklog, choice: _BatchChoice) -> BatchPlan:
    weights = _read_weights(line)
    left: defaultdict[_EnvId, int] = defaultdict(int)
    for group in line.waiting:
        left[group.env_id] += group.size
    turns = _compute_turns(line, left)
    for group, size in choice.shares:
        left[group.env_id] -= size
        turns[group.env_id] += size / weights.get(group.env_id, 1.0)
    moved = {**line.turns, **turns}
    start = min((turn for env_id, turn in turns.items() if left[env_id] > 0), default=min(turns.values()))
    return BatchPlan(
        shares=tuple(GroupSlice(group.sequence, size) for group, size in choice.shares),
        turns={env_id: turn - start for env_id, turn in moved.items() if turn > start or env_id in turns},
        passed_over=choice.passed_over,
    )


# The status of a run, for its environments and for people.


def compute_env_status(state: TrajectoryRun, env_id: int, now: datetime) -> EnvStatus | None:
    """Computed as in Atropos, over everything that the trainer has not received; None for an unregistered environment.
    Other environments count while they are alive."""
    asking = next((client for client in state.env_clients if client.env_id == env_id), None)
    if asking is None:
        return None
    living = [client for client in state.env_clients if client is asking or _is_alive(client, now)]
    shares = {
        client.env_id: client.registration.max_token_length * max(0.0, client.registration.weight) for client in living
    }
    minimums = {
        client.env_id: client.registration.min_batch_allocation
        for client in living
        if client.registration.min_batch_allocation is not None
    }
    largest = max((queued.size for queued in state.queue_counts), default=1)
    own = [queued for queued in state.queue_counts if queued.env_id == env_id]
    size = max([1, asking.registration.group_size, *(queued.size for queued in own)])
    mine = sum(queued.groups * queued.size for queued in own)
    return EnvStatus(
        current_step=state.step,
        queue_size=(mine + _count_available(state, env_id, largest, minimums)) // size,
        unallocated_fraction=1.0 - min(sum(minimums.values()), 1.0),
        self_queue_size=mine // size,
        max_group_size=largest,
        env_weight=max(_MIN_WEIGHT, shares[env_id] / (sum(shares.values()) or 1.0)),
    )


def _count_available(state: TrajectoryRun, env_id: int, largest: int, minimums: Mapping[int, float]) -> int:
    """Sequences of other environments beyond their minimum allocations, in units of the largest group's size."""
    if largest < 2 or state.registration is None:
        return 0
    others: Counter[int | None] = Counter()
    for queued in state.queue_counts:
        if queued.env_id != env_id:
            others[queued.env_id] += queued.groups * queued.size
    batch = state.registration.batch_size
    reserved = {one: int(batch * share) for one, share in minimums.items()}
    return sum(
        max(0, -(-count // largest) * largest - (0 if one is None else reserved.get(one, 0)))
        for one, count in others.items()
    )


def _is_alive(client: EnvClient, now: datetime) -> bool:
    return client.connected and now - client.seen_at <= timedelta(seconds=ALIVE_SECONDS)


def explain_run(
    state: TrajectoryRun, line: TrajectoryBacklog | None, lag: QueueLag, now: datetime
) -> TrajectoryRunStatus:
    """`line` is None without a trainer."""
    notes = (*_describe_environments(state.env_clients, now), *_describe_lag(lag))
    waiting = f"{state.groups} groups ({state.sequences} sequences) stay in the queue"
    if line is None:
        return TrajectoryRunStatus(state, lag, False, f"No trainer has registered (POST /register). {waiting}.", notes)
    if state.undelivered:
        reason = f"{state.undelivered} batches may not have arrived and are sent again first."
        return TrajectoryRunStatus(state, lag, True, reason, notes)
    formed = form_batch(line)
    if isinstance(formed, BatchNotReady):
        return TrajectoryRunStatus(state, lag, False, formed.reason, notes)
    begun = "" if state.started else " The trainer has not requested its first batch yet; environments wait for that."
    return TrajectoryRunStatus(state, lag, True, f"A batch is ready.{begun}", notes)


def _describe_lag(lag: QueueLag) -> Iterator[str]:
    if lag.largest:
        yield f"The oldest group in the queue was posted {lag.largest} steps ago."
    if lag.older_policy:
        yield f"{lag.older_policy} groups were posted at a later step than the trainer's present one."


def _describe_environments(env_clients: Collection[EnvClient], now: datetime) -> tuple[str, ...]:
    if not env_clients:
        return ("No environment has registered (POST /register-env).",)
    silent = [client for client in env_clients if client.connected and not _is_alive(client, now)]
    gone = [client for client in env_clients if not client.connected]
    return (
        *(
            f"Environment {client.env_id} sent its last heartbeat {round((now - client.seen_at).total_seconds())} "
            "seconds ago; batches do not wait for it."
            for client in silent
        ),
        *(f"Environment {client.env_id} has disconnected." for client in gone),
    )
