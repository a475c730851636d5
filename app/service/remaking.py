"""A task of an earlier version or other data, made again from what its environment is now."""

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
"""Tasks of a split that are looked through for one that has moved to another index."""
AT_ONCE = 50
MAPS = 32


class Remaker:
    """Finds the present task that asks what a stored one asked. What was asked are the public metadata, the tools and
    every message but the system's, in which sheets and retrieved passages stand; whether they could be retrieved is not
    asked."""

    def __init__(self) -> None:
        self._maps: dict[tuple[Hosted, Split, str], dict[str, int]] = {}
        self._building = asyncio.Lock()

    async def task(self, hosted: Hosted, record: TaskRecord) -> Task | None:
        """The present reference under the stored prompt, which is what the completions answered. None when the
        environment no longer asks this."""
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
