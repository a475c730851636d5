"""What is seen from outside: tables and commands. OpenAPI, metrics and settings are kept as pages of docs/."""

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer
from pydantic import JsonValue

from app.cli.main import DeferredCommand, cli
from app.store.migration import migrate
from tests.record.rows import Blocks, as_plain
from tests.support.databases import MIGRATIONS
from tests.support.serving import ROOT

PARAMETER = (
    *("opts", "secondary_opts", "required", "nargs", "multiple", "default", "envvar", "is_flag", "hidden", "min"),
    *("max", "metavar", "count"),
)


def database_schema() -> Blocks:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "store.db"
        migrate(f"sqlite:///{file}", MIGRATIONS)
        connection = sqlite3.connect(file)
        try:
            return _schema(connection)
        finally:
            connection.close()


def _schema(connection: sqlite3.Connection) -> Blocks:
    made = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name").fetchall()
    tables = [name for kind, name, _, _ in made if kind == "table"]
    columns = {f"columns of {name}": connection.execute(f"PRAGMA table_info({name})").fetchall() for name in tables}
    revision = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    return {
        "made": [as_plain(row) for row in made],
        "revision": [as_plain(row) for row in revision],
        **{name: [as_plain(row) for row in rows] for name, rows in columns.items()},
    }


def commands() -> Blocks:
    return dict(_commands(typer.main.get_command(cli), "atropos-envs"))


def _commands(command: Any, name: str) -> Iterator[tuple[str, list[JsonValue]]]:
    command = command.load() if isinstance(command, DeferredCommand) else command
    yield name, [_parameter(one) for one in command.params]
    for key, within in sorted(getattr(command, "commands", {}).items()):
        yield from _commands(within, f"{name} {key}")


def _parameter(parameter: Any) -> JsonValue:
    said = vars(parameter)
    told = {key: _plain(said[key]) for key in PARAMETER if said.get(key) is not None}
    annotation = said["type_descriptor"].annotation if said.get("type_descriptor") else None
    if parameter.param_type_name == "argument":
        told["name"] = said["name"]  # which is shown; an option's own is seen by nobody
    elif str(told.get("metavar", "")).startswith("<") or told.get("metavar") == "":
        del told["metavar"]  # help's word for the type
    return as_plain({"kind": parameter.param_type_name, "type": _type(annotation), **told})


def _plain(value: object) -> object:
    if isinstance(value, Callable):  # type: ignore[arg-type]
        return "made when it is needed"
    return (
        list(value)
        if isinstance(value, tuple)
        else value
        if isinstance(value, str | int | float | list)
        else str(value).replace(str(ROOT), "")  # a default may lie in the checkout
    )


def _type(annotation: Any) -> str:
    """In words that no name of ours is in."""
    if get_origin(annotation) is Literal:
        return " or ".join(map(repr, get_args(annotation)))
    if get_args(annotation):
        return ", ".join(_type(one) for one in get_args(annotation))
    module = getattr(annotation, "__module__", "")
    return annotation.__name__ if module in ("builtins", "pathlib", "pathlib._local", "datetime") else "another"
