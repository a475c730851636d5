"""`atropos-envs settings`: whether a service could serve with these settings."""

import asyncio
import json
from contextlib import aclosing
from typing import Literal, NoReturn

import typer
from rich.table import Table

from app.cli.consoles import AsJson, output_console, stop
from app.cli.envs.lookup import discover_environments
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import StoreUnavailable
from app.domain.programs import Isolation
from app.domain.values import Frozen
from app.inference.connection import Connection
from app.inference.endpoint import Endpoint, NoReply
from app.main.components import build_judge_config
from app.main.settings_check import list_named_environments, require_known_names
from app.service.catalogue import Catalogue
from app.settings import Settings, read_settings
from app.store.database import describe
from app.store.migration import require_servable
from app.toolkit.package_data import find_packaged_folder

settings = typer.Typer(help="Check the settings before serving with them.", no_args_is_help=True)

JUDGE_SECONDS = 5.0


class Tried(Frozen):
    """Something outside of the settings that may be away now and come back."""

    kind: Literal["database", "environment", "judge"]
    name: str
    problem: str | None
    not_installed: str | None = None
    """What to install for an environment that the settings do not name: it is no problem."""


@settings.callback()
def about() -> None:
    """Check the settings before serving with them."""


@settings.command()
def check(as_json: AsJson = False) -> None:
    """Check the settings, then try what they point to: the database, data of environments, servers of judges. Nothing
    is migrated. Exit code 2 when the settings are wrong, so that a start would stop; 1 when something they point to is
    away, so that an environment would answer 503, or a start would stop because of the database. An environment whose
    optional package is not installed is no fault, unless the settings name it."""
    try:
        found = read_settings()
        require_known_names(found, discover_environments())
    except ValueError as error:
        _stop_with_mistakes(str(error), as_json=as_json)
    tried = [_database(found), *_environments(found), *asyncio.run(_try_judges(found))]
    if as_json:
        typer.echo(json.dumps({"settings": [], "tried": [one.model_dump() for one in tried]}, indent=2))
    else:
        table = Table("", "name", "result")
        for one in tried:
            table.add_row(one.kind, one.name, one.problem or one.not_installed or "ok")
        output_console().print(table)
    if any(one.problem for one in tried):
        raise typer.Exit(1)


def _database(found: Settings) -> Tried:
    problem = None
    try:
        require_servable(found.database_url, find_packaged_folder("migrations"))
    except StoreUnavailable as error:
        problem = error.detail
    return Tried(kind="database", name=describe(found.database_url), problem=problem)


def _environments(found: Settings) -> list[Tried]:
    catalogue = Catalogue(discover_environments(), list_named_environments(found))
    folders = {"character_sheets": found.character_sheets}
    catalogue.open(ConfiguredDatasets(found.datasets, folders=folders, hub_cache=found.cache_dir))
    catalogue.set_isolation(Isolation(protections=()), weak_will_do=True)  # not what is tried here
    return [_try_environment(catalogue, name) for name in catalogue.classes]


def _try_environment(catalogue: Catalogue, name: str) -> Tried:
    reason = catalogue.explain_unavailability(name)
    if catalogue.is_left_out(name):
        return Tried(kind="environment", name=name, problem=None, not_installed=reason)
    return Tried(kind="environment", name=name, problem=reason)


async def _try_judges(found: Settings) -> list[Tried]:
    endpoints = {name: build_judge_config(found, name, judge).endpoint for name, judge in found.judges.items()}
    problems = await asyncio.gather(*map(_try_endpoint, endpoints.values()))
    return [Tried(kind="judge", name=name, problem=problem) for name, problem in zip(endpoints, problems, strict=True)]


async def _try_endpoint(endpoint: Endpoint) -> str | None:
    """What is wrong. Any status below 500 but a refused key will do: not every server lists its models."""
    async with aclosing(Connection(endpoint)) as connection:
        try:
            async with asyncio.timeout(JUDGE_SECONDS):
                status = (await connection.get("/models")).status
        except TimeoutError:
            return f"{endpoint.base_url} does not answer within {JUDGE_SECONDS:g} s"
        except NoReply as error:
            return f"{endpoint.base_url} does not answer: {error.reason}"
    return f"{endpoint.base_url} answers {status}" if status in {401, 403} or status >= 500 else None


def _stop_with_mistakes(message: str, *, as_json: bool) -> NoReturn:
    if as_json:
        typer.echo(json.dumps({"settings": message.splitlines(), "tried": []}, indent=2))
    stop(message)
