"""Calls of workers and their outcomes."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from app.domain.errors import WorkerFailed, WorkExceeded
from app.domain.work import Limit, Limits
from app.sandbox.frames import encode_json

log = logging.getLogger(__name__)

LIMIT_TEXTS: Final[dict[Limit, str]] = {
    "seconds": "{0.seconds:g} seconds",
    "cpu_seconds": "{0.cpu_seconds:g} seconds of processor time",
    "memory_mb": "{0.memory_mb} MB of memory",
    "output_bytes": "{0.output_bytes} bytes of result",
}


@dataclass(frozen=True)
class WorkerCall:
    """A call of a function `module:name`. `order` is the message to the worker."""

    function: str
    limits: Limits
    order: bytes


@dataclass(frozen=True)
class Done:
    result: JsonValue


@dataclass(frozen=True)
class FunctionRaised:
    """The function raised; its worker is still usable. `fault` may quote the text."""

    fault: str


@dataclass(frozen=True)
class WorkerLost:
    """The worker is dead or must be killed, because of `limit` or, without one, for the reason in `how`."""

    limit: Limit | None
    how: str


WorkerOutcome = Done | FunctionRaised | WorkerLost


def build_call(function: Callable[..., JsonValue], arguments: Sequence[JsonValue], limits: Limits) -> WorkerCall:
    """Builds a call. Raises ValueError, TypeError or RecursionError for arguments that cannot be sent to a worker."""
    name = name_function(function)
    order = {"function": name, "arguments": list(arguments), "limits": limits.model_dump()}
    return WorkerCall(name, limits, encode_json(order))


def name_function(function: Callable[..., object]) -> str:
    """The function's name. Raises ValueError for functions without an importable name: lambdas, closures, bound
    methods."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not name or "<" in name or module == "__main__" or hasattr(function, "__self__"):
        raise ValueError(f"{function!r} is not a module-level function, so a worker cannot import it")
    return f"{module}:{name}"


def unwrap_outcome(work: WorkerCall, outcome: WorkerOutcome) -> JsonValue:
    """The call's result. Raises WorkerFailed or WorkExceeded if there is none. A fault may quote a model's text, so it
    goes only to the log, on one line."""
    if isinstance(outcome, Done):
        return outcome.result
    if isinstance(outcome, FunctionRaised):
        fault = "".join(character if character.isprintable() else " " for character in outcome.fault)
        log.error("%s broke in a worker: %s", work.function, fault)
        raise WorkerFailed(f"{work.function} broke; see the log")
    if outcome.limit is None:
        raise WorkerFailed(f"{work.function}: its worker was lost twice, the last time because {outcome.how}")
    allowed = LIMIT_TEXTS[outcome.limit].format(work.limits)
    raise WorkExceeded(f"{work.function} needs more than the {allowed} that it may use", limit=outcome.limit)
