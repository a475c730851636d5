"""Forms the next batch from the waiting groups.

A batch has exactly `batch_size` sequences. Groups are ordered by stride scheduling over the environments' weights,
first in, first out within an environment. The first whole groups in that order that fill a batch exactly are taken.
Where whole groups cannot fill it, as with batches of 12 and groups of 8, one group is split: its first sequences go
into this batch, the rest goes to the front of the queue."""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from app.domain.trajectories import BatchNotReady, BatchPlan, EnvClient, GroupSlice, QueuedGroup, TrajectoryBacklog

ALIVE_SECONDS = 60
"""A batch does not wait for an environment without a heartbeat for longer. Atropos' own send several per second."""

MAX_TIMES_PASSED = 4
"""Batches that may skip the first group before a group is split to fit it in."""

MIN_WEIGHT = 0.01
"""The same as in Atropos: no environment is starved."""

EnvId = int | None


def form_batch(line: TrajectoryBacklog) -> BatchPlan | BatchNotReady:
    if line.batch_size < 1:
        return BatchNotReady(
            f"The trainer registered with batch_size {line.batch_size}; a batch needs at least 1 sequence."
        )
    if line.sequences < line.batch_size:
        return BatchNotReady(f"The queue has {line.sequences} of the {line.batch_size} sequences of a batch.")
    needs = compute_minimum_needs(line)
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


def is_alive(client: EnvClient, line: TrajectoryBacklog) -> bool:
    return client.connected and line.now - client.seen_at <= timedelta(seconds=ALIVE_SECONDS)


def compute_minimum_needs(line: TrajectoryBacklog) -> dict[int, int]:
    """Sequences per batch for each live environment with a minimum allocation; scaled down if they exceed a batch."""
    asked = {
        client.env_id: max(0.0, client.registration.min_batch_allocation)
        for client in line.env_clients
        if client.registration.min_batch_allocation is not None and is_alive(client, line)
    }
    scale = max(1.0, sum(asked.values()))
    needs = {env_id: int(line.batch_size * share / scale) for env_id, share in asked.items()}
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
    queues: defaultdict[EnvId, deque[QueuedGroup]] = defaultdict(deque)
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


def _compute_turns(line: TrajectoryBacklog, present: Mapping[EnvId, object]) -> dict[EnvId, float]:
    """An environment that had no groups waiting starts at the minimum pass of the others, so it gets no backlog."""
    start = min((turn for env_id, turn in line.turns.items() if env_id in present), default=0.0)
    return {env_id: max(line.turns.get(env_id, start), start) for env_id in present}


def _read_weights(line: TrajectoryBacklog) -> dict[EnvId, float]:
    return {client.env_id: max(MIN_WEIGHT, client.registration.weight) for client in line.env_clients}


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
            client.registration.group_size for client in line.env_clients if is_alive(client, line)
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
    for place, group in enumerate(groups):
        if left == 0 and place >= must:
            break
        if group.size <= left and after[place + 1] >> (left - group.size) & 1:
            chosen.append(group)
            left -= group.size
        elif place < must:
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
    left: defaultdict[EnvId, int] = defaultdict(int)
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
