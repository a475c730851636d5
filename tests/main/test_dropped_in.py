"""An environment that is put into the folder as one file is served and tested without another edit."""

import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.serving import ROOT, serving

ENVIRONMENT = Path(__file__).with_name("dropped_in.txt").read_text(encoding="utf-8")


def _checkout(folder: Path) -> Path:
    for name in ("app", "character_sheets", "migrations", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "app" / "envs" / "community" / "echo.py").write_text(ENVIRONMENT, encoding="utf-8")
    return folder


def test_one_file_is_served(tmp_path: Path) -> None:
    checkout = _checkout(tmp_path / "checkout")
    with serving(tmp_path, settings={"PYTHONPATH": str(checkout)}) as gateway:
        batch = httpx.post(f"{gateway.url}/envs/echo/next-batch", json={"batch_size": 1}).json()
        body = {
            "groups": [{"task_id": batch["tasks"][0]["task_id"], "completions": [{"text": "train0"}, {"text": "no"}]}]
        }
        reply = httpx.post(f"{gateway.url}/envs/echo/score", json=body).json()
    assert reply["groups"][0]["rewards"] == [1.0, 0.0]


@pytest.mark.slow
def test_the_contract_suite_finds_it(tmp_path: Path) -> None:
    checkout = _checkout(tmp_path / "checkout")
    command = [sys.executable, "-m", "pytest", "tests/envs/test_environments.py", "-k", "echo", "-p", "no:xdist"]
    ran = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert (ran.returncode, " passed" in ran.stdout) == (0, True), ran.stdout[-3000:]
