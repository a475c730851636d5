"""A run's state, by when its groups arrive."""

from datetime import UTC, datetime, timedelta

import pytest

from app.domain.runs import Hold, RunState, tell_progress
from tests.support.tables import read_table

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
TEN_MINUTES = timedelta(minutes=10)


def arrivals(quiet: timedelta, pause: timedelta = TEN_MINUTES) -> list[datetime]:
    """Batches of two groups, newest first."""
    return [NOW - quiet - pause * (number // 2) for number in range(8)]


@pytest.mark.parametrize(
    ("quiet", "outstanding", "said", "state"),
    read_table(__file__, "pauses.yaml", list[tuple[timedelta, int, bool, RunState]]),
)
def test_a_pause_is_unusual_beside_those_of_late(
    quiet: timedelta, outstanding: int, said: bool, state: RunState
) -> None:
    """Unless the trainer said that the run is over, and no task is out."""
    told = tell_progress(arrivals(quiet), outstanding, None, NOW, finished=said)
    assert (told.state, told.since, told.outstanding) == (state, NOW - quiet, outstanding)


def test_quick_runs_get_two_minutes_and_slow_ones_six_hours() -> None:
    quick, slow = timedelta(seconds=1), timedelta(hours=5)
    minutes = [tell_progress(arrivals(timedelta(minutes=m), quick), 1, None, NOW).state for m in (2, 3)]
    hours = [tell_progress(arrivals(timedelta(hours=h), slow), 1, None, NOW).state for h in (6, 7)]
    assert (minutes, hours) == (["training", "stalled"], ["training", "stalled"])


def test_a_run_without_groups_is_new_and_one_that_is_held_says_why() -> None:
    hold = Hold(alarm_id="alarm_1", reason="length", since=NOW)
    held = tell_progress(arrivals(TEN_MINUTES), 0, hold, NOW)
    assert tell_progress([], 3, None, NOW).state == "new"
    assert (held.state, held.since, held.reason) == ("held", NOW, "length")
