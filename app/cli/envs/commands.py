"""`atropos-envs envs`: list, check and create environments."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from app.cli.consoles import AsJson, errors, output_console, stop, stop_on_errors
from app.cli.envs.conformance_report import print_report
from app.cli.envs.conformance_run import CheckObserver, run_all_checks
from app.cli.envs.listing import build_table, list_lines
from app.cli.envs.lookup import FoundEnvironment, discover_environments, find_environment
from app.cli.envs.scaffolding import ScaffoldRequest, write_environment
from app.cli.envs.subprocess_digests import compute_digests_in_subprocess
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import GatewayError
from app.domain.values import Split
from app.settings import Settings, read_settings
from app.toolkit.conformance.checks import CHECKS, Check
from app.toolkit.conformance.findings import ConformanceReport
from app.toolkit.conformance.subject import CheckDepth

envs = typer.Typer(help="List, check and create environments.", no_args_is_help=True)
console = output_console()

GUESSED = 8
"""Strategies are chosen on one task in so many, and measured on as many others."""


@envs.callback()
def callback() -> None:
    """List, check and create environments."""


@envs.command("list")
def list_environments(as_json: AsJson = False) -> None:
    """List the environments that this installation serves: scoring, source and availability."""
    try:
        listed = list_lines(_configure_datasets(read_settings()))
    except ValueError as error:
        stop(str(error))
    if as_json:
        typer.echo(json.dumps([line.model_dump() for line in listed], indent=2))
    else:
        console.print(build_table(listed))


@envs.command()
def check(
    where: Annotated[str, typer.Argument(metavar="NAME|FILE", help="Environment name, file or folder.")],
    tasks: Annotated[int, typer.Option(min=20, max=100_000, help="Tasks to check per split.")] = 1_000,
    texts: Annotated[int, typer.Option(min=0, max=100_000, help="Nonsense texts to score.")] = 2_000,
    as_json: AsJson = False,
) -> None:
    """Run the conformance checks on an environment and measure its speed.

    Exit code 1: a check failed. Exit code 2: nothing to check.
    Judged environments are scored by the offline judge."""
    try:
        settings = read_settings()
        depth = CheckDepth(tasks=tasks, scored=tasks, texts=texts, guessed=max(CheckDepth.guessed, tasks // GUESSED))
        report = _run_checks(find_environment(where), settings, depth, quiet=as_json)
    except (GatewayError, ValueError) as error:
        stop(str(error))
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        print_report(report, console)
    if not report.passed:
        raise typer.Exit(1)


@envs.command()
def new(
    name: Annotated[
        str, typer.Argument(help="Environment name: lower-case letters, digits and _, such as tide_tables.")
    ],
    path: Annotated[Path | None, typer.Option(help="Folder to write into.", show_default="as described above")] = None,
    package: Annotated[bool, typer.Option("--package", help="Create an installable package.")] = False,
    judged: Annotated[
        bool, typer.Option("--judged", help="Create an environment scored by judges against a rubric.")
    ] = False,
) -> None:
    """Create a small working environment to build on.

    By default it goes into app/envs/community of the checkout.
    With --package it goes into a new folder of the current directory."""
    with stop_on_errors():
        made = write_environment(
            ScaffoldRequest(name=name, folder=path, package=package, judged=judged), taken=discover_environments()
        )
    for file in made.files:
        console.print(f"wrote {file}", highlight=False, markup=False, soft_wrap=True)
    console.print(made.next_steps, highlight=False, markup=False, soft_wrap=True)


def _run_checks(what: FoundEnvironment, settings: Settings, depth: CheckDepth, *, quiet: bool) -> ConformanceReport:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    scored = TextColumn("{task.fields[scored]:,} scored")
    with Progress(*columns, scored, console=errors, transient=True, disable=quiet) as progress:
        bar = progress.add_task(what.kind.name, total=len(CHECKS), scored=0)
        done = -1
        count = 0

        def note_check(one: Check) -> None:
            nonlocal done
            done += 1
            progress.update(bar, description=one.asks, completed=done)

        def note_score() -> None:
            nonlocal count
            count += 1
            progress.update(bar, scored=count)

        async def fetch_digests() -> dict[Split, str]:
            told = (await compute_digests_in_subprocess([what.where], settings.datasets))[what.where]
            if told.broke:
                raise RuntimeError(f"it fails in a separate process: {told.broke}")
            return told.digests

        return asyncio.run(
            run_all_checks(
                what.kind, _configure_datasets(settings), depth, CheckObserver(note_check, note_score), fetch_digests
            )
        )


def _configure_datasets(settings: Settings) -> ConfiguredDatasets:
    """As the service reads them."""
    folders = {"character_sheets": settings.character_sheets}
    return ConfiguredDatasets(settings.datasets, folders=folders, hub_cache=settings.cache_dir)
