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
SCRIPT = """
import asyncio, json, sys, uvloop
from app.domain.tasks import Program
from app.sandbox.workers import ProcessWorkers
from app.sandbox.programs import JailedPrograms
from tests.support import untrusted

SOURCE = '''
import os
def f():
    found = []
    for number in range(3, 300):
        try:
            os.fstat(number)
        except OSError:
            continue
        found.append(number)
    return found
'''

async def main():
    workers, programs = ProcessWorkers(1), JailedPrograms(1)
    execution = await programs.run(Program(source=SOURCE, function="f", calls=((),)))
    print(json.dumps([execution.returned[0].value, await workers.run(untrusted.open_descriptors)]))
    await workers.close()
    await programs.close()

(uvloop if sys.argv[1] == "uvloop" else asyncio).run(main())
"""


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
