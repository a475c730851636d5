"""`atropos-envs db`: looks after the database of the store."""

import asyncio
from typing import Annotated, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from app.cli.consoles import describe_error, errors, stop, stop_on_errors
from app.cli.judge_setup import open_configured_store, say_store
from app.cli.size_report import size
from app.domain.errors import GatewayError
from app.settings import Settings, read_settings
from app.store.store_copy import copy_store, count_rows
from app.toolkit.package_data import find_packaged_folder

db = typer.Typer(help="Look after the database of the store.", no_args_is_help=True)

COUNTED_AT_ONCE: Final = 50
"""Groups that are counted by one write. A service on the same store waits meanwhile."""

_COLUMNS: Final = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())


db.command()(size)


@db.callback()
def callback() -> None:
    """Look after the database of the store."""


@db.command("rebuild-statistics")
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
    counted = 0
    async with open_configured_store(settings) as opened:
        total = await (opened.views.count_uncounted() if resume else opened.statistics.forget_all())
        with Progress(*_COLUMNS, console=errors) as progress:
            bar = progress.add_task("groups", total=total)
            while some := await opened.statistics.count_groups(COUNTED_AT_ONCE):
                counted += some
                progress.advance(bar, some)
    return counted


@db.command()
def copy(
    target: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="An empty PostgreSQL database: postgresql://user@host/name. Leave its password to PGPASSWORD or "
            "~/.pgpass: other users of the machine can read a command line.",
        ),
    ],
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="URL", help="sqlite:///file.db", show_default="the configured database"),
    ] = None,
) -> None:
    """Copy a SQLite store to PostgreSQL, row by row, and compare both.

    Stop the service first: the copy fails when the store is written to meanwhile. Everything is copied, running leases
    and pending groups too, so a service on the new database goes on where the old one stopped. Until all rows are there
    and equal the new database stays empty."""
    with stop_on_errors():
        settings = read_settings()
        if source is not None:
            settings = settings.model_copy(update={"database_url": source})
        say_store(settings)
        copied = _copy(settings.database_url, target)
    for table, rows in copied.items():
        if rows:
            typer.echo(f"{table}: {rows:,}")
    typer.echo(f"{sum(copied.values()):,} rows are equal in both databases")


def _copy(source: str, target: str) -> dict[str, int]:
    migrations = find_packaged_folder("migrations")
    counts = count_rows(source, migrations)
    with Progress(*_COLUMNS, console=errors) as progress:
        bar = progress.add_task("rows", total=2 * sum(counts.values()))

        def advance(table: str, rows: int) -> None:
            progress.update(bar, advance=rows, description=table)

        return copy_store(source, target, migrations, advance)
