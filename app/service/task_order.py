"""The order in which a stream visits tasks, the same in every process.

Everything here builds a locator: a pure function from a position of the stream to an epoch and the index of a task. An
epoch of a finite split is a seeded permutation; an endless split counts up from a seeded offset. A selection restricts
the indexes by public metadata. With weights, tasks that have the same values form a pool: positions are shared among
pools exactly by weight in blocks of 1,000, and each pool is drawn in permutations of its own.

A target pass rate (curriculum by difficulty) is the exception to purity. Each position of such a stream covers a window
of the ordinary stream. The task whose expected pass rate is closest to the target is handed out; the others of the
window come again in the next epoch. Every few positions the first task of the window is taken regardless (exploration),
so that changes in difficulty are noticed.
"""

import asyncio
import json
import math
import random
from array import array
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import islice
from typing import Final

from pydantic import BaseModel, JsonValue

from app.domain.errors import InvalidRequest
from app.domain.faults import explain_unknown, quote
from app.domain.rollups import PassRates, TaskOutcome, find_nearest
from app.domain.runs import Slot, Stream
from app.domain.values import MEBIBYTE, Split, canonical_json, digest_of_text, remember, suggest
from app.service.catalogue import ServedEnvironment, make_task, read_label
from app.service.requests import NextBatch, normalise_values
from app.store.leases import SlotLocator
from app.store.tasks import OutcomeStore

ENDLESS_OFFSETS: Final = 2**40
"""Range of the seeded offsets of endless splits, so large that streams of two seeds hardly meet."""

LocatorFilter = Callable[[SlotLocator], SlotLocator]
"""Chooses among the slots of a locator."""


def _keep_all(locate: SlotLocator) -> SlotLocator:
    return locate


# A sample of a whole range costs milliseconds for a large split, and a batch asks for it once a position.
@remember(64 * MEBIBYTE)
def _permute(seed: int, epoch: int, size: int) -> Sequence[int]:
    # An array, which takes a twentieth of the bytes of a list with its numbers. One of 16 million rows still fits.
    return array("I", random.Random(f"{seed}:{epoch}").sample(range(size), size))  # noqa: S311  # order, not secrecy


def derive_seed(name: str) -> int:
    """The default seed of a run, derived from its name."""
    return int(digest_of_text(name)[:12], 16)


def order_tasks(
    size: int | None, seed: int | None, *, one_epoch: bool, chosen: tuple[int, ...] | None = None
) -> SlotLocator:
    """`size` None means endless; `seed` None means natural order; `chosen` restricts a finite set to these indexes."""
    if size is None:
        start = 0 if seed is None else random.Random(seed).randrange(ENDLESS_OFFSETS)  # noqa: S311
        return lambda position: Slot(position=position, epoch=0, index=start + position)
    visible = len(chosen) if chosen is not None else size

    def locate(position: int) -> Slot | None:
        epoch, offset = divmod(position, visible) if visible else (1, 0)
        if visible == 0 or (one_epoch and epoch > 0):
            return None
        shuffled = offset if seed is None else _permute(seed, epoch, visible)[offset]
        return Slot(position=position, epoch=epoch, index=shuffled if chosen is None else chosen[shuffled])

    return locate


def order_by_weight(
    pools: Sequence[tuple[float, tuple[int, ...]]], seed: int | None, narrow: LocatorFilter = _keep_all
) -> SlotLocator:
    """Endless weighted draws from pools of indexes. Each pool is drawn without replacement until it is used up, unless
    `narrow` chooses otherwise. The epoch of a slot is the round of its pool."""
    weights = tuple(weight for weight, _ in pools)
    locators = [
        narrow(order_tasks(0, _derive_pool_seed(seed, number), one_epoch=False, chosen=pool))
        for number, (_, pool) in enumerate(pools)
    ]

    def locate(position: int) -> Slot | None:
        pool, draw = find_draw(weights, 0 if seed is None else seed, position)
        slot = locators[pool](draw)
        return None if slot is None else replace(slot, position=position)

    return locate


def _derive_pool_seed(seed: int | None, pool: int) -> int | None:
    return None if seed is None else int(digest_of_text(f"{seed}:{pool}")[:12], 16)


# Weighted schedule: which member each position belongs to

BLOCK_SIZE: Final = 1_000
"""Positions within which weights are exact. Counting the draws below a position then takes one multiplication and one
look into a cached block, so that any replica computes the same tasks without reading what was drawn before."""


@dataclass(frozen=True)
class _ScheduleBlock:
    """`members[i]` is drawn at offset i and was drawn `before[i]` times earlier in the block. `quotas` are the draws of
    each member in a block."""

    members: tuple[int, ...]
    before: tuple[int, ...]
    quotas: tuple[int, ...]


def find_draw(weights: tuple[float, ...], seed: int, position: int) -> tuple[int, int]:
    """The member drawn at a position, and how often it was drawn before. At most BLOCK_SIZE positive `weights`."""
    number, offset = divmod(position, BLOCK_SIZE)
    block = _build_block(weights, seed, number)
    member = block.members[offset]
    return member, number * block.quotas[member] + block.before[offset]


def count_draws_below(weights: tuple[float, ...], seed: int, position: int) -> tuple[int, ...]:
    """How often each member is drawn at positions below `position`."""
    number, offset = divmod(position, BLOCK_SIZE)
    block = _build_block(weights, seed, number)
    return tuple(number * quota + block.members[:offset].count(member) for member, quota in enumerate(block.quotas))


@lru_cache(maxsize=256)
def _build_block(weights: tuple[float, ...], seed: int, number: int) -> _ScheduleBlock:
    quotas = _compute_quotas(weights)
    members = [member for member, quota in enumerate(quotas) for _ in range(quota)]
    random.Random(f"mix:{seed}:{number}").shuffle(members)  # noqa: S311  # order, not secrecy
    drawn = [0] * len(weights)
    before = []
    for member in members:
        before.append(drawn[member])
        drawn[member] += 1
    return _ScheduleBlock(tuple(members), tuple(before), quotas)


def _compute_quotas(weights: tuple[float, ...]) -> tuple[int, ...]:
    """Integer quotas of a block by largest remainder. Every member gets at least one place, from the heaviest one."""
    total = math.fsum(weights)
    exact = [weight / total * BLOCK_SIZE for weight in weights]
    shares = [int(share) for share in exact]
    by_remainder = sorted(range(len(weights)), key=lambda member: (shares[member] - exact[member], member))
    for member in by_remainder[: BLOCK_SIZE - sum(shares)]:
        shares[member] += 1
    for member, share in enumerate(shares):
        if share == 0:
            shares[shares.index(max(shares))] -= 1
            shares[member] = 1
    return tuple(shares)


# Selection by public metadata

_WeightedPool = tuple[float, tuple[int, ...]]
"""A weight, and the task indexes that share it."""

LabelLookup = Callable[[int], str | None]
"""A pure function: the label of the task at an index."""


def build_locator(
    hosted: ServedEnvironment,
    request: NextBatch,
    params: BaseModel,
    seed: int | None,
    narrow: LocatorFilter = _keep_all,
) -> SlotLocator:
    """The locator of a stream. `narrow` chooses among tasks with equal probability; with weights, within each pool.
    InvalidRequest naming `select` or `weights` when no task matches."""
    size = hosted.environment.size(request.split, params)
    if size == 0:
        raise InvalidRequest(
            f"{hosted.name} has no tasks in the split {request.split} with these params", field="split"
        )
    chosen = _select_indexes(hosted, request, params, size) if request.select.chosen else None
    if request.weights:
        return order_by_weight(_build_pools(hosted, request, params, size, chosen), seed, narrow)
    return narrow(order_tasks(size, seed, one_epoch=request.split == "test", chosen=chosen))


def build_label_lookup(hosted: ServedEnvironment, split: Split, params: BaseModel) -> LabelLookup:
    """Looks up the statistics label of a task, which groups similar tasks."""
    if hosted.environment.stats_label is None:
        return lambda _: None
    return partial(_read_label, hosted, split, params.model_dump_json())


@lru_cache(maxsize=2**16)
def _read_label(hosted: ServedEnvironment, split: Split, params_json: str, index: int) -> str | None:
    environment = hosted.environment
    return read_label(environment, split, index, environment.Params.model_validate_json(params_json))


_MOST_NEAR: Final = 2000
"""Values among which a near one is looked for."""


def _select_indexes(
    hosted: ServedEnvironment, request: NextBatch, params: BaseModel, size: int | None
) -> tuple[int, ...]:
    if size is None:
        raise InvalidRequest(
            f"{hosted.name} has endless tasks in this split; `select` needs a finite split", field="select"
        )
    allowed = {key: set(map(canonical_json, normalise_values(values))) for key, values in request.select.chosen.items()}
    by_key = [_group_by_value(hosted, request.split, params.model_dump_json(), key, size) for key in allowed]
    for (key, texts), by_value in zip(allowed.items(), by_key, strict=True):
        if not texts & by_value.keys():
            raise InvalidRequest(_describe_missing(hosted, request, params, key, texts, by_value), field="select")
    matches = [
        {index for value, indexes in by_value.items() if value in texts for index in indexes}
        for by_value, texts in zip(by_key, allowed.values(), strict=True)
    ]
    chosen = tuple(sorted(set.intersection(*matches)))
    if not chosen:
        raise InvalidRequest("no task of this environment has all of these values in its metadata", field="select")
    return chosen


def _describe_missing(
    hosted: ServedEnvironment,
    request: NextBatch,
    params: BaseModel,
    key: str,
    texts: Collection[str],
    by_value: Collection[str],
) -> str:
    """Why no task has one of these values under the key: with the nearest one, or the keys that there are."""
    if not by_value:
        known = make_task(hosted.environment, request.split, 0, params).metadata
        return f"{quote(key)}: {explain_unknown(key, [*known], 'key of metadata')}"
    value = _name_value(min(texts)) if texts else ""
    # Among some values only: a data set may have a million, and this is on the way of an answer.
    near = suggest(value, map(_name_value, islice(by_value, _MOST_NEAR))) if len(value) <= _MOST_NEAR else ""
    return f"no task of {hosted.name} has {quote(value)} as {quote(key)}{near}"


def _build_pools(
    hosted: ServedEnvironment, request: NextBatch, params: BaseModel, size: int | None, chosen: tuple[int, ...] | None
) -> tuple[_WeightedPool, ...]:
    """One pool per combination of values, weighted by the product of their weights."""
    if request.split == "test":
        raise InvalidRequest("weights apply to the train split only", field="weights")
    if size is None:
        raise InvalidRequest(
            f"{hosted.name} has endless tasks in this split; `weights` need a finite split", field="weights"
        )
    combined: defaultdict[int, list[str]] = defaultdict(list)
    for key, weight_by_value in request.weights.items():
        by_value = _group_by_value(hosted, request.split, params.model_dump_json(), key, size)
        _require_existing(key, weight_by_value, set(map(_name_value, by_value)))
        for value, indexes in by_value.items():
            for index in indexes:
                combined[index].append(_name_value(value))
    members: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for index in sorted(combined if chosen is None else combined.keys() & set(chosen)):
        if len(combined[index]) == len(request.weights):  # a task without one of the keys is in no pool
            members[tuple(combined[index])].append(index)
    weights = tuple(request.weights.values())
    pools = [
        (math.prod(one.get(value, 1.0) for one, value in zip(weights, values, strict=True)), tuple(indexes))
        for values, indexes in sorted(members.items())
    ]
    return _require_drawable([pool for pool in pools if pool[0] > 0])


def _require_drawable(pools: Sequence[_WeightedPool]) -> tuple[_WeightedPool, ...]:
    if not pools:
        raise InvalidRequest("these weights exclude every task", field="weights")
    if len(pools) > BLOCK_SIZE // 2:  # every pool gets at least one position of a block
        raise InvalidRequest(f"the weights give more than {BLOCK_SIZE // 2} combinations of values", field="weights")
    return tuple(pools)


def _require_existing(key: str, weights: Mapping[str, float], values: Collection[str]) -> None:
    unknown = [name for name in weights if name not in values]
    if unknown:
        raise InvalidRequest(f"no task of this environment has {unknown[0]!r} as {key}", field="weights")


@remember(64 * MEBIBYTE, counts_arguments=False)
def _group_by_value(
    hosted: ServedEnvironment, split: Split, params_json: str, key: str, size: int
) -> dict[str, tuple[int, ...]]:
    """Task indexes by their metadata value under the key. All tasks of the split are made for it."""
    environment = hosted.environment
    params = environment.Params.model_validate_json(params_json)
    by_value: defaultdict[str, list[int]] = defaultdict(list)
    for index in range(size):
        metadata: Mapping[str, JsonValue] = make_task(environment, split, index, params).metadata
        if key in metadata:
            by_value[canonical_json(*normalise_values([metadata[key]]))].append(index)
    return {value: tuple(indexes) for value, indexes in by_value.items()}


def _name_value(value: str) -> str:
    """The name of a value in `weights`: strings as they are, other values as JSON."""
    return str(json.loads(value)) if value.startswith('"') else value


# Tasks near a target pass rate

WINDOW_SIZE: Final = 16
"""Positions of the ordinary stream of which one task is taken."""
EXPLORATION_INTERVAL: Final = 32
"""Every this many positions the first task of the window is taken (exploration)."""

_MAX_GROUPS_READ: Final = 20_000
"""Maximum number of a run's groups read at once, newest first; older ones are from an earlier policy."""

_MAX_PENDING: Final = 1_000
"""Maximum number of pending groups that are read again until they are scored; the newest."""
REREAD_GROUPS: Final = 256
"""How many sequence numbers are read again each time. Replicas write concurrently, so a group may become visible
after one with a larger number."""

MAX_CACHED_RUNS: Final = 16
"""Maximum number of streams whose pass rates are kept in memory; others are recomputed on use."""


@dataclass(slots=True)
class _RunOutcomes:
    """Pass rates from groups up to `sequence`."""

    rates: PassRates = field(default_factory=PassRates)
    sequence: int = 0
    recent: set[int] = field(default_factory=set)
    """Counted sequence numbers in the range that is read again."""
    pending: set[int] = field(default_factory=set)
    """Sequence numbers of groups that were pending when read."""
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def add_outcomes(self, outcomes: Sequence[TaskOutcome]) -> None:
        for outcome in outcomes:
            if outcome.pending:
                self.pending.add(outcome.sequence)
            elif outcome.sequence not in self.recent:
                self.rates.add_outcome(outcome)
                self.recent.add(outcome.sequence)
                self.pending.discard(outcome.sequence)
        self.sequence = max([self.sequence, *(outcome.sequence for outcome in outcomes)])
        self.recent = {number for number in self.recent if number > self.sequence - REREAD_GROUPS}
        self.pending = set(sorted(self.pending)[-_MAX_PENDING:])


class DifficultyEstimator:
    """Estimates task difficulty for each run from its groups. Each replica computes its own estimates."""

    def __init__(self, outcomes: OutcomeStore) -> None:
        self._outcomes = outcomes
        self._counted: OrderedDict[str, _RunOutcomes] = OrderedDict()

    async def estimate_rates(self, stream: Stream) -> PassRates:
        """Pass rates from all scored groups of the stream's run, from any of its streams."""
        # Without the selection: a narrower stream of the run has the same tasks.
        key = canonical_json([stream.run, stream.environment, stream.split, stream.params])
        counted = self._counted.setdefault(key, _RunOutcomes())
        self._counted.move_to_end(key)
        while len(self._counted) > MAX_CACHED_RUNS:
            self._counted.popitem(last=False)
        async with counted.reading:  # two reads of the same groups would count them twice
            after = max(0, counted.sequence - REREAD_GROUPS)
            outcomes = await self._outcomes.list_since(stream, after, _MAX_GROUPS_READ, sorted(counted.pending))
            await asyncio.to_thread(counted.add_outcomes, outcomes)
        return counted.rates


def choose_nearest_to_pass_rate(
    locate: SlotLocator, target: float, rates: PassRates, label: LabelLookup, passed_over: set[int]
) -> SlotLocator:
    """Wraps `locate` to choose the best task of each window. Tasks in `passed_over` are chosen only if the window has
    no others; chosen tasks are added to it. Not pure: the result depends on the current estimates."""

    def locate_nearest(position: int) -> Slot | None:
        covered = range(position * WINDOW_SIZE, (position + 1) * WINDOW_SIZE)
        window = [slot for ordinary in covered if (slot := locate(ordinary)) is not None]
        window = [slot for slot in window if slot.index not in passed_over] or window
        if not window:
            return None
        expected = {number: rates.estimate(slot.index, label(slot.index)) for number, slot in enumerate(window)}
        best = window[0 if (position + 1) % EXPLORATION_INTERVAL == 0 else find_nearest(target, expected)]
        passed_over.add(best.index)
        return replace(best, position=position)

    return locate_nearest


def memoise_slots(locate: SlotLocator, first: int, count: int) -> SlotLocator:
    """Wraps `locate` with a cache, filled now for `count` positions."""
    slots: dict[int, Slot | None] = {}

    def locate_once(position: int) -> Slot | None:
        if position not in slots:
            slots[position] = locate(position)
        return slots[position]

    for position in range(first, first + count):
        locate_once(position)
    return locate_once
