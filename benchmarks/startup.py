"""From the start of the process to the first 200 on /readyz, on an empty folder and on one that was served before."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.serving import serving


@dataclass(frozen=True)
class StartUp:
    first_seconds: float
    again_seconds: float


def measure() -> StartUp:
    with tempfile.TemporaryDirectory() as folder:
        with serving(Path(folder)) as first:
            pass
        with serving(Path(folder)) as again:
            pass
    return StartUp(first.seconds_to_ready, again.seconds_to_ready)
