"""The guard of hot paths: it fails where one takes longer, twice, and only there."""

import json
from collections.abc import Mapping, Sequence

import pytest

from benchmarks.guard import KEPT, MOST_RISE, WORKLOADS, guard

KEPT_RATIOS = {"score": 4.0, "list": 2.0}
SLOW = {"score": 4.0 * MOST_RISE + 0.1, "list": 2.0}


@pytest.mark.parametrize(
    ("measured", "faults"),
    [
        ([{"score": 4.0 * MOST_RISE, "list": 1.0}], []),
        ([SLOW, KEPT_RATIOS], []),
        ([SLOW, {"score": 4.0, "list": 9.0}], []),
        ([SLOW, {"score": 8.0, "list": 2.0}], ["score: 1.42 and 2.00 times its kept processor time"]),
        (
            [{"score": 4.0, "judge": 1.0}],
            ["no kept ratio, or no workload: judge, list; `python -m benchmarks.guard --record` writes them"],
        ),
    ],
)
def test_a_rise_that_is_seen_twice_is_told(measured: Sequence[Mapping[str, float]], faults: list[str]) -> None:
    left = list(measured)
    told = list(guard(lambda: left.pop(0), KEPT_RATIOS))
    assert (told, left) == (faults, [])


def test_each_workload_has_a_kept_ratio() -> None:
    assert sorted(json.loads(KEPT.read_text(encoding="utf-8"))) == sorted(one.name for one in WORKLOADS)
