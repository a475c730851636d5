"""No run of marks holds a score up, in whatever place of a reply it stands."""

import random
from collections.abc import Iterator

import pytest

from tests.envs.marks import (
    CLASSES,
    MARKS,
    PAIRS,
    PLACES,
    SHORT,
    SIZES,
    TIMES,
    MarkedEnvironment,
    Probe,
    draw_groups,
    list_probes,
    measure_hold,
)
from tests.support.tiers import examples

LEAST = 0.02
"""Seconds: what takes less is not compared, since a pause of the collector takes as long."""
GENEROUS = 4
"""How much longer than in proportion a longer reply may take."""
TRIES = 5
LONGEST_HOLD = 0.05


@pytest.fixture(scope="module", params=sorted(CLASSES))
def marked(request: pytest.FixtureRequest) -> MarkedEnvironment:
    return MarkedEnvironment(CLASSES[request.param])


def find_slow(marked: MarkedEnvironment, probe: Probe) -> Iterator[tuple[Probe, int]]:
    for times in TIMES:
        # A second look at what seems slow: others run here too.
        if all(
            (spent := marked.measure(probe, times)) > LEAST
            and spent > marked.measure(probe, SHORT) * times / SHORT * GENEROUS
            for _ in range(TRIES)
        ):
            yield probe, times


def choose_probes(marked: MarkedEnvironment) -> list[Probe]:
    """Marks and pairs of them in each place: as many as this run looks at, and fewer where programs are read."""
    probes = list_probes((*MARKS, *PAIRS))
    count = examples(len(probes)) // (10 if marked.environment.runs_programs else 1)
    return random.Random(marked.environment.name).sample(probes, count)


def test_a_score_takes_no_more_time_than_in_proportion_to_a_run_of_marks(marked: MarkedEnvironment) -> None:
    assert [slow for probe in choose_probes(marked) for slow in find_slow(marked, probe)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CLASSES))
def test_no_group_of_marks_holds_the_event_loop(name: str) -> None:
    kind = CLASSES[name]
    groups = [group for size in SIZES for group in draw_groups(kind, size, len(PLACES))]
    held = (measure_hold(kind, groups) for _ in range(TRIES))
    assert any(one < LONGEST_HOLD for one in held)
