"""What a killable worker may use for one call."""

from typing import Annotated, Literal

from pydantic import Field

from app.domain.values import Frozen

Limit = Literal["seconds", "cpu_seconds", "memory_mb", "output_bytes"]
"""The fields of `Limits`."""


class Limits(Frozen):
    """Of one call. Waiting for a worker, starting it and importing the function's module do not count."""

    seconds: Annotated[float, Field(gt=0, le=600)] = 10.0
    """By the clock. Generous, since a busy machine is not the text's doing."""
    cpu_seconds: Annotated[float, Field(gt=0, le=600)] = 2.0
    """Of processor time, counted in whole seconds: a call is ended less than one second after it."""
    memory_mb: Annotated[int, Field(ge=16, le=4096)] = 256
    """Address space beyond what the worker holds already."""
    output_bytes: Annotated[int, Field(ge=16, le=16 * 1024 * 1024)] = 64 * 1024
    """Of the result as JSON."""


DEFAULT_LIMITS = Limits()
