"""The part `routes`: every way into the service, also those that its OpenAPI document does not show."""

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from app.http.web.api_keys import find_access
from app.main.application import create_app
from app.settings import Settings
from tests.record.rows import Blocks


def routes() -> Blocks:
    with tempfile.TemporaryDirectory() as folder:
        return {"routes": asyncio.run(_routes(Path(folder)))}


async def _routes(folder: Path) -> list[Any]:
    app = create_app(Settings.model_construct(database_url=f"sqlite:///{folder / 'routes.db'}"))
    found = sorted(set(list_routes(app.routes)))
    async with app.router.lifespan_context(app):
        return found


def list_routes(routes: Sequence[Any], prefix: str = "") -> Iterator[str]:
    """`<methods or kind> <path>`, the scope and bound that a key needs, and what is mounted or included below."""
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is not None:
            yield from list_routes(included.routes, prefix + str(route.include_context.prefix))
            continue
        path = prefix + str(getattr(route, "path", ""))
        methods = " ".join(sorted(getattr(route, "methods", None) or []))
        kind = methods or type(route).__name__
        schema = "" if getattr(route, "include_in_schema", False) else " (not in the document)"
        scope, bound = find_access(route)
        yield f"{kind} {path} {scope or 'open'} {bound}{schema}"
        yield from list_routes(getattr(route, "routes", None) or [], path)
