"""`atropos-envs store`: looks after the store."""

import asyncio
from typing import Annotated, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from app.cli.consoles import describe_error, errors, stop
from app.cli.judge_setup import open_configured_store
from app.domain.errors import GatewayError
from app.settings import Settings, read_settings

store = typer.Typer(help="Look after the store.", no_args_is_help=True)

COUNTED_AT_ONCE: Final = 50
"""Groups that are counted by one write. A service on the same store waits meanwhile."""


@store.callback()
def callback() -> None:
    """Look after the store."""


@store.command("rebuild-statistics")
def rebuild_statistics(
    resume: Annotated[
        bool, typer.Option("--continue", help="Keep what is counted, and count only groups that are not.")
    ] = False,
) -> None:
    """Count all stored groups into the statistics again.

    Needed only after an upgrade that adds figures, or when services of two releases scored at the same time. A service
    may go on meanwhile: `/stats` grows as groups are counted, and says how many are missing. An interrupted command
    loses nothing: a service counts the rest, as `--continue` does."""
    try:
        counted = asyncio.run(_rebuild(read_settings(), resume))
    except GatewayError as error:
        stop(describe_error(error))
    except ValueError as error:
        stop(str(error))
    typer.echo(f"counted {counted:,} groups")


async def _rebuild(settings: Settings, resume: bool) -> int:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    counted = 0
    async with open_configured_store(settings) as opened:
        total = await (opened.views.count_uncounted() if resume else opened.statistics.forget_all())
        with Progress(*columns, console=errors) as progress:
            bar = progress.add_task("groups", total=total)
            while some := await opened.statistics.count_groups(COUNTED_AT_ONCE):
                counted += some
                progress.advance(bar, some)
    return counted
