"""Assigns tasks to resets."""

import asyncio
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Final

from app.domain.access import Caller, find_bounds
from app.domain.digests import canonical_json
from app.domain.errors import Conflict, InvalidRequest, NotFound
from app.domain.groups import TaskRecord
from app.http.compat.openenv.resets import Reset
from app.service.gateway import Gateway
from app.service.key_bounds import check_hand_out
from app.service.request_models import HandedOutTask, NextBatch

CURSOR_RANGE: Final = 2**40
MAX_SHARED_TASKS: Final = 20_000
"""Maximum number of groups whose task is remembered; the oldest are forgotten first."""


@dataclass
class _SharedTask:
    dealing: "asyncio.Task[HandedOutTask]"
    left: int


class TaskAssigner:
    """One per process. It remembers the next cursor of resets without a run, and the tasks of groups."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._walks: Counter[tuple[str, str]] = Counter()
        self._shared: OrderedDict[tuple[str, str], _SharedTask] = OrderedDict()

    async def assign_task(self, environment: str, reset: Reset, caller: Caller | None = None) -> HandedOutTask:
        """The task for a reset. Raises InvalidRequest or NotFound naming the field, Forbidden beyond the caller's
        bounds, or Conflict if the run has no task left."""
        bounds = find_bounds(caller)
        if reset.task_id is not None:
            bounds.require_run(reset.run)
            await self._gateway.bounds.require_tasks(bounds, [reset.task_id], "task_id")
            return await self._load_task(environment, reset.task_id)
        check_hand_out(bounds, environment, reset.run, reset.params)
        if reset.index is not None or reset.seed is not None or not reset.siblings.key:
            return await self._request_task(environment, reset)
        return await self._assign_group_task(environment, reset)

    async def _load_task(self, environment: str, task_id: str) -> HandedOutTask:
        record = (await self._gateway.task_cache.get([task_id])).get(task_id)
        if record is None or record.key.environment != environment:
            raise NotFound(f"{task_id} was never handed out by {environment}", field="task_id")
        return _build_handed_out(record)

    async def _assign_group_task(self, environment: str, reset: Reset) -> HandedOutTask:
        """The task of the group's first member, for all its members."""
        asked = reset.model_dump_json(include={"run", "split", "params", "select", "purpose", "group"})
        name = (environment, asked)
        shared = self._shared.get(name)
        if shared is None or (shared.dealing.done() and shared.dealing.exception() is not None):
            shared = _SharedTask(asyncio.create_task(self._request_task(environment, reset)), reset.siblings.size)
            self._shared[name] = shared
            while len(self._shared) > MAX_SHARED_TASKS:
                self._shared.popitem(last=False)
        shared.left -= 1
        if shared.left == 0:
            self._shared.pop(name, None)
        return await asyncio.shield(shared.dealing)

    async def _request_task(self, environment: str, reset: Reset) -> HandedOutTask:
        batch = await self._gateway.dispatcher.next_batch(
            environment,
            NextBatch(
                batch_size=1,
                run=reset.run,
                split=reset.split,
                params=reset.params,
                select=reset.select,
                purpose=reset.purpose,
                lease_seconds=reset.lease_seconds,
                cursor=self._choose_cursor(environment, reset),
            ),
        )
        if batch.tasks:
            return batch.tasks[0]
        if reset.index is not None or reset.seed is not None:
            raise InvalidRequest("the split has no such task", field="index")
        if batch.exhausted:
            raise Conflict("the run has finished this split")
        raise Conflict("the remaining tasks of this split are leased to other holders; retry later")

    def _choose_cursor(self, environment: str, reset: Reset) -> int | None:
        if reset.index is not None:
            return reset.index
        if reset.seed is not None:
            return self._wrap_cursor(environment, reset, reset.seed)
        if reset.run is not None:
            return None
        walk = (environment, canonical_json([reset.split, reset.params, reset.select.model_dump(mode="json")]))
        if len(self._walks) >= MAX_SHARED_TASKS:
            self._walks.clear()
        self._walks[walk] += 1
        return self._wrap_cursor(environment, reset, self._walks[walk] - 1)

    def _wrap_cursor(self, environment: str, reset: Reset, place: int) -> int:
        """Seeds beyond the end of a split wrap around."""
        if reset.split == "train":
            return place % CURSOR_RANGE
        hosted = self._gateway.catalogue.get_environment_or_current(environment)
        return place % (hosted.environment.size(reset.split, hosted.validate_params(reset.params)) or CURSOR_RANGE)


def _build_handed_out(record: TaskRecord) -> HandedOutTask:
    prompt = record.prompt
    return HandedOutTask(
        task_id=record.task_id,
        lease_id=None,
        environment=record.key.environment,
        messages=prompt.messages,
        tools=prompt.tools,
        max_turns=prompt.max_turns,
        metadata=prompt.metadata,
        lease_expires_at=None,
    )
