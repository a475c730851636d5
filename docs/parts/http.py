"""The HTTP surface, from the OpenAPI document of the service itself."""

import asyncio
import json
import tempfile
from functools import cache
from pathlib import Path

from pydantic import JsonValue, SecretStr

from app.main.application import create_app
from app.main.components import discover
from app.settings import Settings
from docs.markdown import code, table

METHODS = ("get", "put", "post", "delete", "patch")
Document = dict[str, JsonValue]


@cache
def openapi() -> Document:
    """Of a service that needs a key and has stored nothing yet: what every installation has in common."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_openapi(Path(folder)))


async def _openapi(folder: Path) -> Document:
    settings = Settings.model_construct(database_url=f"sqlite:///{folder / 'docs.db'}", api_key=SecretStr("any"))
    ours = {name: found for name, found in discover().items() if found.__module__.startswith("app.envs.")}
    app = create_app(settings, environments=ours)
    document: Document = json.loads(json.dumps(app.openapi()))
    async with app.router.lifespan_context(app):
        pass
    return document


def openapi_json() -> str:
    return json.dumps(openapi(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def route_table() -> str:
    """Routes that every environment has stand here once, as `{env}`."""
    rows: dict[tuple[str, str], str] = {}
    for path, operations in _objects(openapi()["paths"]):
        for method, operation in _objects(operations):
            if method in METHODS and isinstance(operation, dict):
                general, summary = _generalised(path, str(operation.get("summary", "")))
                rows[general, method.upper()] = summary
    return table(("route", "does"), [(code(f"{method} {path}"), summary) for (path, method), summary in rows.items()])


def _generalised(path: str, summary: str) -> tuple[str, str]:
    for name in discover():
        if path.startswith(f"/envs/{name}/"):
            return path.replace(f"/envs/{name}/", "/envs/{env}/", 1), summary.replace(f" {name} ", " ")
    return path, summary


def _objects(value: JsonValue) -> list[tuple[str, JsonValue]]:
    return list(value.items()) if isinstance(value, dict) else []
