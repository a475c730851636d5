"""Charts as coordinates: scales that fit, gaps that stay gaps, what is told where somebody points."""

import pytest

from app.evaluation.report import MeanEstimate
from app.toolkit.charts import (
    ChartForm,
    ChartMark,
    Curve,
    CurvePoint,
    Scale,
    build_difference_histogram,
    build_reward_histogram,
    build_whisker,
    draw_curves,
    find_round_step,
    fit_around_zero,
)
from tests.support.tables import read_table

FORM = ChartForm(floor=0.0, ceiling=1.0, from_floor=True, width=154, height=138)
"""A plot of 100 by 100 units, from (44, 16)."""


@pytest.mark.parametrize(("span", "step"), [(1.0, 0.25), (7.0, 2.0), (0.03, 0.01), (1200.0, 500.0), (0.0, 1.0)])
def test_scales_have_round_steps(span: float, step: float) -> None:
    assert find_round_step(span) == pytest.approx(step)


@pytest.mark.parametrize(("scale", "labels"), read_table(__file__, "ticks.yaml", list[tuple[Scale, list[str]]]))
def test_ticks_are_round(scale: Scale, labels: list[str]) -> None:
    assert [label for _, label in scale.ticks] == labels


def test_steps_along_a_chart_are_round_and_whole() -> None:
    charts = [draw_curves([Curve("a", [CurvePoint(0, 0.0), CurvePoint(last, 0.0)])], FORM) for last in (3, 12, 100)]
    assert [(chart.is_zero, [label for _, label in chart.x_ticks]) for chart in charts if chart is not None] == [
        (True, ["0", "1", "2", "3"]),
        (True, ["0", "5", "10"]),
        (True, ["0", "20", "40", "60", "80", "100"]),
    ]


def test_a_curve_lies_where_its_values_are() -> None:
    points = [CurvePoint(0, 0.0), CurvePoint(1, 0.5, 0.25, 0.75), CurvePoint(2, 1.0)]
    chart = draw_curves([Curve("a", points)], FORM)
    assert chart is not None
    (curve,) = chart.curves
    assert (curve.lines, curve.bands, curve.dots) == (
        ("44,116 94,66 144,16",),
        ("44,116 94,41 144,16 144,16 94,91 44,116",),
        ((44.0, 116.0), (94.0, 66.0), (144.0, 16.0)),
    )
    assert chart.x_ticks == ((44.0, "0"), (94.0, "1"), (144.0, "2"))
    assert [label for _, label in chart.y_ticks] == ["0.000", "0.250", "0.500", "0.750", "1.000"]
    assert [hover.label for hover in chart.hovers][1] == "step 1\n0.500 (0.250 to 0.750)"
    assert chart.summary == "a: from 0.000 at 0 to 1.000 at 2"


def test_what_was_not_measured_is_a_gap() -> None:
    points = [CurvePoint(step, None if step == 2 else 0.5) for step in range(5)]
    chart = draw_curves([Curve("a", points)], FORM)
    assert chart is not None
    assert chart.curves[0].lines == ("44,32.7 69,32.7", "119,32.7 144,32.7")
    assert draw_curves([Curve("a", [CurvePoint(0, None)])], FORM) is None


def test_a_single_point_and_a_constant_are_drawn() -> None:
    for points in ([CurvePoint(7, 0.0)], [CurvePoint(7, 0.0), CurvePoint(8, 0.0)]):
        chart = draw_curves([Curve("a", points)], ChartForm(floor=0.0, from_floor=True, least_span=1.0))
        assert chart is not None
        assert (len(chart.curves[0].dots), chart.y_ticks[-1][1]) == (len(points), "1.000")


def test_marks_are_lines_or_stretches() -> None:
    marks = [ChartMark(1, "new judge", "≠"), ChartMark(0, "length", "A1", "alarm", 1)]
    chart = draw_curves([Curve("a", [CurvePoint(0, 0.0), CurvePoint(2, 1.0)])], FORM, marks)
    assert chart is not None
    assert [(mark.x, mark.width, mark.kind, mark.sign) for mark in chart.marks] == [
        (94.0, 0.0, "change", "≠"),
        (44.0, 50.0, "alarm", "A1"),
    ]


@pytest.mark.parametrize(
    ("ends", "reach"),
    [((-0.02, 0.07), 0.08), ((0.001, 0.0021), 0.003), ((-0.95, 0.2), 1.0), ((-0.6, 0.61), 0.8), ((0.0, 0.0), 1.0)],
)
def test_a_scale_of_differences_reaches_as_far_on_both_sides(ends: tuple[float, float], reach: float) -> None:
    scale = fit_around_zero([MeanEstimate(value=0.0, low=ends[0], high=ends[1], tasks=9), MeanEstimate()])
    assert (scale.low, scale.high, scale.at(0.0), scale.at(-7.0)) == pytest.approx((-reach, reach, 120.0, 0.0))


def test_an_interval_is_drawn_where_it_lies() -> None:
    mark = build_whisker(MeanEstimate(value=0.5, low=0.25, high=1.0, tasks=4), Scale(0.0, 1.0, 200))
    assert mark is not None
    assert (mark.low, mark.at, mark.high, mark.heat, mark.label) == (
        50.0,
        100.0,
        200.0,
        5,
        "0.500, 95 % between 0.250 and 1.000",
    )


def test_columns_are_as_high_as_their_counts() -> None:
    drawn = build_reward_histogram((2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 5))
    assert [(one.label, one.height, one.heat, one.told) for one in drawn.each if one.count] == [
        ("0.0–0.1", 48.0, 0, "from 0.0 to below 0.1: 2 of 8 (25 %)"),
        ("0.9–1.0", 24.0, 9, "from 0.9 to below 1.0: 1 of 8 (12 %)"),
        ("1", 120.0, 10, "exactly 1: 5 of 8 (62 %)"),
    ]


def test_differences_are_counted_in_bins_around_zero() -> None:
    drawn = build_difference_histogram((-1.0, -0.3, -0.01, 0.0, 0.04, 0.1, 0.7))
    assert [(one.label, one.count) for one in drawn.each] == read_table(__file__, "bins.yaml", list[tuple[str, int]])
