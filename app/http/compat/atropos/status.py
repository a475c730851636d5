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
        env_weight=max(MIN_WEIGHT, shares[env_id] / (sum(shares.values()) or 1.0)),
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
    kept = {one: int(batch * share) for one, share in minimums.items()}
    return sum(
        max(0, -(-count // largest) * largest - (0 if one is None else kept.get(one, 0)))
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
