"""Resource limits of one call in a killable worker."""

from typing import Annotated, Literal

from pydantic import Field

from app.domain.values import Frozen

Limit = Literal["seconds", "cpu_seconds", "memory_mb", "output_bytes"]
"""The fields of `Limits`."""


class Limits(Frozen):
    """Limits of one call. Waiting for a worker, starting it and importing the module do not count."""

    seconds: Annotated[float, Field(gt=0, le=600)] = 10.0
    """Wall-clock time. Generous, because a busy machine is not the text's fault."""
    cpu_seconds: Annotated[float, Field(gt=0, le=600)] = 2.0
    """CPU time, counted in whole seconds. The call is killed less than one second after the limit."""
    memory_mb: Annotated[int, Field(ge=16, le=4096)] = 256
    """Address space beyond what the worker already uses."""
    output_bytes: Annotated[int, Field(ge=16, le=16 * 1024 * 1024)] = 64 * 1024
    """Size of the result as JSON."""


DEFAULT_LIMITS = Limits()
