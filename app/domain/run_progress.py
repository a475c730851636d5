"""Whether a run is being trained, has stopped, or is over: told by when its groups arrive, since no trainer says so."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final, Literal

from app.domain.run_health import Hold
from app.domain.values import Frozen

RunState = Literal["new", "training", "stalled", "finished", "held"]

USUAL_PAUSES: Final = 3.0
"""A pause so many times as long as the longest one of late is unusual."""
SHORTEST_STALL: Final = timedelta(minutes=2)
LONGEST_PAUSE: Final = timedelta(hours=6)
"""Whoever trains at all sends something within this."""
QUIET_END: Final = timedelta(hours=1)
"""A run that owes nothing is over after so long, or after an unusual pause that is longer."""


class RunProgress(Frozen):
    """`since` is when its newest group arrived, or when it was held."""

    state: RunState
    since: datetime | None
    outstanding: int
    """Tasks that are handed out and not scored."""
    reason: str = ""
    """Of a run that is held."""


def tell_progress(arrivals: Sequence[datetime], outstanding: int, held: Hold | None, now: datetime) -> RunProgress:
    """`arrivals` are those of the newest groups, newest first."""
    if held is not None:
        return RunProgress(state="held", since=held.since, outstanding=outstanding, reason=held.reason)
    if not arrivals:
        return RunProgress(state="new", since=None, outstanding=outstanding)
    quiet, unusual = now - arrivals[0], measure_unusual_pause(arrivals)
    state: RunState = "training" if quiet <= unusual else "stalled"
    if state == "stalled" and outstanding == 0 and quiet > max(QUIET_END, unusual):
        state = "finished"
    return RunProgress(state=state, since=arrivals[0], outstanding=outstanding)


def measure_unusual_pause(arrivals: Sequence[datetime]) -> timedelta:
    """Groups of a batch come together, so the longest pause of late is about that of a training step."""
    longest = max((later - earlier for later, earlier in pairwise(arrivals)), default=timedelta())
    return min(LONGEST_PAUSE, max(SHORTEST_STALL, USUAL_PAUSES * longest))
