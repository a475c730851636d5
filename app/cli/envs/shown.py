"""What came of the checks, for people."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.toolkit.conformance.findings import Checked, Figures, Finding, Report, Spread

SHOWN = 3
"""Findings of one check; the others are alike."""


def show(report: Report, console: Console) -> None:
    title = Text.assemble((report.environment, "bold"), f" {report.version}  ", (report.source, "dim"))
    console.print(title, soft_wrap=True)
    table = Table("check", "result", show_edge=False, pad_edge=False, box=None)
    for one in report.checks:
        table.add_row(one.asks, _result(one))
        for finding in one.findings[:SHOWN]:
            table.add_row(_told(finding), "")
        if len(one.findings) > SHOWN:
            table.add_row(Text(f"    and {len(one.findings) - SHOWN} more", style="dim"), "")
    console.print(table)
    if report.figures is not None:
        console.print()
        console.print(_figures(report.figures))
    failed = sum(not one.passed for one in report.checks)
    words = "passed: it does what an environment must" if report.passed else f"failed: {failed} of {len(report.checks)}"
    if report.figures is None and not failed:
        words = (
            "failed: it broke while it was measured, on tasks after those that were looked at (--tasks looks at more)"
        )
    console.print()
    console.print(words, style="green" if report.passed else "red", highlight=False)


def _result(one: Checked) -> Text:
    if not one.applied:
        return Text("not applicable", style="dim")
    return Text("passed", style="green") if one.passed else Text("failed", style="bold red")


def _told(finding: Finding) -> Text:
    lines = [("expected", finding.expected), ("came", finding.came), ("to mend", finding.mend)]
    told = Text()
    for name, words in [*([("task", finding.task)] if finding.task else []), *lines]:
        told.append(f"    {name}: ", style="cyan").append(f"{words}\n")
    return told


def _figures(figures: Figures) -> Table:
    table = Table("figure", "value", show_edge=False, pad_edge=False, box=None)
    for name, value in _rows(figures):
        table.add_row(name, Text(value))
    return table


def _rows(figures: Figures) -> Iterator[tuple[str, str]]:
    sizes = ["endless" if size is None else f"{size:,}" for size in (figures.train_size, figures.test_size)]
    yield "tasks to train, to test", ", ".join(sizes)
    yield "different prompts", f"{figures.distinct_prompts:,} of {figures.looked_at:,}"
    yield "characters of a prompt", _spread(figures.prompt_characters)
    yield "tokens of a prompt, about", _spread(figures.prompt_tokens)
    yield "most frequent right answer", _share(figures.commonest_gold)
    yield "another task's right answer is paid", f"{_share(figures.strangers_paid)} (at most {figures.chance:.1%})"
    yield "tasks made a second of one core", f"{figures.tasks_per_second:,.0f}"
    gold = figures.gold_scores_per_second
    yield "right answers scored a second", "-" if gold is None else f"{gold:,.0f}"
    yield "junk scored a second", f"{figures.junk_scores_per_second:,.0f}"
    clock = f"{figures.score_p99_ms_by_the_clock:.2f} ms by the clock"
    yield "scoring one reply, 99th percentile", f"{figures.score_p99_ms:.2f} ms of a core, {clock}"


def _spread(spread: Spread) -> str:
    return f"{spread.least:,} to {spread.most:,}, median {spread.median:,}"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
