"""Run health notices what happens to a run, and stays quiet when nothing does, in a simulated run."""

import pytest

from app.features.health.model import AnchorReading, HealthState, Mark, advance_state, follow_anchors
from app.features.health.series import Cell, find_change
from tests.support.run_months import EVENTS, WITHIN, build_month, build_quiet_run, follow, measure_delays


def test_each_change_of_a_month_is_noticed_within_a_hundred_groups() -> None:
    delays = measure_delays(build_month(), seed=1)
    late = {event: delay for event, delay in delays.by_event.items() if delay is None or delay > WITHIN}
    assert (set(delays.by_event), late, delays.early) == (set(EVENTS), {}, 0)


@pytest.mark.slow
def test_so_it_is_in_twenty_months() -> None:
    months = [measure_delays(build_month(), seed) for seed in range(1000, 1020)]
    late = [
        month.by_event for month in months if not all(0 < (delay or 0) <= WITHIN for delay in month.by_event.values())
    ]
    assert (late, sum(month.early for month in months)) == ([], 0)


@pytest.mark.parametrize("number", [0])
def test_a_run_that_learns_and_changes_its_mixture_is_quiet(number: int) -> None:
    assert follow(build_quiet_run(number), 20_000 + number).said == []


@pytest.mark.slow
def test_twenty_quiet_runs_give_at_most_one_alarm() -> None:
    assert sum(len(follow(build_quiet_run(number), 10_000 + number).said) for number in range(20)) <= 1


def test_a_steady_trend_and_another_mixture_are_no_change_and_a_step_is_one() -> None:
    noise = (0.01, -0.02, 0.015, -0.005)

    def make(step: float) -> list[Cell]:
        cells = []
        for bucket in range(40):
            level = 0.01 * bucket + noise[bucket % 4] + (step if bucket >= 35 else 0.0)
            easy, hard = (2, 8) if bucket >= 20 else (8, 2)
            cells.append(Cell(bucket, "easy", easy, easy * (level + 0.5)))
            cells.append(Cell(bucket, "hard", hard, hard * level))
        return cells

    quiet, loud = find_change(make(0.0), floor=1e-4), find_change(make(0.3), floor=1e-4)
    assert quiet is None or abs(quiet.z) < 4
    assert loud is not None
    assert (loud.bucket, loud.z > 10, abs(loud.effect - 0.3) < 0.05) == (35, True, True)


def test_too_little_before_a_change_says_nothing() -> None:
    cells = [Cell(bucket, "one", 10, 10.0 * (bucket >= 5)) for bucket in range(10)]
    assert (find_change(cells, floor=1e-4), find_change([], floor=1e-4)) == (None, None)


def read_anchors(shift: float) -> list[AnchorReading]:
    texts = (0.2, 0.5, 0.8)
    before = [AnchorReading(f"anchor {n % 2}", n, texts) for n in range(12)]
    return before + [AnchorReading(f"anchor {n % 2}", n, tuple(v + shift for v in texts)) for n in range(12, 15)]


@pytest.mark.parametrize(("shift", "alarms"), [(0.0, 0), (0.02, 0), (0.15, 1), (-0.15, 1)])
def test_a_judge_that_reads_its_anchors_otherwise_is_noticed(shift: float, alarms: int) -> None:
    assert len(follow_anchors(read_anchors(shift)).alarms) == alarms


def test_rollouts_without_a_value_are_left_out_of_an_anchor() -> None:
    found = follow_anchors([AnchorReading("a", 1, (0.5, None, 0.7)), AnchorReading("a", 2, (0.6, 0.9, None))])
    assert [round(shift * found.spread, 9) for shift in found.shifts] == [0.1]


def test_buckets_of_a_run_are_of_its_own_groups() -> None:
    state = advance_state(HealthState(), [(0, 4), (1, 4), (2, 4), (5, 10), (6, 3)])
    assert state == HealthState(marks=(Mark(), Mark(first=3, groups=12), Mark(first=6, groups=22)), groups=25)
    assert [state.newest, state.place_bucket(2), state.place_bucket(5), state.find_bucket(22)] == [1, 0, 1, 2]


def test_old_buckets_keep_their_number() -> None:
    state = HealthState()
    for bucket in range(100):
        state = advance_state(state, [(bucket, 10)])
    assert (state.newest, state.first_bucket, state.count_groups_before(99)) == (99, 39, 990)
