"""Matches a stored task of an earlier version to the same task in the current environment."""

import asyncio

from pydantic import BaseModel

from app.domain.digests import digest
from app.domain.errors import InvalidRequest
from app.domain.groups import TaskPrompt, TaskRecord
from app.domain.tasks import Message, Task
from app.domain.values import Split
from app.service.catalogue import ServedEnvironment
from app.service.task_cache import FAILED_CONTEXT_METADATA, rebuild_task

MAX_TASKS_SEARCHED = 20_000
"""How many tasks of a split are searched for one that has moved to another index."""
TASKS_PER_PASS = 50
MAX_INDEXES = 32


class TaskMatcher:
    """Finds the current task that matches a stored one. Tasks match by public metadata, tools and all messages except
    system messages, which contain sheets and passages. Whether retrieval failed is ignored."""

    def __init__(self) -> None:
        self._maps: dict[tuple[ServedEnvironment, Split, str], dict[str, int]] = {}
        self._building = asyncio.Lock()

    async def find_task(self, hosted: ServedEnvironment, record: TaskRecord) -> Task | None:
        """The current task with the stored prompt, which the completions answered. None if no current task matches."""
        try:
            params = hosted.validate_params(record.key.params)
        except InvalidRequest:
            return None
        asked = _compute_fingerprint(record.prompt)
        index = record.key.index
        size = hosted.environment.size(record.key.split, params)
        if (size is not None and index >= size) or _compute_fingerprint_at(
            hosted, record.key.split, index, params
        ) != asked:
            found = (await self._get_index(hosted, record.key.split, params, size)).get(asked)
            if found is None:
                return None
            index = found
        moved = record.model_copy(update={"key": record.key.model_copy(update={"index": index})})
        return rebuild_task(hosted, moved).model_copy(update={"messages": record.prompt.messages})

    async def _get_index(
        self, hosted: ServedEnvironment, split: Split, params: BaseModel, size: int | None
    ) -> dict[str, int]:
        key = (hosted, split, digest(params.model_dump(mode="json")))
        async with self._building:
            if key not in self._maps:
                if len(self._maps) >= MAX_INDEXES:
                    self._maps.clear()
                self._maps[key] = await _build_index(hosted, split, params, min(size or 0, MAX_TASKS_SEARCHED))
            return self._maps[key]


async def _build_index(hosted: ServedEnvironment, split: Split, params: BaseModel, size: int) -> dict[str, int]:
    places: dict[str, int] = {}
    for index in range(size):
        places.setdefault(_compute_fingerprint_at(hosted, split, index, params), index)
        if index % TASKS_PER_PASS == TASKS_PER_PASS - 1:
            await asyncio.sleep(0)
    return places


def _compute_fingerprint_at(hosted: ServedEnvironment, split: Split, index: int, params: BaseModel) -> str:
    return _compute_fingerprint(hosted.environment.task(split, index, params))


def _compute_fingerprint(what: TaskPrompt | Task) -> str:
    said = [message.model_dump(mode="json") for message in what.messages if _is_task_message(message)]
    metadata = {key: value for key, value in what.metadata.items() if key not in FAILED_CONTEXT_METADATA}
    return digest([metadata, [tool.model_dump(mode="json") for tool in what.tools], said])


def _is_task_message(message: Message) -> bool:
    return message.role != "system"
