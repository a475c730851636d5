"""Selects the tasks of a stream by public metadata: a filter, or pools drawn by weight."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial

from pydantic import BaseModel, JsonValue

from app.domain.digests import canonical_json
from app.domain.errors import InvalidRequest
from app.domain.values import Split
from app.ports.store import SlotLocator
from app.service.catalogue import ServedEnvironment
from app.service.identity import normalise_values
from app.service.request_models import NextBatch
from app.service.task_order import LocatorFilter, keep_all, order_by_weight, order_tasks
from app.service.weighted_schedule import BLOCK_SIZE

WeightedPool = tuple[float, tuple[int, ...]]
"""A weight, and the task indexes that share it."""


LabelLookup = Callable[[int], str | None]
"""A pure function: the label of the task at an index."""


def build_locator(
    hosted: ServedEnvironment,
    request: NextBatch,
    params: BaseModel,
    seed: int | None,
    narrowed: LocatorFilter = keep_all,
) -> SlotLocator:
    """The locator of a stream. `narrowed` chooses among tasks with equal probability; with weights, within each pool.
    InvalidRequest naming `select` or `weights` when no task matches."""
    size = hosted.environment.size(request.split, params)
    if size == 0:
        raise InvalidRequest(
            f"{hosted.name} has no tasks in the split {request.split} with these params", field="split"
        )
    chosen = _select_indexes(hosted, request, params, size) if request.select.chosen else None
    if request.weights:
        return order_by_weight(_build_pools(hosted, request, params, size, chosen), seed, narrowed)
    return narrowed(order_tasks(size, seed, one_epoch=request.split == "test", chosen=chosen))


def build_label_lookup(hosted: ServedEnvironment, split: Split, params: BaseModel) -> LabelLookup:
    """Looks up the statistics label of a task, which groups similar tasks."""
    if hosted.environment.stats_label is None:
        return lambda _: None
    return partial(_read_label, hosted, split, params.model_dump_json())


@lru_cache(maxsize=2**16)
def _read_label(hosted: ServedEnvironment, split: Split, params_json: str, index: int) -> str | None:
    environment = hosted.environment
    return environment.label(split, index, environment.Params.model_validate_json(params_json))


def _select_indexes(
    hosted: ServedEnvironment, request: NextBatch, params: BaseModel, size: int | None
) -> tuple[int, ...]:
    if size is None:
        raise InvalidRequest(
            f"{hosted.name} has endless tasks in this split; `select` needs a finite split", field="select"
        )
    wanted = {key: set(map(canonical_json, normalise_values(values))) for key, values in request.select.chosen.items()}
    indexes = [_group_by_value(hosted, request.split, params.model_dump_json(), key, size) for key in wanted]
    kept = [
        {index for value, some in values.items() if value in texts for index in some}
        for values, texts in zip(indexes, wanted.values(), strict=True)
    ]
    chosen = tuple(sorted(set.intersection(*kept)))
    if not chosen:
        raise InvalidRequest("no task of this environment has these values in its metadata", field="select")
    return chosen


def _build_pools(
    hosted: ServedEnvironment, request: NextBatch, params: BaseModel, size: int | None, chosen: tuple[int, ...] | None
) -> tuple[WeightedPool, ...]:
    """One pool per combination of values, weighted by the product of their weights."""
    if request.split == "test":
        raise InvalidRequest("weights apply to the train split only", field="weights")
    if size is None:
        raise InvalidRequest(
            f"{hosted.name} has endless tasks in this split; `weights` need a finite split", field="weights"
        )
    combined: defaultdict[int, list[str]] = defaultdict(list)
    for key, given in request.weights.items():
        values = _group_by_value(hosted, request.split, params.model_dump_json(), key, size)
        _require_known(key, given, set(map(_name_value, values)))
        for value, indexes in values.items():
            for index in indexes:
                combined[index].append(_name_value(value))
    members: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for index in sorted(combined if chosen is None else combined.keys() & set(chosen)):
        if len(combined[index]) == len(request.weights):
            members[tuple(combined[index])].append(index)
    weights = tuple(request.weights.values())
    pools = [
        (math.prod(given.get(value, 1.0) for given, value in zip(weights, values, strict=True)), tuple(indexes))
        for values, indexes in sorted(members.items())
    ]
    return _require_drawable([pool for pool in pools if pool[0] > 0])


def _require_drawable(pools: Sequence[WeightedPool]) -> tuple[WeightedPool, ...]:
    if not pools:
        raise InvalidRequest("these weights exclude every task", field="weights")
    if len(pools) > BLOCK_SIZE // 2:
        raise InvalidRequest(f"the weights give more than {BLOCK_SIZE // 2} combinations of values", field="weights")
    return tuple(pools)


def _require_known(key: str, given: Mapping[str, float], values: Collection[str]) -> None:
    unknown = [name for name in given if name not in values]
    if unknown:
        raise InvalidRequest(f"no task of this environment has {unknown[0]!r} as {key}", field="weights")


@lru_cache(maxsize=128)
def _group_by_value(
    hosted: ServedEnvironment, split: Split, params_json: str, key: str, size: int
) -> dict[str, tuple[int, ...]]:
    """Task indexes by their metadata value under the key."""
    environment = hosted.environment
    params = environment.Params.model_validate_json(params_json)
    found: defaultdict[str, list[int]] = defaultdict(list)
    for index in range(size):
        metadata: Mapping[str, JsonValue] = environment.task(split, index, params).metadata
        if key in metadata:
            found[canonical_json(*normalise_values([metadata[key]]))].append(index)
    return {value: tuple(indexes) for value, indexes in found.items()}


def _name_value(value: str) -> str:
    """The name of a value in `weights`: strings as they are, other values as JSON."""
    return str(json.loads(value)) if value.startswith('"') else value
