"""Single-flight: concurrent requests for the same work share one execution, found by name."""

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Sequence
from typing import Generic, TypeVar

from app.domain.errors import GatewayError

log = logging.getLogger(__name__)

LandedT = TypeVar("LandedT")


class SingleFlight(Generic[LandedT]):
    def __init__(self, fault: str) -> None:
        """`fault` begins the log message about an unexpected failure; the names follow."""
        self._fault = fault
        self._by_name: dict[str, asyncio.Future[LandedT]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._by_name)

    def find(self, names: Iterable[str]) -> dict[str, asyncio.Future[LandedT]]:
        """The executions in progress under these names."""
        return {name: self._by_name[name] for name in names if name in self._by_name}

    def start(self, names: Sequence[str], work: Awaitable[LandedT]) -> asyncio.Future[LandedT]:
        """Starts work that is found under each name until it ends or is replaced. Callers get its errors; it continues
        when they leave."""
        flight = asyncio.ensure_future(work)
        self._by_name.update(dict.fromkeys(names, flight))

        def remove_finished(done: asyncio.Future[LandedT]) -> None:
            for name in names:
                if self._by_name.get(name) is done:
                    del self._by_name[name]
            error = None if done.cancelled() else done.exception()
            if error is not None and not isinstance(error, GatewayError):
                log.error("%s: %s", self._fault, ", ".join(names), exc_info=error)

        flight.add_done_callback(remove_finished)
        return flight

    async def close(self) -> None:
        """Cancels all work in progress and waits until it has ended."""
        flights = set(self._by_name.values())
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)
