"""Assigns tasks to resets."""

import asyncio
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Final

from app.domain.digests import canonical_json
from app.domain.errors import Conflict, InvalidRequest, NotFound
from app.domain.groups import TaskRecord
from app.http.compat.openenv.resets import Reset
from app.service.gateway import Gateway
from app.service.requests import HandedOut, NextBatch

CURSORS: Final = 2**40
SHARED: Final = 20_000
"""Maximum number of groups whose task is remembered; the oldest are forgotten first."""


@dataclass
class _Shared:
    dealing: "asyncio.Task[HandedOut]"
    left: int


class Dealer:
    """One per process. It remembers the next cursor of resets without a run, and the tasks of groups."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._walks: Counter[tuple[str, str]] = Counter()
        self._shared: OrderedDict[tuple[str, str], _Shared] = OrderedDict()

    async def task(self, environment: str, reset: Reset) -> HandedOut:
        """The task for a reset. Raises InvalidRequest or NotFound naming the field, or Conflict if the run has no task
        left."""
        if reset.task_id is not None:
            return await self._known(environment, reset.task_id)
        if reset.index is not None or reset.seed is not None or not reset.siblings.key:
            return await self._fresh(environment, reset)
        return await self._of_group(environment, reset)

    async def _known(self, environment: str, task_id: str) -> HandedOut:
        record = (await self._gateway.shelf.get([task_id])).get(task_id)
        if record is None or record.key.environment != environment:
            raise NotFound(f"{task_id} was never handed out by {environment}", field="task_id")
        return _handed_out(record)

    async def _of_group(self, environment: str, reset: Reset) -> HandedOut:
        """The task of the group's first member, for all its members."""
        asked = reset.model_dump_json(include={"run", "split", "params", "select", "purpose", "group"})
        name = (environment, asked)
        shared = self._shared.get(name)
        if shared is None or (shared.dealing.done() and shared.dealing.exception() is not None):
            shared = _Shared(asyncio.create_task(self._fresh(environment, reset)), reset.siblings.size)
            self._shared[name] = shared
            while len(self._shared) > SHARED:
                self._shared.popitem(last=False)
        shared.left -= 1
        if shared.left == 0:
            self._shared.pop(name, None)
        return await asyncio.shield(shared.dealing)

    async def _fresh(self, environment: str, reset: Reset) -> HandedOut:
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
                cursor=self._cursor(environment, reset),
            ),
        )
        if batch.tasks:
            return batch.tasks[0]
        if reset.index is not None or reset.seed is not None:
            raise InvalidRequest("the split has no such task", field="index")
        if batch.exhausted:
            raise Conflict("the run has finished this split")
        raise Conflict("the remaining tasks of this split are leased to other holders; retry later")

    def _cursor(self, environment: str, reset: Reset) -> int | None:
        if reset.index is not None:
            return reset.index
        if reset.seed is not None:
            return self._around(environment, reset, reset.seed)
        if reset.run is not None:
            return None
        walk = (environment, canonical_json([reset.split, reset.params, reset.select.model_dump(mode="json")]))
        if len(self._walks) >= SHARED:
            self._walks.clear()
        self._walks[walk] += 1
        return self._around(environment, reset, self._walks[walk] - 1)

    def _around(self, environment: str, reset: Reset, place: int) -> int:
        """Seeds beyond the end of a split wrap around."""
        if reset.split == "train":
            return place % CURSORS
        hosted = self._gateway.catalogue.hosted(environment)
        return place % (hosted.environment.size(reset.split, hosted.params(reset.params)) or CURSORS)


def _handed_out(record: TaskRecord) -> HandedOut:
    prompt = record.prompt
    return HandedOut(
        task_id=record.task_id,
        lease_id=None,
        environment=record.key.environment,
        messages=prompt.messages,
        tools=prompt.tools,
        max_turns=prompt.max_turns,
        metadata=prompt.metadata,
        lease_expires_at=None,
    )
