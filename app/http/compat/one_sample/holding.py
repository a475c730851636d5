"""The samples of one request, held in their groups until the client has received its answer or disconnected."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.types import Receive

from app.domain.errors import RequestRefused
from app.service.parts import Sample, SampleReply

log = logging.getLogger(__name__)


class Parts(Protocol):
    """Assigns samples to groups: `app.service.parts.PartDesk`."""

    def held(
        self, sample: Sample, *, gather_seconds: float, wait_seconds: float
    ) -> AbstractAsyncContextManager[SampleReply]: ...


@dataclass(frozen=True)
class Asked:
    """A sample, and the request field that names its task."""

    sample: Sample
    label: str


class ClientLeft(Exception):
    pass


class Held:
    """Holds all samples of a request at once, because they may belong to one group. Each is released in the task that
    took it."""

    def __init__(self, parts: Parts, asked: Sequence[Asked], gather_seconds: float, wait_seconds: float) -> None:
        self._parts = parts
        self._seconds = (gather_seconds, wait_seconds)
        self._taken = asyncio.Event()
        told: list[asyncio.Future[SampleReply]] = [asyncio.get_running_loop().create_future() for _ in asked]
        self._replies: asyncio.Future[Any] = asyncio.gather(*told)
        self._holders = [asyncio.ensure_future(self._hold(*one)) for one in zip(asked, told, strict=True)]

    async def replies(self, receive: Receive) -> tuple[SampleReply, ...]:
        """Waits for the replies, in the order of the samples. Raises ClientLeft if the client disconnects first, or the
        first error of a sample; then all samples are released."""
        gone = asyncio.ensure_future(_gone(receive))
        try:
            waited: set[asyncio.Future[Any]] = {self._replies, gone}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not self._replies.done():
                raise ClientLeft
            return tuple(self._replies.result())
        except BaseException:
            await self.settle(False)
            raise
        finally:
            gone.cancel()

    async def settle(self, taken: bool) -> None:
        """Releases the samples. If the client did not receive its answer (`taken` is False), its retry takes the same
        slots."""
        self._replies.cancel()
        if taken:
            self._taken.set()
        else:
            for holder in self._holders:
                holder.cancel()
        for ended in await asyncio.gather(*self._holders, return_exceptions=True):
            if isinstance(ended, Exception):
                log.error("could not record that a sample was answered", exc_info=ended)

    async def _hold(self, asked: Asked, told: "asyncio.Future[SampleReply]") -> None:
        gather_seconds, wait_seconds = self._seconds
        try:
            async with self._parts.held(
                asked.sample, gather_seconds=gather_seconds, wait_seconds=wait_seconds
            ) as reply:
                told.set_result(reply)
                await self._taken.wait()
        except Exception as error:
            if told.done():
                raise
            if isinstance(error, RequestRefused) and (error.field or "").endswith("task_id"):
                error.field = asked.label
            told.set_exception(error)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
