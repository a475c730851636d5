"""A gateway in this process with the toy environments."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from app.settings import Settings
from tests.support.playground import World, environments, panels, serve_here


@pytest.fixture
def client(world: World, database: Path) -> Iterator[TestClient]:
    settings, kinds = Settings(database_url=f"sqlite:///{database}"), environments(world).values()
    with serve_here(settings, *kinds, panels=panels("critic"), retriever=world) as client:
        yield client
