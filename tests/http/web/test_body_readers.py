"""Every route that takes a body has a reader that bounds it: in values and in time, and beside the event loop."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from app.http.web.routes import LazyRoute
from app.main.application import create_app
from app.settings import Settings

FORM: Final = "read_fields, which bounds the form"
JSON: Final = "JsonRequest.json, which bounds what is read"
FILE: Final = "as a file: bounded, and parsed in a worker or in the threads of authors"
GROUPS: Final = "read_group, which bounds what is read, in the turn of posts"
NONE: Final = "no body is read"

OWN_READERS: Final = {
    "/characters/archive": FILE,
    "/characters/import": FILE,
    "/compat/atropos/scored_data": GROUPS,
    "/compat/atropos/scored_data_list": GROUPS,
    "/compat/atropos/{run}/scored_data": GROUPS,
    "/compat/atropos/{run}/scored_data_list": GROUPS,
    "/compat/nemo_gym/{env}/{tool}": JSON,
    "/compat/openenv/{env}/mcp": JSON,
    "/compat/ors/{env}/delete": NONE,
    "/compat/ors/{env}/ping": NONE,
    "/play/v1/memories": NONE,
    "/play/v1/turns": NONE,
    "/play/v1/turns/{turn_id}": NONE,
    "/play/v1/turns/{turn_id}/judge": NONE,
    "/sign-in": FORM,
    "/sign-out": NONE,
    "/view/author": FORM,
    "/view/author/archive": FILE,
    "/view/author/publish": FORM,
    "/view/characters/{character}/edit": FORM,
    "/view/characters/{character}/form": FORM,
    "/view/characters/{character}/scenes/edit": FORM,
    "/view/label": FORM,
    "/view/talk/author/{act}": FORM,
    "/view/talk/{act}": FORM,
    "/view/new-world": FORM,
    "/view/worlds/{world}/memory": FORM,
    "/view/worlds/{world}/events/new": FORM,
    "/view/worlds/{world}/events/{name}/edit": FORM,
    "/view/worlds/{world}/lorebooks/new": FORM,
    "/view/worlds/{world}/lorebooks/{name}/edit": FORM,
}
"""Routes that take the request itself, so that they might read a body: with what they read it."""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    folder: Path = tmp_path_factory.mktemp("bodies")
    return create_app(Settings(database_url=f"sqlite:///{folder}/gateway.db"))


def list_unread(routes: list[BaseRoute]) -> Iterator[str]:
    """Paths of routes whose body FastAPI would read, without bounds, on the event loop."""
    for route in routes:
        if isinstance(route, LazyRoute):
            route.build()
        if isinstance(route, APIRoute) and route.body_field is not None:
            bounded = isinstance(route, LazyRoute) and route.reads_strictly and route.create_reader() is not None
            if not bounded:
                yield route.path


def list_own_readers(routes: list[BaseRoute]) -> set[str]:
    """Paths of routes that may read a body by themselves."""
    found = set()
    for route in routes:
        if {"POST", "PUT", "PATCH", "DELETE"} & set(getattr(route, "methods", None) or ()):
            takes_model = isinstance(route, APIRoute) and route.body_field is not None
            takes_request = not isinstance(route, APIRoute) or route.dependant.request_param_name is not None
            if takes_request and not takes_model:
                found.add(str(getattr(route, "path", route)))
    return found


def test_every_body_has_a_reader(app: FastAPI) -> None:
    assert list(list_unread(app.router.routes)) == []


def test_routes_that_read_for_themselves_are_known(app: FastAPI) -> None:
    assert list_own_readers(app.router.routes) == OWN_READERS.keys()
