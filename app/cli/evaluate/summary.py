"""Terminal tables of reports and comparisons."""

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from app.cli.consoles import format_figure, format_interval
from app.evaluation.comparison import Comparison, Difference
from app.evaluation.report import EvaluationReport
from app.evaluation.resampling import MeanEstimate
from app.toolkit.display import escape_invisible, format_p_value


def build_summary(report: EvaluationReport) -> RenderableType:
    setup, counts = report.setup, report.counts
    table = Table(title=f"{escape(setup.environment)}, {setup.split}: {escape(setup.checkpoint)}")
    for column in ("", "value", "95 % interval", "tasks"):
        table.add_column(column, justify="left" if column in ("", "95 % interval") else "right")
    table.add_row("mean reward", *_format_cells(report.mean))
    if report.calibrated.tasks:
        table.add_row("calibrated", *_format_cells(report.calibrated))
        table.add_row("mean reward of the same tasks", *_format_cells(report.calibrated_tasks))
    for at in report.passes:
        table.add_row(f"pass@{at.k}", *_format_cells(at.rate))
    for rows in (report.criteria if len(report.criteria) > 1 else (), report.labels):
        table.add_section()
        for row in rows:
            table.add_row(escape(escape_invisible(row.name)), *_format_cells(row.mean))
    lines = [f"{counts.scored:,} of {counts.asked:,} attempts scored, {counts.passed:,} passed"]
    lines += [f"{row.attempts:,} unscored: {row.reason} ({row.detail})" for row in report.unscored]
    lines += [f"{caution.code}: {caution.text}" for caution in report.cautions]
    return Group(table, *(Text(escape_invisible(line)) for line in lines))


def build_comparison_summary(comparison: Comparison) -> RenderableType:
    table = Table(
        title=f"{escape(comparison.before.checkpoint)} → {escape(comparison.after.checkpoint)}: {comparison.verdict}"
    )
    for column in ("", "before", "after", "difference", "95 % interval", "p"):
        table.add_column(column, justify="left" if column in ("", "95 % interval") else "right")
    table.add_row("mean reward", *_format_before_and_after(comparison.overall, comparison.overall.p))
    for one in (*comparison.passes, *comparison.criteria, *comparison.labels):
        table.add_row(escape(escape_invisible(one.name)), *_format_before_and_after(one, one.adjusted_p))
    moved = f"{comparison.improved:,} better, {comparison.declined:,} worse"
    lines = [f"{comparison.tasks:,} tasks with a score in both, {moved}"]
    lines += [f"{one.what}: {one.before} before, {one.after} after" for one in comparison.obstacles]
    lines += [f"{caution.code}: {caution.text}" for caution in comparison.cautions]
    return Group(table, *(Text(escape_invisible(line)) for line in lines))


def _format_cells(estimate: MeanEstimate) -> tuple[str, str, str]:
    return format_figure(estimate.value), format_interval(estimate.low, estimate.high), str(estimate.tasks)


def _format_before_and_after(one: Difference, p: float) -> tuple[str, ...]:
    difference = one.difference
    return (
        format_figure(one.before),
        format_figure(one.after),
        format_figure(difference.value, "+.3f"),
        format_interval(difference.low, difference.high),
        format_p_value(p),
    )
