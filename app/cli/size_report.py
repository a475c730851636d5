"""`atropos-envs db size`: what fills the store, how fast it grows, and whether a vacuum would help."""

from typing import Final

import typer
from rich.table import Table

from app.cli.consoles import AsJson, output_console, print_json, stop_on_errors
from app.cli.judge_setup import say_store
from app.domain.database_size import DatabaseSize
from app.domain.values import utc_now
from app.settings import read_settings
from app.store.database_size import measure_database
from app.store.rows import to_micros
from app.toolkit.display import format_bytes, format_time
from app.toolkit.package_data import find_packaged_folder

MOST_LISTED: Final = 20


def size(as_json: AsJson = False) -> None:
    """Say what fills the store: bytes by table and by run, growth per day, a forecast and advice about a vacuum.

    It only reads, beside a service too. Bytes of runs are estimated by some of their groups. A SQLite file of more than
    4 GiB is not read whole, so the bytes of its tables are estimates as well."""
    with stop_on_errors():
        settings = read_settings()
        say_store(settings)
        found = measure_database(settings.database_url, find_packaged_folder("migrations"), to_micros(utc_now()))
    if as_json:
        print_json(found)
    else:
        _print_size(found)


def _print_size(found: DatabaseSize) -> None:
    console = output_console()
    dead = any(one.dead_rows for one in found.tables)
    by_table = Table("table", "rows", "bytes" if found.measured_by == "pages" else "bytes, about")
    if dead:
        by_table.add_column("dead rows")
    for one in found.tables[:MOST_LISTED]:
        more = (f"{one.dead_rows:,}",) if dead else ()
        by_table.add_row(one.table, f"{one.rows:,}", format_bytes(one.bytes), *more)
    console.print(by_table)
    by_run = Table("run", "environment", "purpose", "groups", "rollouts", "bytes, about", "a day", "newest")
    for each in found.runs[:MOST_LISTED]:
        stored = each.stored
        by_run.add_row(
            *(stored.run or "-", stored.environment, stored.purpose, f"{stored.groups:,}", f"{stored.rollouts:,}"),
            *(format_bytes(stored.bytes), format_bytes(each.bytes_per_day), format_time(each.last_at)),
        )
    console.print(by_run)
    if len(found.runs) > MOST_LISTED:
        typer.echo(f"and {len(found.runs) - MOST_LISTED:,} smaller ones; --json has all")
    typer.echo(f"database: {format_bytes(found.bytes)}, of it free: {format_bytes(found.free_bytes)}")
    typer.echo(
        f"growth: {format_bytes(found.bytes_per_day)} a day, by the last {found.recent_days:.3g} days;"
        f" in 30 days about {format_bytes(found.forecast_bytes)}"
    )
    for line in found.advice:
        typer.echo(line)
