"""What the service's own parents left open reaches neither workers nor programs, whatever turns the event loop."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.serving import ROOT

LEFT_OPEN = 251
"""Above what a jail may open itself."""
SCRIPT = Path(__file__).with_name("inherited_descriptors.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("loop", ["uvloop", pytest.param("asyncio", marks=pytest.mark.slow)])
def test_only_a_socket_of_their_own_is_open(loop: str, tmp_path: Path) -> None:
    file = os.open(tmp_path / "left_open", os.O_CREAT | os.O_RDWR)
    os.dup2(file, LEFT_OPEN, inheritable=True)
    try:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, loop],
            cwd=ROOT,
            pass_fds=(LEFT_OPEN,),
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    finally:
        os.close(LEFT_OPEN)
        os.close(file)
    program, worker = json.loads(done.stdout)
    assert (program, len(worker), LEFT_OPEN in worker) == ([3], 2, False)
