"""`atropos-envs db` and `prune`: the size of the store, its statistics, its move to PostgreSQL, and groups that may go.

These work on the configured database itself, also beside a service that goes on: each write is small, and a command
that was interrupted has lost nothing. Only `copy` wants the service stopped."""

import asyncio
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Final

import typer
from rich.table import Table

import app.main.store  # noqa: F401  # with the tables of features, and what they rebuild after a copy
from app.cli.judge_bench import open_configured_store, say_store
from app.domain.errors import GatewayError, UserError
from app.domain.faults import quote
from app.domain.retention import KEPT_BECAUSE, KeptGroups, Pruned, PrunePlan, PruneRule, Reduced, ReducePlan, ReduceRule
from app.domain.values import utc_now
from app.service.background import PAUSES_OF_COMMANDS, Pruner
from app.settings import Settings, read_settings
from app.store.copy import DatabaseSize, copy_store, count_rows, measure_database
from app.store.statements import to_micros
from app.terminal.completion import complete_run
from app.terminal.consoles import (
    AsJson,
    describe_error,
    output_console,
    print_json,
    print_outcome,
    show_bars,
    stop,
    stop_on_errors,
)
from app.toolkit.templates import find_packaged_folder
from app.toolkit.texts import format_bytes, format_time

db = typer.Typer(help="Measure, copy and repair the database.", no_args_is_help=True)


@db.callback()
def callback() -> None:
    """Measure, copy and repair the database."""


# `db size`.

_MOST_LISTED: Final = 20


@db.command()
def size(as_json: AsJson = False) -> None:
    """Show what fills the database: bytes by table and by run, growth per day, a forecast, and when to vacuum.

    It only reads, so a service may run meanwhile. Bytes of runs are estimated from some of their groups. Bytes of
    tables are estimated too if a SQLite file has more than 4 GiB."""
    with stop_on_errors():
        settings = read_settings()
        say_store(settings)
        found = measure_database(settings.database_url, find_packaged_folder("migrations"), to_micros(utc_now()))
    if as_json:
        print_json(found)
    else:
        _print_size(found)


def _print_size(measured: DatabaseSize) -> None:
    console = output_console()
    dead = any(one.dead_rows for one in measured.tables)
    by_table = Table("table", "rows", "bytes" if measured.measured_by == "pages" else "bytes, about")
    if dead:
        by_table.add_column("dead rows")
    for one in measured.tables[:_MOST_LISTED]:
        more = (f"{one.dead_rows:,}",) if dead else ()
        by_table.add_row(one.table, f"{one.rows:,}", format_bytes(one.bytes), *more)
    console.print(by_table)
    by_run = Table("run", "environment", "purpose", "groups", "rollouts", "bytes, about", "a day", "newest")
    for each in measured.runs[:_MOST_LISTED]:
        stored = each.stored
        by_run.add_row(
            *(stored.run or "-", stored.environment, stored.purpose, f"{stored.groups:,}", f"{stored.rollouts:,}"),
            *(format_bytes(stored.bytes), format_bytes(each.bytes_per_day), format_time(each.last_at)),
        )
    console.print(by_run)
    if len(measured.runs) > _MOST_LISTED:
        typer.echo(f"and {len(measured.runs) - _MOST_LISTED:,} smaller ones; --json has all")
    typer.echo(f"database: {format_bytes(measured.bytes)}, of it free: {format_bytes(measured.free_bytes)}")
    typer.echo(
        f"growth: {format_bytes(measured.bytes_per_day)} a day, by the last {measured.recent_days:.3g} days;"
        f" in 30 days about {format_bytes(measured.forecast_bytes)}"
    )
    for line in measured.advice:
        typer.echo(line)


# `db rebuild-statistics` and `copy`.

_COUNTED_AT_ONCE: Final = 50
"""Groups that are counted by one write. A service on the same store waits meanwhile."""


@db.command("rebuild-statistics")
def rebuild_statistics(
    resume: Annotated[
        bool, typer.Option("--continue", help="Keep what is counted, and count only groups that are not.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Count all stored groups again for the statistics.

    Needed only after an upgrade that adds figures, or when services of two releases scored at the same time. A service
    may run meanwhile: `/stats` grows as groups are counted, and says how many are missing. After an interruption a
    service counts the rest, as --continue does."""
    try:
        counted = asyncio.run(_rebuild(read_settings(), resume))
    except GatewayError as error:
        stop(describe_error(error))
    except UserError as error:
        stop(str(error))
    print_outcome(f"counted {counted:,} groups", as_json=as_json, groups=counted)


async def _rebuild(settings: Settings, resume: bool) -> int:
    counted = 0
    async with open_configured_store(settings) as opened:
        total = await (opened.views.count_uncounted() if resume else opened.statistics.forget_all())
        with show_bars() as bars:
            bar = bars.add("groups", total)
            while some := await opened.statistics.count_groups(_COUNTED_AT_ONCE):
                counted += some
                bar.advance(some)
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
    as_json: AsJson = False,
) -> None:
    """Copy a SQLite store to PostgreSQL, row by row, and compare both.

    Stop the service first: the copy fails if anything is written meanwhile. Everything is copied, with leases and
    pending groups, so a service on the new database continues where the old one stopped. The new database stays empty
    until all rows are there and equal."""
    with stop_on_errors():
        settings = read_settings()
        if source is not None:
            settings = settings.model_copy(update={"database_url": source})
        say_store(settings)
        copied = _copy(settings.database_url, target)
    total = sum(copied.values())
    lines = [f"{table}: {rows:,}" for table, rows in copied.items() if rows]
    words = "\n".join([*lines, f"{total:,} rows are equal in both databases"])
    print_outcome(words, as_json=as_json, tables=dict(copied), rows=total)


def _copy(source: str, target: str) -> dict[str, int]:
    migrations = find_packaged_folder("migrations")
    counts = count_rows(source, migrations)
    with show_bars() as bars:
        bar = bars.add("rows", 2 * sum(counts.values()))
        return copy_store(source, target, migrations, lambda table, rows: bar.advance(rows, name=table))


# `prune`.

_DAYS: Final = {"h": 1 / 24, "d": 1.0, "w": 7.0}
_BYTES: Final = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def prune(
    older_than: Annotated[
        str, typer.Option(metavar="30d", help="Remove only what is older: hours (`h`), days (`d`), weeks (`w`).")
    ] = "",
    run: Annotated[
        list[str] | None,
        typer.Option(
            help="Only groups of this run, or with `ada-*` of all that begin with `ada-`; repeatable.",
            autocompletion=complete_run,
        ),
    ] = None,
    purpose: Annotated[list[str] | None, typer.Option(help="`train` (the default) or `eval`; repeatable.")] = None,
    to_size: Annotated[
        str, typer.Option(metavar="50GB", help="Remove the oldest groups until the others take about this size.")
    ] = "",
    keep: Annotated[
        str,
        typer.Option(
            metavar="texts",
            help="Reduce groups instead of removing them. `texts` keeps scores and texts; digests replace token ids, "
            "log-probabilities, and what judges were asked and answered.",
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed, and remove nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation prompt.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove old groups from the configured store, with their rollouts and judgements.

    Statistics, curves and tasks stay: prompts that were handed out long ago can still be scored. Groups with labels,
    groups that run health reads again, evaluations and groups that are not scored yet stay too. --older-than also
    removes ended leases, idempotency keys and cached judgements of that age. A service may run meanwhile. After an
    interruption, run the command again.

    With --keep texts groups stay, without token ids, log-probabilities and judges' prompts. A run's own `keep` comes
    before it."""
    with stop_on_errors():
        if keep:
            if to_size or purpose:
                raise UserError("--keep goes only with --older-than and --run: it reduces training groups")
            if keep != "texts":
                raise UserError(f"`--keep`: {quote(keep)} was given; wanted is `texts`")
            before = utc_now() - (parse_age(older_than) if older_than else timedelta())
            reducing = ReduceRule.model_validate({"before": before, "keep": keep, "runs": run or ()})
            asyncio.run(_reduce(read_settings(), reducing, ask=not yes, dry_run=dry_run, as_json=as_json))
            return
        if not (older_than or to_size or run):
            raise UserError("choose what to remove: --older-than 30d, --run NAME or --to-size 50GB")
        rule = PruneRule.model_validate(
            {
                "before": utc_now() - parse_age(older_than) if older_than else None,
                "runs": run or (),
                "purposes": purpose or ("train",),
                "keep_bytes": parse_bytes(to_size) if to_size else None,
            }
        )
        asyncio.run(_prune(read_settings(), rule, ask=not yes, dry_run=dry_run, as_json=as_json))


def parse_age(text: str) -> timedelta:
    if (match := re.fullmatch(r"(\d{1,6})([hdw])", text)) is None:
        raise UserError(f"`--older-than`: {quote(text)} was given; wanted is a number with h, d or w, such as 30d")
    return timedelta(days=int(match[1]) * _DAYS[match[2]])


def parse_bytes(text: str) -> int:
    if (match := re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?) ?([KMGT]?B)?", text, re.IGNORECASE)) is None:
        raise UserError(
            f"`--to-size`: {quote(text)} was given; wanted is a size in bytes, KB, MB, GB or TB, such as 50GB"
        )
    unit = (match[2] or "").upper()
    return int(float(match[1]) * _BYTES[unit if unit != "B" else ""])


async def _prune(settings: Settings, rule: PruneRule, *, ask: bool, dry_run: bool, as_json: bool) -> None:
    async with open_configured_store(settings) as store:
        pruner = Pruner(store.retention, store.claims, pauses=PAUSES_OF_COMMANDS)
        plan = await pruner.plan(rule)
        if not as_json:
            _print_plan(plan)
        if dry_run:
            _print_done(plan, None, "", as_json=as_json)
            return
        if ask and not await asyncio.to_thread(typer.confirm, "Remove it for good?", err=True):
            raise typer.Exit(1)
        done = await _prune_with_progress(pruner, plan)
    _print_done(plan, done, _describe(done), as_json=as_json)


def _print_done(plan: PrunePlan | ReducePlan, done: Pruned | Reduced | None, words: str, *, as_json: bool) -> None:
    """`done` is None where nothing was to be done. For people the plan is there already."""
    if as_json or words:
        written = None if done is None else done.model_dump(mode="json")
        print_outcome(words, as_json=as_json, plan=plan.model_dump(mode="json"), done=written)


def _print_plan(plan: PrunePlan) -> None:
    for each in plan.removable:
        origin = f"{each.run or 'without a run'}, {each.environment}, {each.purpose}"
        counts = f"{each.groups:,} groups, {each.rollouts:,} rollouts, about {format_bytes(each.bytes)}"
        typer.echo(f"{origin}: {counts}")
    _print_kept(plan.kept)
    limited = "" if plan.excess_bytes is None else ", the oldest first"
    most = "at most " if plan.excess_bytes is not None else ""
    counts = f"{plan.groups:,} groups, {plan.rollouts:,} rollouts, about {format_bytes(plan.bytes)}"
    typer.echo(f"to remove: {most}{counts}{limited}")
    if plan.rule.leftovers:
        typer.echo("and of the same age: " + ", ".join(kind.replace("_", " ") for kind in plan.rule.leftovers))


def _print_kept(kept: Sequence[KeptGroups]) -> None:
    for each in kept:
        typer.echo(f"kept: {each.groups:,} groups {KEPT_BECAUSE[each.because]}")


async def _reduce(settings: Settings, rule: ReduceRule, *, ask: bool, dry_run: bool, as_json: bool) -> None:
    async with open_configured_store(settings) as store:
        pruner = Pruner(store.retention, store.claims, pauses=PAUSES_OF_COMMANDS)
        plan = await pruner.plan_reduction(rule)
        if not as_json:
            _print_reduction(plan)
        if dry_run or not plan.groups:
            _print_done(plan, None, "", as_json=as_json)
            return
        if ask and not await asyncio.to_thread(typer.confirm, "Replace these parts by digests for good?", err=True):
            raise typer.Exit(1)
        with show_bars() as bars:
            bar = bars.add("groups", plan.groups)
            done = await pruner.reduce(plan, lambda batch: bar.advance(batch.groups))
    _print_done(plan, done, _describe_reduced(done), as_json=as_json)


def _print_reduction(plan: ReducePlan) -> None:
    for each in plan.reducible:
        counts = f"{each.groups:,} groups, {each.rollouts:,} rollouts, about {format_bytes(each.bytes)}"
        typer.echo(f"{each.run or 'without a run'}, {each.environment}: {counts}")
    for part, size in plan.parts.items():
        typer.echo(f"{part.replace('_', ' ')}: about {format_bytes(size)}")
    _print_kept(plan.kept)
    typer.echo(f"to reduce: {plan.groups:,} groups, about {format_bytes(plan.bytes)}")


def _describe_reduced(done: Reduced) -> str:
    prompts = f", removed {done.prompts:,} prompts" if done.prompts else ""
    return f"reduced {done.groups:,} groups, {done.rollouts:,} rollouts{prompts}, about {format_bytes(done.bytes)}"


async def _prune_with_progress(pruner: Pruner, plan: PrunePlan) -> Pruned:
    with show_bars() as bars:
        bar = bars.add("groups", plan.groups)
        return await pruner.prune(plan, lambda pruned: bar.advance(pruned.groups))


def _describe(done: Pruned) -> str:
    beside = {
        "prompts": done.prompts,
        "leases": done.leases,
        "idempotency keys": done.idempotency_keys,
        "cached judgements": done.judge_cache,
        "player lines": done.player_lines,
        "answers of foreign environments": done.hosted_steps,
    }
    others = "".join(f", {count:,} {name}" for name, count in beside.items() if count)
    return f"removed {done.groups:,} groups, {done.rollouts:,} rollouts{others}, about {format_bytes(done.bytes)}"
