"""`Programs` over a pool of jails, reused between programs and replaced when killed."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from structlog.contextvars import get_contextvars

from app.domain.errors import WorkerFailed
from app.domain.fair_semaphore import FairSemaphore
from app.domain.programs import Execution, Program
from app.sandbox.jail import ConfinementReport, Jail, JailLost

log = logging.getLogger(__name__)

KINDS: Final = ("user", "root", "")
"""Kinds of namespaces, best first."""
LOCKS: Final = ("landlock", "seccomp")
"""Additional protections."""
PROGRAMS_OF_A_JAIL: Final = 10_000
"""A jail is replaced after this many programs."""


ObserveEnding = Callable[[str, float], None]
"""Called for each attempt: its ending (that of an `Execution`, or `lost`, `cancelled`) and seconds."""


def ignore_ending(ending: str, seconds: float) -> None:
    pass


class JailedPrograms:
    """Jails start on demand. The kind of namespaces is found once, by trying; later jails that cannot have it fail.
    Keys have equal shares, and requests within a key, so that one with many slow programs does not hold up another."""

    def __init__(
        self,
        size: int,
        kinds: tuple[str, ...] = KINDS,
        locks: tuple[str, ...] = LOCKS,
        told: ObserveEnding = ignore_ending,
    ) -> None:
        """`kinds` and `locks` are what is tried; tests pass fewer to simulate a weaker machine."""
        self._turns = FairSemaphore(size)
        self._told = told
        self._kinds = kinds
        self._locks = locks
        self._kind: str | None = None
        self._choosing = asyncio.Lock()
        self._idle: list[Jail] = []
        self._all: set[Jail] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False
        self.missing = ""
        """Why namespaces, or user namespaces, are not available."""
        self.walls = ConfinementReport()
        """The protections that the first jail found to work."""

    @property
    def waiting(self) -> int:
        """Programs that wait for a jail."""
        return self._turns.waiting

    @property
    def longest_wait(self) -> float:
        """Seconds that the oldest of them has waited."""
        return self._turns.longest_wait

    @property
    def ids(self) -> tuple[int, ...]:
        """Process ids of the supervisors."""
        return tuple(sorted(jail.id for jail in self._all))

    async def prepare(self) -> None:
        """Starts a jail in advance. Raises WorkerFailed if that fails."""
        async with self._turns.hold_place():
            self._idle.append(self._idle.pop() if self._idle else await self._start_jail())

    async def run(self, program: Program) -> Execution:
        async with self._turns.hold_place(str(get_contextvars().get("request_id", ""))):
            outcome = await self._attempt(program, self._idle.pop() if self._idle else None)
            if isinstance(outcome, JailLost):
                log.warning("a program was lost: %s", outcome.how)
            if isinstance(outcome, JailLost) or outcome.ending == "seconds":  # which a busy machine may have taken
                outcome = await self._attempt(program, None)
        if isinstance(outcome, JailLost) and outcome.suspect:
            return Execution(ending="died")  # in doubt: else a failing program could choose to have no score
        if isinstance(outcome, JailLost):
            raise WorkerFailed(f"a program was lost twice, the last time because {outcome.how}")
        return outcome

    async def close(self) -> None:
        """Kills every jail; current and later programs fail."""
        self._closed = True
        for jail in [*self._all]:
            self._discard(jail)
        self._idle.clear()
        await asyncio.gather(*self._ending)

    async def _attempt(self, program: Program, jail: Jail | None) -> Execution | JailLost:
        jail = jail or await self._start_jail()
        began, ending = time.perf_counter(), "cancelled"
        try:
            outcome = await jail.run(program)
            ending = "lost" if isinstance(outcome, JailLost) else outcome.ending
            return outcome
        finally:
            self._told(ending, time.perf_counter() - began)
            if jail.usable and jail.programs < PROGRAMS_OF_A_JAIL and not self._closed:
                self._idle.append(jail)
            else:
                self._discard(jail)

    async def _start_jail(self) -> Jail:
        if self._closed:
            raise WorkerFailed("the jails are closed")
        try:
            jail = await (self._start_first_jail() if self._kind is None else Jail.start(self._kind, self._locks))
        except (OSError, EOFError, TimeoutError) as error:
            log.exception("no jail could be started")
            raise WorkerFailed("no jail could be started; see the log") from error
        self._all.add(jail)
        if self._closed:
            self._discard(jail)
            raise WorkerFailed("the jails are closed")
        return jail

    async def _start_first_jail(self) -> Jail:
        async with self._choosing:
            if self._kind is not None:
                return await Jail.start(self._kind, self._locks)
            for kind in self._kinds:
                try:
                    jail = await Jail.start(kind, self._locks)
                except OSError as error:
                    self.missing = self.missing or str(error)
                    continue
                self._kind, self.walls = kind, jail.walls
                return jail
        raise OSError(self.missing)

    def _discard(self, jail: Jail) -> None:
        """Kills it at once and waits for its end in the background."""
        self._all.discard(jail)
        jail.kill()
        ending = asyncio.get_running_loop().create_task(jail.end())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
