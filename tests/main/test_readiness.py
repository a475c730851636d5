"""When the service says that it is ready, and what the environments whose data is still being read say."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Final, Self

import pytest
import structlog
from fastapi.testclient import TestClient
from pydantic import BaseModel

from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Task
from app.domain.values import Split
from app.main.application import create_app
from app.ports.environment import Datasets, Environment, Tools
from app.settings import Settings

MOST_SECONDS: Final = 20.0


class Quick(Environment):
    """Say it."""

    name: ClassVar[str] = "quick"
    version: ClassVar[str] = "1"

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        return Task(messages=(Message(role="user", content=f"Say {index}."),))

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        return [Score.exact(True) for _ in group]


class Slow(Quick):
    name: ClassVar[str] = "a_slow_one"
    read: ClassVar[threading.Event] = threading.Event()

    @classmethod
    def open(cls, datasets: Datasets) -> Self:
        cls.read.wait(MOST_SECONDS)
        return cls()


@pytest.fixture(autouse=True)
def slow_data() -> Iterator[threading.Event]:
    Slow.read.clear()
    yield Slow.read
    Slow.read.set()


def client(folder: Path, ready_after_data: float) -> TestClient:
    settings = Settings(
        database_url=f"sqlite:///{folder / 'store.db'}",
        datasets={Slow.name: "somewhere/far"},
        ready_after_data=ready_after_data,
    )
    app = create_app(settings, environments={"quick": Quick, Slow.name: Slow})
    return TestClient(app, base_url="http://127.0.0.1")


def wait_for(right: Callable[[], bool]) -> None:
    until = time.monotonic() + MOST_SECONDS
    while not right():
        assert time.monotonic() < until
        time.sleep(0.01)


def batch_status(service: TestClient, environment: str) -> int:
    return service.post(f"/envs/{environment}/next-batch", json={"batch_size": 1}).status_code


def test_an_environment_whose_data_is_still_read_is_unavailable_for_itself_alone(
    tmp_path: Path, slow_data: threading.Event
) -> None:
    with client(tmp_path, ready_after_data=0) as service:
        wait_for(lambda: service.get("/readyz").status_code == 200)
        before = batch_status(service, "quick"), batch_status(service, Slow.name)
        slow_data.set()
        wait_for(lambda: batch_status(service, Slow.name) == 200)
    assert before == (200, 503)


def test_it_is_not_ready_before_configured_data_is_read_and_a_probe_meanwhile_is_no_warning(
    tmp_path: Path, slow_data: threading.Event
) -> None:
    with client(tmp_path, ready_after_data=600) as service:
        wait_for(lambda: batch_status(service, "quick") == 200)
        with structlog.testing.capture_logs() as lines:
            probed = service.get("/livez").status_code, service.get("/readyz").status_code
        slow_data.set()
        wait_for(lambda: service.get("/readyz").status_code == 200)
    assert (probed, [line for line in lines if line["log_level"] != "debug"]) == ((200, 503), [])


def test_no_route_waits_to_be_built_again_by_the_first_request(tmp_path: Path) -> None:
    """A router that FastAPI includes has no path, and builds each of its routes a second time."""
    app = create_app(Settings(database_url=f"sqlite:///{tmp_path / 'store.db'}"), environments={"quick": Quick})
    assert [route for route in app.routes if not hasattr(route, "path")] == []
