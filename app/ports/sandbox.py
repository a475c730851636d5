"""Killable workers, and isolated execution of untrusted programs."""

from collections.abc import Callable
from typing import Protocol

from pydantic import JsonValue

from app.domain.errors import WorkerFailed
from app.domain.programs import Execution, Program
from app.domain.work import DEFAULT_LIMITS, Limits


class Workers(Protocol):
    """Killable worker processes, for code that parses or runs model output."""

    async def run(
        self, function: Callable[..., JsonValue], *arguments: JsonValue, limits: Limits = DEFAULT_LIMITS
    ) -> JsonValue:
        """Runs `function(*arguments)` in another process. The function is found by name, so it must be a module-level
        function without state. Arguments and result are passed as JSON. WorkExceeded when it exceeds `limits` twice,
        the second time in a fresh process. WorkerFailed when it raises, returns no JSON, or dies twice within its
        limits. Cancelling kills it."""


class NoWorkers:
    """For environments that need no workers. Calling it is a bug in the setup of the tools."""

    async def run(
        self, function: Callable[..., JsonValue], *arguments: JsonValue, limits: Limits = DEFAULT_LIMITS
    ) -> JsonValue:
        raise WorkerFailed(f"{function.__qualname__}: no workers were given")


class Programs(Protocol):
    """Runs untrusted programs, each in its own isolated process."""

    async def run(self, program: Program) -> Execution:
        """Runs a program; whatever it does is reported in the `Execution`. The wall-clock limit `seconds` is reported
        only if it is met twice, the second time in a fresh process. WorkerFailed when the service could not run it.
        Cancelling kills it."""


class NoPrograms:
    """For environments that run no programs. Calling it is a bug in the setup of the tools."""

    async def run(self, program: Program) -> Execution:
        raise WorkerFailed("no place to run programs was given")
