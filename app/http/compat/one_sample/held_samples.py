"""The samples of one request, held in their groups until the client has received its answer or disconnected."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.types import Receive

from app.domain.errors import RequestRefused
from app.service.sample_intake import SampleReply, SampleToScore

log = logging.getLogger(__name__)


class SampleHolder(Protocol):
    """Assigns samples to groups: `app.service.sample_intake.PartDesk`."""

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
        told: list[asyncio.Future[SampleReply]] = [asyncio.get_running_loop().create_future() for _ in asked]
        self._replies: asyncio.Future[Any] = asyncio.gather(*told)
        self._holders = [asyncio.ensure_future(self._hold_sample(*one)) for one in zip(asked, told, strict=True)]

    async def await_replies(self, receive: Receive) -> tuple[SampleReply, ...]:
        """Waits for the replies, in the order of the samples. Raises ClientLeft if the client disconnects first, or the
        first error of a sample; then all samples are released."""
        gone = asyncio.ensure_future(_await_disconnect(receive))
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

    async def _hold_sample(self, asked: LabelledSample, told: "asyncio.Future[SampleReply]") -> None:
        gather_seconds, wait_seconds = self._seconds
        try:
            async with self._parts.score_sample(
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


async def _await_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
