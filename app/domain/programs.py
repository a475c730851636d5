"""Programs written by models: what to run, the results, and how well programs are isolated."""

from typing import Annotated, Literal

from pydantic import Field

from app.domain.values import FiniteJson, Frozen


class ProgramLimits(Frozen):
    """Limits of one program, for all of its calls together."""

    seconds: Annotated[float, Field(gt=0, le=600)] = 10.0
    """Wall-clock time. Generous, because a busy machine is not the program's fault."""
    idle_seconds: Annotated[float, Field(gt=0, le=600)] = 1.0
    """Time in which it neither uses a processor nor waits for one: it sleeps, or waits for what never comes."""
    cpu_seconds: Annotated[float, Field(gt=0, le=600)] = 2.0
    """CPU time, counted in whole seconds. The program is killed less than one second after the limit."""
    memory_mb: Annotated[int, Field(ge=16, le=4096)] = 128
    """Address space beyond what an empty interpreter holds."""
    output_bytes: Annotated[int, Field(ge=16, le=16 * 1024 * 1024)] = 256 * 1024
    """Total size of the results of its calls, as JSON. Printed output is discarded."""
    file_bytes: Annotated[int, Field(ge=0, le=1024 * 1024 * 1024)] = 1024 * 1024
    """Total size of files in its working directory, which starts empty and is deleted afterwards."""


class Program(Frozen):
    """Python source that defines `function`, and the arguments of the calls to make, in order and in one process. It
    never sees the expected results."""

    source: str
    function: str
    calls: tuple[tuple[FiniteJson, ...], ...]
    limits: ProgramLimits = ProgramLimits()


class CallResult(Frozen):
    """The result of one call. `value` if it returned JSON; otherwise `fault` says whether it raised or gave no JSON."""

    value: FiniteJson = None
    fault: Literal["", "raised", "no_json"] = ""


Ending = Literal[
    "finished", "no_function", "seconds", "idle_seconds", "cpu_seconds", "memory_mb", "output_bytes", "died"
]
"""`no_function`: the source does not compile, raises on import, or does not define the function. `died`: the process
exited, was killed for a forbidden action, or sent unreadable output."""


class Execution(Frozen):
    """The outcome of a program. `returned` lists the completed calls in order: all of them if it `finished`."""

    ending: Ending
    returned: tuple[CallResult, ...] = ()


Threat = Literal["network", "files", "processes", "memory", "time", "service"]
"""What a program must not access or exhaust. `service`: the gateway's own process, variables and database."""


class Protection(Frozen):
    against: Threat
    held: bool
    by: str
    """The mechanism that protects on this machine, or what is missing, in words."""


class Isolation(Frozen):
    """The isolation measured once at start."""

    protections: tuple[Protection, ...]

    @property
    def strong(self) -> bool:
        """Whether every threat is blocked."""
        return bool(self.protections) and all(protection.held for protection in self.protections)

    @property
    def weaknesses(self) -> str:
        """The threats that are not blocked, with reasons, on one line."""
        weak = (f"{one.against} ({one.by})" for one in self.protections if not one.held)
        return ", ".join(weak) or "nothing was tried"
