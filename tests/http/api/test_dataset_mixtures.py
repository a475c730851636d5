"""Two data sets of one environment in one mixture, through the gateway."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.envs.math.environment import Math
from app.settings import Settings
from tests.support.playground import serve_here
from tests.support.tables import read_table

TABLE = read_table(__file__, "dataset_mixtures.yaml", list[tuple[dict[str, object], str, str]])


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    for name, base in (("aime", 100), ("school", 900)):
        rows = [{"problem": f"What is ${base} + {number}$?", "answer": base + number} for number in range(50)]
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    sources = {name: {"source": str(tmp_path / f"{name}.jsonl")} for name in ("aime", "school")}
    settings = Settings.model_validate(
        {
            "database_url": f"sqlite:///{tmp_path / 'store.db'}",
            "cache_dir": tmp_path / "cache",
            "datasets": {"math": sources},
        }
    )
    with serve_here(settings, Math) as client:
        yield client


def _lease(client: TestClient, **body: object) -> list[dict[str, Any]]:
    reply = client.post("/next-batch", json={"run": "r", "batch_size": 40, **body})
    assert reply.status_code == 200, reply.text
    tasks: list[dict[str, Any]] = reply.json()["tasks"]
    return tasks


def test_two_data_sets_serve_in_one_mixture_and_are_told_apart_in_statistics(client: TestClient) -> None:
    mix = [
        {"env": "math", "weight": weight, "params": {"dataset": name}} for name, weight in (("aime", 3), ("school", 1))
    ]
    tasks = _lease(client, mix=mix)
    for task in tasks:
        right = _add_up(task["messages"][-1]["content"])
        completions = [{"text": text} for text in (f"\\boxed{{{right}}}", "\\boxed{1}")]
        group = {"task_id": task["task_id"], "lease_id": task["lease_id"], "completions": completions}
        assert client.post("/envs/math/score", json={"run": "r", "groups": [group]}).status_code == 200
    rows = client.get("/stats", params={"by": "dataset"}).json()["rows"]
    drawn = Counter(task["metadata"]["dataset"] for task in tasks)
    assert drawn["aime"] == pytest.approx(30, abs=6)
    assert {row["dataset"]: (row["groups"], row["mean_reward"]) for row in rows} == {
        name: (count, 0.5) for name, count in drawn.items()
    }


def _add_up(question: str) -> int:
    one, other = question.removeprefix("What is $").removesuffix("$?").split(" + ")
    return int(one) + int(other)


def test_the_first_data_set_serves_where_none_is_chosen_and_built_in_tasks_can_be(client: TestClient) -> None:
    sources = [
        client.post("/envs/math/next-batch", json={"batch_size": 1, "params": params}).json()["tasks"][0]["metadata"]
        for params in ({}, {"dataset": "school"}, {"dataset": "built-in"})
    ]
    assert [(one.get("dataset"), one.get("source")) for one in sources] == [
        ("aime", "aime.jsonl"),
        ("school", "school.jsonl"),
        (None, None),
    ]


def test_what_is_not_there_is_refused_by_name(client: TestClient) -> None:
    replies = [client.post("/envs/math/next-batch", json={"batch_size": 1, **body}) for body, *_ in TABLE]
    told = [(reply.status_code, reply.json()["errors"]) for reply in replies]
    assert told == [(422, [{"field": field, "message": detail}]) for _, field, detail in TABLE]
