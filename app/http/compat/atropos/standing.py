"""The status of a run, for its environments and for people."""

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from app.domain.trajectories import Explained, Feeder, Line, NotYet, TrajectoryRun
from app.http.compat.atropos.forming import ALIVE_SECONDS, MIN_WEIGHT, form
from app.http.compat.atropos.wire import EnvStatus


def env_status(standing: TrajectoryRun, env_id: int, now: datetime) -> EnvStatus | None:
    """Computed as in Atropos, over everything that the trainer has not received; None for an unregistered environment.
    Other environments count while they are alive."""
    asking = next((feeder for feeder in standing.feeders if feeder.env_id == env_id), None)
    if asking is None:
        return None
    living = [feeder for feeder in standing.feeders if feeder is asking or _lives(feeder, now)]
    shares = {feeder.env_id: feeder.said.max_token_length * max(0.0, feeder.said.weight) for feeder in living}
    minimums = {
        feeder.env_id: feeder.said.min_batch_allocation
        for feeder in living
        if feeder.said.min_batch_allocation is not None
    }
    largest = max((heap.size for heap in standing.heaps), default=1)
    own = [heap for heap in standing.heaps if heap.env_id == env_id]
    size = max([1, asking.said.group_size, *(heap.size for heap in own)])
    mine = sum(heap.groups * heap.size for heap in own)
    return EnvStatus(
        current_step=standing.step,
        queue_size=(mine + _available(standing, env_id, largest, minimums)) // size,
        unallocated_fraction=1.0 - min(sum(minimums.values()), 1.0),
        self_queue_size=mine // size,
        max_group_size=largest,
        env_weight=max(MIN_WEIGHT, shares[env_id] / (sum(shares.values()) or 1.0)),
    )


def _available(standing: TrajectoryRun, env_id: int, largest: int, minimums: Mapping[int, float]) -> int:
    """Sequences of other environments beyond their minimum allocations, in units of the largest group's size."""
    if largest < 2 or standing.registration is None:
        return 0
    others: Counter[int | None] = Counter()
    for heap in standing.heaps:
        if heap.env_id != env_id:
            others[heap.env_id] += heap.groups * heap.size
    batch = standing.registration.batch_size
    kept = {one: int(batch * share) for one, share in minimums.items()}
    return sum(
        max(0, -(-count // largest) * largest - (0 if one is None else kept.get(one, 0)))
        for one, count in others.items()
    )


def _lives(feeder: Feeder, now: datetime) -> bool:
    return feeder.connected and now - feeder.seen_at <= timedelta(seconds=ALIVE_SECONDS)


def explain(standing: TrajectoryRun, line: Line | None, now: datetime) -> Explained:
    """`line` is None without a trainer."""
    notes = _notes(standing.feeders, now)
    waiting = f"{standing.groups} groups ({standing.sequences} sequences) stay in the queue"
    if line is None:
        return Explained(standing, False, f"No trainer has registered (POST /register). {waiting}.", notes)
    if standing.undelivered:
        reason = f"{standing.undelivered} batches may not have arrived and are sent again first."
        return Explained(standing, True, reason, notes)
    formed = form(line)
    if isinstance(formed, NotYet):
        return Explained(standing, False, formed.reason, notes)
    begun = (
        "" if standing.started else " The trainer has not requested its first batch yet; environments wait for that."
    )
    return Explained(standing, True, f"A batch is ready.{begun}", notes)


def _notes(feeders: Collection[Feeder], now: datetime) -> tuple[str, ...]:
    if not feeders:
        return ("No environment has registered (POST /register-env).",)
    silent = [feeder for feeder in feeders if feeder.connected and not _lives(feeder, now)]
    gone = [feeder for feeder in feeders if not feeder.connected]
    return (
        *(
            f"Environment {feeder.env_id} sent its last heartbeat {round((now - feeder.seen_at).total_seconds())} "
            "seconds ago; batches do not wait for it."
            for feeder in silent
        ),
        *(f"Environment {feeder.env_id} has disconnected." for feeder in gone),
    )
