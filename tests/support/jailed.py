"""Jails of several strengths, for tests that run programs in them one after the other."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import pytest

from app.domain.errors import WorkerFailed
from app.domain.tasks import Execution, Program, ProgramLimits
from app.domain.values import FiniteJson
from app.sandbox.programs import LOCKS, JailedPrograms

ResultT = TypeVar("ResultT")

STRENGTHS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "user namespaces": (("user",), LOCKS),
    "root's namespaces": (("root",), LOCKS),
    "no namespaces": (("",), LOCKS),
    "nothing": (("",), ()),
}
"""`nothing` shows that an attack is one: it succeeds there."""
GUARDED: Final = tuple(name for name in STRENGTHS if name != "nothing")
GUARDS: Final = (GUARDED[0], *(pytest.param(name, marks=pytest.mark.slow) for name in GUARDED[1:]))
"""As fixtures have them: what holds behind one kind of wall is tried behind the others where there is time."""
QUICK: Final = ProgramLimits(seconds=60, idle_seconds=60, cpu_seconds=10)
"""For programs that end by themselves, on a busy machine too."""


class Jails:
    def __init__(self, loop: asyncio.AbstractEventLoop, programs: JailedPrograms) -> None:
        self._loop = loop
        self.programs = programs

    def awaited(self, running: Coroutine[Any, Any, ResultT]) -> ResultT:
        return asyncio.run_coroutine_threadsafe(running, self._loop).result()

    def run(
        self, source: str, *calls: tuple[FiniteJson, ...], function: str = "f", limits: ProgramLimits = QUICK
    ) -> Execution:
        """One call without arguments where none is given."""
        program = Program(source=source, function=function, calls=calls or ((),), limits=limits)
        return self.awaited(self.programs.run(program))

    def said(self, source: str, *arguments: FiniteJson, limits: ProgramLimits = QUICK) -> FiniteJson:
        """What the one call of `f` returned, or how it ended."""
        execution = self.run(source, arguments, limits=limits)
        if execution.ending != "finished":
            return execution.ending
        (returned,) = execution.returned
        return returned.fault or returned.value


@contextmanager
def jails(strength: str, places: int = 1) -> Iterator[Jails]:
    """Skips what cannot be had on this machine, and says why."""
    kinds, locks = STRENGTHS[strength]
    loop = asyncio.new_event_loop()
    turning = threading.Thread(target=loop.run_forever)
    turning.start()
    jailed = Jails(loop, JailedPrograms(places, kinds, locks))
    try:
        jailed.awaited(_tried(jailed.programs, strength))
        yield jailed
    finally:
        jailed.awaited(jailed.programs.close())
        loop.call_soon_threadsafe(loop.stop)
        turning.join()
        loop.close()


async def _tried(programs: JailedPrograms, strength: str) -> None:
    try:
        await programs.prepare()
    except WorkerFailed:
        pytest.skip(f"{strength} cannot be had here: {programs.missing}")
