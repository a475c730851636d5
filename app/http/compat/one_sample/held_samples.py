"""The samples of one request, held in their groups until the client has received its answer or disconnected."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from starlette.types import Receive

from app.domain.errors import RequestRefused
from app.service.sample_intake import SampleReply, SampleToScore

log = logging.getLogger(__name__)


class SampleHolder(Protocol):
    """Assigns samples to groups: `app.service.sample_intake.SampleService`."""

    def score_sample(
        self, sample: SampleToScore, *, gather_seconds: float, wait_seconds: float
    ) -> AbstractAsyncContextManager[SampleReply]: ...


@dataclass(frozen=True)
class LabelledSample:
    """A sample, and the request field that names its task."""

    sample: SampleToScore
    label: str


class ClientLeft(Exception):
    pass


class HeldSamples:
    """Holds all samples of a request at once, because they may belong to one group. Each is released in the task that
    took it."""

    def __init__(
        self, parts: SampleHolder, asked: Sequence[LabelledSample], gather_seconds: float, wait_seconds: float
    ) -> None:
        self._parts = parts
        self._seconds = (gather_seconds, wait_seconds)
        self._taken = asyncio.Event()
        self._replies: dict[int, SampleReply] = {}
        self._count = len(asked)
        self._told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when all replies are there, or the first error, or when the client has left."""
        self._holders = [asyncio.ensure_future(self._hold_sample(place, one)) for place, one in enumerate(asked)]
        if not asked:
            self._told.set_result(None)

    async def await_replies(self, receive: Receive) -> tuple[SampleReply, ...]:
        """Waits for the replies, in the order of the samples. Raises ClientLeft if the client disconnects first, or the
        first error of a sample; then all samples are released."""
        gone = asyncio.ensure_future(_await_disconnect(receive))
        gone.add_done_callback(lambda _: self._fail(ClientLeft()))
        try:
            await self._told
            return tuple(self._replies[place] for place in range(self._count))
        except BaseException:
            await self.settle(False)
            raise
        finally:
            gone.cancel()

    async def settle(self, taken: bool) -> None:
        """Releases the samples. If the client did not receive its answer (`taken` is False), its retry takes the same
        slots."""
        self._told.cancel()
        if taken:
            self._taken.set()
        else:
            for holder in self._holders:
                holder.cancel()
        for ended in await asyncio.gather(*self._holders, return_exceptions=True):
            if isinstance(ended, Exception):
                log.error("could not record that a sample was answered", exc_info=ended)

    async def _hold_sample(self, place: int, asked: LabelledSample) -> None:
        gather_seconds, wait_seconds = self._seconds
        try:
            async with self._parts.score_sample(
                asked.sample, gather_seconds=gather_seconds, wait_seconds=wait_seconds
            ) as reply:
                self._replies[place] = reply
                if len(self._replies) == self._count and not self._told.done():
                    self._told.set_result(None)
                await self._taken.wait()
        except Exception as error:
            if place in self._replies:
                raise
            if isinstance(error, RequestRefused) and (error.field or "").endswith("task_id"):
                error.field = asked.label
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self._told.done():
            self._told.set_exception(error)


async def _await_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
