"""Matches a stored task of an earlier version to the same task in the current environment."""

import asyncio

from pydantic import BaseModel

from app.domain.digests import digest
from app.domain.errors import InvalidRequest
from app.domain.groups import Prompt, TaskRecord
from app.domain.tasks import Message, Task
from app.domain.values import Split
from app.service.catalogue import Hosted
from app.service.shelf import WITHOUT, made_of

SEARCHED = 20_000
"""How many tasks of a split are searched for one that has moved to another index."""
AT_ONCE = 50
MAPS = 32


class Remaker:
    """Finds the current task that matches a stored one. Tasks match by public metadata, tools and all messages except
    system messages, which contain sheets and passages. Whether retrieval failed is ignored."""

    def __init__(self) -> None:
        self._maps: dict[tuple[Hosted, Split, str], dict[str, int]] = {}
        self._building = asyncio.Lock()

    async def task(self, hosted: Hosted, record: TaskRecord) -> Task | None:
        """The current task with the stored prompt, which the completions answered. None if no current task matches."""
        try:
            params = hosted.params(record.key.params)
        except InvalidRequest:
            return None
        asked = _asked(record.prompt)
        index = record.key.index
        size = hosted.environment.size(record.key.split, params)
        if (size is not None and index >= size) or _asked_at(hosted, record.key.split, index, params) != asked:
            found = (await self._map(hosted, record.key.split, params, size)).get(asked)
            if found is None:
                return None
            index = found
        moved = record.model_copy(update={"key": record.key.model_copy(update={"index": index})})
        return made_of(hosted, moved).model_copy(update={"messages": record.prompt.messages})

    async def _map(self, hosted: Hosted, split: Split, params: BaseModel, size: int | None) -> dict[str, int]:
        key = (hosted, split, digest(params.model_dump(mode="json")))
        async with self._building:
            if key not in self._maps:
                if len(self._maps) >= MAPS:
                    self._maps.clear()
                self._maps[key] = await _mapped(hosted, split, params, min(size or 0, SEARCHED))
            return self._maps[key]


async def _mapped(hosted: Hosted, split: Split, params: BaseModel, size: int) -> dict[str, int]:
    places: dict[str, int] = {}
    for index in range(size):
        places.setdefault(_asked_at(hosted, split, index, params), index)
        if index % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)
    return places


def _asked_at(hosted: Hosted, split: Split, index: int, params: BaseModel) -> str:
    return _asked(hosted.environment.task(split, index, params))


def _asked(what: Prompt | Task) -> str:
    said = [message.model_dump(mode="json") for message in what.messages if _is_of_the_task(message)]
    metadata = {key: value for key, value in what.metadata.items() if key not in WITHOUT}
    return digest([metadata, [tool.model_dump(mode="json") for tool in what.tools], said])


def _is_of_the_task(message: Message) -> bool:
    return message.role != "system"
