"""Terminal report of conformance checks."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.toolkit.conformance.findings import (
    CheckResult,
    ConformanceFigures,
    ConformanceFinding,
    ConformanceReport,
    Spread,
)

SHOWN = 3
"""Findings shown per check."""


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
    yield "share of the most frequent right answer", _format_share(figures.commonest_gold)
    yield (
        "share paid for another task's right answer",
        f"{_format_share(figures.strangers_paid)} (at most {figures.chance:.1%})",
    )
    yield "tasks generated per second and core", f"{figures.tasks_per_second:,.0f}"
    gold = figures.gold_scores_per_second
    yield "right answers scored per second", "-" if gold is None else f"{gold:,.0f}"
    yield "junk replies scored per second", f"{figures.junk_scores_per_second:,.0f}"
    clock = f"{figures.score_p99_ms_by_the_clock:.2f} ms wall time"
    yield "scoring one reply, 99th percentile", f"{figures.score_p99_ms:.2f} ms CPU time, {clock}"


def _format_spread(spread: Spread) -> str:
    return f"{spread.least:,} to {spread.most:,}, median {spread.median:,}"


def _format_share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
