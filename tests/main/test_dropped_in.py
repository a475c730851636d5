"""An environment that is put into the folder as one file is served and tested without another edit."""

import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.serving import ROOT, serving

ENVIRONMENT = '''
"""Echo: say the word back."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import BaseModel

from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Task
from app.domain.values import Split
from app.ports import Environment, Tools


class Echo(Environment):
    name: ClassVar[str] = "echo"
    version: ClassVar[str] = "1"

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        word = f"{split}{index * 7919}"
        message = Message(role="user", content=f"In one word, what is {split} number {index} times 7919?")
        return Task(messages=(message,), reference=word)

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        return [Score.exact(completion.answer.strip() == task.reference) for completion in group]

    def gold(self, task: Task) -> Completion:
        return Completion(text=str(task.reference))
'''


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
