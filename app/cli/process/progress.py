"""Terminal progress of `process`."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from app.cli.process.ledger import ProcessLedger
from app.cli.process.loop import ProcessRunner
from app.cli.process.meter import ProcessMeter
from app.cli.retry import Retrier

REFRESH_SECONDS = 0.25


@contextmanager
def show_progress(console: Console, limit: int | None, *, run: str) -> Iterator["ProcessDisplay"]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), TextColumn("{task.fields[words]}"), console=console) as progress:
        yield ProcessDisplay(progress, progress.add_task(escape(run), total=limit, words=""))


class ProcessDisplay:
    def __init__(self, progress: Progress, bar: TaskID) -> None:
        self._progress = progress
        self._bar = bar

    async def follow(
        self, processing: ProcessRunner, ledger: ProcessLedger, meter: ProcessMeter, patience: Retrier
    ) -> None:
        """Runs until it is cancelled."""
        with suppress(asyncio.CancelledError):
            while True:
                self._show(processing, ledger, meter, patience)
                await asyncio.sleep(REFRESH_SECONDS)
        self._show(processing, ledger, meter, patience)

    def say(self, words: str) -> None:
        self._progress.console.print(words, highlight=False, markup=False)

    def _show(self, processing: ProcessRunner, ledger: ProcessLedger, meter: ProcessMeter, patience: Retrier) -> None:
        parts = [meter.words, f"{processing.in_hand} running"]
        left_out = sum(ledger.left_out.values())
        parts += [f"{left_out} left out"] if left_out else []
        parts += [f"waiting for {who}: {why[:100]}" for who, why in patience.waiting.items()]
        self._progress.update(self._bar, completed=ledger.written_count, words=escape(", ".join(parts)))


def build_summary(ledger: ProcessLedger) -> Table:
    table = Table("groups", "count")
    table.add_row("written", str(ledger.written_count))
    for reason, count in ledger.left_out.items():
        table.add_row(f"left out: {escape(reason)}", str(count))
    if ledger.open:
        table.add_row("running", str(len(ledger.open)))
    return table
