"""Asks every route of the service in the present folder, on an empty and on a filled store, and writes what it said.

A program of its own, for a copy of the tree that may lack a feature: it knows none of them."""

import asyncio
import html
import importlib
import json
import logging
import pkgutil
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

import app
from app.main.application import create_app
from app.settings import Settings

METHODS = ("GET", "POST", "PUT", "DELETE")


class Faults(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def import_everything() -> None:
    for module in pkgutil.walk_packages(app.__path__, "app."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def list_asked(routes: Any) -> dict[str, str]:
    """The module of each route by method and path."""
    asked = {}
    for route in routes:
        module = str(getattr(getattr(route, "endpoint", None), "__module__", ""))
        for method in sorted(set(getattr(route, "methods", None) or ()) & {*METHODS}):
            asked[f"{method} {route.path}"] = module
    return asked


LINK = re.compile(r'href="(/[^"#]*)')


async def ask_all(
    database: Path, asked: Mapping[str, str], names: Mapping[str, str]
) -> tuple[dict[str, int], list[str]]:
    """The status of each route, and which links of its pages lead nowhere. `names` stand in place of the parameters of
    its path."""
    service = create_app(Settings.model_construct(database_url=f"sqlite:///{database}"))
    statuses, links = {}, set[str]()
    async with service.router.lifespan_context(service):
        transport = httpx.ASGITransport(service, raise_app_exceptions=False)
        headers = {"Sec-Fetch-Site": "same-origin"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            while (await client.get("/readyz")).status_code != 200:  # noqa: ASYNC110  # for some tenths of a second
                await asyncio.sleep(0.05)
            for one in asked:
                method, path = one.split(" ", 1)
                for name, value in names.items():
                    path = path.replace(f"{{{name}}}", value)
                path = path.replace("{", "").replace("}", "").replace(":path", "")
                answer = await client.request(method, path)
                statuses[one] = answer.status_code
                if answer.headers.get("content-type", "").startswith("text/html") and answer.status_code == 200:
                    links |= {html.unescape(link) for link in LINK.findall(answer.text)}
            dead = [link for link in sorted(links) if (await client.get(link)).status_code == 404]
    return statuses, dead


def main(folder: Path) -> None:
    """`folder` has `empty.db`, which need not be there, `filled.db` and `asked.json`: which routes, and names in their
    paths. Without the latter it asks its own."""
    faults = Faults()
    logging.getLogger().addHandler(faults)
    import_everything()
    service = create_app(Settings.model_construct(database_url=f"sqlite:///{folder / 'listed.db'}"))
    own = list_asked(service.routes)
    given = folder / "asked.json"
    told = json.loads(given.read_text(encoding="utf-8")) if given.exists() else {"routes": own, "names": {}}
    empty, _ = asyncio.run(ask_all(folder / "empty.db", told["routes"], {}))
    filled, dead = asyncio.run(ask_all(folder / "filled.db", told["routes"], told["names"]))
    answers = {"own": own, "empty": empty, "filled": filled, "dead": dead, "faults": faults.lines}
    sys.stdout.write(f"{json.dumps(answers)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
