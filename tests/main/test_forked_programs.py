"""What is forked instead of started is the same to whoever runs it, and goes away with them."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.forked_programs import ForkedProgram, Program, plain_environment
from tests.support.tables import read_table

Start = Callable[[Path, str], Program]
PORTRAIT = read_table(__file__, "forked_programs.yaml", str)


def started(folder: Path, how: str) -> Program:
    with (folder / "log").open("ab") as log:
        command = [sys.executable, "-m", "portrait", how]
        return subprocess.Popen(command, cwd=folder, env=plain_environment(), stdout=log, stderr=log)


def forked(folder: Path, how: str) -> Program:
    return ForkedProgram("portrait", [how], folder, plain_environment(), folder / "log")


def portrayed(folder: Path, start: Start, how: str) -> tuple[int, list[tuple[str, object]], str]:
    """Its exit code, what it says of itself, and what else it said."""
    (folder / "portrait.py").write_text(PORTRAIT, encoding="utf-8")
    (folder / "log").unlink(missing_ok=True)
    program = start(folder, how)
    if how == "wait":
        while not (folder / "log").exists() or b"\n" not in (folder / "log").read_bytes():
            time.sleep(0.005)
        program.kill()
    code = program.wait(60)
    lines = (folder / "log").read_text(encoding="utf-8").splitlines()
    (said,) = (line for line in lines if line.startswith("{"))
    return code, [*json.loads(said).items()], "\n".join(line for line in lines if line[0] not in "{01")


@pytest.mark.parametrize("how", ["well", "words", "wait"])
def test_it_is_as_if_started(tmp_path: Path, how: str) -> None:
    assert portrayed(tmp_path, forked, how) == portrayed(tmp_path, started, how)
