"""Terminal report of conformance checks."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.cli.consoles import format_figure
from app.toolkit.conformance.attempts import ALL_TASKS
from app.toolkit.conformance.findings import (
    CheckResult,
    ConformanceFigures,
    ConformanceFinding,
    ConformanceReport,
    Spread,
    StrategyFigure,
)

SHOWN = 3
"""Findings shown per check."""
MOST_SHOWN = 40
"""Characters shown of how a strategy went about it."""


def print_report(report: ConformanceReport, console: Console) -> None:
    title = Text.assemble((report.environment, "bold"), f" {report.version}  ", (report.source, "dim"))
    console.print(title, soft_wrap=True)
    table = Table("check", "result", show_edge=False, pad_edge=False, box=None)
    for one in report.checks:
        table.add_row(one.asks, _format_result(one))
        for finding in one.findings[:SHOWN]:
            table.add_row(_format_finding(finding), "")
        if len(one.findings) > SHOWN:
            table.add_row(Text(f"    and {len(one.findings) - SHOWN} more", style="dim"), "")
    console.print(table)
    if report.figures is not None:
        console.print()
        console.print(_build_figures_table(report.figures))
        if report.figures.strategies:
            console.print()
            console.print(_build_strategies_table(report.figures.strategies))
            console.print(_describe_worst(report.figures.strategies), highlight=False, soft_wrap=True)
    console.print()
    console.print(_word_outcome(report), style="green" if report.passed else "red", highlight=False)


def _word_outcome(report: ConformanceReport) -> str:
    if report.passed:
        return "passed: all checks"
    failed = sum(not one.passed for one in report.checks)
    if report.figures is None and not failed:
        return (
            "failed: it raised an error during measurement, on tasks beyond those checked (use --tasks to check more)"
        )
    return f"failed: {failed} of {len(report.checks)}"


def _format_result(one: CheckResult) -> Text:
    if not one.applied:
        return Text("not applicable", style="dim")
    return Text("passed", style="green") if one.passed else Text("failed", style="bold red")


def _format_finding(finding: ConformanceFinding) -> Text:
    lines = [("expected", finding.expected), ("got", finding.came), ("fix", finding.mend)]
    told = Text()
    for name, words in [*([("task", finding.task)] if finding.task else []), *lines]:
        told.append(f"    {name}: ", style="cyan").append(f"{words}\n")
    return told


def _build_figures_table(figures: ConformanceFigures) -> Table:
    table = Table("metric", "value", show_edge=False, pad_edge=False, box=None)
    for name, value in _iter_rows(figures):
        table.add_row(name, Text(value))
    return table


def _iter_rows(figures: ConformanceFigures) -> Iterator[tuple[str, str]]:
    sizes = ["endless" if size is None else f"{size:,}" for size in (figures.train_size, figures.test_size)]
    yield "training tasks, test tasks", ", ".join(sizes)
    yield "distinct prompts", f"{figures.distinct_prompts:,} of {figures.looked_at:,}"
    yield "prompt length in characters", _format_spread(figures.prompt_characters)
    yield "prompt length in tokens (estimate)", _format_spread(figures.prompt_tokens)
    yield "share of the most frequent right answer", format_figure(figures.commonest_gold, ".1%")
    yield (
        "share paid for another task's right answer",
        f"{format_figure(figures.strangers_paid, '.1%')} (at most {figures.chance:.1%})",
    )
    yield "tasks generated per second and core", f"{figures.tasks_per_second:,.0f}"
    yield "right answers scored per second", format_figure(figures.gold_scores_per_second, ",.0f")
    yield "junk replies scored per second", f"{figures.junk_scores_per_second:,.0f}"
    clock = f"{figures.score_p99_ms_by_the_clock:.2f} ms wall time"
    yield "scoring one reply, 99th percentile", f"{figures.score_p99_ms:.2f} ms CPU time, {clock}"


def _build_strategies_table(strategies: Sequence[StrategyFigure]) -> Table:
    """Each strategy over all tasks, and the levels and labels where it was paid anything."""
    table = Table("without doing the task", "tasks", "paid", "99 %", "stated", "how", show_edge=False, box=None)
    for one in strategies:
        if one.group == ALL_TASKS or one.paid > 0:
            name = one.strategy if one.group == ALL_TASKS else f"  {one.group}"
            style = "bold red" if one.allowed < min(one.low, one.paid) else "dim" if one.paid == 0 else ""
            paid, stated = Text(f"{one.paid:.1%}", style=style), f"{one.allowed:.1%}"
            interval = f"{one.low:.1%} to {one.high:.1%}"
            table.add_row(name, f"{one.tasks:,}", paid, interval, stated, Text(_shorten(one.variant), style="dim"))
    return table


def _describe_worst(strategies: Sequence[StrategyFigure]) -> str:
    worst = max(strategies, key=lambda one: (one.low, one.paid))
    if worst.paid == 0:
        return "most is paid to: none of them"
    return f"most is paid to: {worst.strategy} ({worst.group}), {worst.paid:.1%} of {worst.tasks:,} tasks"


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MOST_SHOWN else f"{line[: MOST_SHOWN - 1]}…"


def _format_spread(spread: Spread) -> str:
    return f"{spread.least:,} to {spread.most:,}, median {spread.median:,}"
