"""`atropos-envs prune`: removes stored groups, and keeps what they add up to."""

import asyncio
import time
from datetime import datetime, timedelta
from typing import Annotated, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from app.cli.consoles import errors, stop_on_errors
from app.cli.judge_setup import open_configured_store, say_store
from app.domain.retention import PrunePlan, PruneRule
from app.domain.runs import Purpose
from app.domain.values import utc_now
from app.ports.store import RetentionStore
from app.settings import read_settings

REMOVED_AT_ONCE: Final = 50
"""Groups in one write. A service on the same store waits meanwhile."""
PAUSE: Final = 30.0
"""So fewer than one in twenty requests that write meet a write of ours: their 95th percentile stays."""
_COLUMNS: Final = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
_KEPT: Final = {
    "labelled": "have labels, or somebody is labelling them",
    "anchor": "are what the health of their run is measured by",
    "pending": "are not scored yet",
    "uncounted": "are not in the statistics yet",
}


def prune(
    older_than: Annotated[float, typer.Option(min=0, metavar="DAYS", help="Only groups that are older than this.")],
    run: Annotated[
        list[str] | None, typer.Option(help="Only groups of this run, or of all that begin `so*`; may be repeated.")
    ] = None,
    env: Annotated[str | None, typer.Option(help="Only groups of this environment.")] = None,
    evaluations: Annotated[bool, typer.Option(help="Evaluations too, which are kept otherwise.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    pause: Annotated[
        float,
        typer.Option(
            min=0, help="Rest between two writes, as a multiple of what a write takes; 0 where no service runs."
        ),
    ] = PAUSE,
) -> None:
    """Remove stored groups with their completions and judgements. Statistics, curves, costs and tasks stay.

    Groups with labels, anchors of run health, and groups that are not scored yet are kept. It works in small writes
    beside a running service. An interrupted command loses nothing: start it again."""
    purposes: tuple[Purpose, ...] = ("train", "eval") if evaluations else ("train",)
    with stop_on_errors():
        settings = read_settings()
        say_store(settings)
        before = utc_now() - timedelta(days=older_than)
        rule = PruneRule(before=before, runs=tuple(run or ()), environment=env, purposes=purposes)

        async def work() -> None:
            async with open_configured_store(settings) as store:
                plan = await store.retention.plan(rule)
                _show_plan(plan, before)
                if dry_run or not plan.groups:
                    return
                if not yes:
                    typer.confirm("Remove them for good?", abort=True, err=True)
                await _prune(store.retention, rule, plan, pause)

        asyncio.run(work())


def _show_plan(plan: PrunePlan, before: datetime) -> None:
    typer.echo(f"{plan.groups:,} groups with {plan.rollouts:,} rollouts from before {before:%Y-%m-%d %H:%M} UTC go")
    for reason, count in plan.kept.items():
        typer.echo(f"{count:,} groups stay: they {_KEPT[reason]}")


async def _prune(store: RetentionStore, rule: PruneRule, plan: PrunePlan, pause: float) -> None:
    removed, after = 0, 0
    with Progress(*_COLUMNS, console=errors) as progress:
        bar = progress.add_task("groups", total=plan.groups)
        while True:
            began = time.perf_counter()
            batch = await store.prune(rule, after, REMOVED_AT_ONCE)
            seconds = time.perf_counter() - began
            removed += batch.groups
            progress.advance(bar, batch.groups)
            if batch.after is None:
                break
            after = batch.after
            await asyncio.sleep(pause * seconds)
    keys = await store.forget_idempotency_keys(rule)
    typer.echo(f"removed {removed:,} groups and {keys:,} idempotency keys")
