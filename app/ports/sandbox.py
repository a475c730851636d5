"""Where work that must be killable and programs of strangers run."""

from collections.abc import Callable
from typing import Protocol

from pydantic import JsonValue

from app.domain.errors import WorkerFailed
from app.domain.programs import Execution, Program
from app.domain.work import DEFAULT_LIMITS, Limits


class Workers(Protocol):
    """Processes that can be killed, for whatever parses or runs what a model wrote."""

    async def run(
        self, function: Callable[..., JsonValue], *arguments: JsonValue, limits: Limits = DEFAULT_LIMITS
    ) -> JsonValue:
        """`function(*arguments)` in another process, which finds it by its name: one of a module, that keeps no state.
        Arguments and result cross as JSON. WorkExceeded when it goes beyond `limits`, twice, the second time in a fresh
        process; WorkerFailed when it raises, gives what is no JSON, or twice dies without going beyond them. Cancelling
        ends it."""


class NoWorkers:
    """For environments that need none: asking it is a mistake in what made the tools."""

    async def run(
        self, function: Callable[..., JsonValue], *arguments: JsonValue, limits: Limits = DEFAULT_LIMITS
    ) -> JsonValue:
        raise WorkerFailed(f"{function.__qualname__}: no workers were given")


class Programs(Protocol):
    """Where programs of strangers are run, each in a process of its own that is kept from everything else."""

    async def run(self, program: Program) -> Execution:
        """Whatever the program does becomes an `Execution`: one that is out of time by the clock was so twice, the
        second time in a fresh process. WorkerFailed when it could not be run: our fault. Cancelling ends it."""


class NoPrograms:
    """For environments that run none: asking it is a mistake in what made the tools."""

    async def run(self, program: Program) -> Execution:
        raise WorkerFailed("no place to run programs was given")
