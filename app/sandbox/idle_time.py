"""How long a program has neither used a processor nor waited for one, by the kernel's own accounts."""

from pathlib import Path
from typing import Final

NANOSECONDS: Final = 1e9


class IdleMeter:
    """Measures the program of one jail. On a busy machine a program waits for a processor, which is not its fault: only
    what it sleeps is idle. Where the kernel does not tell, nothing is."""

    def __init__(self, warden: int) -> None:
        self._warden = warden

    def measure(self, elapsed: float) -> float:
        """The idle seconds of a program that has been running for `elapsed` seconds."""
        try:
            return elapsed - _read_busy_seconds(self._find_program())
        except (OSError, ValueError):
            return 0.0

    def _find_program(self) -> int:
        """The program is the only child of the supervisor, which is the only child of the warden."""
        process = self._warden
        for _ in range(2):
            (child,) = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()
            process = int(child)
        return process


def _read_busy_seconds(process: int) -> float:
    """The time that a process has been running, and that it has been ready to run."""
    running, waiting, _ = Path(f"/proc/{process}/schedstat").read_text(encoding="ascii").split()
    return (int(running) + int(waiting)) / NANOSECONDS
