"""Exports as they are, in TRL's trainers: conversations, calls of tools, and files in which some rows have tools."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from app.datasets.configured_datasets import ConfiguredDatasets
from app.main.components import discover
from app.ports.environment import Environment
from tests.support.serving import Served, serving
from tests.trainers.installed import TUNERS, TUNING, running

NEEDS = TUNING
ENVIRONMENTS = ("gsm8k", "tool_calling")
TASKS = 6


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """For each task a right and a wrong reply, those without tools first."""
    with serving(tmp_path_factory.mktemp("filled")) as served:
        for name in ENVIRONMENTS:
            _fill(served.url, discover()[name].open(ConfiguredDatasets({})))
        yield served


def _fill(url: str, environment: Environment) -> None:
    asked = {"run": "filled", "cursor": 0, "batch_size": TASKS}
    handed = httpx.post(f"{url}/envs/{environment.name}/next-batch", json=asked, timeout=60).raise_for_status().json()
    params = environment.Params()
    groups = []
    for task in handed["tasks"]:
        made = environment.task("train", httpx.get(f"{url}/tasks/{task['task_id']}").json()["index"], params)
        right = environment.gold(made)
        assert right is not None
        replies = [right.model_dump(mode="json", exclude_none=True), {"text": "I cannot say."}]
        groups.append({"task_id": task["task_id"], "completions": replies})
    body = {"run": "filled", "groups": groups}
    scored = httpx.post(f"{url}/envs/{environment.name}/score", json=body, timeout=60).raise_for_status().json()
    assert [group["rewards"] for group in scored["groups"]] == [[1.0, 0.0]] * TASKS


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("shape", ["sft", "dpo", "kto"])
def test_trl_trains_on_an_export_as_it_is(filled: Served, tmp_path: Path, shape: str, suffix: str) -> None:
    file = tmp_path / f"rows.{suffix}"
    done = CliRunner().invoke(cli, ["export", str(file), "--shape", shape, "--url", filled.url])
    assert done.exit_code == 0, done.output
    with running(tmp_path, "exports.py", shape, file, installed=TUNERS) as trainer:
        trainer.finish(15 * 60)
        told = json.loads(trainer.said().splitlines()[-1])
    assert (told["rows"], told["losses"]) == (TASKS * (4 if shape == "kto" else 2), 2)
    assert min(told["calls"], told["offers"]) >= 3
