"""The port `Programs` over jails: as many as there are places, kept from program to program, replaced when killed."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from app.domain.errors import WorkerFailed
from app.domain.programs import Execution, Program
from app.sandbox.jail import Jail, Lost, Walls
from app.sandbox.turns import Turns

log = logging.getLogger(__name__)

KINDS: Final = ("user", "root", "")
"""Of namespaces, the best first."""
LOCKS: Final = ("landlock", "seccomp")
"""What is put up beside them."""
PROGRAMS_OF_A_JAIL: Final = 10_000
"""Then it is replaced."""


Told = Callable[[str, float], None]
"""How one attempt ended (as an `Execution` does, or `lost`, `cancelled`), and its seconds."""


def tell_nobody(ending: str, seconds: float) -> None:
    pass


class JailedPrograms:
    """Nothing is started before it is needed. What kind of namespaces there are is found out once, by trying: a jail
    that later cannot have them is none."""

    def __init__(
        self, size: int, kinds: tuple[str, ...] = KINDS, locks: tuple[str, ...] = LOCKS, told: Told = tell_nobody
    ) -> None:
        """`kinds` and `locks` are what is tried; fewer where a weaker machine is played."""
        self._turns = Turns(size)
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
        """Why there are no namespaces, or not those of a user."""
        self.walls = Walls()
        """What the first jail found to work."""

    @property
    def waiting(self) -> int:
        """Programs that wait for a jail."""
        return self._turns.waiting

    @property
    def ids(self) -> tuple[int, ...]:
        """Of the wardens there are."""
        return tuple(sorted(jail.id for jail in self._all))

    async def prepare(self) -> None:
        """A jail stands ready. WorkerFailed where there can be none."""
        async with self._turns.place("programs"):
            self._idle.append(self._idle.pop() if self._idle else await self._started())

    async def run(self, program: Program) -> Execution:
        async with self._turns.place("programs"):
            outcome = await self._attempt(program, self._idle.pop() if self._idle else None)
            if isinstance(outcome, Lost):
                log.warning("a program was lost: %s", outcome.how)
            if isinstance(outcome, Lost) or outcome.ending == "seconds":  # which a busy machine may have taken
                outcome = await self._attempt(program, None)
        if isinstance(outcome, Lost):
            raise WorkerFailed(f"a program was lost twice, the last time because {outcome.how}")
        return outcome

    async def close(self) -> None:
        """Kills every jail; programs under way and later ones fail."""
        self._closed = True
        for jail in [*self._all]:
            self._discard(jail)
        self._idle.clear()
        await asyncio.gather(*self._ending)

    async def _attempt(self, program: Program, jail: Jail | None) -> Execution | Lost:
        jail = jail or await self._started()
        began, ending = time.perf_counter(), "cancelled"
        try:
            outcome = await jail.run(program)
            ending = "lost" if isinstance(outcome, Lost) else outcome.ending
            return outcome
        finally:
            self._told(ending, time.perf_counter() - began)
            if jail.usable and jail.programs < PROGRAMS_OF_A_JAIL and not self._closed:
                self._idle.append(jail)
            else:
                self._discard(jail)

    async def _started(self) -> Jail:
        if self._closed:
            raise WorkerFailed("the jails are closed")
        try:
            jail = await (self._first() if self._kind is None else Jail.start(self._kind, self._locks))
        except (OSError, EOFError, TimeoutError) as error:
            log.exception("no jail could be started")
            raise WorkerFailed("no jail could be started; see the log") from error
        self._all.add(jail)
        if self._closed:
            self._discard(jail)
            raise WorkerFailed("the jails are closed")
        return jail

    async def _first(self) -> Jail:
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
        """Kills it at once; that it is gone is seen to later."""
        self._all.discard(jail)
        jail.kill()
        ending = asyncio.get_running_loop().create_task(jail.end())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
