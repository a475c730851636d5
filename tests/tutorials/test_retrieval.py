"""What docs/retrieval.md shows works as it stands there: the server, the class in a package, the contract."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from app.main.components import build_retriever
from app.settings import RagSettings, Settings
from tests.support.serving import ROOT, Served, free_port, serving
from tests.support.shell_blocks import list_blocks
from tests.support.tables import read_table

TABLE = read_table(__file__, "retrieval.yaml", tuple[tuple[str, str], ...])

PAGE = (ROOT / "docs" / "retrieval.md").read_text(encoding="utf-8")
PATIENT = {"ATROPOS_ENVS_RAG__DEADLINE_SECONDS": "30"}
"""Tests run on busy machines."""

WORLD = {"world": "drowned_coast", "as_of": "1312-04-03T12:00:00Z"}


@contextmanager
def retriever_server(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """As the page starts it, on a free port, once it answers; and the settings of the page for it in `folder`."""
    port = free_port()
    command = shlex.split(list_blocks(PAGE, "sh")[0].replace("9100", str(port)))
    process = subprocess.Popen([sys.executable, *command[1:]], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        for _ in range(400):
            try:
                httpx.post(f"http://127.0.0.1:{port}/", json={"query": {"as_of": None}}, timeout=5)
                break
            except httpx.TransportError:
                time.sleep(0.05)
        (folder / "gateway.yaml").write_text(list_blocks(PAGE, "yaml")[0].replace("9100", str(port)), encoding="utf-8")
        yield process
    finally:
        process.kill()
        process.wait()


def batch(gateway: Served, **more: object) -> httpx.Response:
    body = {"run": "a", "batch_size": 4, "params": WORLD, **more}
    return httpx.post(f"{gateway.url}/envs/npc_arena/next-batch", json=body, timeout=60)


def test_a_batch_is_trained_through_the_server_of_the_page_and_what_was_frozen_outlives_it(tmp_path: Path) -> None:
    with retriever_server(tmp_path) as server, serving(tmp_path, settings=PATIENT) as gateway:
        tasks = batch(gateway).json()["tasks"]
        groups = [
            {"task_id": task["task_id"], "lease_id": task["lease_id"], "completions": [{"text": "The rope broke."}]}
            for task in tasks
        ]
        scored = httpx.post(f"{gateway.url}/envs/npc_arena/score", json={"run": "a", "groups": groups}, timeout=60)
        before = batch(gateway, cursor=0).content
        server.kill()
        server.wait()
        again, beyond = batch(gateway, cursor=0), batch(gateway, cursor=4)
    prompts = [task["messages"][0]["content"] for task in tasks]
    told = [("The ferry's rope broke at Reedgate." in one, "holds again" in one) for one in prompts]
    outcomes = [score["outcome"] for group in scored.json()["groups"] for score in group["scores"]]
    assert (told, outcomes) == ([(True, False)] * 4, ["scored"] * 4)
    assert (again.content == before, beyond.status_code, beyond.json()["code"]) == (True, 503, "retriever_failed")


@pytest.mark.slow
def test_a_package_brings_a_class(tmp_path: Path) -> None:
    source, installed = tmp_path / "source", tmp_path / "installed"
    source.mkdir()
    (source / "pyproject.toml").write_text(list_blocks(PAGE, "toml")[0], encoding="utf-8")
    (source / "tavern_memory.py").write_text(list_blocks(PAGE, "python")[0], encoding="utf-8")
    install = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(installed)]
    subprocess.run([sys.executable, "-m", "pip", *install, str(source)], check=True, capture_output=True, text=True)
    chosen = PATIENT | {"PYTHONPATH": f"{ROOT}{os.pathsep}{installed}", "ATROPOS_ENVS_RAG__RETRIEVER": "tavern"}
    with serving(tmp_path, settings=chosen) as gateway:
        tasks = batch(gateway).json()["tasks"]
    assert ["Somebody asked " in task["messages"][0]["content"] for task in tasks] == [True] * 4


BROUGHT = {"raises": "def made():\n    raise OSError('no archive')\n", "gives": "made = dict\n", "lacks": ""}


@pytest.mark.parametrize(("name", "words"), TABLE)
def test_a_package_that_brings_nothing_of_use_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    for module, code in BROUGHT.items():
        (tmp_path / f"brought_{module}.py").write_text(code, encoding="utf-8")
    information = tmp_path / "brought-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1\n", encoding="utf-8")
    points = "".join(f"{module} = brought_{module}:made\n" for module in BROUGHT)
    (information / "entry_points.txt").write_text(f"[atropos_environments.retrievers]\n{points}", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match="retriever is") as refused:
        build_retriever(Settings(rag=RagSettings(retriever=name)), {})
    assert str(refused.value) == words
