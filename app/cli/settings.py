"""`atropos-envs settings`: whether a service could serve with these settings."""

import json
from typing import Literal, NoReturn

import httpx
import typer
from rich.table import Table

from app.cli.consoles import AsJson, output_console, stop
from app.cli.envs.lookup import discover_environments
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import StoreUnavailable
from app.domain.programs import Isolation
from app.domain.values import Frozen
from app.inference.server import build_bearer_headers
from app.main.settings_check import require_known_names
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


@settings.callback()
def about() -> None:
    """Check the settings before serving with them."""


@settings.command()
def check(as_json: AsJson = False) -> None:
    """Check the settings, then try what they point to: the database, data of environments, servers of judges. Nothing
    is migrated. Exit code 2 when the settings are wrong, so that a start would stop; 1 when something they point to is
    away, so that an environment would answer 503, or a start would stop because of the database."""
    try:
        found = read_settings()
        require_known_names(found, discover_environments())
    except ValueError as error:
        _stop_with_mistakes(str(error), as_json=as_json)
    tried = [_database(found), *_environments(found), *_judges(found)]
    if as_json:
        typer.echo(json.dumps({"settings": [], "tried": [one.model_dump() for one in tried]}, indent=2))
    else:
        table = Table("", "name", "result")
        for one in tried:
            table.add_row(one.kind, one.name, one.problem or "ok")
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
    catalogue = Catalogue(discover_environments())
    folders = {"character_sheets": found.character_sheets}
    catalogue.open(ConfiguredDatasets(found.datasets, folders=folders, hub_cache=found.cache_dir))
    catalogue.set_isolation(Isolation(protections=()), weak_will_do=True)  # not what is tried here
    return [
        Tried(kind="environment", name=name, problem=catalogue.explain_unavailability(name))
        for name in catalogue.classes
    ]


def _judges(found: Settings) -> list[Tried]:
    """Any answer of HTTP below 500 but a refused key will do: not every server lists its models."""
    tried = []
    for name, judge in found.judges.items():
        key = None if judge.api_key_env is None else found.read_secret(judge.api_key_env)
        problem = None
        try:
            reply = httpx.get(
                f"{judge.base_url.rstrip('/')}/models", headers=build_bearer_headers(key), timeout=JUDGE_SECONDS
            )
            if reply.status_code in {401, 403} or reply.status_code >= 500:
                problem = f"{judge.base_url} answers {reply.status_code}"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            problem = f"{judge.base_url} does not answer: {error or type(error).__name__}"
        tried.append(Tried(kind="judge", name=name, problem=problem))
    return tried


def _stop_with_mistakes(message: str, *, as_json: bool) -> NoReturn:
    if as_json:
        typer.echo(json.dumps({"settings": message.splitlines(), "tried": []}, indent=2))
    stop(message)
