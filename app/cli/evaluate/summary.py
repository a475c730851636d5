"""Terminal tables of reports and comparisons."""

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from app.evaluation.comparison import Comparison, Difference
from app.evaluation.report import Report
from app.evaluation.resampling import Estimate
from app.toolkit.display import visible


def summary(report: Report) -> RenderableType:
    setup, counts = report.setup, report.counts
    table = Table(title=f"{escape(setup.environment)}, {setup.split}: {escape(setup.model)}")
    for column in ("", "value", "95 % interval", "tasks"):
        table.add_column(column, justify="left" if column in ("", "95 % interval") else "right")
    table.add_row("mean reward", *_cells(report.mean))
    for at in report.passes:
        table.add_row(f"pass@{at.k}", *_cells(at.rate))
    for rows in (report.criteria if len(report.criteria) > 1 else (), report.labels):
        table.add_section()
        for row in rows:
            table.add_row(escape(visible(row.name)), *_cells(row.mean))
    lines = [f"{counts.scored:,} of {counts.asked:,} attempts scored, {counts.passed:,} passed"]
    lines += [f"{row.attempts:,} unscored: {row.reason} ({row.detail})" for row in report.unscored]
    lines += [f"{caution.code}: {caution.text}" for caution in report.cautions]
    return Group(table, *(Text(visible(line)) for line in lines))


def compared(comparison: Comparison) -> RenderableType:
    table = Table(title=f"{escape(comparison.before.model)} → {escape(comparison.after.model)}: {comparison.verdict}")
    for column in ("", "before", "after", "difference", "95 % interval", "p"):
        table.add_column(column, justify="left" if column in ("", "95 % interval") else "right")
    table.add_row("mean reward", *_difference(comparison.overall, comparison.overall.p))
    for one in (*comparison.passes, *comparison.criteria, *comparison.labels):
        table.add_row(escape(visible(one.name)), *_difference(one, one.adjusted_p))
    moved = f"{comparison.improved:,} better, {comparison.declined:,} worse"
    lines = [f"{comparison.tasks:,} tasks with a score in both, {moved}"]
    lines += [f"{one.what}: {one.before} before, {one.after} after" for one in comparison.obstacles]
    lines += [f"{caution.code}: {caution.text}" for caution in comparison.cautions]
    return Group(table, *(Text(visible(line)) for line in lines))


def _cells(estimate: Estimate) -> tuple[str, str, str]:
    return _figure(estimate.value), _interval(estimate), str(estimate.tasks)


def _difference(one: Difference, p: float) -> tuple[str, ...]:
    difference = one.difference
    signed = "–" if difference.value is None else f"{difference.value:+.3f}"
    return _figure(one.before), _figure(one.after), signed, _interval(difference), _p(p)


def _interval(estimate: Estimate) -> str:
    return "–" if estimate.low is None else f"{_figure(estimate.low)} to {_figure(estimate.high)}"


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
