"""Programs that a model wrote: what is asked of one, what became of it, and how well it was kept apart meanwhile."""

from typing import Annotated, Literal

from pydantic import Field

from app.domain.values import FiniteJson, Frozen


class ProgramLimits(Frozen):
    """Of one program, all of its calls together."""

    seconds: Annotated[float, Field(gt=0, le=600)] = 10.0
    """By the clock. Generous, since a busy machine is not the program's doing."""
    cpu_seconds: Annotated[float, Field(gt=0, le=600)] = 2.0
    """Of processor time, counted in whole seconds: it is ended less than one second after it."""
    memory_mb: Annotated[int, Field(ge=16, le=4096)] = 128
    """Address space beyond what an empty interpreter holds."""
    output_bytes: Annotated[int, Field(ge=16, le=16 * 1024 * 1024)] = 256 * 1024
    """Of all that its calls return, as JSON. What it prints goes nowhere."""
    file_bytes: Annotated[int, Field(ge=0, le=1024 * 1024 * 1024)] = 1024 * 1024
    """Of all that it leaves in its directory, which is empty to begin with and gone afterwards."""


class Program(Frozen):
    """Python that defines `function`, and the arguments of the calls to make, in their order and in one process. It is
    told nothing else: what the calls should return stays where they are compared."""

    source: str
    function: str
    calls: tuple[tuple[FiniteJson, ...], ...]
    limits: ProgramLimits = ProgramLimits()


class Returned(Frozen):
    """`value` where the call returned JSON; else `fault` says in one word of ours that it raised, or gave no JSON."""

    value: FiniteJson = None
    fault: Literal["", "raised", "no_json"] = ""


Ending = Literal["finished", "no_function", "seconds", "cpu_seconds", "memory_mb", "output_bytes", "died"]
"""`no_function`: the source does not compile, raises while it is read, or defines no such function. `died`: it ended
its process, was killed for what it must not do, or said what cannot be read."""


class Execution(Frozen):
    """`returned` are the calls that came to an end, in their order: all of them where it `finished`."""

    ending: Ending
    returned: tuple[Returned, ...] = ()


Threat = Literal["network", "files", "processes", "memory", "time", "service"]
"""What a program must not reach or exhaust. `service`: the gateway's own process, variables and database."""


class Protection(Frozen):
    against: Threat
    held: bool
    by: str
    """What holds it on this machine, or what was tried and is missing, in words."""


class Isolation(Frozen):
    """What was found by trying, once at start."""

    protections: tuple[Protection, ...]

    @property
    def strong(self) -> bool:
        """Every threat is held off."""
        return bool(self.protections) and all(protection.held for protection in self.protections)

    @property
    def weaknesses(self) -> str:
        """What is not held off and why, on one line."""
        weak = (f"{one.against} ({one.by})" for one in self.protections if not one.held)
        return ", ".join(weak) or "nothing was tried"
