"""The status of a run, for its environments and for people."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta

from app.domain.trajectories import (
    BatchNotReady,
    EnvClient,
    QueueLag,
    TrajectoryBacklog,
    TrajectoryRun,
    TrajectoryRunStatus,
)
from app.http.compat.atropos.batching import ALIVE_SECONDS, MIN_WEIGHT, form_batch
from app.http.compat.atropos.wire import EnvStatus


def compute_env_status(standing: TrajectoryRun, env_id: int, now: datetime) -> EnvStatus | None:
    """Computed as in Atropos, over everything that the trainer has not received; None for an unregistered environment.
    Other environments count while they are alive."""
    asking = next((feeder for feeder in standing.feeders if feeder.env_id == env_id), None)
    if asking is None:
        return None
    living = [feeder for feeder in standing.feeders if feeder is asking or _is_alive(feeder, now)]
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
        queue_size=(mine + _count_available(standing, env_id, largest, minimums)) // size,
        unallocated_fraction=1.0 - min(sum(minimums.values()), 1.0),
        self_queue_size=mine // size,
        max_group_size=largest,
        env_weight=max(MIN_WEIGHT, shares[env_id] / (sum(shares.values()) or 1.0)),
    )


def _count_available(standing: TrajectoryRun, env_id: int, largest: int, minimums: Mapping[int, float]) -> int:
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


def _is_alive(feeder: EnvClient, now: datetime) -> bool:
    return feeder.connected and now - feeder.seen_at <= timedelta(seconds=ALIVE_SECONDS)


def explain_run(
    standing: TrajectoryRun, line: TrajectoryBacklog | None, lag: QueueLag, now: datetime
) -> TrajectoryRunStatus:
    """`line` is None without a trainer."""
    notes = (*_describe_environments(standing.feeders, now), *_describe_lag(lag))
    waiting = f"{standing.groups} groups ({standing.sequences} sequences) stay in the queue"
    if line is None:
        return TrajectoryRunStatus(
            standing, lag, False, f"No trainer has registered (POST /register). {waiting}.", notes
        )
    if standing.undelivered:
        reason = f"{standing.undelivered} batches may not have arrived and are sent again first."
        return TrajectoryRunStatus(standing, lag, True, reason, notes)
    formed = form_batch(line)
    if isinstance(formed, BatchNotReady):
        return TrajectoryRunStatus(standing, lag, False, formed.reason, notes)
    begun = (
        "" if standing.started else " The trainer has not requested its first batch yet; environments wait for that."
    )
    return TrajectoryRunStatus(standing, lag, True, f"A batch is ready.{begun}", notes)


def _describe_lag(lag: QueueLag) -> Iterator[str]:
    if lag.largest:
        yield f"The oldest group in the queue was posted {lag.largest} steps ago."
    if lag.older_policy:
        yield f"{lag.older_policy} groups were posted at a later step than the trainer's present one."


def _describe_environments(feeders: Collection[EnvClient], now: datetime) -> tuple[str, ...]:
    if not feeders:
        return ("No environment has registered (POST /register-env).",)
    silent = [feeder for feeder in feeders if feeder.connected and not _is_alive(feeder, now)]
    gone = [feeder for feeder in feeders if not feeder.connected]
    return (
        *(
            f"Environment {feeder.env_id} sent its last heartbeat {round((now - feeder.seen_at).total_seconds())} "
            "seconds ago; batches do not wait for it."
            for feeder in silent
        ),
        *(f"Environment {feeder.env_id} has disconnected." for feeder in gone),
    )
