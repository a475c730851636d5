"""What was measured of a judge: the same command replaces its figures, and the newest come first."""

from datetime import timedelta

import pytest

from app.domain.judge_measurements import JudgeMeasurement, MeasuredFigure
from app.main.store import Store
from tests.support.store_cases import START


def measured(judge: str, command: str, hours: int, value: float) -> JudgeMeasurement:
    return JudgeMeasurement(
        kind="bench",
        judge=judge,
        model="m\u0000",
        judge_digest="d",
        command=command,
        measured_at=START + timedelta(hours=hours),
        figures=(MeasuredFigure(name="pair accuracy", value=value, trials=3),),
    )


@pytest.mark.dialects
async def test_the_same_command_replaces_its_figures(store: Store) -> None:
    first, other, again = measured("a", "one", 0, 0.5), measured("a", "two" * 5_000, 1, 0.6), measured("a", "one", 2, 1)
    for each in (first, other, measured("b", "one", 3, 0.7), again):
        await store.judge_measurements.put(each)
    assert [await store.judge_measurements.find(name) for name in ("a", "nobody")] == [(again, other), ()]
