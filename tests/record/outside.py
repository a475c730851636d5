"""What is seen from outside: routes, tables, metrics, commands and settings."""

import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer
from pydantic import JsonValue

from app.cli.main import DeferredCommand, cli
from app.domain.values import digest
from app.settings import DEFAULT_FILE, PREFIX
from app.store.migration import migrate
from docs.parts.http import openapi
from docs.parts.metrics import metrics_table
from docs.parts.settings import settings
from tests.record.rows import Blocks, as_plain, line_of
from tests.support.databases import MIGRATIONS
from tests.support.serving import ROOT

COMPONENT = "#/components/schemas/"
WORDS = frozenset({"title", "description", "summary", "operationId"})
"""For people, or made from names in the code."""
VALUES = frozenset({"example", "examples", "default", "const", "enum"})
"""Under these stands JSON of ours and no schema."""
ROUNDS = 12
"""After which schemas that refer to one another have been told apart."""
PARAMETER = (
    *("opts", "secondary_opts", "required", "nargs", "multiple", "default", "envvar", "is_flag", "hidden", "min"),
    *("max", "metavar", "count"),
)


def served_openapi() -> Blocks:
    """The document with schemas under the digests of what they say. What is for people alone is left out."""
    document = _bare(openapi(), schema=True)
    assert isinstance(document, dict)
    schemas = document["components"]
    assert isinstance(schemas, dict)
    named = schemas["schemas"]
    paths = document["paths"]
    assert isinstance(named, dict)
    assert isinstance(paths, dict)
    names = dict.fromkeys(named, "")
    for _ in range(ROUNDS):
        names = {name: digest(_renamed(schema, names)) for name, schema in named.items()}
    rest = {key: value for key, value in document.items() if key not in ("paths", "components")}
    others = {key: value for key, value in schemas.items() if key != "schemas"}
    return {
        "schemas": sorted(names[name] for name in named),
        "paths": [{path: digest(_renamed(operations, names))} for path, operations in sorted(paths.items())],
        "operations": [
            f"{method.upper()} {path}"
            for path, operations in sorted(paths.items())
            if isinstance(operations, dict)
            for method in sorted(operations)
        ],
        "rest": [_renamed(rest, names), _renamed(others, names)],
        "~in full": [
            *({path: _renamed(operations, names)} for path, operations in sorted(paths.items())),
            *sorted(({names[name]: _renamed(schema, names)} for name, schema in named.items()), key=line_of),
        ],
        "properties": sorted({name for schema in named.values() for name in _properties(schema)}),
    }


def _bare(value: JsonValue, *, schema: bool) -> JsonValue:
    """Without words. `schema`: keys mean what they mean in OpenAPI; else they are names of ours, or JSON."""
    if isinstance(value, list):
        return [_bare(item, schema=schema) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: item if schema and key in VALUES else _bare(item, schema=not schema or key != "properties")
        for key, item in value.items()
        if not (schema and key in WORDS and isinstance(item, str))
    }


def _renamed(value: JsonValue, names: Mapping[str, str]) -> JsonValue:
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if isinstance(value, dict):
        return {key: _renamed(item, names) for key, item in value.items()}
    if isinstance(value, str) and value.startswith(COMPONENT):
        return COMPONENT + names[value.removeprefix(COMPONENT)]
    return value


def _properties(value: JsonValue) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _properties(item)
    if isinstance(value, dict):
        within = value.get("properties")
        yield from within if isinstance(within, dict) else ()
        for item in value.values():
            yield from _properties(item)


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


def metrics() -> Blocks:
    rows = [line.strip("|").split(" | ") for line in metrics_table().splitlines()[2:]]
    return {"metrics": sorted(" | ".join(cell.strip() for cell in row[:3]) for row in rows)}


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


def known_settings() -> Blocks:
    """Keys, variables, types and defaults."""
    found = [setting for setting in settings() if setting.section is None]
    sections = [setting.path for setting in settings() if setting.section is not None]
    return {
        "settings": [list(setting.row[:4]) for setting in found],
        "sections": sections,
        "where": [PREFIX, DEFAULT_FILE],
    }
