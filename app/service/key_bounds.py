"""What a bound key may reach: checks the names, tasks, leases, groups and labels of a request before it is served."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

from pydantic import JsonValue

from app.domain.access import Caller, KeyBounds
from app.domain.errors import NotFound
from app.domain.groups import TaskRecord
from app.domain.sources import BUILT_IN
from app.domain.worlds import World
from app.ports.labelling import LabelQueue, LabelStore
from app.ports.store import GroupStore, IdempotencyKey, TaskStore
from app.service.request_models import NextMixedBatch, ScoreRequest
from app.service.task_cache import TaskCache
from app.service.world_service import WorldService

ItemT = TypeVar("ItemT")


class BoundsCheck:
    """What belongs to others is not there: NotFound, as for what never was. Only names that the caller itself gives are
    refused with the bounds that they are beyond: Forbidden."""

    def __init__(
        self, task_cache: TaskCache, tasks: TaskStore, groups: GroupStore, queue: LabelQueue, labels: LabelStore
    ) -> None:
        self._task_cache = task_cache
        self._tasks = tasks
        self._groups = groups
        self._queue = queue
        self._labels = labels

    async def check_score(self, bounds: KeyBounds, request: ScoreRequest) -> None:
        """What is stored must be of a run within the bounds, so that a group names it or a lease of it."""
        if bounds.is_open:
            return
        if request.run is not None:
            bounds.require_run(request.run)
        await self.require_tasks(bounds, [group.task_id for group in request.groups], "groups[{}].task_id")
        leases = await self._tasks.get_leases([one.lease_id for one in request.groups if one.lease_id is not None])
        for place, group in enumerate(request.groups):
            lease = None if group.lease_id is None else leases.get(group.lease_id)
            if lease is not None and not bounds.allows_run(lease.run):
                raise NotFound(
                    f"lease {group.lease_id} was not issued by this service", field=f"groups[{place}].lease_id"
                )
            if lease is None and request.run is None:
                bounds.require_run(None)

    async def require_tasks(self, bounds: KeyBounds, task_ids: Sequence[str], field: str | None = None) -> None:
        """NotFound naming `field`, where `{}` is the place, for a task of others. One that is not there passes."""
        if bounds.is_open:
            return
        records = await self._task_cache.get(list(dict.fromkeys(task_ids)))
        for place, task_id in enumerate(task_ids):
            record = records.get(task_id)
            if record is not None and not allows_task(bounds, record):
                named = None if field is None else field.format(place)
                raise NotFound(f"task {task_id} was not handed out by this service", field=named)

    async def require_group(self, bounds: KeyBounds, group_id: str) -> None:
        if await self.find_foreign(bounds, [group_id]):
            raise NotFound(f"there is no group {group_id}")

    async def find_foreign(self, bounds: KeyBounds, group_ids: Collection[str]) -> frozenset[str]:
        """Those of the groups that are others'."""
        found = {} if bounds.is_open else await self._groups.find(list(group_ids))
        return frozenset(
            group_id for group_id, group in found.items() if not bounds.allows_group(group.run, group.environment)
        )

    async def require_item(self, bounds: KeyBounds, lease_id: str) -> None:
        """NotFound for an item that is of others' groups."""
        lease = None if bounds.is_open else await self._queue.find_lease(lease_id)
        if lease is not None and not bounds.allows_group(lease.run, lease.environment):
            raise NotFound(f"there is no item {lease_id}", field="lease_id")

    async def require_label(self, bounds: KeyBounds, label_id: str) -> None:
        label = None if bounds.is_open else await self._labels.find(label_id)
        if label is not None and not bounds.allows_group(label.run, label.environment or ""):
            raise NotFound(f"there is no label {label_id}")


def check_hand_out(bounds: KeyBounds, environment: str, run: str | None, params: Mapping[str, JsonValue]) -> None:
    bounds.require_run(run)
    bounds.require_environment(environment)
    _check_params(bounds, params, "params")


def check_mixture(bounds: KeyBounds, request: NextMixedBatch) -> None:
    bounds.require_run(request.run)
    for place, member in enumerate(request.mix):
        bounds.require_environment(member.env, f"mix[{place}].env")
        _check_params(bounds, member.params, f"mix[{place}].params")


def _check_params(bounds: KeyBounds, params: Mapping[str, JsonValue], field: str) -> None:
    """They choose a data set and a world."""
    dataset, world = params.get("dataset"), params.get("world")
    bounds.require_dataset(dataset if isinstance(dataset, str) else None, f"{field}.dataset")
    if isinstance(world, str):
        bounds.require_world(world, f"{field}.world")


def allows_task(bounds: KeyBounds, record: TaskRecord) -> bool:
    """A task is of no run: whoever may be handed it may see it."""
    world = record.key.params.get("world")
    return (
        bounds.allows_environment(record.key.environment)
        and bounds.allows_dataset(record.prompt.dataset or BUILT_IN)
        and (not isinstance(world, str) or bounds.allows_world(world))
    )


def require_named(bounds: KeyBounds, run: str | None, environment: str | None) -> None:
    """Of a request over all groups that match: it must name what the key is bound to, since a part would look like the
    whole."""
    bounds.require_run(run, "query.run")
    bounds.require_environment(environment, "query.env")


def scope_idempotency(caller: Caller | None, key: IdempotencyKey | None) -> IdempotencyKey | None:
    """Callers choose them: those of two keys never meet."""
    if key is None or caller is None or caller.bounds.is_open:
        return key
    return IdempotencyKey(key=f"{caller.name}:{key.key}", body_digest=key.body_digest)


async def list_within(
    read: Callable[[int, str | None], Awaitable[Sequence[ItemT]]],
    name: Callable[[ItemT], str],
    allows: Callable[[str], bool],
    limit: int,
    after: str | None,
) -> list[ItemT]:
    """A page of those that are allowed, by name."""
    found: list[ItemT] = []
    while len(found) < limit:
        page = await read(limit, after)
        found += [one for one in page if allows(name(one))]
        if len(page) < limit:
            break
        after = name(page[-1])
    return found[:limit]


async def list_worlds_within(
    worlds: WorldService, bounds: KeyBounds, limit: int, after: str | None = None, *, closed: bool = False
) -> list[World]:
    read = partial(worlds.list_worlds, closed=closed)
    return await list_within(read, lambda world: world.name, bounds.allows_world, limit, after)
