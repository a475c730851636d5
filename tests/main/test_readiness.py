"""When the service says that it is ready, and what the environments whose data is still being read say."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import pytest
import structlog
from fastapi.testclient import TestClient
from pydantic import BaseModel

from app.domain.judging import Rubric, RubricCriterion
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


def take_task(service: TestClient, environment: str) -> dict[str, str]:
    (task,) = service.post(f"/envs/{environment}/next-batch", json={"run": "r", "batch_size": 1}).json()["tasks"]
    return {"task_id": task["task_id"], "lease_id": task["lease_id"]}


def test_scores_wait_for_an_environment_that_is_still_starting_and_use_no_lease(
    tmp_path: Path, slow_data: threading.Event
) -> None:
    slow_data.set()
    with client(tmp_path, ready_after_data=600) as service:
        wait_for(lambda: service.get("/readyz").status_code == 200)
        taken = [take_task(service, name) for name in ("quick", Slow.name)]
    body = {"groups": [{**one, "completions": [{"text": "0"}]} for one in taken], "run": "new"}
    slow_data.clear()
    with client(tmp_path, ready_after_data=0) as service:
        wait_for(lambda: batch_status(service, "quick") == 200)
        early = service.post("/score", json=body)
        stored = service.get("/groups").json()["groups"], service.get("/runs/new").status_code
        slow_data.set()
        wait_for(lambda: batch_status(service, Slow.name) == 200)
        later = service.post("/score", json={**body, "run": "r"}).json()["groups"]
    assert (early.status_code, early.json()["code"], int(early.headers["Retry-After"]) > 0) == (
        503,
        "environment_unavailable",
        True,
    )
    assert (stored, [group["rewards"] for group in later]) == (([], 404), [[1.0], [1.0]])


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


class Judged(Quick):
    name: ClassVar[str] = "judged"
    rubric: ClassVar[Rubric] = Rubric(
        name="judged",
        version="1",
        instructions="",
        criteria=(RubricCriterion(name="likeness", weight=1.0, description="", anchors={}),),
    )


def test_it_says_what_the_offline_judge_scores(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At start, when asked whether it is ready, and of each environment."""
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'store.db'}")
    app = create_app(settings, environments={"quick": Quick, "judged": Judged})
    with TestClient(app, base_url="http://127.0.0.1") as service:
        wait_for(lambda: service.get("/readyz").status_code == 200)
        ready = service.get("/readyz").json()["offline_judge"]
        told = {name: service.get(f"/envs/{name}").json()["offline_judge"] for name in ("quick", "judged")}
    assert (ready, told) == (["judged"], {"quick": False, "judged": True})
    assert [" scores judged; configure a judge " in line for line in caplog.messages if "offline judge" in line] == [
        True
    ]


class Costly(Quick):
    name: ClassVar[str] = "costly"
    costly_first_task: ClassVar[bool] = True
    made_in: ClassVar[list[str]] = []
    """The names of the threads."""
    broken: ClassVar[bool] = False

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        self.made_in.append(threading.current_thread().name)
        if self.broken:
            raise RuntimeError("the package cannot be imported")
        return super().task(split, index, params)


@pytest.mark.parametrize("broken", [False, True])
def test_a_costly_first_task_is_made_when_the_document_is_asked_for_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    monkeypatch.setattr(Costly, "made_in", [])
    monkeypatch.setattr(Costly, "broken", broken)
    app = create_app(
        Settings(database_url=f"sqlite:///{tmp_path / 'store.db'}"), environments={"quick": Quick, "costly": Costly}
    )

    def read_examples(document: dict[str, Any]) -> set[str]:
        paths = ("/envs/quick/score", "/envs/costly/score", "/next-batch")
        bodies = {path: document["paths"][path]["post"]["requestBody"]["content"] for path in paths}
        return {path for path, body in bodies.items() if "example" in body["application/json"]}

    with TestClient(app, base_url="http://127.0.0.1") as service:
        wait_for(lambda: "/envs/quick/score" in read_examples(app.openapi()))
        before = list(Costly.made_in), "/envs/costly/score" in read_examples(app.openapi())
        documents = [service.get("/openapi.json") for _ in range(2)]
        shown = [read_examples(document.json()) for document in documents]
    examples = {"/envs/quick/score", "/next-batch"} | (set() if broken else {"/envs/costly/score"})
    assert (before, [one.status_code for one in documents], shown) == (([], False), [200, 200], [examples] * 2)
