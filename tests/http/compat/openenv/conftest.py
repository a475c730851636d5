"""A gateway in this process with the toy environments."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from app.main.application import create_app
from app.settings import Settings
from tests.support.playground import World, await_ready, environments, panels


@pytest.fixture
def client(world: World, database: Path) -> Iterator[TestClient]:
    settings = Settings(database_url=f"sqlite:///{database}")
    app = create_app(settings, environments=environments(world), panels=panels("critic"), retriever=world)
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        await_ready(client)
        yield client
