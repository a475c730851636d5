"""`atropos-envs envs`: which environments there are, whether one does what it must, and a new one to begin with."""

import asyncio
import json
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from app.cli.consoles import output_console
from app.cli.envs.elsewhere import told_elsewhere
from app.cli.envs.examining import Watching, reported
from app.cli.envs.found import Found, all_environments, found
from app.cli.envs.listing import lines, table_of
from app.cli.envs.making import Wanted, make
from app.cli.envs.shown import show
from app.datasets.configured import ConfiguredDatasets
from app.domain.errors import GatewayError
from app.domain.values import Split
from app.settings import Settings, read_settings
from app.toolkit.conformance.checks import CHECKS, Check
from app.toolkit.conformance.findings import Report
from app.toolkit.conformance.subject import Depth

envs = typer.Typer(help="List environments, check one, begin a new one.", no_args_is_help=True)
console = output_console()
errors = Console(stderr=True)

AsJson = Annotated[bool, typer.Option("--json", help="For programs, one JSON object.")]


@envs.callback()
def about() -> None:
    """List environments, check one, begin a new one."""


@envs.command("list")
def list_environments(as_json: AsJson = False) -> None:
    """Every environment that would be served here: what scores it, where it is from, why one is not available."""
    try:
        listed = lines(_datasets(read_settings()))
    except ValueError as error:
        _stop(str(error))
    if as_json:
        typer.echo(json.dumps([line.model_dump() for line in listed], indent=2))
    else:
        console.print(table_of(listed))


@envs.command()
def check(
    where: Annotated[str, typer.Argument(metavar="NAME|FILE", help="An environment by name, or the file it is in.")],
    tasks: Annotated[int, typer.Option(min=20, max=100_000, help="Tasks of each split to look at.")] = 1_000,
    texts: Annotated[int, typer.Option(min=0, max=100_000, help="Texts without sense to score.")] = 2_000,
    as_json: AsJson = False,
) -> None:
    """Say whether an environment does what every one must, and how fast it is: exit 1 when it does not, 2 when there
    is nothing to check. Judged ones are scored by the judge without a model."""
    try:
        settings = read_settings()
        report = _checked(found(where), settings, Depth(tasks=tasks, scored=tasks, texts=texts), quiet=as_json)
    except (GatewayError, ValueError) as error:
        _stop(str(error))
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        show(report, console)
    if not report.passed:
        raise typer.Exit(1)


@envs.command()
def new(
    name: Annotated[str, typer.Argument(help="Of small letters, digits and _, such as tide_tables.")],
    path: Annotated[Path | None, typer.Option(help="The folder to write into.", show_default="see below")] = None,
    package: Annotated[bool, typer.Option("--package", help="A package of its own, to install anywhere.")] = False,
    judged: Annotated[bool, typer.Option("--judged", help="Scored by judges, against a rubric.")] = False,
) -> None:
    """Write an environment that passes `envs check` as it is, to be changed bit by bit: into app/envs/community of a
    checkout, or with --package a whole package into a new folder here. --path names another folder."""
    try:
        made = make(Wanted(name=name, folder=path, package=package, judged=judged), taken=all_environments())
    except (ValueError, OSError) as error:
        _stop(str(error))
    for file in made.files:
        console.print(f"wrote {file}", highlight=False, markup=False, soft_wrap=True)
    console.print(made.next_steps, highlight=False, markup=False, soft_wrap=True)


def _checked(what: Found, settings: Settings, depth: Depth, *, quiet: bool) -> Report:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    scored = TextColumn("{task.fields[scored]:,} scored")
    with Progress(*columns, scored, console=errors, transient=True, disable=quiet) as progress:
        bar = progress.add_task(what.kind.name, total=len(CHECKS), scored=0)
        done = -1
        count = 0

        def begins(one: Check) -> None:
            nonlocal done
            done += 1
            progress.update(bar, description=one.asks, completed=done)

        def scores() -> None:
            nonlocal count
            count += 1
            progress.update(bar, scored=count)

        async def elsewhere() -> dict[Split, str]:
            told = (await told_elsewhere([what.where], settings.datasets))[what.where]
            if told.broke:
                raise RuntimeError(f"in a process of its own it breaks: {told.broke}")
            return told.digests

        return asyncio.run(reported(what.kind, _datasets(settings), depth, Watching(begins, scores), elsewhere))


def _datasets(settings: Settings) -> ConfiguredDatasets:
    """As the service reads them."""
    folders = {"character_sheets": settings.character_sheets}
    return ConfiguredDatasets(settings.datasets, folders=folders, hub_cache=settings.cache_dir)


def _stop(message: str) -> NoReturn:
    errors.print(message, style="red", highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(2)
