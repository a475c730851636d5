"""`runs log` in released loggers: killed in the middle of a run of 500 groups, started again, and read back."""

import contextlib
import json
import math
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli.curves import PointBuilder
from app.domain.groups import StatisticsRow
from tests.support.serving import ROOT, Served, serving
from tests.trainers.installed import LOGGERS, PROGRAMS, wait_until

NEEDS = (LOGGERS / ".installed",)
PLACES = {"tensorboard": "curves/{run}", "wandb": "curves/wandb", "mlflow_curves:MlflowCurves": "."}
STEPS, BAD_STEPS, AT_ONCE = 25, 5, 20


def variables(folder: Path) -> dict[str, str]:
    paths = (ROOT, LOGGERS, ROOT / "examples")
    own = {"WANDB_MODE": "offline", "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}", "HOME": str(folder)}
    return {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(map(str, paths)), **own}


def start(folder: Path, *words: str | Path) -> "subprocess.Popen[bytes]":
    with (folder / "log").open("ab") as output:
        command = [sys.executable, *map(str, words)]
        return subprocess.Popen(command, cwd=folder, env=variables(folder), stdout=output, stderr=output)


@contextlib.contextmanager
def logging(folder: Path, served: Served, run: str, logger: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Killed on leaving, where it has not ended."""
    words = ("runs", "log", run, "--to", logger, "--follow", "--settle", "0.3", "--url", served.url)
    program = start(folder, "-m", "app.cli", *words)
    try:
        yield program
    finally:
        program.kill()
        program.wait()
        time.sleep(1)  # W&B has a process of its own, which writes what it was given


def read_back(folder: Path, run: str, logger: str) -> tuple[dict[int, dict[str, list[float]]], list[str]]:
    """All values of each name and step, and notes."""
    out = folder / "read.json"
    program = start(folder, PROGRAMS / "read_curves.py", logger, PLACES[logger].format(run=run), out)
    assert program.wait(300) == 0, read_log(folder)
    points, notes = json.loads(out.read_text())
    found: defaultdict[int, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for step, name, value in points:
        found[step][name].append(value)
    return {step: dict(of) for step, of in found.items()}, notes


def read_log(folder: Path) -> str:
    return (folder / "log").read_text(errors="replace")[-3000:]


def send(url: str, run: str, step: int) -> None:
    """Answers to tasks of three levels, and replies of characters, which a judge reads. At first all earn 0, which is
    an alarm."""
    policy = {"model": "m", "step": step}
    good = ("I know not", "As an AI language model I cannot.") if step < BAD_STEPS else ("7", "Well met, friend.")
    for environment, said, params in (("math", good[0], {"level": "mixed"}), ("npc_arena", good[1], {})):
        asked = {"run": run, "batch_size": AT_ONCE // 2, "params": params, "policy": policy}
        tasks = httpx.post(f"{url}/envs/{environment}/next-batch", json=asked).raise_for_status().json()["tasks"]
        replies = [{"text": said}, {"text": "As an AI language model I cannot."}]
        groups = [{"task_id": one["task_id"], "lease_id": one["lease_id"], "completions": replies} for one in tasks]
        sent = {"run": run, "groups": groups, "policy": policy}
        httpx.post(f"{url}/score", json=sent, timeout=60).raise_for_status()


def fetch_rows(url: str, run: str) -> list[dict[str, Any]]:
    queries = ("", "&by=label", "&by=dataset")
    return [row for by in queries for row in httpx.get(f"{url}/stats?run={run}{by}").json()["rows"]]


def fetch_alarms(url: str, run: str) -> list[Any]:
    alarms: list[Any] = httpx.get(f"{url}/runs/{run}/health").json()["alarms"]
    return alarms


def differ(expected: Mapping[int, Mapping[str, float]], found: Mapping[int, Mapping[str, list[float]]]) -> list[object]:
    """What is not there, there more than once, another value, or there and not expected. Loggers keep single
    precision."""
    return [
        (step, name, expected.get(step, {}).get(name), found.get(step, {}).get(name))
        for step in expected.keys() | found.keys()
        for name in expected.get(step, {}).keys() | found.get(step, {}).keys()
        if len(values := found.get(step, {}).get(name, [])) != 1
        or not math.isclose(values[0], expected.get(step, {}).get(name, math.nan), rel_tol=1e-6, abs_tol=1e-12)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("logger", PLACES)
def test_a_run_of_500_groups_is_in_the_logger_once_after_its_command_was_killed(logger: str, tmp_path: Path) -> None:
    run = "long"
    (tmp_path / "gateway").mkdir()
    with serving(tmp_path / "gateway") as served:
        for step in range(BAD_STEPS):
            send(served.url, run, step)
        wait_until(lambda: bool(fetch_alarms(served.url, run)))
        for step in range(BAD_STEPS, STEPS // 2):
            send(served.url, run, step)
        assert read_back(tmp_path, run, logger) == ({}, [])  # makes MLflow's database, which two at once cannot
        with logging(tmp_path, served, run, logger):
            for step in range(STEPS // 2, STEPS - 5):
                send(served.url, run, step)
            wait_until(lambda: len(read_back(tmp_path, run, logger)[0]) > 0, 300)
        begun_with = len(read_back(tmp_path, run, logger)[0])
        for step in range(STEPS - 5, STEPS):
            send(served.url, run, step)
        for seconds in (3.0, 5.0):  # whatever it is doing then
            with logging(tmp_path, served, run, logger):
                time.sleep(seconds)
        late = logger == "tensorboard"  # the others keep what they have
        if late:
            send(served.url, run, BAD_STEPS)
        httpx.put(f"{served.url}/runs/{run}", json={"health": {"finished": True}}).raise_for_status()
        for _ in range(2):  # the second has nothing to do
            with logging(tmp_path, served, run, logger) as program:
                assert program.wait(300) == 0, read_log(tmp_path)
        rows = fetch_rows(served.url, run)
        alarms = fetch_alarms(served.url, run)
    found, notes = read_back(tmp_path, run, logger)
    points = PointBuilder().build(map(StatisticsRow.model_validate, rows))
    assert differ({one.step: one.values for one in points}, found) == []
    assert [
        round(found[row["step"]][f"env/{row['environment']}/reward"][0], 6) for row in rows if not row["label"]
    ] == [round(row["mean_reward"], 6) for row in rows if not row["label"]]
    assert (sum(row["groups"] for row in rows if not row["label"]), len(found)) == ((STEPS + late) * AT_ONCE, STEPS)
    assert len(notes) == len(alarms)
    assert 0 < begun_with < STEPS
