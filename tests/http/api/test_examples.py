"""The examples of our own OpenAPI document, as a press in Swagger UI sends them (`tests/browser/test_docs_page.py`)."""

import time
from threading import get_ident
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from app.http.api.environment_routes import Examples
from app.main.components import discover
from app.service.catalogue import Catalogue
from app.service.handout import Dispatcher
from app.service.task_cache import TaskCache
from tests.support.gateways import Gateways

pytestmark = pytest.mark.xdist_group("examples of the document")
WAIT = 60.0


def example_of(operation: dict[str, Any]) -> Any:
    return operation["requestBody"]["content"]["application/json"].get("example")


def examples_at(client: httpx.Client) -> dict[str, Any]:
    """By route of an environment, once they are there: they name tasks, which are made behind the first requests."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        paths = client.get("/openapi.json").json()["paths"]
        posted = {path: one["post"] for path, one in paths.items() if path.startswith("/envs/") and "post" in one}
        examples = {path: example_of(operation) for path, operation in posted.items()}
        if None not in examples.values():
            return examples
        time.sleep(0.1)
    raise TimeoutError(f"no example of {[path for path, example in examples.items() if example is None]}")


def test_every_example_of_every_environment_is_answered(gateways: Gateways) -> None:
    with httpx.Client(base_url=gateways.of().url, timeout=WAIT) as client:
        statuses = {path: client.post(path, json=body).status_code for path, body in examples_at(client).items()}
    wanted = {f"/envs/{name}/{verb}" for name in discover() for verb in ("next-batch", "score")}
    assert (wanted - statuses.keys(), {path: told for path, told in statuses.items() if told != 200}) == (set(), {})


def test_the_document_is_written_once_and_beside_the_event_loop() -> None:
    app = FastAPI()
    threads, write = list[int](), app.openapi

    def note_thread() -> dict[str, Any]:
        threads.append(get_ident())
        return write()

    app.openapi = note_thread  # type: ignore[method-assign]
    Examples(Catalogue({}), cast("Dispatcher", None), cast("TaskCache", None)).install(app)
    with TestClient(app) as client:
        told = [client.get("/openapi.json").json() for _ in range(2)]
    written, *shown = threads
    assert (told[0] == told[1], written in shown, len(shown), len({*shown})) == (True, False, 2, 1)
